"""A round's sums over named parts, exactly; and the counts by which axes and parts are agreed on.

Rows are counted by pairs of crossed axes (``mathematics.crossed``): no matrix of rows times parts is made.  Slopes are
added up for the parts that the question names, alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.client.sums.features import curvature, features, slope, slopes, weighed
from agnosticfair.client.sums.float64 import KERNEL_BITS, MASS
from agnosticfair.client.sums.members import Members, fewest
from agnosticfair.data.axes import codes_of, histogram
from agnosticfair.data.encoding import FEATURE_BITS
from agnosticfair.mathematics.crossed import Crossed, cross, gram, quadratic
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.parts import Places, part_sums, sizes_of
from agnosticfair.mathematics.sums import OF_FAIR, named, of_fair, of_loss, row_values
from agnosticfair.protocol.grid import base_bits
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import Histograms, PartCounts, PartSums, Task

WEIGHT_BITS = 28
"""The adversary's weights are multiples of 2^-28: what a row's parts weigh does not hang on how it is added up."""

BATCHES = 2
"""Of a stream that are added up at a time: each time costs as much again as some thousands of rows."""


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


def places_of(task: Task) -> Places:
    """Where the task's parts stand."""
    assert task.named is not None
    return task.named.places


@dataclass(frozen=True)
class Piece:
    """Rows of one cell.

    Parameters
    ----------
    cell : int
    rows : slice
        Of the client's.
    parts : Crossed
        The axes that name parts, crossed.
    members : Members
        The rows of each part.
    deep : sparse matrix or None
        Which parts of three values they lie in, (parts, n), where there are any.
    """

    cell: int
    rows: slice
    parts: Crossed
    members: Members
    deep: Any


def pieces(client: Client, task: Task) -> list[Piece]:
    """The rows, cell by cell."""
    assert task.named is not None
    axes, _ = task.named.agreed
    rows, sizes, at = client.prepare(task), sizes_of(axes), places_of(task)
    codes = codes_of(client.rows, axes, client.who, client.key)[rows.order]
    crossed, found = cross(codes, sizes), []
    for j, (a, b) in enumerate(pairwise(rows.starts)):
        if b > a:
            own = Members(codes[a:b], at)
            inside = _sparse([own[m] for m in at.deep.tolist()], b - a) if len(at.deep) else None
            found.append(Piece(j, slice(a, b), crossed.take(slice(a, b)), own, inside))
    return found


def membership(client: Client, task: Task) -> Iterator[tuple[slice, Any]]:
    """Chunks of the rows, and which parts they lie in, (M, rows), sparse, in float32: for networks."""
    assert task.named is not None
    axes, parts = task.named.agreed
    rows, at = client.prepare(task), places_of(task)
    codes = codes_of(client.rows, axes, client.who, client.key)[rows.order]
    for _, piece in rows.chunks():
        inside = Members(codes[piece], at)
        yield piece, _sparse([inside[m] for m in range(len(parts))], len(codes[piece]), np.float32)


def _sparse(inside: Sequence[np.ndarray], rows: int, kind: type = float) -> Any:
    """Which of so many rows lie in each part, (parts, rows)."""
    from scipy import sparse

    starts = np.cumsum([0, *(len(members) for members in inside)])
    columns = np.concatenate([np.zeros(0, int), *inside])
    return sparse.csr_matrix(
        (np.ones(len(columns), kind), columns, starts), shape=(len(inside), rows)
    )


def by_part(piece: Piece, at: Places, V: np.ndarray) -> np.ndarray:
    """Sums of each v over the rows of every part and, last, of all, (k, M + 1).  V: (k, n)."""
    found = np.empty((len(V), len(at.shallow) + len(at.deep) + 1))
    found[:, at.shallow] = gram(piece.parts, V)[:, *at.at]
    if piece.deep is not None:
        found[:, at.deep] = (piece.deep @ V.T).T
    found[:, -1] = V.sum(axis=1)
    return found


def of_rows(piece: Piece, at: Places, C: np.ndarray) -> np.ndarray:
    """What the weights C, (M + 1,), of its parts and of everybody come to for every row, (n,)."""
    W = np.zeros((at.values, at.values))
    W[at.at] = C[at.shallow]
    found = quadratic(piece.parts, W) + C[-1]
    return found if piece.deep is None else found + C[at.deep] @ piece.deep


def masses(client: Client, task: Task) -> np.ndarray:
    """What the rows of every cell and part weigh, (G, M + 1), which no w changes."""
    rows, at = client.prepare(task), places_of(task)
    ones = np.ones((1, len(rows.y)))
    own = weighed(ones, base_bits(task.n) - KERNEL_BITS, rows.weights, axis=1)
    found = np.zeros((task.cells, len(at.shallow) + len(at.deep) + 1))
    for piece in client.kept(task, pieces):
        found[piece.cell] = by_part(piece, at, own[:, piece.rows])[0]
    return found


def without(client: Client, task: Task) -> np.ndarray:
    """Which of a part's values its slopes are added up without, for every cell, (G, M): ``fewest``."""
    return np.array([fewest(places_of(task), own) for own in client.kept(task, masses)])


def part_values(client: Client, broadcast: Broadcast[PartSums]) -> Reply:
    """What ``mathematics.sums`` states, with the named parts for kernels of the fairness adversary."""
    task, asked, rows = broadcast.task, broadcast.asked, client.prepare(broadcast.task)
    D, x, weights = len(asked.w), client.kept(task, features), rows.weights
    at, C = places_of(task), on_grid(asked.C.copy(), WEIGHT_BITS)
    bits = base_bits(task.n) - KERNEL_BITS
    d = np.einsum("ij,j->i", rows.X, asked.w)  # unlike X @ w, the same for a row wherever it stands
    v = row_values(d, rows.y, asked.surrogate)
    (of_row, l_slope), (of_part, g_slope) = of_loss(v), of_fair(v)
    L, V = (weighed(np.stack(f), bits, weights, axis=1) for f in (of_row, of_part))
    values, c = np.zeros((len(V), *C.shape)), np.zeros(len(d))
    values[MASS], vary = client.kept(task, masses), [k for k in range(len(V)) if k != MASS]
    J, parts = np.zeros((task.cells, len(asked.slopes) + 1, D)), asked.slopes.astype(int).tolist()
    for piece in client.kept(task, pieces):
        j, own = piece.cell, piece.rows
        values[vary, j] = by_part(piece, at, V[vary, own])
        if C[j].any():
            c[own] = of_rows(piece, at, C[j])
        own_weights = None if weights is None else weights[own]
        add = partial(slopes, x.take(own), g_slope[own], bits, own_weights)
        J[j] = piece.members.add_up(parts, client.kept(task, without)[j], add)
    plain = np.concatenate([L.sum(axis=1), slope(x, l_slope, bits, weights)])
    H = curvature(x, v.curve + c * v.g_curve, bits + KERNEL_BITS - FEATURE_BITS, weights)
    correct = float(v.right @ V[MASS])
    found = named(plain, plain[None], np.zeros((1, 1, len(V) + D)), H, correct)
    return Reply(broadcast.round, found | dict(zip(OF_FAIR, [*values, J], strict=True)))
