"""A fit with a rule, from stage to stage: learners, subgroups with enough expected people, the program.

Each stage is a solver; ``onward`` goes from one that has ended to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agnosticfair.data.axes import FINE, axes_of, bands_of, bins_of
from agnosticfair.data.census import Census
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError
from agnosticfair.learners import local
from agnosticfair.learners.decisions import Decision, plain
from agnosticfair.learners.estimates import Estimates, of_all_rows
from agnosticfair.learners.heads import strata
from agnosticfair.mathematics.parts import (
    DEEPEST,
    Axis,
    Part,
    conjunctions,
    places,
    sizes_of,
    triples,
)
from agnosticfair.mathematics.scores import Points
from agnosticfair.protocol.estimates import MAX_NUMBERS, Calibration, SubgroupMasses
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.program import asked
from agnosticfair.protocol.questions import Histograms
from agnosticfair.server import learning, solvers
from agnosticfair.server.named import axes_in, by_column, parts_in, single_values, with_parts
from agnosticfair.server.plan import Beginning, Plan, Start, fairness_of
from agnosticfair.server.solvers import SOLVERS, SolverState
from agnosticfair.server.trainers import (
    TRAINERS,
    Learned,
    choose,
    completed,
    learners_to_try,
    trained_heads,
)

BINS, MIN_BINS, ROWS = 32, 4, 300
"""Bins of a column of numbers, as features; fewer, down to MIN_BINS, where there are less than ROWS rows for each, or
where all models' weights would be more than MAX_NUMBERS."""

COLUMNS = MAX_NUMBERS // FINE
"""Of numbers that are counted in one message."""

UNBINNED = ("linear", "network")
"""Learners of the columns themselves, as classifiers of scikit-learn are."""

PROGRAM = "program"
Ask = Callable[[Broadcast[Any]], Reply]


def agreed(plan: Plan, census: Census, ask: Ask) -> Plan:
    """The plan with bins of its columns of numbers, and the axes of its subgroups.  ask: all clients."""
    counts: dict[str, np.ndarray] = {}
    names = sorted(census.numeric)
    for first in range(0, len(names), COLUMNS):
        some = names[first : first + COLUMNS]
        ranges = np.array([census.numeric[name] for name in some], float).reshape(-1, 2)
        question = Broadcast(0, plan.task, Histograms(tuple(some), *ranges.T))
        counts |= by_column(question, ask(question))
    plan = with_bins(plan, census, counts)
    return plan if plan.method.fairness is None else with_axes(plan, census, counts)


