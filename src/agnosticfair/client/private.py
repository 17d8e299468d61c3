"""A client's private steps: sums to which no row adds more than ``protocol.privacy.sensitivity`` says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.data.axes import codes_of
from agnosticfair.errors import DataError
from agnosticfair.mathematics.linear import sigmoid
from agnosticfair.mathematics.parts import members
from agnosticfair.protocol.grid import base_bits
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.privacy.questions import (
    PrivateCounts,
    PrivateDecisions,
    PrivateMoments,
    PrivateSlopes,
)
from agnosticfair.protocol.privacy.sensitivity import clip_of
from agnosticfair.protocol.questions import Task


def clipped(X: np.ndarray, clip: float, bits: int) -> np.ndarray:
    """Rows shortened to the norm ``clip``, on a grid, truncated towards zero so that no norm grows.

    >>> clipped(np.array([[3.0, 4.0]]), 2.5, 10)
    array([[1.5, 2. ]])
    """
    norms = np.sqrt((X * X).sum(axis=1))
    shortened = X * np.minimum(1.0, clip / np.maximum(norms, clip))[:, None]
    return truncated(shortened, bits)


def truncated(v: np.ndarray, bits: int) -> np.ndarray:
    """Multiples of 2^-bits, none larger in absolute value: sums over rows are then exact."""
    return np.trunc(v * 2.0**bits) / 2.0**bits


@dataclass(frozen=True)
class PrivateRows:
    """Rows as the private steps see them.  X: encoded.  y, s: labels and cells.  inside: (1 + M, n), whether
    everybody, and each part, has the row."""

    X: np.ndarray
    y: np.ndarray
    s: np.ndarray
    inside: np.ndarray

    def by_place(self, values: np.ndarray, cells: int) -> np.ndarray:
        """Sums of one value per row by part and cell, (1 + M, cells)."""
        own = [self.s == j for j in range(cells)]
        return np.stack([self.inside[:, rows] @ values[rows] for rows in own], axis=1)


def seen(client: Client, broadcast: Broadcast[Any]) -> PrivateRows:
    """The client's rows, of which only the first ``most`` take part where it says so."""
    if client.rows.weights is not None:
        raise DataError(
            f"{client.who} has weighted rows, of which privacy has no bound: leave weights out"
        )
    task = broadcast.task
    rows, taken = client.prepare(task), broadcast.asked.most or len(client.rows)
    inside = client.kept(task, places_of)
    assert rows.order is not None
    kept = rows.order < taken
    return PrivateRows(rows.X[kept], rows.y[kept], rows.s[kept], inside[:, kept])


def places_of(client: Client, task: Task) -> np.ndarray:
    """Which rows, in the order of their cells, everybody and each part has, (1 + M, n) of 0 and 1."""
    axes, parts = ((), []) if task.named is None else task.named.agreed
    codes = codes_of(client.rows, axes, client.who, client.key)[client.prepare(task).order]
    return np.array([members(codes, part) for part in [(), *parts]], np.float64)


def counts(client: Client, broadcast: Broadcast[PrivateCounts]) -> Reply:
    """How many rows each group has."""
    rows = seen(client, broadcast)
    return Reply(
        broadcast.round, {"groups": rows.by_place(np.ones(len(rows.y)), broadcast.task.cells)}
    )


def moments(client: Client, broadcast: Broadcast[PrivateMoments]) -> Reply:
    """The upper triangle of sum x x^T."""
    X = _clipped(seen(client, broadcast), broadcast.task)
    return Reply(broadcast.round, {"moments": (X.T @ X)[np.triu_indices(X.shape[1])]})


def _clipped(rows: PrivateRows, task: Task) -> np.ndarray:
    return clipped(rows.X, clip_of(task), min(16, base_bits(task.n) // 2))


def slopes(client: Client, broadcast: Broadcast[PrivateSlopes]) -> Reply:
    """At w: the loss's gradient, and per group decisions and their smoothed slope, with one curvature.

    gradient = sum (p - y) x,  slopes[k, j] = sum_{s=j, in k} 4 g (1 - g) x with g = sigmoid(d / temperature),
    hat[m, j] = sum_{s=j, in m} [d > 0],  curve = sum 4 p (1 - p).
    """
    rows, task, asked = seen(client, broadcast), broadcast.task, broadcast.asked
    X, G, bits = _clipped(rows, task), task.cells, base_bits(task.n)
    d = X @ asked.w
    p, g = sigmoid(d), sigmoid(d / asked.temperature)
    steep = truncated((4 * g * (1 - g))[:, None] * X, bits)
    active = [rows.inside[k] > 0 for k in np.asarray(asked.active, int)]
    return Reply(
        broadcast.round,
        {
            "gradient": truncated((p - rows.y)[:, None] * X, bits).sum(axis=0),
            "slopes": np.stack([by_cell(rows.s[own], steep[own], G) for own in active]),
            "hat": rows.by_place((d > 0).astype(float), G),
            "curve": np.array(truncated(4 * p * (1 - p), bits).sum()),
        },
    )


def by_cell(cells: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Sums over the rows of each cell, (count, ...)."""
    return np.stack([values[cells == j].sum(axis=0) for j in range(count)])


def decisions(client: Client, broadcast: Broadcast[PrivateDecisions]) -> Reply:
    """What the certificate needs: rows, and positive and right decisions, of the model on unclipped rows."""
    rows, G = seen(client, broadcast), broadcast.task.cells
    d = rows.X @ broadcast.asked.w
    return Reply(
        broadcast.round,
        {
            "groups": rows.by_place(np.ones(len(d)), G),
            "hat": rows.by_place((d > 0).astype(float), G),
            "right": np.array(float(((d > 0) == (rows.y > 0)).sum())),
        },
    )
