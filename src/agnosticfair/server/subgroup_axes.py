"""Agreeing on subgroups: axes from the summary statistics and clients' counts, subgroups from counts of pairs.

Nobody's row is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np

from agnosticfair.data.axes import axes_of, chosen_columns
from agnosticfair.data.summary import SummaryStatistics
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.subgroups import (
    DEEPEST,
    Axis,
    Subgroup,
    subgroup_name,
)
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import Histograms, SubgroupSet
from agnosticfair.server import program
from agnosticfair.server.plan import Plan, fairness_of

MAX_SHOWN = 10
"""Subgroups that a result names."""


def histograms_request(plan: Plan, statistics: SummaryStatistics) -> Broadcast[Histograms] | None:
    """Ask how the columns that name subgroups lie in their ranges; None where none is of numbers."""
    columns = fairness_of(plan.method).basis.columns
    names = {*chosen_columns(statistics, columns, {}, plan.clients)} & {*statistics.numeric}
    names -= {*statistics.bins}
    ranges = np.array([statistics.ranges[name] for name in sorted(names)], float).reshape(-1, 2)
    return Broadcast(0, plan.task, Histograms(tuple(sorted(names)), *ranges.T)) if names else None


def by_column(request: Broadcast[Histograms], total: Reply) -> dict[str, np.ndarray]:
    """The counts of each column."""
    return dict(zip(request.request.columns, total.sums["counts"], strict=True))


def with_axes(plan: Plan, statistics: SummaryStatistics, counts: Mapping[str, np.ndarray]) -> Plan:
    """The plan with its axes, and no subgroup yet."""
    basis = fairness_of(plan.method).basis
    axes = axes_of(statistics, counts, basis.bins, basis.columns, clients=plan.clients)
    if not axes:
        raise SettingsError("no column to name subgroups by has two values: name other columns")
    return with_subgroup_set(plan, axes, [])


def axes_in(plan: Plan) -> tuple[Axis, ...]:
    assert plan.task.subgroups is not None
    return plan.task.subgroups.agreed[0]


def subgroups_in(plan: Plan) -> list[Subgroup]:
    assert plan.task.subgroups is not None
    return plan.task.subgroups.agreed[1]


def subgroup_names(plan: Plan) -> tuple[str, ...]:
    """Every subgroup in words."""
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
