"""Subgroups under audit: every conjunction of values with enough rows, level by level, and the bounds of each.

Whoever holds the rows is asked for counts of (subgroup, group, label, decision) and nothing else, so clients' counts
add up to the pooled ones, bit for bit. A set of subgroups is what ``agnosticfair.subgroups`` makes: columns, depth,
smallest share and bins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil, comb, prod
from typing import Any

import numpy as np

from agnosticfair.data.axes import codes_of
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics import confidence
from agnosticfair.mathematics.basis import Basis, subgroups
from agnosticfair.mathematics.confidence import OPTIMISTIC, OVERALL, SHARP, Bounds, ends
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.mathematics.subgroups import (
    Axis,
    Subgroup,
    counted,
    sizes_of,
    subgroup_name,
    triples,
)
from agnosticfair.settings import CONFIDENCE, POSITIVE, require

Count = Callable[[Sequence[Subgroup]], np.ndarray]
"""From subgroups to their counts, (M, G, 2, 2)."""


@dataclass(frozen=True)
class Agreed:
    """The subgroups that a fit was held to, of the set ``basis``: its own rows are measured on these."""

    basis: Basis
    axes: tuple[Axis, ...]
    subgroups: tuple[Subgroup, ...]


OF_DIFFERENCES = 0.75
"""Of what the bounds over subgroups may fail with, what those of differences have; those of ratios have the rest."""


@dataclass(frozen=True)
class Rate:
    """A group in a subgroup: its rows (those whose label the metric asks for), its rate, and the rate's own share of
    the highest one.  compared: whether it has rows enough."""

    group: str
    rows: int
    rate: float
    impact: float
    compared: bool


@dataclass(frozen=True)
class SubgroupRecord:
    """What an audit says of one subgroup.

    difference: on the rows, between the groups that are compared.  low, high: between which the population's lies,
    for all subgroups at once.  ratio, ratio_low, ratio_high: the same of the impact ratio, in the same event.
    estimable: by the counts of rows alone; else nothing is said by a bound, and nothing counts as 0.  pair: the
    groups of the difference, the higher rate first.  rates: of every group.
    """

    name: str
    rows: int
    difference: float
    low: float
    high: float
    estimable: bool
    ratio: float
    ratio_low: float
    ratio_high: float
    pair: tuple[str, ...]
    rates: tuple[Rate, ...]
    depth: int

    @property
    def left_out(self) -> tuple[str, ...]:
        """Groups with too few rows here, which are compared with none."""
        return tuple(rate.group for rate in self.rates if not rate.compared)


@dataclass(frozen=True)
class CountedSubgroups:
    """Counts of all subgroups that were looked at, everybody first, and how many there could have been.

    counts: (M, G, 2, 2).  candidates, sets: of conjunctions, and of sets of columns (``confidence.spent``).
    """

    subgroups: tuple[Subgroup, ...]
    names: tuple[str, ...]
    counts: np.ndarray
    candidates: int
    sets: int
    min_share: float

    @property
    def total(self) -> np.ndarray:
        """Rows of every subgroup, (M,)."""
        return self.counts.sum(axis=(1, 2, 3))

    def sample(self, metric: str, precision: float) -> confidence.Sample:
        """What is known before any decision is looked at."""
        rows = confidence.compared(self.counts, metric)[1]
        few = (self.min_share, self.sets, self.candidates, precision, METRICS[metric].bounds)
        return confidence.Sample(rows, self.total, *few)

    def worst(
        self, metric: str, precision: float = 0.1, delta: float = 0.05
    ) -> tuple[float, float]:
        """The largest difference in an estimable subgroup, and everybody's: on these rows, nothing of it bounded."""
        _, able, keep = self.levels(metric, precision, delta)
        value = confidence.on_rows(self.counts, metric, keep)
        return float(np.fmax.reduce(value[able], initial=value[0])), float(value[0])

    def foreseen(self, metric: str, precision: float, delta: float) -> float:
        """About what ``upper_of`` these subgroups' records would be, by normal limits: to compare models, not to
        claim."""
        from scipy.special import ndtri

        level, able, keep = self.levels(metric, precision, delta)
        apart = confidence.differences(self.counts, 0.5, metric, keep, True)
        k, n = confidence.compared(self.counts, metric)
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = (k / n * (1 - k / n) / n).max(axis=0)
        i, j = apart.pair.T
        both = np.where(i == j, 0.0, np.take_along_axis(variance, j[None], axis=0)[0])
        both = both + np.take_along_axis(variance, i[None], axis=0)[0]
        high = apart.value - ndtri(level / 2) * np.sqrt(both)
        return float(np.minimum(high, 1.0).max(where=able, initial=0.0)) if able.any() else 1.0

    def levels(
        self, metric: str, precision: float, delta: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What each subgroup gets of delta, whether it is estimable, and which of its groups are compared."""
        sample = self.sample(metric, precision)
        level, able = confidence.levels(sample, delta)
        keep = confidence.estimable(sample, level) & able[:, None]
        able = keep.any(axis=1)
        return level, able, np.where(able[:, None], keep, (sample.rows > 0).all(axis=0).T)


def subgroups_in(request: Any) -> Basis:
    """The set of subgroups that a user names: by columns, or by ``subgroups(...)``."""
    if isinstance(request, Basis):
        return request
    return subgroups((request,) if isinstance(request, str) else request)


def table_counts(table: Table, axes: Sequence[Axis], strata: np.ndarray, groups: int) -> Count:
    """A function that counts over rows that lie in one place.  strata: (n,) (group * 2 + label) * 2 + decision."""
    codes = codes_of(table, axes)
    return lambda subgroups: counted(codes, sizes_of(axes), subgroups, strata, 4 * groups).reshape(
        -1, groups, 2, 2
    )


def searched(
    axes: Sequence[Axis], request: Basis, count: Count, delta: float = 0.05
) -> CountedSubgroups:
    """Counts of everybody and of every conjunction with rows enough to be told of at delta, level by level."""
    sizes, deep = sizes_of(axes), range(request.depth + 1)
    candidates = sum(prod(some) for d in deep for some in combinations(sizes, d))
    listed_subgroups: list[Subgroup] = [()]
    counts = [count([()])]
    minimum = thin_of(request.min_share, counts[0][0], candidates, delta)
    level: list[Subgroup] = [
        ((a, v),) for a, axis in enumerate(axes) for v in range(len(axis.values))
    ]
    for depth in range(1, request.depth + 1):
        counts_here = count(level) if level else counts[0][:0]
        enough = counts_here.sum(axis=(1, 2, 3)) >= minimum
        enough_rows = [subgroup for subgroup, there in zip(level, enough, strict=True) if there]
        listed_subgroups += enough_rows
        counts.append(counts_here[enough])
        both = ((*a, *b) for a, b in combinations(enough_rows, 2) if a[0][0] != b[0][0])
        level = [*both] if depth == 1 else triples(enough_rows)
    sets = sum(comb(len(sizes), d) for d in deep)
    names = tuple(subgroup_name(axes, subgroup) for subgroup in listed_subgroups)
    return CountedSubgroups(
        tuple(listed_subgroups), names, np.concatenate(counts), candidates, sets, request.min_share
    )


def listed(axes: Sequence[Axis], some: Sequence[Subgroup], count: Count) -> CountedSubgroups:
    """Counts overall and of these subgroups, however few rows they have."""
    every: tuple[Subgroup, ...] = ((), *some)
    sets = len({tuple(a for a, _ in subgroup) for subgroup in every})
    names = tuple(subgroup_name(axes, subgroup) for subgroup in every)
    return CountedSubgroups(every, names, count(every), len(every), sets, 0.0)


def thin_of(minimum: float, overall: np.ndarray, candidates: int, delta: float) -> int:
    """The fewest rows of a subgroup that is looked at.  overall: (G, 2, 2), counts of all rows."""
    n, strata = float(overall.sum()), 2 * len(overall) + 1
    return max(confidence.thinnest(minimum, n, strata, candidates, delta), 1)


def _compared(
    counted: CountedSubgroups, metric: str, precision: float, spends: float, bounded: bool
) -> tuple[Bounds, Bounds]:
    """Every subgroup's difference and ratio, and their ends, all of which together may fail with ``spends`` over
    OF_DIFFERENCES; nan unless bounded."""
    delta, able, keep = counted.levels(metric, precision, spends)
    if not bounded:  # what is only measured compares all groups
        keep = np.all(confidence.compared(counted.counts, metric)[1] > 0, axis=0).T
    rough = ~able | (not bounded)
    apart = confidence.differences(counted.counts, delta, metric, keep, rough)
    of_ratios = (1 - OF_DIFFERENCES) / OF_DIFFERENCES * delta
    ratio = confidence.ratios(counted.counts, of_ratios, metric, keep, rough)
    if not bounded:
        nothing = np.full(len(able), np.nan)
        return replace(apart, low=nothing, high=nothing), replace(ratio, low=nothing, high=nothing)
    bounds = confidence.within(counted.counts, counted.sample(metric, precision), spends, metric)
    high = np.where(able, np.minimum(apart.high, bounds), apart.high)
    return replace(apart, high=high), ratio


def records(
    counted: CountedSubgroups,
    groups: Sequence[str],
    metric: str,
    level: float,
    precision: float,
    share: float = 1.0,
    bounded: bool = True,
) -> tuple[SubgroupRecord, ...]:
    """What holds for every subgroup at the confidence ``level``, in the order they were found.

    share: of delta that these bounds may spend, where others are made of the same rows.  bounded: else the ends are
    nan, for nothing holds beyond these rows, and no sharp one is searched.
    """
    require(CONFIDENCE, confidence=level)
    require(POSITIVE, precision=precision)
    spends = OF_DIFFERENCES * share * (1 - level)
    _, able, keep = counted.levels(metric, precision, spends)
    k, n = confidence.compared(counted.counts, metric)
    total = counted.total
    apart, ratio = _compared(counted, metric, precision, spends, bounded)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = (k.sum(axis=0) / n.sum(axis=0)).T
        impact = rates / np.where(keep, rates, -np.inf).max(axis=1, keepdims=True)
    return tuple(
        SubgroupRecord(
            name=counted.names[m],
            rows=int(total[m]),
            difference=float(apart.value[m]),
            low=float(apart.low[m]),
            high=float(apart.high[m]),
            estimable=bool(able[m]),
            ratio=float(ratio.value[m]),
            ratio_low=float(ratio.low[m]),
            ratio_high=float(ratio.high[m]),
            pair=tuple(groups[g] for g in apart.pair[m] if g >= 0),
            rates=tuple(
                Rate(
                    name,
                    int(n[:, g, m].sum()),
                    float(rates[m, g]),
                    float(impact[m, g]),
                    bool(able[m] and keep[m, g]),
                )
                for g, name in enumerate(groups)
            ),
            depth=len(counted.subgroups[m]),
        )
        for m in range(len(counted.names))
        if total[m] >= counted.min_share * total[0]
    )


def checked_groups(counted: CountedSubgroups, groups: Sequence[str], metric: str) -> None:
    """Raise where a group, or two for a comparison, have no row that the metric looks at."""
    rows = confidence.compared(counted.counts[:1], metric)[1][..., 0].min(axis=0)
    there = [name for name, n in zip(groups, rows, strict=True) if n > 0]
    if len(there) < (1 if METRICS[metric].bounds else 2):
        absent = next(name for name, n in zip(groups, rows, strict=True) if not n > 0)
        raise SettingsError(
            f"group {absent!r} has no row that {metric!r} looks at, and so has no rate: audit rows that hold each "
            "group and label, or name another metric"
        )


def sums_of(
    counted: CountedSubgroups, axes: Sequence[Axis], depth: int, count: Count
) -> dict[str, Any]:
    """The counts that a certificate over subgroups rests on, as JSON; for a monitor also those of all pairs of values,
    (I, I), with the single values on the diagonal."""
    ones = [(axis, value) for axis, size in enumerate(sizes_of(axes)) for value in range(size)]
    places = [
        (i, j) for j in range(len(ones)) for i in range(j + 1) if i == j or ones[i][0] < ones[j][0]
    ]
    pairs = np.zeros((len(ones), len(ones)), int)
    if places:
        some = [(ones[i],) if i == j else (ones[i], ones[j]) for i, j in places]
        i, j = np.array(places).T
        pairs[i, j] = pairs[j, i] = count(some).sum(axis=(1, 2, 3))
    return {
        "pairs": pairs.tolist(),
        "subgroups": [[list(value) for value in subgroup] for subgroup in counted.subgroups],
        "counts": counted.counts.tolist(),
        "axes": [[axis.name, list(axis.values), [float(e) for e in axis.edges]] for axis in axes],
        "depth": depth,
        "min_share": counted.min_share,
    }


def axes_of(sums: Mapping[str, Any]) -> tuple[Axis, ...]:
    """The columns that name a certificate's subgroups, with their values and edges."""
    return tuple(Axis(name, tuple(values), tuple(edges)) for name, values, edges in sums["axes"])


def rows_needed(
    one: float,
    other: float,
    precision: float,
    confidence: float = 0.95,
    subgroups: int | None = None,
) -> int:
    """About the rows in all at which the difference between two groups is known to +- precision.

    Parameters
    ----------
    one, other : float
        The shares of all rows that the two groups have in the subgroup.
    precision, confidence : float
        As in ``audit``.
    subgroups : int, optional
        Subgroups that are certified together; None for everybody, which has a share of its own.

    Examples
    --------
    >>> rows_needed(0.5, 0.5, 0.1), rows_needed(0.05, 0.05, 0.1, subgroups=40)
    (967, 11560)
    """
    from scipy.special import ndtri

    delta = OF_DIFFERENCES * (1 - confidence)
    level = OVERALL * delta if subgroups is None else SHARP * delta / max(subgroups, 1)
    z = float(-ndtri(ends(level, 1, 2)[1]))
    z = z if subgroups is None else max(z, OPTIMISTIC)
    return ceil(0.25 * (1 / one + 1 / other) * (z / precision) ** 2)
