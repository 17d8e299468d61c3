"""What crosses the wire. Messages add with ``+``; only the server divides. One wire form, no pickle.

The wire form is a safetensors file: named arrays behind a header of strings. It is read without
running anything, and every reply is checked against what was asked before it is added.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agnosticfair.errors import FederationError


@dataclass(frozen=True)
class Task:
    """All that a client must know to answer any round: it can be forgotten and rebuilt at any time."""

    settings: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    id: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Task:
        """A task whose id is a digest of its content."""
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for name in sorted(arrays):
            digest.update(name.encode() + arrays[name].tobytes())
        return cls(settings, arrays, digest.hexdigest())


@dataclass(frozen=True)
class Broadcast:
    """The server's question of one round, the same for every client."""

    round: int
    task: Task
    settings: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """A client's answer: sums over its rows, by name."""

    round: int
    sums: Mapping[str, np.ndarray]

    def __add__(self, other: Reply) -> Reply:
        """Add two replies to the same question.

        >>> (Reply(1, {"n": np.array(2.0)}) + Reply(1, {"n": np.array(3.0)})).sums["n"]
        np.float64(5.0)
        """
        if self.round != other.round or self.sums.keys() != other.sums.keys():
            raise FederationError(
                f"replies of round {self.round} and {other.round} with fields {sorted(self.sums)} "
                f"and {sorted(other.sums)} do not add up: ask both clients again"
            )
        return Reply(self.round, {k: v + other.sums[k] for k, v in self.sums.items()})

    @property
    def nbytes(self) -> int:
        """Bytes of the sums."""
        return sum(np.asarray(v).nbytes for v in self.sums.values())


@dataclass(frozen=True)
class Candidates:
    """Rows a client offers as kernel centres, with their priorities (``basis.row_priorities``)."""

    priorities: np.ndarray
    rows: np.ndarray

    def __add__(self, other: Candidates) -> Candidates:
        return Candidates(
            np.concatenate([self.priorities, other.priorities]),
            np.concatenate([self.rows, other.rows]),
        )

    def lowest(self, count: int) -> np.ndarray:
        """The distinct rows of lowest priority, at most ``count``: (M, d)."""
        _, first = np.unique(self.priorities, return_index=True)
        return self.rows[first[:count]]


def check_reply(
    reply: object, client: str, round: int, shapes: Mapping[str, tuple[int, ...]]
) -> Reply:
    """The reply, if it answers the question that was asked: type, round, fields, shapes, finite."""
    if not isinstance(reply, Reply):
        raise FederationError(f"client {client!r} answered with {type(reply).__name__}, not sums")
    if reply.round != round:
        raise FederationError(
            f"client {client!r} answered round {reply.round} instead of {round}: a late reply is never added"
        )
    if reply.sums.keys() != shapes.keys():
        raise FederationError(
            f"client {client!r} sent fields {sorted(reply.sums)}; asked were {sorted(shapes)}"
        )
    for name, shape in shapes.items():
        value = np.asarray(reply.sums[name])
        if value.shape != shape:
            raise FederationError(
                f"client {client!r} sent {name} of shape {value.shape}; asked was {shape}"
            )
        if not np.isfinite(value).all():
            raise FederationError(
                f"client {client!r} sent {name} with values that are not finite: check its features"
            )
    return reply
