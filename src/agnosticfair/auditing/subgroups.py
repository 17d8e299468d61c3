"""Subgroups under audit: every conjunction of values with enough rows, level by level, and the bounds of each.

Whoever holds the rows is asked for counts of (subgroup, group, label, decision) and nothing else, so clients' counts
add up to the pooled ones, bit for bit. A set of subgroups is what ``agnosticfair.subgroups`` makes: columns, depth,
smallest share and bins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import ceil, comb, nan, prod
from typing import Any

import numpy as np

from agnosticfair.data.axes import codes_of
from agnosticfair.data.encoding import bin_names
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics import confidence
from agnosticfair.mathematics.basis import Basis, subgroups
from agnosticfair.mathematics.confidence import OPTIMISTIC, OVERALL, SHARP, ends
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.mathematics.subgroups import (
    Axis,
    Subgroup,
    check_depth,
    counted,
    sizes_of,
    subgroup_name,
    triples,
)

Count = Callable[[Sequence[Subgroup]], np.ndarray]
"""From subgroups to their counts, (M, G, 2, 2)."""


@dataclass(frozen=True)
class Agreed:
    """The subgroups that a fit was held to, of the set ``basis``: its own rows are measured on these."""

    basis: Basis
    axes: tuple[Axis, ...]
    subgroups: tuple[Subgroup, ...]


MAX_PAIRS = 50_000
"""Pairs of values that are searched; where columns have more, subgroups are of single values."""

MAX_PAIRED = 2_000
"""Values whose pairs a certificate has rows of; of more it has the values' own."""

MAX_ROWS = 10**11
"""Of a certificate that is read: nobody has counted more."""

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
    ratio: float = nan
    ratio_low: float = nan
    ratio_high: float = nan
    pair: tuple[str, ...] = ()
    rates: tuple[Rate, ...] = ()
    depth: int = 0

    @property
    def left_out(self) -> tuple[str, ...]:
        """Groups with too few rows here, which are compared with none."""
        return tuple(rate.group for rate in self.rates if not rate.compared)