def with_bins(plan: Plan, census: Census, counts: Mapping[str, np.ndarray]) -> Plan:
    """The plan whose features have bins of the columns of numbers, too, unless the learner is linear."""
    rule = plan.method.rule
    assert rule is not None
    if rule.learner in UNBINNED or not isinstance(rule.learner, str):
        return plan
    models = (rule.folds + 1) * max(len(trained_heads(plan)), 1)
    room = MAX_NUMBERS // models - plan.task.encoding.width
    bins = min(BINS, plan.task.n // ROWS, room // max(len(counts), 1))
    bins = max(MIN_BINS, bins)
    edges = [
        (name, bands_of(census, name, counts.get(name), bins, bins_of))
        for name in sorted(census.numeric)
    ]
    encoding = replace(plan.task.encoding, bands=tuple(entry for entry in edges if entry[1]))
    return replace(plan, task=replace(plan.task, encoding=encoding))


def with_axes(plan: Plan, census: Census, counts: Mapping[str, np.ndarray]) -> Plan:
    """The plan with the axes of its subgroups, and no subgroup yet; without named ones it limits the difference overall
    alone."""
    basis = fairness_of(plan.method).basis
    if basis.kind != "named":
        return plan
    axes = axes_of(census, counts, basis.bands, basis.columns, clients=plan.clients)
    return with_parts(plan, axes, []) if axes else plan


def onward(state: SolverState, ask: Ask, start: Start | None = None) -> SolverState:
    """The state, or that of the next stage where this one has ended.  ask: all clients, for a total."""
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
    taken = next(entry.estimates for entry in learned if entry.learner == chosen)
    return decided(with_estimates(state, taken), ask, start)


def trained_here(
    plan: Plan, tables: Sequence[Table], seed: int, ask: Ask, start: Start | None = None
) -> SolverState:
    """The state before the program's first round, with estimates by a classifier of rows in one place."""
    own = plan.method.rule
    assert own is not None
    if not tables:
        raise SettingsError(
            f"learner {type(own.learner).__name__} needs the rows in this process, as tables: take 'additive' or "
            "'trees', which train over clients, or give its probabilities as a column (probability)"
        )
    heads, task = trained_heads(plan), plan.task
    made, loss = local.trained(
        own.learner, heads, own.folds, seed, task.encoding, task.positive, tables
    )
    known = Learned(type(own.learner).__name__, completed(plan, seed, made), loss, 0)
    inner = learning.begun(plan, made.kind, (), seed)
    state = SolverState(plan, inner, "additive", (known,), seed=seed)
    return decided(with_estimates(state, known.estimates), ask, start)


def warm(plan: Plan, seed: int, start: Start, ask: Ask) -> SolverState:
    """The state before the program's first round, with the estimates of another fit on the same rows."""
    assert start.estimates is not None
    state = replace(solvers.init(plan), seed=seed)
    return decided(with_estimates(state, start.estimates), ask, start)


def with_estimates(state: SolverState, estimates: Estimates) -> SolverState:
    """The state whose clients know the estimates."""
    plan = replace(state.plan, task=replace(state.plan.task, estimates=estimates))
    return replace(state, plan=plan)


def decided(state: SolverState, ask: Ask, start: Start | None = None) -> SolverState:
    """The state before the program's first round, its subgroups agreed on; without fairness the last one."""
    plan, note = with_subgroups(state.plan, ask)
    told = ask(Broadcast(0, plan.task, Calibration())).sums
    state = replace(state, plan=plan, calibration=dict(told), notes=(note,) if note else ())
    if plan.method.fairness is None:
        ended: Any = replace(state.inner, outcome="converged", history=())  # type: ignore[type-var]
        return replace(state, inner=ended)
    begun = SOLVERS[PROGRAM].init(plan, Beginning(state.seed, start))
    return replace(state, stage=PROGRAM, inner=begun)


def with_subgroups(plan: Plan, ask: Ask) -> tuple[Plan, str]:
    """The plan with the subgroups in which at least two compared groups have enough expected people; and a sentence
    where there are too many to look at all of them."""
    if plan.task.named is None or plan.method.fairness is None:
        return plan, ""
    depth, axes, note = plan.method.fairness.basis.depth, axes_in(plan), ""
    if pairs_fit(plan, axes):
        parts = enough_people(plan, axes, ask, min(depth, 2))
    else:
        parts, note = narrowed(plan, axes, ask, min(depth, 2))
    plan = with_parts(plan, axes, parts)
    return (with_triples(plan, ask) if depth >= DEEPEST and not note else plan), note


def pairs_fit(plan: Plan, axes: Sequence[Axis]) -> bool:
    """Whether the expected people of every pair of values of these axes are one message."""
    return _groups(plan) * sum(sizes_of(axes)) ** 2 <= MAX_NUMBERS


def _groups(plan: Plan) -> int:
    assert plan.task.estimates is not None
    return len(strata(plan.task.estimates.heads))


def enough_people(
    plan: Plan, axes: Sequence[Axis], ask: Ask, depth: int, beside: int = 0
) -> list[Part]:
    """The subgroups of at most two values of these axes with enough expected people, those with the most where there
    are too many for a message.  beside: how many others there are."""
    assert plan.method.rule is not None
    least = plan.method.rule.min_people
    told = ask(Broadcast(0, with_parts(plan, axes, []).task, SubgroupMasses())).sums["masses"]
    enough = comparable(plan, told)
    parts = conjunctions(enough, sizes_of(axes), least, depth)
    _check_some(parts, enough, least)
    room = max(MAX_NUMBERS // (3 * _groups(plan) + 1) - beside, 0)
    if len(parts) <= room:
        return parts
    people = enough[places(sizes_of(axes), parts)]
    pair = np.array([len(part) for part in parts])
    return [parts[k] for k in sorted(np.lexsort((-people, pair))[:room].tolist())]


def _check_some(parts: Sequence[Part], enough: np.ndarray, least: float) -> None:
    if not parts:
        raise SettingsError(
            f"min_people {least:g} leaves no subgroup: the largest has {float(enough.max()):.0f} expected people of "
            "the smaller group; lower it"
        )


def narrowed(plan: Plan, axes: Sequence[Axis], ask: Ask, depth: int) -> tuple[list[Part], str]:
    """Single values of all columns, and pairs of the columns of which a value has the largest differences; and what is
    said of it."""
    rule, every = plan.method.rule, single_values(axes)
    assert rule is not None
    one = with_parts(plan, axes, every)
    enough = comparable(plan, ask(Broadcast(0, one.task, SubgroupMasses())).sums["masses"])
    parts = [part for part, people in zip(every, enough, strict=True) if people >= rule.min_people]
    _check_some(parts, enough, rule.min_people)
    if depth < 2:
        return parts, ""
    gaps = np.where(enough >= rule.min_people, differences(one, ask), 0.0)
    of_axis = np.array([part[0][0] for part in every])
    largest = np.array([gaps[of_axis == a].max() for a in range(len(axes))])
    chosen: list[int] = []
    for a in np.argsort(-largest, kind="stable").tolist():
        if pairs_fit(plan, [axes[c] for c in (*chosen, a)]):
            chosen.append(a)
    chosen = sorted(chosen)
    pairs: list[Part] = []
    if len(chosen) > 1:
        pairs = enough_people(plan, [axes[a] for a in chosen], ask, 2, len(parts))
    numbers = _groups(plan) * sum(sizes_of(axes)) ** 2
    note = (
        f"Subgroups are the single values of {len(axes)} columns, and pairs of values of {len(chosen)} of them, where "
        f"the learner's decisions differ most ({', '.join(axes[a].name for a in chosen[:5])}"
        f"{', ...' if len(chosen) > 5 else ''}): pairs of all columns would be {numbers:,} numbers a message, of at "
        f"most {MAX_NUMBERS:,}. Name the columns to choose others."
    )
    deeper = [tuple((chosen[a], v) for a, v in part) for part in pairs if len(part) > 1]
    return [*parts, *deeper], note


def differences(plan: Plan, ask: Ask) -> np.ndarray:
    """The largest difference of compared groups' rates in every subgroup, (M,), by the learner's own decisions."""
    rule, compared = plan.method.rule, plan.compared
    assert rule is not None
    K, P = len(parts_in(plan)) + 1, len(compared.names)
    points = Points(np.zeros((1, K, P)), np.zeros(1), np.zeros(1), masses=True)
    told = ask(Broadcast(0, plan.task, asked(points, rule.prices(plan.base_rate)))).sums
    rates = told["decided"][0] / np.maximum(told["mass"], 1e-9)
    apart = [np.abs(rates[j] - rates[k]) for j, k in compared.pairs if k is not None]
    return np.max(apart, axis=0)[:-1] if apart else np.zeros(K - 1)


def with_triples(plan: Plan, ask: Ask) -> Plan:
    """The plan with the subgroups of three values that have enough expected people, too."""
    axes, pairs = axes_in(plan), parts_in(plan)
    candidates = triples(pairs)
    if not candidates:
        return plan
    assert plan.method.rule is not None
    deeper = with_parts(plan, axes, candidates)
    masses = ask(Broadcast(0, deeper.task, SubgroupMasses())).sums["masses"]
    enough = comparable(plan, masses) >= plan.method.rule.min_people
    chosen = [part for part, on in zip(candidates, enough, strict=True) if on]
    return with_parts(plan, axes, pairs + chosen)


def model_fields(state: SolverState) -> dict[str, Any]:
    """What a model needs of a fit that has ended: the learner of all rows, and how it decides."""
    plan, estimates = state.plan, state.plan.task.estimates
    assert plan.method.rule is not None and estimates is not None  # noqa: PT018
    prices = plan.method.rule.prices(plan.base_rate)
    found = plain(estimates, prices)
    if state.stage == PROGRAM:
        solver: Any = state.solver
        A, shift = solver.coefficients_of(state.inner)
        found = Decision(prices, A, shift, plan.task.named)
    return {"estimates": of_all_rows(estimates), "rule": found}


def comparable(plan: Plan, masses: np.ndarray) -> np.ndarray:
    """The expected people of the smaller of the two largest groups that are compared, the most of all comparisons:
    (C, ...) to (...)."""
    assert plan.task.estimates is not None
    own = strata(plan.task.estimates.heads)
    compared = dict.fromkeys((stratum.features, stratum.label) for stratum in own)
    of_each = [
        np.sort(masses[[c for c, s in enumerate(own) if (s.features, s.label) == key]], axis=0)[-2]
        for key in compared
    ]
    return np.max(of_each, axis=0)
