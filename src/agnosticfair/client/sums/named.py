"""A round's sums over named parts, exactly; and the counts by which axes and parts are agreed on.

A row lies in one value per axis, so in at most C (C + 1) / 2 parts of up to two values: their numbers are kept by row,
and no matrix of rows times parts is made.  Slopes are added up for the parts that the question names, alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.client.sums.float64 import KERNEL_BITS, MASS, weighed
from agnosticfair.client.sums.float64 import filled as written
from agnosticfair.data.axes import codes_of, histogram
from agnosticfair.data.encoding import FEATURE_BITS
from agnosticfair.mathematics.parts import Part, gram, members, part_sums, sizes_of
from agnosticfair.mathematics.sums import OF_FAIR, OF_LOSS, named, of_fair, of_loss, row_values
from agnosticfair.protocol.grid import base_bits, exponents
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import Histograms, PartCounts, PartSums, Task

CHUNK = 1 << 15
"""Rows at a time."""


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
    found = part_sums(codes, parts, ones) if parts else gram(codes, sizes_of(axes), ones)
    return Reply(broadcast.round, {"counts": found})


def incidence(client: Client, task: Task) -> list[tuple[int, slice, Any]]:
    """Pieces of the rows, each within one cell: the cell, the rows, and which parts they lie in, (M, rows), sparse."""
    assert task.named is not None
    axes, parts = task.named.agreed
    rows = client.prepare(task)
    codes = codes_of(client.rows, axes, client.who, client.key)[rows.order]
    pieces = []
    for j in range(len(rows.starts) - 1):
        for first in range(rows.starts[j], rows.starts[j + 1], CHUNK):
            piece = slice(first, min(first + CHUNK, rows.starts[j + 1]))
            pieces.append((j, piece, _sparse(codes[piece], parts)))
    return pieces


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
    starts = np.concatenate([[0], np.cumsum([len(rows) for rows in inside])])
    columns = np.concatenate(inside) if inside else np.zeros(0, int)
    shape = (len(parts), len(codes))
    return sparse.csr_matrix((np.ones(len(columns)), columns, starts), shape=shape)


def part_values(client: Client, broadcast: Broadcast[PartSums]) -> Reply:
    """What ``mathematics.sums`` states, with the named parts for kernels of the fairness adversary."""
    task, asked, rows = broadcast.task, broadcast.asked, client.prepare(broadcast.task)
    D, wanted = len(asked.w), np.asarray(asked.slopes, int)
    scalars = len(OF_LOSS) - 1, len(OF_FAIR) - 1
    plain, H, correct = np.zeros(scalars[0] + D), np.zeros((D, D)), 0.0
    values = np.zeros((task.cells, asked.C.shape[1], scalars[1]))
    slopes = np.zeros((task.cells, len(wanted) + 1, D))
    spare = base_bits(task.n) - KERNEL_BITS
    bits_x = spare - exponents(task.encoding)
    bits_L, bits_F = (np.concatenate([np.full(k, spare), bits_x]) for k in scalars)
    for j, piece, inside in client.kept(task, incidence):
        X, weights = rows.X[piece], None if rows.weights is None else rows.weights[piece]
        d = np.einsum("ij,j->i", X, asked.w)
        v = row_values(d, rows.y[piece], asked.surrogate)
        plain += _columns(of_loss(v), X, bits_L, weights).sum(axis=0)
        V = _columns(of_fair(v), X, bits_F, weights)
        own = V[:, : scalars[1]]
        values[j, :-1] += inside @ own
        values[j, -1] += own.sum(axis=0)
        slopes[j, :-1] += inside[wanted] @ V[:, scalars[1] :]
        slopes[j, -1] += V[:, scalars[1] :].sum(axis=0)
        correct += float(v.right @ V[:, MASS])
        h = v.curve + (asked.C[j, :-1] @ inside + asked.C[j, -1]) * v.g_curve
        H += X.T @ weighed(X * h[:, None], bits_x + KERNEL_BITS - FEATURE_BITS, weights)
    found = named(plain, plain[None], np.zeros((1, 1, scalars[1] + D)), H, correct)
    fields = {name: values[..., k] for k, name in enumerate(OF_FAIR[:-1])}
    return Reply(broadcast.round, {**found, **fields, OF_FAIR[-1]: slopes})


def _columns(
    found: tuple[tuple[np.ndarray, ...], np.ndarray],
    X: np.ndarray,
    bits: np.ndarray,
    weights: np.ndarray | None,
) -> np.ndarray:
    out = np.empty((len(X), len(bits)))
    return weighed(written(out, *found, X), bits, weights)
