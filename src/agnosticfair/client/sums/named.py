"""A round's sums over named parts, exactly; and the counts by which axes and parts are agreed on.

Rows are counted by pairs of crossed axes (``mathematics.crossed``): no matrix of rows times parts is made.  Slopes are
added up for the parts that the question names, alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.client.sums.features import curvature, features, slope, slopes, weighed
from agnosticfair.client.sums.float64 import KERNEL_BITS, MASS
from agnosticfair.data.axes import codes_of, histogram
from agnosticfair.data.encoding import FEATURE_BITS
from agnosticfair.mathematics.crossed import Crossed, cross, gram, quadratic
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.parts import Part, members, part_sums, places, sizes_of
from agnosticfair.mathematics.sums import OF_FAIR, OF_LOSS, named, of_fair, of_loss, row_values
from agnosticfair.protocol.grid import base_bits
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import Histograms, PartCounts, PartSums, Task

CHUNK = 1 << 15
"""Rows at a time."""

WEIGHT_BITS = 28
"""The adversary's weights are multiples of 2^-28: what a row's parts weigh does not hang on how it is added up."""


def histograms(client: Client, broadcast: Broadcast[Histograms]) -> Reply:
    """How the agreed columns' numbers lie in their agreed ranges."""
    asked, table = broadcast.asked, client.rows
    ranges = zip(asked.columns, asked.low, asked.high, strict=True)
    found = [histogram(table.numeric[name], low, high) for name, low, high in ranges]
    return Reply(broadcast.round, {"counts": np.array(found)})


def counts(client: Client, broadcast: Broadcast[PartCounts]) -> Reply:
    """How many rows each part has, or each pair of values where parts are not chosen yet."""
    assert broadcast.task.named is not None
    axes, parts = broadcast.task.named.agreed
    codes, ones = codes_of(client.rows, axes, client.who, client.key), np.ones(len(client.rows))
    found = part_sums(codes, parts, ones) if parts else gram(cross(codes, sizes_of(axes)), ones)
    return Reply(broadcast.round, {"counts": found})


@dataclass(frozen=True)
class Piece:
    """Rows of one cell.

    Parameters
    ----------
    cell : int
    rows : slice
        Of the client's.
    codes : (n, C) array
        Their values on the axes that name parts.
    parts : Crossed
        The same, crossed.
    deep : sparse matrix
        Which parts of three values they lie in, (parts, n).
    """

    cell: int
    rows: slice
    codes: np.ndarray
    parts: Crossed
    deep: Any


def pieces(client: Client, task: Task) -> list[Piece]:
    """The rows in pieces of at most CHUNK, each within one cell."""
    assert task.named is not None
    axes, parts = task.named.agreed
    rows = client.prepare(task)
    codes = codes_of(client.rows, axes, client.who, client.key)[rows.order]
    crossed, deep, found = cross(codes, sizes_of(axes)), [p for p in parts if len(p) > 2], []
    for j in range(len(rows.starts) - 1):
        for first in range(rows.starts[j], rows.starts[j + 1], CHUNK):
            piece = slice(first, min(first + CHUNK, rows.starts[j + 1]))
            own = codes[piece]
            found.append(Piece(j, piece, own, crossed.take(piece), _sparse(own, deep)))
    return found


def membership(client: Client, task: Task) -> Iterator[tuple[slice, Any]]:
    """Chunks of the rows, and which parts they lie in, (M, rows), sparse, in float32: for networks."""
    assert task.named is not None
    axes, parts = task.named.agreed
    rows = client.prepare(task)
    codes = codes_of(client.rows, axes, client.who, client.key)[rows.order]
    for _, piece in rows.chunks():
        yield piece, _sparse(codes[piece], parts).astype(np.float32)


def _sparse(codes: np.ndarray, parts: list[Part]) -> Any:
    from scipy import sparse

    inside = [np.flatnonzero(members(codes, part)) for part in parts]
    starts = np.concatenate([[0], np.cumsum([len(rows) for rows in inside])]).astype(int)
    columns = np.concatenate(inside) if inside else np.zeros(0, int)
    shape = (len(parts), len(codes))
    return sparse.csr_matrix((np.ones(len(columns)), columns, starts), shape=shape)


