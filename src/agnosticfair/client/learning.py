"""Sums of the additive and the linear learner, exactly: all folds and heads in one pass over the rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.client.features import (
    Distinct,
    Features,
    diagonal,
    gradient_of,
    hessian_of,
    weighed,
)
from agnosticfair.data.rows import folds_by_features
from agnosticfair.learners.estimates import Head, targets
from agnosticfair.learners.linear import compact
from agnosticfair.mathematics.linear import log_loss, sigmoid
from agnosticfair.mathematics.subgroups import cross
from agnosticfair.protocol.messages import Broadcast, Reply, base_bits, exponents
from agnosticfair.protocol.requests import Learn, Task, hessian_numbers

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
