"""A fit with a rule, from stage to stage: learners, subgroups with enough expected people, the program.

Each stage is a solver; ``onward`` goes from one that has ended to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agnosticfair.data.axes import FINE, axes_of, axis_of_bins, edges_of
from agnosticfair.data.summary import SummaryStatistics
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError, existing
from agnosticfair.learners import local
from agnosticfair.learners.decisions import Decision, Kernels, plain
from agnosticfair.learners.estimates import Estimates, of_all_rows
from agnosticfair.mathematics.basis import is_apart
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import MAX_NUMBERS, Calibration, Histograms
from agnosticfair.server import learning
from agnosticfair.server.plan import (
    Beginning,
    Plan,
    Start,
    completed,
    fairness_of,
    heads_of,
    trained_heads,
)
from agnosticfair.server.solvers import (
    SOLVERS,
    TRAINERS,
    Learned,
    SolverState,
    choose,
    learners_to_try,
)
from agnosticfair.server.subgroup_axes import by_column, with_subgroup_set, with_subgroups

BINS = 32  # of a column of numbers, as features;
MIN_BINS = 4  # fewer, down to this,
ROWS = 300  # where there are less than so many rows for each, or all models' weights would be more than MAX_NUMBERS

COLUMNS = MAX_NUMBERS // FINE
"""Of numbers that are counted in one message."""

UNBINNED = ("linear",)
"""Learners of the columns themselves, as classifiers of scikit-learn are."""

PROGRAM = "program"
Send = Callable[[Broadcast[Any]], Reply]


def agreed(plan: Plan, statistics: SummaryStatistics, send: Send) -> Plan:
    """The plan with bins of its columns of numbers, and the axes of its subgroups.  send: all clients."""
    counts: dict[str, np.ndarray] = {}
    names = sorted({*statistics.numeric} - {*statistics.bins})  # the others' are declared
    for first in range(0, len(names), COLUMNS):
        some = names[first : first + COLUMNS]
        ranges = np.array([statistics.ranges[name] for name in some], float).reshape(-1, 2)
        request = Broadcast(0, plan.task, Histograms(tuple(some), *ranges.T))
        counts |= by_column(request, send(request))
    plan = replace(with_bins(plan, statistics, counts), declared=bool(statistics.bins))
    return plan if plan.method.fairness is None else with_axes(plan, statistics, counts)


def with_bins(plan: Plan, statistics: SummaryStatistics, counts: Mapping[str, np.ndarray]) -> Plan:
    """The plan whose features have bins of the columns of numbers, too, unless the learner is linear."""
    rule = existing(plan.method.rule)
    if rule.learner in UNBINNED or not isinstance(rule.learner, str):
        return plan
    models = (rule.folds + 1) * max(len(trained_heads(plan)), 1)
    room = MAX_NUMBERS // models - plan.task.encoding.width
    bins = min(BINS, plan.task.n // ROWS, room // max(len(statistics.numeric), 1))
    bins = max(MIN_BINS, bins)
    edges = [
        (name, axis_of_bins(statistics, name, counts.get(name), bins, edges_of))
        for name in sorted(statistics.numeric)
    ]
    bins_here = tuple((name, cuts) for name, cuts in edges if cuts or name in statistics.missing)
    encoding = replace(plan.task.encoding, bins=bins_here)
    return replace(plan, task=replace(plan.task, encoding=encoding))


def with_axes(plan: Plan, statistics: SummaryStatistics, counts: Mapping[str, np.ndarray]) -> Plan:
    """The plan with the axes of its subgroups, and no subgroup yet; without named ones it limits the difference overall
    alone."""
    basis = fairness_of(plan.method).basis
    if basis.kind != "subgroups":
        return plan
    axes = axes_of(statistics, counts, basis.bins, basis.columns, clients=plan.clients)
    rule, compared = plan.method.rule, {name for name, _ in plan.task.sensitive_features}
    for axis in axes:
        if axis.name in compared and rule is not None and not rule.aware:
            raise SettingsError(
                f"subgroups are named by {axis.name!r}, the sensitive feature, and the rule would decide by it: leave "
                "it out of the columns, or say aware"
            )
    if not axes and basis.columns:
        raise SettingsError(
            f"subgroups are named by {', '.join(map(repr, basis.columns))}, where all rows have one value: name "
            "other columns"
        )
    return with_subgroup_set(plan, axes, []) if axes else plan


def onward(state: SolverState, send: Send, start: Start | None = None) -> SolverState:
    """The state, or that of the next stage where this one has ended.  send: all clients, for a total."""
    if state.inner.outcome != "learned":
        return state
    plan, trainer = state.plan, TRAINERS[state.stage]
    inner: Any = state.inner
    estimates = completed(plan, state.seed, trainer.estimates_of(inner, plan))
    learned = (*state.learned, Learned(state.stage, estimates, inner.held_out, inner.round))
    state = replace(state, learned=learned, earlier=state.history)
    rest = learners_to_try(plan)[len(learned) :]
    if rest:
        begun = TRAINERS[rest[0]].init(plan, Beginning(state.seed))
        return replace(state, stage=rest[0], inner=begun)
    chosen = choose({entry.learner: entry.held_out for entry in learned})
    best = next(entry.estimates for entry in learned if entry.learner == chosen)
    return decided(with_estimates(state, best), send, start)


def trained_here(
    plan: Plan, tables: Sequence[Table], seed: int, send: Send, start: Start | None = None
) -> SolverState:
    """The state before the program's first round, with estimates by a classifier of rows in one place."""
    rule = existing(plan.method.rule)
    if not tables:
        raise SettingsError(
            f"learner {type(rule.learner).__name__} needs the rows in this process, as tables: take 'additive' or "
            "'trees', which train over clients, or give its probabilities as a column (probability)"
        )
    heads, task = trained_heads(plan), plan.task
    estimates, loss = local.trained(
        rule.learner, heads, rule.folds, seed, task.encoding, task.positive, tables
    )
    known = Learned(type(rule.learner).__name__, completed(plan, seed, estimates), loss, 0)
    inner = learning.begun(plan, estimates.kind, (), seed)
    state = SolverState(plan, inner, "additive", (known,), seed=seed)
    return decided(with_estimates(state, known.estimates), send, start)


