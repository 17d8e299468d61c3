"""Interactions: pairs of values that become features in the midst of a fit over named parts.

A linear model over single values cannot serve a part of two values without harm to others. Where the fit is nearly
done, clients say how steep the objective, loss and charges, is in the weight that every pair of values would have.
Those by which it would fall most are features from then on, and the fit goes on from where it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from agnosticfair.data.encoding import indicators
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.methods import interacts
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import PairSlopes
from agnosticfair.server import adversaries, deciding, limited, solvers
from agnosticfair.server.plan import Beginning, Plan, Start, fairness_of

NEARLY, OWN = 1e-2, 0.02
"""A fit is nearly done once a step promises less than NEARLY. A pair is hardly different from one of its values if that
has less than this share of rows of its OWN beside it, by curvature."""


def wanted(state: solvers.SolverState) -> bool:
    """Whether features are to be found now."""
    plan, inner = state.plan, cast(limited.LimitedState, state.inner)
    if not interacts(plan.method) or plan.task.encoding.products or inner.here is None:
        return False
    nearly = inner.limited and (state.done or inner.promised < NEARLY)
    return nearly and inner.round < plan.method.max_rounds


def question(state: solvers.SolverState) -> Broadcast[PairSlopes]:
    """Ask in which pairs of values the objective is steep."""
    inner = cast(limited.LimitedState, state.inner)
    assert inner.here is not None
    measured = inner.fairness.measured
    if measured.kind == "sigmoid":
        measured = Surrogate("sigmoid", deciding.temperature(replace(inner, w=inner.here.w)))
    C = adversaries.for_clients(inner.game.C, inner.game, inner.here.sums)
    return Broadcast(inner.round, state.plan.task, PairSlopes(measured, inner.here.w, C))


def chosen(state: solvers.SolverState, total: Reply) -> Plan:
    """The plan with the pairs of values by which the objective would fall most as features, too."""
    plan, sums = state.plan, total.sums
    enough = sums["counts"] >= fairness_of(plan.method).basis.least * plan.n
    falls = np.where(_candidates(plan) & enough, gains(sums["slope"], sums["curve"]), 0.0)
    order = np.argsort(-falls, axis=None, kind="stable")[: (falls > 0).sum()]
    return _with(plan, np.stack(np.unravel_index(order, falls.shape), axis=1))


def gains(slope: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """By how much the objective would fall with each pair of values as a feature beside its two values, (I, I).

    The diagonals are of single values. With what the two values could do already taken off, by least squares, it is
    slope^2 / curvature.

    >>> gains(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[4.0, 2.0], [2.0, 4.0]]))[0, 1].round(3)
    np.float64(1.5)
    """
    g, h = np.diag(slope), np.diag(curve)
    a, b = h[:, None] - curve, h - curve  # of rows with one of the values
    apart = (np.minimum(a, b) > OWN * curve) & (curve > 0)
    both = np.where(apart, h[:, None] * h - curve**2, 1.0)
    rest = slope - curve * (b * g[:, None] + a * g) / both
    return np.where(apart, rest**2 * both / np.where(apart, curve * a * b, 1.0), 0.0)


def _candidates(plan: Plan) -> np.ndarray:
    """Which pairs of values, (I, I), are of different columns."""
    first, *_, last = starts = indicators(plan.task.encoding)
    column = np.searchsorted(starts, np.arange(first, last), "right")
    return column[:, None] < column


def _with(plan: Plan, pairs: np.ndarray) -> Plan:
    """The plan with the first of these pairs of values, (k, 2), as features; of few pairs, few interactions."""
    found = pairs[: plan.method.interactions] + len(plan.task.encoding.numeric)
    encoding = replace(plan.task.encoding, products=tuple((i, j) for i, j in found.tolist()))
    method = replace(plan.method, interactions=len(found))
    return replace(plan, method=method, task=replace(plan.task, encoding=encoding))


def at_most(plan: Plan) -> tuple[Plan, Broadcast[PairSlopes]]:
    """The plan with as many interactions as there can be, and a question that may find them."""
    w, C = np.zeros(plan.features + 1), np.zeros((plan.task.cells, plan.kernels[1] + 1))
    asked = Broadcast(1, plan.task, PairSlopes(fairness_of(plan.method).measured, w, C))
    return _with(plan, np.argwhere(_candidates(plan))), asked


def onward(
    state: solvers.SolverState, begun: solvers.SolverState, answer: Reply
) -> solvers.SolverState:
    """The fit with its new features, whose weights are 0 yet.  begun: a fit of them that has not begun.  answer: to
    its first question, for how the features lie."""
    inner, fresh = cast(limited.LimitedState, state.inner), cast(limited.LimitedState, begun.inner)
    start, first = deciding.start_of(inner), deciding.begun(fresh, answer.sums)
    assert start is not None
    more = np.zeros(len(fresh.w) - len(inner.w))
    w = np.concatenate([start.w[:-1], more, start.w[-1:]])
    start = replace(start, w=w, metric=first.metric, slopes=_room(inner, len(w)))
    made = deciding.init(begun.plan, Beginning(start=start))
    made = replace(made, round=inner.round, history=inner.history, constant=first.constant)
    return solvers.SolverState(begun.plan, made)


def _room(inner: limited.LimitedState, D: int) -> np.ndarray:
    """The parts whose slopes are asked for, as many as a reply with D features has room for."""
    assert inner.here is not None
    assert inner.slopes is not None
    worst = limited.by_part(inner)[inner.slopes]
    most = deciding.most_slopes(inner.here.sums["psi_g"], D)
    return np.sort(inner.slopes[np.argsort(-worst, kind="stable")[:most]])


def start_of(state: solvers.SolverState) -> Start | None:
    """Where a similar fit may begin, which finds its interactions by itself: without theirs."""
    start, found = state.solver.start_of(state.inner), len(state.plan.task.encoding.products)
    if start is None or start.metric is None or not state.plan.method.interactions:
        return start
    own = np.r_[: len(start.w) - 1 - found, len(start.w) - 1]
    return replace(start, w=start.w[own], metric=start.metric[np.ix_(own, own)])
