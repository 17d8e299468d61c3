"""Replies as integers modulo 2^64, and back: exact, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from agnosticfair.errors import FederationError
from agnosticfair.protocol.grid import bits
from agnosticfair.protocol.messages import Reply
from agnosticfair.protocol.requests import Task

Shapes = Mapping[str, tuple[int, ...]]


def integers(value: np.ndarray, bits: Any, field: str = "a sum") -> np.ndarray:
    """value / 2^-bits modulo 2^64, as two's complement, uint64.

    No sum of honest requests comes near 2^63 (``protocol.grid``). One that does wraps around, and one that is not
    finite counts as 0: a refusal would tell how large it is.

    >>> integers(np.array([1.5, -0.5]), 1)
    array([                   3, 18446744073709551615], dtype=uint64)
    """
    scaled = np.asarray(value, np.float64) * np.ldexp(1.0, bits)
    scaled = np.where(np.isfinite(scaled), scaled, 0.0)
    if (np.rint(scaled) != scaled).any():
        raise FederationError(
            f"{field} is not on the agreed grid: check that versions are the same"
        )
    wrapped = np.fmod(scaled, 2.0**64)
    low = np.where(wrapped >= 2.0**63, wrapped - 2.0**64, wrapped)
    return np.where(low < -(2.0**63), low + 2.0**64, low).astype(np.int64).view(np.uint64)


def floats(total: np.ndarray, bits: Any) -> np.ndarray:
    """The inverse of ``integers`` for a total; exact below 2^53, else the nearest float64.

    >>> floats(integers(np.array([1.5, -0.5]), 1), 1)
    array([ 1.5, -0.5])
    """
    return np.ldexp(total.view(np.int64).astype(np.float64), -np.asarray(bits))


def flattened(reply: Reply, task: Task) -> np.ndarray:
    """All fields of a reply, by their names in sorted order, as one vector of integers."""
    return np.concatenate(
        [integers(reply.sums[name], bits(name, task), name).ravel() for name in sorted(reply.sums)]
    )


def shaped(total: np.ndarray, round: int, task: Task, shapes: Shapes) -> Reply:
    """The reply whose fields, of these shapes, were flattened and added up."""
    sums, first = {}, 0
    for name in sorted(shapes):
        size = int(np.prod(shapes[name], dtype=int))
        piece = total[first : first + size].reshape(shapes[name])
        sums[name], first = floats(piece, bits(name, task)), first + size
    return Reply(round, sums)


def length(shapes: Shapes) -> int:
    """How many numbers a reply of these shapes has."""
    return sum(int(np.prod(shape, dtype=int)) for shape in shapes.values())
