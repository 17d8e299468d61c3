"""Agreeing on named parts: axes from the census and clients' counts, parts from counts of pairs.

Nobody's row is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np

from agnosticfair.data.axes import axes_of, band_axis, bands_of, chosen_columns
from agnosticfair.data.census import Census
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.parts import (
    DEEPEST,
    Axis,
    Part,
    conjunctions,
    part_name,
    sizes_of,
    starts_of,
    triples,
)
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import Histograms, Named, PartCounts
from agnosticfair.server import limited
from agnosticfair.server.plan import Plan, fairness_of

MOST_SHOWN = 10
"""Parts that a result names."""


def agreed(plan: Plan, census: Census, ask: Callable[[Broadcast[Any]], Reply]) -> Plan:
    """The plan with its bands and products, from clients' counts, and its named parts that hold enough rows, where it
    has any.  ask: all clients, for a total."""
    asked = histograms_question(plan, census)
    counts = {} if asked is None else by_column(asked, ask(asked))
    plan = with_bands(plan, census, counts)
    if plan.method.products:
        plan = with_products(plan, ask(products_question(plan)))
    if fairness_of(plan.method).basis.kind != "named":
        return plan
    plan = with_axes(plan, census, counts)
    plan = with_pairs(plan, ask(counts_question(plan)))
    candidates = deeper(plan)
    if candidates is None:
        return plan
    return with_triples(plan, candidates, ask(counts_question(candidates)))


def histograms_question(plan: Plan, census: Census) -> Broadcast[Histograms] | None:
    """Ask how columns of numbers lie in their ranges; None where no bands are wanted."""
    basis, names = fairness_of(plan.method).basis, set[str]()
    if plan.method.bands:
        names |= {*census.numeric}
    if basis.kind == "named":
        names |= {*chosen_columns(census, basis.columns, {}, plan.clients)} & {*census.numeric}
    names -= {*census.bands}
    ranges = np.array([census.numeric[name] for name in sorted(names)], float).reshape(-1, 2)
    return Broadcast(0, plan.task, Histograms(tuple(sorted(names)), *ranges.T)) if names else None


def by_column(asked: Broadcast[Histograms], total: Reply) -> dict[str, np.ndarray]:
    """The counts of each column."""
    return dict(zip(asked.asked.columns, total.sums["counts"], strict=True))


def with_bands(plan: Plan, census: Census, counts: Mapping[str, np.ndarray]) -> Plan:
    """The plan whose features have bands of the columns of numbers, too."""
    if not plan.method.bands:
        return plan
    found = [
        (name, bands_of(census, name, counts.get(name), plan.method.bands))
        for name in sorted(census.numeric)
    ]
    encoding = replace(plan.task.encoding, bands=tuple(entry for entry in found if entry[1]))
    return replace(plan, task=replace(plan.task, encoding=encoding))


def products_question(plan: Plan) -> Broadcast[PartCounts]:
    """Ask how many rows have each pair of values, of which products may become features."""
    return Broadcast(0, replace(plan.task, named=_of_values(plan)), PartCounts())


def _of_values(plan: Plan) -> Named:
    """The values that the encoding has indicators of, in their order, and no part."""
    encoding = plan.task.encoding
    axes = [Axis(name, values) for name, values in encoding.categorical]
    axes += [band_axis(name, edges, name in encoding.dates) for name, edges in encoding.bands]
    return Named(tuple(astuple(axis) for axis in axes), np.zeros((0, DEEPEST, 2)))


def with_products(plan: Plan, total: Reply) -> Plan:
    """The plan whose features have the products of two values that hold enough rows, too."""
    sizes, least = sizes_of(_of_values(plan).agreed[0]), plan.method.products * plan.n
    first = starts_of(sizes) + len(plan.task.encoding.numeric)
    pairs = [p for p in conjunctions(total.sums["counts"], sizes, least) if len(p) == 2]
    products = tuple((int(first[a]) + u, int(first[b]) + v) for (a, u), (b, v) in pairs)
    encoding = replace(plan.task.encoding, products=products)
    return replace(plan, task=replace(plan.task, encoding=encoding))


def with_axes(plan: Plan, census: Census, counts: Mapping[str, np.ndarray]) -> Plan:
    """The plan with its axes, and no part yet."""
    basis = fairness_of(plan.method).basis
    if plan.method.basis.kind != "constant":
        raise SettingsError(
            f"method {plan.method.name!r} has kernels for the loss, which do not go with named parts: take "
            "'agnosticfair-named', whose loss has no adversary"
        )
    axes = axes_of(census, counts, basis.bands, basis.columns, clients=plan.clients)
    if not axes:
        raise SettingsError("no column to name parts by has two values: name other columns")
    return with_parts(plan, axes, [])


def counts_question(plan: Plan) -> Broadcast[PartCounts]:
    """Ask how many rows the pairs of values have, or the parts in question."""
    return Broadcast(0, plan.task, PartCounts())


def with_pairs(plan: Plan, total: Reply) -> Plan:
    """The plan with its parts of up to two values."""
    basis, axes = fairness_of(plan.method).basis, axes_in(plan)
    counts = total.sums["counts"]
    parts = conjunctions(counts, sizes_of(axes), basis.least * plan.n, min(basis.depth, 2))
    if not parts:
        most = float(counts.max()) / plan.n
        raise SettingsError(
            f"least {basis.least:g} leaves no part: the largest has the share {most:.2g} of the rows; lower it"
        )
    return with_parts(plan, axes, parts)


def deeper(plan: Plan) -> Plan | None:
    """The plan with the parts of three values that may be large enough, to be counted; None where none is asked for.
    A linear model looks for those that matter in its midst (``server.triples``)."""
    if fairness_of(plan.method).basis.depth < DEEPEST or plan.method.network is None:
        return None
    found = triples(parts_in(plan))
    return with_parts(plan, axes_in(plan), found) if found else None


def with_triples(plan: Plan, candidates: Plan, total: Reply) -> Plan:
    """The plan with those of the candidates that hold enough rows."""
    least = max(fairness_of(plan.method).basis.least * plan.n, 1.0)
    enough = total.sums["counts"] >= least
    more = [part for part, kept in zip(parts_in(candidates), enough, strict=True) if kept]
    return with_parts(plan, axes_in(plan), parts_in(plan) + more)


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
    worst, names = limited.by_part(state), part_names(plan)
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
