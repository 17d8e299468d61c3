"""Agreeing on subgroups: axes from the summary statistics and clients' counts; and which of their subgroups a rule
looks at, those with enough expected people, as many as a message has room for.

Nobody's row is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np

from agnosticfair.data.axes import axes_of, chosen_columns
from agnosticfair.data.summary import SummaryStatistics
from agnosticfair.errors import SettingsError, existing
from agnosticfair.learners.estimates import strata
from agnosticfair.mathematics.basis import constant
from agnosticfair.mathematics.scores import Points
from agnosticfair.mathematics.subgroups import (
    DEEPEST,
    Axis,
    Subgroup,
    conjunctions,
    places,
    sizes_of,
    subgroup_name,
    triples,
)
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import (
    MAX_NUMBERS,
    Histograms,
    ProgramSums,
    SubgroupMasses,
    SubgroupSet,
)
from agnosticfair.server import program
from agnosticfair.server.plan import Plan, fairness_of

MAX_SHOWN = 10
"""Subgroups that a result names."""

Send = Callable[[Broadcast[Any]], Reply]


def histograms_request(plan: Plan, statistics: SummaryStatistics) -> Broadcast[Histograms] | None:
    """Ask how the columns that name subgroups lie in their ranges; None where none is of numbers."""
    columns = fairness_of(plan.method).basis.columns
    names = {*chosen_columns(statistics, columns, {}, plan.clients)} & {*statistics.numeric}
    names -= {*statistics.bins}
    ranges = np.array([statistics.ranges[name] for name in sorted(names)], float).reshape(-1, 2)
    return Broadcast(0, plan.task, Histograms(tuple(sorted(names)), *ranges.T)) if names else None


def by_column(request: Broadcast[Histograms], total: Reply) -> dict[str, np.ndarray]:
    return dict(zip(request.request.columns, total.sums["counts"], strict=True))


def with_axes(plan: Plan, statistics: SummaryStatistics, counts: Mapping[str, np.ndarray]) -> Plan:
    """The plan with its axes, and no subgroup yet."""
    basis = fairness_of(plan.method).basis
    axes = axes_of(statistics, counts, basis.bins, basis.columns, clients=plan.clients)
    if not axes:
        raise SettingsError("no column to name subgroups by has two values: name other columns")
    return with_subgroup_set(plan, axes, [])


def axes_in(plan: Plan) -> tuple[Axis, ...]:
    return existing(plan.task.subgroups).agreed[0]


def subgroups_in(plan: Plan) -> list[Subgroup]:
    return existing(plan.task.subgroups).agreed[1]


def subgroup_names(plan: Plan) -> tuple[str, ...]:
    axes = axes_in(plan)
    return tuple(subgroup_name(axes, subgroup) for subgroup in subgroups_in(plan))


def ranked(plan: Plan, state: Any) -> tuple[tuple[tuple[str, float], ...], tuple[str, ...]]:
    """The subgroups in which decisions differ most, the worst first; and those in which nothing can be compared."""
    if plan.task.subgroups is None:
        return (), ()
    worst, names = program.by_subgroup(state), subgroup_names(plan)
    order = np.argsort(-worst, kind="stable")
    worst_subgroups = tuple(
        (names[m], float(worst[m])) for m in order[:MAX_SHOWN] if np.isfinite(worst[m])
    )
    return worst_subgroups, tuple(names[m] for m in np.flatnonzero(~np.isfinite(worst)))


def single_values(axes: Sequence[Axis]) -> list[Subgroup]:
    """A subgroup for every value of every axis."""
    return [((a, v),) for a, axis in enumerate(axes) for v in range(len(axis.values))]


def with_subgroup_set(plan: Plan, axes: Sequence[Axis], subgroups: Sequence[Subgroup]) -> Plan:
    """The plan with these axes and subgroups."""
    none = ((-1, -1),)
    rows = np.array([subgroup + none * (DEEPEST - len(subgroup)) for subgroup in subgroups], float)
    rows = rows.reshape(-1, DEEPEST, 2)
    method, fairness = plan.method, plan.method.fairness
    if fairness is not None:
        fairness = replace(fairness, basis=replace(fairness.basis, kernels=max(1, len(subgroups))))
        method = replace(method, fairness=fairness)
    named = SubgroupSet(tuple(astuple(axis) for axis in axes), rows)
    task = replace(plan.task, fair_basis=fairness_of(method).basis, subgroups=named)
    return replace(plan, method=method, task=task)


def with_subgroups(plan: Plan, send: Send) -> tuple[Plan, str]:
    """The plan with the subgroups in which at least two compared groups have enough expected people, or overall
    alone; and a sentence where there are too many to look at all of them."""
    if plan.task.subgroups is None or plan.method.fairness is None:
        return plan, ""
    depth, axes, note = plan.method.fairness.basis.depth, axes_in(plan), ""
    if pairs_fit(plan, axes):
        subgroups = enough_people(plan, axes, send, min(depth, 2))
    else:
        subgroups, note = narrowed(plan, axes, send, min(depth, 2))
    if not subgroups:  # what is left to limit is the difference overall
        return replace(plan, task=replace(plan.task, subgroups=None, fair_basis=constant())), ""
    plan = with_subgroup_set(plan, axes, subgroups)
    return (with_triples(plan, send) if depth >= DEEPEST and not note else plan), note


def pairs_fit(plan: Plan, axes: Sequence[Axis]) -> bool:
    """Whether the expected people of every pair of values of these axes are one message."""
    return _groups(plan) * sum(sizes_of(axes)) ** 2 <= MAX_NUMBERS


def _groups(plan: Plan) -> int:
    return len(strata(existing(plan.task.estimates).heads))


def enough_people(
    plan: Plan, axes: Sequence[Axis], send: Send, depth: int, beside: int = 0
) -> list[Subgroup]:
    """The subgroups of at most two values of these axes with enough expected people, those with the most where there
    are too many for a message.  beside: how many others there are."""
    min_people = existing(plan.method.rule).min_people
    masses = send(Broadcast(0, with_subgroup_set(plan, axes, []).task, SubgroupMasses())).sums[
        "masses"
    ]
    enough = comparable(plan, masses)
    subgroups = conjunctions(enough, sizes_of(axes), min_people, depth)
    room = max(MAX_NUMBERS // (3 * _groups(plan) + 1) - beside, 0)
    if len(subgroups) <= room:
        return subgroups
    people = enough[places(sizes_of(axes), subgroups)]
    pair = np.array([len(subgroup) for subgroup in subgroups])
    return [subgroups[k] for k in sorted(np.lexsort((-people, pair))[:room].tolist())]


def narrowed(
    plan: Plan, axes: Sequence[Axis], send: Send, depth: int
) -> tuple[list[Subgroup], str]:
    """Single values of all columns, and pairs of the columns of which a value has the largest differences; and what is
    said of it."""
    rule, every = existing(plan.method.rule), single_values(axes)
    one = with_subgroup_set(plan, axes, every)
    enough = comparable(plan, send(Broadcast(0, one.task, SubgroupMasses())).sums["masses"])
    subgroups = [
        subgroup
        for subgroup, people in zip(every, enough, strict=True)
        if people >= rule.min_people
    ]
    if depth < 2 or not subgroups:
        return subgroups, ""
    gaps = np.where(enough >= rule.min_people, differences(one, send), 0.0)
    of_axis = np.array([subgroup[0][0] for subgroup in every])
    largest = np.array([gaps[of_axis == a].max() for a in range(len(axes))])
    chosen: list[int] = []
    for a in np.argsort(-largest, kind="stable").tolist():
        if pairs_fit(plan, [axes[c] for c in (*chosen, a)]):
            chosen.append(a)
    chosen = sorted(chosen)
    pairs: list[Subgroup] = []
    if len(chosen) > 1:
        pairs = enough_people(plan, [axes[a] for a in chosen], send, 2, len(subgroups))
    numbers = _groups(plan) * sum(sizes_of(axes)) ** 2
    note = (
        f"Subgroups are the single values of {len(axes)} columns, and pairs of values of {len(chosen)} of them, where "
        f"the learner's decisions differ most ({', '.join(axes[a].name for a in chosen[:5])}"
        f"{', ...' if len(chosen) > 5 else ''}): pairs of all columns would be {numbers:,} numbers a message, of at "
        f"most {MAX_NUMBERS:,}. Name the columns to choose others."
    )
    deeper = [tuple((chosen[a], v) for a, v in subgroup) for subgroup in pairs if len(subgroup) > 1]
    return [*subgroups, *deeper], note


def differences(plan: Plan, send: Send) -> np.ndarray:
    """The largest difference of compared groups' rates in every subgroup, (M,), by the learner's own decisions."""
    rule, compared = existing(plan.method.rule), plan.compared
    K, P = len(subgroups_in(plan)) + 1, len(compared.names)
    points = Points(np.zeros((1, K, P)), np.zeros(1), np.zeros(1), masses=True)
    request = ProgramSums(rule.error_costs(plan.base_rate), points)
    sums = send(Broadcast(0, plan.task, request)).sums
    rates = sums["decided"][0] / np.maximum(sums["mass"], 1e-9)
    apart = [np.abs(rates[j] - rates[k]) for j, k in compared.pairs if k is not None]
    return np.max(apart, axis=0)[:-1] if apart else np.zeros(K - 1)


def with_triples(plan: Plan, send: Send) -> Plan:
    """The plan with the subgroups of three values that have enough expected people, too."""
    axes, pairs = axes_in(plan), subgroups_in(plan)
    candidates = triples(pairs)
    if not candidates:
        return plan
    deeper = with_subgroup_set(plan, axes, candidates)
    masses = send(Broadcast(0, deeper.task, SubgroupMasses())).sums["masses"]
    enough = comparable(plan, masses) >= existing(plan.method.rule).min_people
    chosen = [subgroup for subgroup, on in zip(candidates, enough, strict=True) if on]
    return with_subgroup_set(plan, axes, pairs + chosen)


def comparable(plan: Plan, masses: np.ndarray) -> np.ndarray:
    """The expected people of the smaller of the two largest groups that are compared, the most of all comparisons:
    (C, ...) to (...)."""
    strata_here = strata(existing(plan.task.estimates).heads)
    compared = dict.fromkeys((stratum.features, stratum.label) for stratum in strata_here)
    of_each = [
        np.sort(
            masses[[c for c, s in enumerate(strata_here) if (s.features, s.label) == key]], axis=0
        )[-2]
        for key in compared
    ]
    return np.max(of_each, axis=0)