@dataclass(frozen=True)
class CountedSubgroups:
    """A set of subgroups with its counts, overall first: conjunctions of at most ``depth`` values of the axes' columns.

    counts: (M, G, 2, 2), by group, label and decision.  min_share: the least share of rows of a subgroup that is
    bounded.  pairs: (I, I) rows of all pairs of values, single values on the diagonal, or these alone, (I,), where
    there are more than MAX_PAIRED; for a certificate that travels.
    """

    axes: tuple[Axis, ...]
    subgroups: tuple[Subgroup, ...]
    counts: np.ndarray
    depth: int
    min_share: float
    pairs: np.ndarray | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(subgroup_name(self.axes, subgroup) for subgroup in self.subgroups)

    @cached_property
    def candidates(self) -> int:
        """How many conjunctions there could be (``confidence.spent``)."""
        return candidates_of(self.axes, self.depth)

    @property
    def coarser(self) -> str:
        """What is said where pairs of values are too many to be searched."""
        pairs = candidates_of(self.axes, 2) - candidates_of(self.axes, 1)
        if self.depth > 1 or pairs <= MAX_PAIRS:
            return ""
        return (
            f"Subgroups are single values: pairs of values of {len(self.axes)} columns would be {pairs:,} subgroups, "
            f"more than {MAX_PAIRS:,}; name fewer columns (--columns) to have pairs."
        )

    @property
    def sets(self) -> int:
        """Of how many sets of columns they are (``confidence.spent``)."""
        return sum(comb(len(self.axes), d) for d in range(self.depth + 1))

    @property
    def total(self) -> np.ndarray:
        return self.counts.sum(axis=(1, 2, 3))

    @property
    def listed(self) -> list[Subgroup]:
        """The subgroups that hold the least share of rows: those of which a certificate has a record, in its order."""
        return [self.subgroups[m] for m in np.flatnonzero(self.large)]

    @property
    def large(self) -> np.ndarray:
        """Which subgroups hold the least share of rows, (M,) of bool."""
        return np.asarray(self.total >= self.min_share * self.total[0])

    def sample(self, metric: str, precision: float) -> confidence.Sample:
        """What is known before any decision is looked at."""
        rows = confidence.compared(self.counts, metric)[1]
        few = (self.min_share, self.sets, self.candidates, precision, METRICS[metric].bounds)
        return confidence.Sample(rows, self.total, *few)

    def to_json(self) -> dict[str, Any]:
        """The sums that a certificate rests on."""
        return {
            "pairs": [] if self.pairs is None else self.pairs.tolist(),
            "subgroups": [[list(value) for value in subgroup] for subgroup in self.subgroups],
            "counts": self.counts.tolist(),
            "axes": [[a.name, list(a.values), [float(e) for e in a.edges]] for a in self.axes],
            "depth": self.depth,
            "min_share": self.min_share,
        }

    @classmethod
    def from_json(cls, sums: Mapping[str, Any]) -> CountedSubgroups:
        """What ``to_json`` wrote; ValueError, TypeError or KeyError for what it cannot have written."""
        axes = tuple(
            Axis(name, tuple(values), tuple(edges)) for name, values, edges in sums["axes"]
        )
        for axis in axes:
            if not all(isinstance(text, str) for text in (axis.name, *axis.values)):
                raise TypeError("axes")
            missing, dated = axis.values[-1:] == ("missing",), axis.values[0].startswith("before ")
            named = axis.values if not axis.edges else bin_names(axis.edges, dated, missing)
            if axis.values != named or len({*axis.values}) < len(axis.values):
                raise ValueError("axes")
        if len({axis.name for axis in axes}) < len(axes):
            raise ValueError("axes")
        sizes, counts, pairs = sizes_of(axes), np.array(sums["counts"]), np.array(sums["pairs"])
        subgroups = tuple(tuple((int(a), int(v)) for a, v in one) for one in sums["subgroups"])
        check_depth(sums["depth"])
        if counts.dtype.kind != "i" or counts.min() < 0 or counts.shape[2:] != (2, 2):
            raise ValueError("counts")
        if counts.max() > MAX_ROWS:
            raise ValueError("counts")
        if (
            subgroups[0] != ()
            or len({*subgroups}) < len(subgroups)
            or len(subgroups) != len(counts)
        ):
            raise ValueError("subgroups")
        for one in subgroups:
            if any(not 0 <= v < sizes[a] for a, v in one) or len({a for a, _ in one}) < len(one):
                raise ValueError("subgroups")
        shape = pairs_shape(sizes)
        if pairs.size != prod(shape) or (pairs.size and pairs.dtype.kind != "i"):
            raise ValueError("pairs")
        pairs = pairs.reshape(shape).astype(int)
        return cls(axes, subgroups, counts, sums["depth"], float(sums["min_share"]), pairs)

    def worst(self, metric: str, precision: float = 0.1) -> tuple[float, float]:
        """The largest difference in an estimable subgroup, and overall: on these rows, nothing of it bounded."""
        _, able, keep = self.levels(metric, precision, 0.05)
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


def candidates_of(axes: Sequence[Axis], depth: int) -> int:
    """How many conjunctions of up to so many values there are, the empty one included."""
    of_depth = [1, *[0] * depth]
    for size in sizes_of(axes):
        for d in range(depth, 0, -1):
            of_depth[d] += size * of_depth[d - 1]
    return sum(of_depth)


def pairs_shape(sizes: Sequence[int]) -> tuple[int, ...]:
    return (sum(sizes),) * (2 if sum(sizes) <= MAX_PAIRED else 1)


def searched(
    axes: Sequence[Axis], request: Basis, count: Count, delta: float = 0.05
) -> CountedSubgroups:
    """Counts overall and of every conjunction with rows enough to be named at delta, level by level; of single values
    alone where columns have more than MAX_PAIRS pairs of them, which depends on no row."""
    subgroups: list[Subgroup] = [()]
    counts = [count([()])]
    of_pairs = candidates_of(axes, 2) - candidates_of(axes, 1)
    deepest = request.depth if of_pairs <= MAX_PAIRS else 1
    minimum = thin_of(request.min_share, counts[0][0], candidates_of(axes, deepest), delta)
    level: list[Subgroup] = [
        ((a, v),) for a, axis in enumerate(axes) for v in range(len(axis.values))
    ]
    for depth in range(1, deepest + 1):
        counts_here = count(level) if level else counts[0][:0]
        enough = counts_here.sum(axis=(1, 2, 3)) >= minimum
        large = [subgroup for subgroup, there in zip(level, enough, strict=True) if there]
        subgroups += large
        counts.append(counts_here[enough])
        both = ((*a, *b) for a, b in combinations(large, 2) if a[0][0] != b[0][0])
        level = [] if depth == deepest else [*both] if depth == 1 else triples(large)
    return CountedSubgroups(
        tuple(axes), tuple(subgroups), np.concatenate(counts), deepest, request.min_share
    )


