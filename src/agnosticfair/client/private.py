"""A client's private steps: sums to which no row adds more than ``protocol.privacy.sensitivity`` says."""

from __future__ import annotations

import numpy as np

from agnosticfair.client.client import Client, cells_of
from agnosticfair.errors import DataError
from agnosticfair.mathematics.linear import sigmoid
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


def rows_of(client: Client, task: Task) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows as the private steps see them: X clipped, labels, cells."""
    if client.rows.weights is not None:
        raise DataError(
            f"{client.who} has weighted rows, of which privacy has no bound: leave weights out"
        )
    rows, bits = client.prepare(task), base_bits(task.n)
    return clipped(rows.X, clip_of(task), min(16, bits // 2)), rows.y, rows.s


def by_cell(cells: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Sums over the rows of each cell, (count, ...)."""
    return np.stack([values[cells == j].sum(axis=0) for j in range(count)])


def counts(client: Client, broadcast: Broadcast[PrivateCounts]) -> Reply:
    """How many rows each group has."""
    codes = cells_of(client, client.rows, broadcast.task)
    count = np.bincount(codes, minlength=broadcast.task.cells).astype(float)
    return Reply(broadcast.round, {"groups": count})


def moments(client: Client, broadcast: Broadcast[PrivateMoments]) -> Reply:
    """The upper triangle of sum x x^T."""
    X, _, _ = rows_of(client, broadcast.task)
    return Reply(broadcast.round, {"moments": (X.T @ X)[np.triu_indices(X.shape[1])]})


def slopes(client: Client, broadcast: Broadcast[PrivateSlopes]) -> Reply:
    """At w: the loss's gradient, and per group decisions and their smoothed slope, with one curvature.

    gradient = sum (p - y) x,  slopes[j] = sum_{s=j} 4 g (1 - g) x with g = sigmoid(d / temperature),
    hat[j] = sum_{s=j} [d > 0],  curve = sum 4 p (1 - p).
    """
    X, y, s = rows_of(client, broadcast.task)
    w, G = broadcast.asked.w, broadcast.task.cells
    bits = base_bits(broadcast.task.n)
    d = X @ w
    p, g = sigmoid(d), sigmoid(d / broadcast.asked.temperature)
    return Reply(
        broadcast.round,
        {
            "gradient": truncated((p - y)[:, None] * X, bits).sum(axis=0),
            "slopes": by_cell(s, truncated((4 * g * (1 - g))[:, None] * X, bits), G),
            "hat": by_cell(s, (d > 0).astype(float), G),
            "curve": np.array(truncated(4 * p * (1 - p), bits).sum()),
        },
    )


def decisions(client: Client, broadcast: Broadcast[PrivateDecisions]) -> Reply:
    """What the certificate needs: rows, and positive and right decisions, of the model on unclipped rows."""
    rows, G = client.prepare(broadcast.task), broadcast.task.cells
    d = rows.X @ broadcast.asked.w
    return Reply(
        broadcast.round,
        {
            "groups": by_cell(rows.s, np.ones(len(d)), G),
            "hat": by_cell(rows.s, (d > 0).astype(float), G),
            "right": np.array(float(((d > 0) == (rows.y > 0)).sum())),
        },
    )