def warm(plan: Plan, seed: int, start: Start, send: Send) -> SolverState:
    """The state before the program's first round, with the estimates of another fit on the same rows."""
    assert start.estimates is not None
    if start.estimates.heads != heads_of(plan):
        raise SettingsError(
            "the start has estimates of other groups or labels: leave it out, or give that of a fit on the same rows"
        )
    inner = learning.begun(plan, start.estimates.kind, (), seed)
    state = SolverState(plan, inner, "additive", seed=seed)
    return decided(with_estimates(state, start.estimates), send, start)


def with_estimates(state: SolverState, estimates: Estimates) -> SolverState:
    plan = replace(state.plan, task=replace(state.plan.task, estimates=estimates))
    return replace(state, plan=plan)


def decided(state: SolverState, send: Send, start: Start | None = None) -> SolverState:
    """The state before the program's first round, its subgroups agreed on; without fairness the last one."""
    plan, note = with_subgroups(state.plan, send)
    sums = send(Broadcast(0, plan.task, Calibration())).sums
    state = replace(state, plan=plan, calibration=dict(sums), notes=(note,) if note else ())
    if plan.method.fairness is None:
        if plan.method.rule is not None and plan.method.rule.agnostic:
            raise SettingsError(
                f"method {plan.method.name!r} has no subgroups of which one could be worst: take 'rule', with "
                "tau 1 for no limit"
            )
        ended: Any = replace(state.inner, outcome="converged", history=())  # type: ignore[type-var]
        return replace(state, inner=ended)
    begun = SOLVERS[PROGRAM].init(plan, Beginning(state.seed, start))
    return replace(state, stage=PROGRAM, inner=begun)


def model_fields(state: SolverState) -> dict[str, Any]:
    """What a model needs of a fit that has ended: the learner of all rows, and how it decides."""
    plan, estimates = state.plan, state.plan.task.estimates
    assert plan.method.rule is not None and estimates is not None  # noqa: PT018
    error_costs = plan.method.rule.error_costs(plan.base_rate)
    decision = plain(estimates, error_costs)
    if state.stage == PROGRAM:
        solver: Any = state.solver
        A, shift = solver.coefficients_of(state.inner)
        W = solver.weights_of(state.inner)
        decision = Decision(error_costs, A, shift, plan.task.subgroups, kernels_of(plan), W)
    return {"estimates": of_all_rows(estimates), "rule": decision}


def kernels_of(plan: Plan) -> Kernels | None:
    """The weight functions that are no subgroups, if any."""
    task = plan.task
    if task.subgroups is not None or task.fair_basis.kind in ("constant", "subgroups"):
        return None
    clients = task.clients if is_apart(task.fair_basis) else ()
    return Kernels(task.fair_basis, clients, task.centres)
