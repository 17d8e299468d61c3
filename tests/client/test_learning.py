"""Sums of the additive learner: gradients by finite differences, the same bits for any split of the rows."""

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.encoding import encode
from agnosticfair.data.rows import folds_by_features
from agnosticfair.learners.estimates import heads, targets
from agnosticfair.learners.linear import compact, scores
from agnosticfair.mathematics.linear import log_loss, on_grid, sigmoid
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.requests import UNCOUNTED, Learn

TABLE = small_table(400)
BINS = (("age", (-1.0, 0.0, 0.7)), ("hours", (0.25, 0.5)))
FOLDS = 3


def task_of(scale=True, table=TABLE):
    from agnosticfair.data.summary import encoding_of, summary_statistics

    encoding = replace(encoding_of(summary_statistics(table, "rows"), scale), bins=BINS)
    return replace(UNCOUNTED, encoding=encoding, positive="yes", n=len(table))


def broadcast(task, seed=0, hessian=True, labels=((0, 1),)):
    own = heads([("sex", ("g0", "g1"))], labels)
    w = np.random.default_rng(seed).normal(size=(FOLDS + 1, len(own), task.encoding.width + 1))
    return Learn(own, FOLDS, 0, hessian, on_grid(w, 24))


def told(table, task, one_request):
    return answer(Client("a", table), "learn", Broadcast(1, task, one_request)).sums


@pytest.mark.parametrize("labels", [((0, 1),), ((0,), (1,))])
@pytest.mark.parametrize("scale", [True, False])
def test_sums_are_those_of_the_dense_formula(labels, scale):
    task = task_of(scale)
    request = broadcast(task, labels=labels)
    found = told(TABLE, task, request)
    X = np.hstack([encode(task.encoding, TABLE), np.ones((len(TABLE), 1))])
    t, counts = targets(request.heads, TABLE.labels("yes"), TABLE.sensitive_features)
    fold = folds_by_features(TABLE, FOLDS)
    D = X.shape[1]
    for h in range(len(request.heads)):
        held_out = 0.0
        for f in range(FOLDS + 1):
            on = counts[h] & (fold != f)
            z = X @ request.w[f, h]
            loss = log_loss(z, t[h].astype(float))
            np.testing.assert_allclose(found["head_loss"][f, h], loss[on].sum(), rtol=1e-6)
            np.testing.assert_allclose(
                found["head_gradient"][f, h], X.T @ ((sigmoid(z) - t[h]) * on), atol=1e-4
            )
            assert found["head_mass"][f, h] == on.sum()
            held_out += loss[counts[h] & (fold == f)].sum()
        np.testing.assert_allclose(found["held_out"][h], held_out, rtol=1e-6)
        v = sigmoid(z) * (1 - sigmoid(z)) * counts[h]
        full = np.zeros((D, D))
        full[np.tril_indices(D)] = found["head_hessian"][h]
        np.testing.assert_allclose(full, np.tril(X.T @ (X * v[:, None])), atol=0.05)


def test_the_gradient_is_the_loss_s():
    task = task_of()
    request = broadcast(task, hessian=False)
    gradient = told(TABLE, task, request)["head_gradient"]
    step = 2.0**-10
    for j in range(request.w.shape[-1]):
        up, down = request.w.copy(), request.w.copy()
        up[..., j] += step
        down[..., j] -= step
        ends = [told(TABLE, task, replace(request, w=w))["head_loss"] for w in (up, down)]
        np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), gradient[..., j], atol=1e-3)


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("scale", [True, False])
def test_any_split_gives_the_same_bits(weighed, scale):
    table = TABLE
    if weighed:
        weights = np.random.default_rng(1).integers(1, 4, len(TABLE)).astype(float)
        table = replace(TABLE, weights=weights)
    task = replace(task_of(scale), n=3 * len(TABLE))
    request = broadcast(task)
    whole = told(table, task, request)
    subgroups = [
        answer(Client(key, rows), "learn", Broadcast(1, task, request))
        for key, rows in dealt(table, 7).items()
    ]
    split = reduce(add, subgroups).sums
    assert all(whole[name].tobytes() == split[name].tobytes() for name in whole)


def test_a_row_s_score_is_what_the_encoded_row_says():
    task = task_of()
    w = broadcast(task).w[0, 0]
    X = encode(task.encoding, TABLE)
    measures = scores(compact(task.encoding, TABLE), w)
    np.testing.assert_allclose(measures, X @ w[:-1] + w[-1], rtol=1e-12)