def pairs_of(axes: Sequence[Axis], count: Count) -> np.ndarray:
    """Rows of all pairs of values, (I, I), with the single values on the diagonal; or these alone (``pairs_shape``)."""
    ones = [(axis, value) for axis, size in enumerate(sizes_of(axes)) for value in range(size)]
    if len(pairs_shape(sizes_of(axes))) == 1:
        return np.asarray(count([(one,) for one in ones]).sum(axis=(1, 2, 3)), int)
    places = [
        (i, j) for j in range(len(ones)) for i in range(j + 1) if i == j or ones[i][0] < ones[j][0]
    ]
    pairs = np.zeros((len(ones), len(ones)), int)
    if places:
        some = [(ones[i],) if i == j else (ones[i], ones[j]) for i, j in places]
        i, j = np.array(places).T
        pairs[i, j] = pairs[j, i] = count(some).sum(axis=(1, 2, 3))
    return pairs


def thin_of(minimum: float, overall: np.ndarray, candidates: int, delta: float) -> int:
    """The fewest rows of a subgroup that is looked at.  overall: (G, 2, 2), counts of all rows."""
    n, strata = float(overall.sum()), 2 * len(overall) + 1
    return max(confidence.thinnest(minimum, n, strata, candidates, delta), 1)


def records(
    counted: CountedSubgroups,
    groups: Sequence[str],
    metric: str,
    delta: float,
    precision: float,
    bounded: bool = True,
) -> tuple[SubgroupRecord, ...]:
    """What holds for every subgroup, all at once but for delta, in the order they were found.

    bounded: else the ends are nan, for nothing holds beyond these rows, and no sharp one is searched.
    """
    spends = OF_DIFFERENCES * delta
    level, able, keep = counted.levels(metric, precision, spends)
    k, n = confidence.compared(counted.counts, metric)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = (k.sum(axis=0) / n.sum(axis=0)).T
        impact = rates / np.where(keep, rates, -np.inf).max(axis=1, keepdims=True)
    compared = keep if bounded else np.all(n > 0, axis=0).T  # what is only measured compares all
    how = (metric, compared, ~able | (not bounded))
    apart = confidence.differences(counted.counts, level, *how)
    ratio = confidence.ratios(counted.counts, (1 - OF_DIFFERENCES) / OF_DIFFERENCES * level, *how)
    ends = [apart.low, apart.high, ratio.low, ratio.high]
    if bounded:
        sample = counted.sample(metric, precision)
        joint = confidence.within(counted.counts, sample, spends, metric)
        ends[1] = np.where(able, np.minimum(apart.high, joint), apart.high)
    else:
        ends = [np.full(len(able), np.nan)] * 4

    def record(m: int) -> SubgroupRecord:
        low, high, ratio_low, ratio_high = (float(end[m]) for end in ends)
        return SubgroupRecord(
            name=counted.names[m],
            rows=int(counted.total[m]),
            difference=float(apart.value[m]),
            low=low,
            high=high,
            estimable=bool(able[m]),
            ratio=float(ratio.value[m]),
            ratio_low=ratio_low,
            ratio_high=ratio_high,
            pair=tuple(groups[g] for g in apart.pair[m] if g >= 0),
            rates=tuple(
                Rate(name, rows, rate, share, bool(able[m] and there))
                for name, rows, rate, share, there in zip(
                    groups,
                    n[:, :, m].sum(axis=0).tolist(),
                    rates[m].tolist(),
                    impact[m].tolist(),
                    keep[m],
                    strict=True,
                )
            ),
            depth=len(counted.subgroups[m]),
        )

    return tuple(record(m) for m in np.flatnonzero(counted.large).tolist())


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


def rows_needed(
    one: float,
    other: float,
    precision: float,
    confidence: float = 0.95,
    subgroups: int | None = None,
) -> int:
    """About the rows in all at which the difference between two groups is known to +- precision.

    ``one`` and ``other`` are the groups' shares of all rows in the subgroup; ``subgroups`` how many are certified
    together, None for overall, which has a share of the confidence for itself.

    >>> rows_needed(0.5, 0.5, 0.1), rows_needed(0.05, 0.05, 0.1, subgroups=40)
    (967, 11560)
    """
    from scipy.special import ndtri

    delta = OF_DIFFERENCES * (1 - confidence)
    level = OVERALL * delta if subgroups is None else SHARP * delta / max(subgroups, 1)
    z = float(-ndtri(ends(level, 1, 2)[1]))
    z = z if subgroups is None else max(z, OPTIMISTIC)
    return ceil(0.25 * (1 / one + 1 / other) * (z / precision) ** 2)
