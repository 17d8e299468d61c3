"""Agreeing on named parts: axes from the census and clients' counts, parts from counts of pairs.

Nobody's row is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np

from agnosticfair.data.axes import axes_of, chosen_columns
from agnosticfair.data.census import Census
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.parts import (
    DEEPEST,
    Axis,
    Part,
    part_name,
)
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import Histograms, Named
from agnosticfair.server import program
from agnosticfair.server.plan import Plan, fairness_of

MOST_SHOWN = 10
"""Parts that a result names."""


def histograms_question(plan: Plan, census: Census) -> Broadcast[Histograms] | None:
    """Ask how the columns that name parts lie in their ranges; None where none is of numbers."""
    columns = fairness_of(plan.method).basis.columns
    names = {*chosen_columns(census, columns, {}, plan.clients)} & {*census.numeric}
    names -= {*census.bands}
    ranges = np.array([census.ranges[name] for name in sorted(names)], float).reshape(-1, 2)
    return Broadcast(0, plan.task, Histograms(tuple(sorted(names)), *ranges.T)) if names else None


def by_column(asked: Broadcast[Histograms], total: Reply) -> dict[str, np.ndarray]:
    """The counts of each column."""
    return dict(zip(asked.asked.columns, total.sums["counts"], strict=True))


def with_axes(plan: Plan, census: Census, counts: Mapping[str, np.ndarray]) -> Plan:
    """The plan with its axes, and no part yet."""
    basis = fairness_of(plan.method).basis
    axes = axes_of(census, counts, basis.bands, basis.columns, clients=plan.clients)
    if not axes:
        raise SettingsError("no column to name parts by has two values: name other columns")
    return with_parts(plan, axes, [])


def axes_in(plan: Plan) -> tuple[Axis, ...]:
    assert plan.task.named is not None
    return plan.task.named.agreed[0]


def parts_in(plan: Plan) -> list[Part]:
    assert plan.task.named is not None
    return plan.task.named.agreed[1]


def part_names(plan: Plan) -> tuple[str, ...]:
    """Every part in words."""
    axes = axes_in(plan)
    return tuple(part_name(axes, part) for part in parts_in(plan))


def ranked(plan: Plan, state: Any) -> tuple[tuple[tuple[str, float], ...], tuple[str, ...]]:
    """The parts in which decisions differ most, the worst first; and those in which nothing can be compared."""
    if plan.task.named is None:
        return (), ()
    worst, names = program.by_part(state), part_names(plan)
    order = np.argsort(-worst, kind="stable")
    found = tuple((names[m], float(worst[m])) for m in order[:MOST_SHOWN] if np.isfinite(worst[m]))
    return found, tuple(names[m] for m in np.flatnonzero(~np.isfinite(worst)))


def single_values(axes: Sequence[Axis]) -> list[Part]:
    """A part for every value of every axis."""
    return [((a, v),) for a, axis in enumerate(axes) for v in range(len(axis.values))]


def with_parts(plan: Plan, axes: Sequence[Axis], parts: Sequence[Part]) -> Plan:
    """The plan with these axes and parts."""
    none = ((-1, -1),)
    rows = np.array([part + none * (DEEPEST - len(part)) for part in parts], float)
    rows = rows.reshape(-1, DEEPEST, 2)
    method, fairness = plan.method, plan.method.fairness
    if fairness is not None:
        fairness = replace(fairness, basis=replace(fairness.basis, kernels=max(1, len(parts))))
        method = replace(method, fairness=fairness)
    named = Named(tuple(astuple(axis) for axis in axes), rows)
    task = replace(plan.task, fair_basis=fairness_of(method).basis, named=named)
    return replace(plan, method=method, task=task)
