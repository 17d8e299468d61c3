"""Replies as integers modulo 2^64, and back: exact, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from agnosticfair.errors import FederationError
from agnosticfair.protocol.grid import bits
from agnosticfair.protocol.messages import Reply
from agnosticfair.protocol.questions import Task

Shapes = Mapping[str, tuple[int, ...]]


def integers(value: np.ndarray, bits: Any, share: int, field: str = "a sum") -> np.ndarray:
    """value / 2^-bits as two's complement, uint64.

    share: sites that add; each may use 2^63 / share, so that no total can pass 2^63.

    >>> integers(np.array([1.5, -0.5]), 1, 2)
    array([                   3, 18446744073709551615], dtype=uint64)
    """
    scaled = np.asarray(value, np.float64) * np.ldexp(1.0, bits)
    most = max(float(scaled.max(initial=0.0)), -float(scaled.min(initial=0.0)))
    if not most < 2.0**63 / share:
        raise FederationError(
            f"{field} of {np.abs(value).max():.3g} at each of {share} sites could pass 2^63 in units of its "
            "grid: scale the features, or take fewer rows"
        )
    whole = scaled.astype(np.int64)
    if (whole != scaled).any():
        raise FederationError(
            f"{field} is not on the agreed grid: check that versions are the same"
        )
    return whole.view(np.uint64)


def floats(total: np.ndarray, bits: Any) -> np.ndarray:
    """The inverse of ``integers`` for a total; exact below 2^53, else the nearest float64.

    >>> floats(integers(np.array([1.5, -0.5]), 1, 2), 1)
    array([ 1.5, -0.5])
    """
    return np.ldexp(total.view(np.int64).astype(np.float64), -np.asarray(bits))


def flattened(reply: Reply, task: Task, share: int) -> np.ndarray:
    """All fields of a reply, by their names in sorted order, as one vector of integers."""
    return np.concatenate(
        [
            integers(reply.sums[name], bits(name, task), share, name).ravel()
            for name in sorted(reply.sums)
        ]
    )


def shaped(total: np.ndarray, round: int, task: Task, shapes: Shapes) -> Reply:
    """The reply whose fields, of these shapes, were flattened and added up."""
    sums, first = {}, 0
    for name in sorted(shapes):
        size = int(np.prod(shapes[name], dtype=int))
        part = total[first : first + size].reshape(shapes[name])
        sums[name], first = floats(part, bits(name, task)), first + size
    return Reply(round, sums)


def length(shapes: Shapes) -> int:
    """How many numbers a reply of these shapes has."""
    return sum(int(np.prod(shape, dtype=int)) for shape in shapes.values())
