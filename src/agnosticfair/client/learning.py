"""Sums from which learners learn, exactly: the additive and the linear one, all folds and heads in one pass over the
rows; and counts and histograms from which trees grow."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.client.sums import (
    Distinct,
    Features,
    diagonal,
    gradient_of,
    hessian_of,
    weighed,
)
from agnosticfair.data.axes import fine_bin_counts, value_counts
from agnosticfair.data.rows import folds_by_features
from agnosticfair.data.table import Table
from agnosticfair.errors import FederationError
from agnosticfair.learners.estimates import Head, targets
from agnosticfair.learners.linear import compact
from agnosticfair.mathematics.boosting import GRADIENT_BITS, CodedRows
from agnosticfair.mathematics.linear import log_loss, sigmoid
from agnosticfair.mathematics.subgroups import cross
from agnosticfair.mathematics.trees import unpack
from agnosticfair.protocol.messages import Broadcast, Reply, base_bits, exponents
from agnosticfair.protocol.requests import FineCounts, Learn, Level, Task, hessian_numbers

COMBINED = 600
"""Combinations of a block of crossed columns."""


@dataclass(frozen=True)
class Heads:
    """Distinct rows to learn from.

    ``t`` is what each head is to learn, ``counts`` which rows it is trained on, (H, n) both; ``weights`` what rows
    weigh.
    """

    x: Features
    t: np.ndarray
    counts: np.ndarray
    fold: np.ndarray
    weights: np.ndarray | None


def prepared(client: Client, task: Task, heads: tuple[Head, ...], folds: int, seed: int) -> Heads:
    table = client.rows
    rows = compact(task.encoding, table, client.who)
    t, counts = targets(heads, table.labels(task.positive), table.sensitive_features)
    fold = folds_by_features(table, folds, seed)
    few = Distinct.of([*rows.codes, *rows.numbers, *t, *counts, fold], table.weights)
    codes, fold = few.take(rows.codes), few.take(fold)
    hot = cross(codes.T, [b - a for a, b in pairwise(rows.starts)], COMBINED)
    numbers = np.vstack([few.take(rows.numbers), np.ones((1, len(fold)))])
    others = np.append(np.arange(len(rows.numbers)), task.encoding.width)
    at = np.arange(rows.starts[0], rows.starts[-1])
    x = Features(numbers, others, exponents(task.encoding)[others], hot, at)
    return Heads(x, few.take(t).astype(float), few.take(counts), fold, few.weights)


def scores(x: Features, w: np.ndarray) -> np.ndarray:
    """w.x of every row, (k, n).  w: (k, D).  Weights and numbers lie on grids, so that it is exact in any order."""
    scores_here = np.zeros((len(w), x.numbers.shape[1]))
    for j, column in zip(x.others, x.numbers, strict=True):
        scores_here += w[:, j, None] * column
    columns = x.at[x.hot.order]
    for block in x.hot.blocks:
        table = w[:, columns[block.axes_slice]] @ block.hot.T
        for k in range(len(w)):
            scores_here[k] += table[k].take(block.codes)
    return scores_here


def learn(client: Client, broadcast: Broadcast[Learn]) -> Reply:
    """Loss, gradient and, where it is requested, Hessian of every head."""
    task, request = broadcast.task, broadcast.request
    rows = client.cached(task, prepared, request.heads, request.folds, request.seed)
    x, weights = rows.x, rows.weights
    models, H, D = request.w.shape
    bits = base_bits(task.n)
    loss, mass, held_out = np.zeros((models, H)), np.zeros((models, H)), np.zeros(H)
    gradient, hessian = np.zeros((models, H, D)), np.zeros((H, hessian_numbers(H, D)))
    ones = weighed(np.ones((1, len(rows.fold))), bits, weights, axis=1)[0]
    for f in range(models):
        outside = rows.fold != f
        Z = scores(x, request.w[f])
        for h in range(H):
            counts = rows.counts[h] & outside if f < request.folds else rows.counts[h]
            p = sigmoid(Z[h])
            losses = weighed(log_loss(Z[h], rows.t[h]), bits, weights)
            loss[f, h], mass[f, h] = losses[counts].sum(), ones[counts].sum()
            held_out[h] += losses[rows.counts[h] & ~outside].sum()
            gradient[f, h] = gradient_of(x, (p - rows.t[h]) * counts, bits, weights)
            if request.hessian and f == models - 1:
                of_head = p * (1 - p) * counts, bits, weights
                full = hessian.shape[1] > D
                hessian[h] = (
                    hessian_of(x, *of_head)[np.tril_indices(D)] if full else diagonal(x, *of_head)
                )
    fields = {"head_loss": loss, "head_mass": mass, "head_gradient": gradient, "held_out": held_out}
    return Reply(broadcast.round, fields | ({"head_hessian": hessian} if request.hessian else {}))


def fine_bins(client: Client, broadcast: Broadcast[FineCounts]) -> Reply:
    """How numbers lie between the cuts, and how many rows have each category."""
    encoding, cuts = broadcast.task.encoding, broadcast.request.cuts
    counts = fine_bin_counts(encoding, client.rows, cuts, client.who)
    sums = {"fine_bin_counts": counts, "value_counts": value_counts(encoding, client.rows)}
    return Reply(broadcast.round, sums)


def coded_rows(client: Client, task: Task, key: bytes, *, request: Level) -> CodedRows:
    """The rows as codes, read batch by batch where they are streamed.  key: what of the request they hang on."""
    binning = request.trees.binning

    def piece(table: Table) -> list[tuple[np.ndarray, ...]]:
        t, counts = targets(request.heads, table.labels(task.positive), table.sensitive_features)
        fold = (
            folds_by_features(table, request.folds, request.seed)
            if request.folds
            else np.zeros(len(table))
        )
        weights = np.ones(len(table)) if table.weights is None else table.weights
        columns = binning.columns(task.encoding, table, client.who)
        return [(columns, t, counts, fold.astype(np.int16)[None], weights[None])]

    pieces = client.table.added_up(piece, client.threads)
    columns, t, counts, fold, weights = (
        np.concatenate(p, axis=1) for p in zip(*pieces, strict=True)
    )
    weighed = None if (weights == 1).all() else weights[0]
    bits = min(GRADIENT_BITS, base_bits(task.n))
    codes = np.ascontiguousarray(columns.T)
    bins = binning.bins(task.encoding)
    rows = CodedRows(
        bins=bins,
        codes=codes,
        columns=columns,
        target=t,
        counts=counts,
        fold=fold[0],
        folds=request.folds,
        weights=weighed,
        bits=bits,
    )
    if client.device is not None:
        from agnosticfair.client.rule_device import coded_rows

        rows = coded_rows(rows, client.device)
    return rows


def level(client: Client, broadcast: Broadcast[Level]) -> Reply:
    """The histograms of the nodes that are requested; where trees begin, the loss out of fold."""
    task, request = broadcast.task, broadcast.request
    key = request.trees.binning.key + repr((request.heads, request.folds, request.seed)).encode()
    rows = client.cached(task, coded_rows, key, request=request)
    try:
        done = unpack(request.trees.done, rows.bins)
        now = unpack(request.trees.growing, rows.bins)
        models = len(request.heads) * (request.folds + 1)
        count = request.count.astype(int)
        if len(done) != models or len(now) != models or not _inside(count, models, request.level):
            raise ValueError("it counts nodes that are not of its models")
    except ValueError as problem:
        raise FederationError(f"the request for a level of trees is damaged: {problem}") from None
    forests = list(zip(done, now, strict=True))
    if client.device is not None:
        from agnosticfair.client.rule_device import level_sums
    else:
        from agnosticfair.mathematics.boosting import level_sums
    sums = level_sums(rows, forests, request.level, count)
    return Reply(broadcast.round, {"hist": sums["hist"], "tree_loss": sums["loss"]})


def _inside(count: np.ndarray, models: int, level: int) -> bool:
    """Whether all of (P, 2) are a model and a node of the level."""
    if count.ndim != 2 or count.shape[1] != 2 or not 0 <= level <= 7:
        return False
    return bool(((count >= 0) & (count < [models, 2**level])).all())