def inside(client: Client, task: Task, piece: int, part: int) -> np.ndarray:
    """The rows of a piece that lie in a part."""
    assert task.named is not None
    return np.flatnonzero(
        members(client.kept(task, pieces)[piece].codes, task.named.agreed[1][part])
    )


@dataclass(frozen=True)
class Places:
    """Which parts have up to two values, and where they stand in a Gram matrix of all values; others are deep."""

    shallow: np.ndarray
    deep: np.ndarray
    at: tuple[np.ndarray, np.ndarray]
    values: int


def places_in(client: Client, task: Task) -> Places:
    """Where the task's parts stand."""
    assert task.named is not None
    axes, parts = task.named.agreed
    depth = np.array([len(part) for part in parts], int)
    shallow, deep = np.flatnonzero(depth <= 2), np.flatnonzero(depth > 2)
    at = places(sizes_of(axes), [parts[m] for m in shallow])
    return Places(shallow, deep, at, sum(sizes_of(axes)))


def by_part(piece: Piece, at: Places, V: np.ndarray) -> np.ndarray:
    """Sums of each v over the rows of every part and, last, of all, (k, M + 1).  V: (k, n)."""
    found = np.empty((len(V), len(at.shallow) + len(at.deep) + 1))
    found[:, at.shallow] = gram(piece.parts, V)[:, *at.at]
    found[:, at.deep] = V @ piece.deep.T
    found[:, -1] = V.sum(axis=1)
    return found


def of_rows(piece: Piece, at: Places, C: np.ndarray) -> np.ndarray:
    """What the weights C, (M + 1,), of its parts and of everybody come to for every row, (n,)."""
    W = np.zeros((at.values, at.values))
    W[at.at] = C[at.shallow]
    return quadratic(piece.parts, W) + C[at.deep] @ piece.deep + C[-1]


def part_values(client: Client, broadcast: Broadcast[PartSums]) -> Reply:
    """What ``mathematics.sums`` states, with the named parts for kernels of the fairness adversary."""
    task, asked, rows = broadcast.task, broadcast.asked, client.prepare(broadcast.task)
    D, wanted, all_features = len(asked.w), asked.slopes.astype(int), client.kept(task, features)
    plain, H, correct = np.zeros(len(OF_LOSS) - 1 + D), np.zeros((D, D)), 0.0
    values = np.zeros((len(OF_FAIR) - 1, *asked.C.shape))
    J = np.zeros((task.cells, len(wanted) + 1, D))
    at, C = client.kept(task, places_in), on_grid(asked.C.copy(), WEIGHT_BITS)
    bits = base_bits(task.n) - KERNEL_BITS
    for k, piece in enumerate(client.kept(task, pieces)):
        j, x = piece.cell, all_features.take(piece.rows)
        weights = None if rows.weights is None else rows.weights[piece.rows]
        d = np.einsum("ij,j->i", rows.X[piece.rows], asked.w)
        v = row_values(d, rows.y[piece.rows], asked.surrogate)
        (of_row, l_slope), (fair, g_slope) = of_loss(v), of_fair(v)
        own = weighed(np.stack(of_row), bits, weights, axis=1).sum(axis=1)
        plain += np.concatenate([own, slope(x, l_slope, bits, weights)])
        V = weighed(np.stack(fair), bits, weights, axis=1)
        values[:, j] += by_part(piece, at, V)
        members = [client.kept(task, inside, k, int(m)) for m in wanted]
        J[j, :-1] += slopes(x, g_slope, bits, weights, members)
        J[j, -1] += slope(x, g_slope, bits, weights)
        correct += float(v.right @ V[MASS])
        h = v.curve + of_rows(piece, at, C[j]) * v.g_curve
        H += curvature(x, h, bits + KERNEL_BITS - FEATURE_BITS, weights)
    found = named(plain, plain[None], np.zeros((1, 1, len(OF_FAIR) - 1 + D)), H, correct)
    fields = dict(zip(OF_FAIR, [*values, J], strict=True))
    return Reply(broadcast.round, found | fields)
