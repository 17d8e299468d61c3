"""Named parts under audit: all conjunctions with enough rows, level by level, and what holds for each beyond the
rows.

Whoever holds the rows is asked for counts of (part, group, label, decision) and nothing else, so that clients' counts
add up to the pooled ones, bit for bit. A conjunction has no more rows than what it is made of: what hangs on a
part with too few is never asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb, prod
from typing import Any

import numpy as np

from agnosticfair.data.axes import codes_of
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics import confidence
from agnosticfair.mathematics.confidence import Bounds
from agnosticfair.mathematics.notions import NOTIONS
from agnosticfair.mathematics.parts import (
    Axis,
    Part,
    check_depth,
    counted,
    part_name,
    sizes_of,
    triples,
)
from agnosticfair.settings import CONFIDENCE, COUNT, POSITIVE, SHARE, require

Asked = Callable[[Sequence[Part]], np.ndarray]
"""From parts to their counts, (M, G, 2, 2)."""


OF_DIFFERENCES = 0.75
"""Of what the bounds over parts may fail with, what those of differences have; those of ratios have the rest."""


@dataclass(frozen=True)
class Agreed:
    """The axes and parts that a fit was held to."""

    axes: tuple[Axis, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Subpopulations:
    """Which parts: conjunctions of at most ``depth`` values of different ``columns`` (all unless said) that hold
    the share ``least`` of the rows, numbers cut into ``bands``.  agreed: those that a fit was held to, on which its
    own rows are measured."""

    columns: tuple[str, ...] | None = None
    depth: int = 2
    least: float = 0.01
    bands: int = 4
    agreed: Agreed | None = None

    def __post_init__(self) -> None:
        check_depth(self.depth)
        require(SHARE, least=self.least)
        require(COUNT, bands=self.bands)


@dataclass(frozen=True)
class Rate:
    """A group in a part: its rows (those whose label the notion asks for), its rate, and the rate's own share of the
    highest one.  compared: whether it has rows enough."""

    group: str
    rows: int
    rate: float
    impact: float
    compared: bool


@dataclass(frozen=True)
class PartRecord:
    """What an audit says of one part.

    difference: on the rows, between the groups that are compared.  low, high: between which the population's lies,
    for all parts at once.  ratio, ratio_low, ratio_high: the same of the impact ratio, in the same event.
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
class Found:
    """Counts of all parts that were looked at, everybody first, and how many there could have been.

    counts: (M, G, 2, 2).  candidates, sets: of conjunctions, and of sets of columns (``confidence.spent``).
    """

    parts: tuple[Part, ...]
    names: tuple[str, ...]
    counts: np.ndarray
    candidates: int
    sets: int
    least: float

    @property
    def total(self) -> np.ndarray:
        """Rows of every part, (M,)."""
        return self.counts.sum(axis=(1, 2, 3))

    def sample(self, notion: str, precision: float) -> confidence.Sample:
        """What is known before any decision is looked at."""
        rows = confidence.compared(self.counts, notion)[1]
        few = (self.least, self.sets, self.candidates, precision, NOTIONS[notion].bounds)
        return confidence.Sample(rows, self.total, *few)

    def worst(
        self, notion: str, precision: float = 0.1, delta: float = 0.05
    ) -> tuple[float, float]:
        """The largest difference in an estimable part, and everybody's: on these rows, nothing of it bounded."""
        _, able, keep = self.levels(notion, precision, delta)
        value = confidence.on_rows(self.counts, notion, keep)
        return float(np.fmax.reduce(value[able], initial=value[0])), float(value[0])

    def foreseen(self, notion: str, precision: float, delta: float) -> float:
        """About what ``upper_of`` these parts' records would be, by normal limits: to compare models, not to claim."""
        from scipy.special import ndtri

        level, able, keep = self.levels(notion, precision, delta)
        apart = confidence.differences(self.counts, 0.5, notion, keep, True)
        k, n = confidence.compared(self.counts, notion)
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = (k / n * (1 - k / n) / n).max(axis=0)
        i, j = apart.pair.T
        both = np.where(i == j, 0.0, np.take_along_axis(variance, j[None], axis=0)[0])
        both = both + np.take_along_axis(variance, i[None], axis=0)[0]
        high = apart.value - ndtri(level / 2) * np.sqrt(both)
        return float(np.minimum(high, 1.0).max(where=able, initial=0.0)) if able.any() else 1.0

    def levels(
        self, notion: str, precision: float, delta: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What each part gets of delta, whether it is estimable, and which of its groups are compared."""
        sample = self.sample(notion, precision)
        level, able = confidence.levels(sample, delta)
        keep = confidence.estimable(sample, level) & able[:, None]
        able = keep.any(axis=1)
        return level, able, np.where(able[:, None], keep, (sample.rows > 0).all(axis=0).T)


def asked_parts(parts: Any) -> Subpopulations:
    """What the user means by ``parts``: columns, or a record with columns, depth, least and bands."""
    if isinstance(parts, Subpopulations):
        return parts
    if isinstance(parts, str):
        return Subpopulations((parts,))
    if hasattr(parts, "depth"):
        columns = None if parts.columns is None else tuple(parts.columns)
        return Subpopulations(columns, parts.depth, parts.least, parts.bands)
    return Subpopulations(None if parts is None else tuple(parts))


def own_counts(table: Table, axes: Sequence[Axis], cells: np.ndarray, groups: int) -> Asked:
    """A function that counts over rows that lie in one place.  cells: (n,) (group * 2 + label) * 2 + decision."""
    codes = codes_of(table, axes)
    return lambda parts: counted(codes, sizes_of(axes), parts, cells, 4 * groups).reshape(
        -1, groups, 2, 2
    )


def searched(axes: Sequence[Axis], asked: Subpopulations, ask: Asked, delta: float = 0.05) -> Found:
    """Counts of everybody and of every conjunction with rows enough to be told of at delta, level by level."""
    sizes, deep = sizes_of(axes), range(asked.depth + 1)
    candidates = sum(prod(some) for d in deep for some in combinations(sizes, d))
    parts: list[Part] = [()]
    counts = [ask([()])]
    least = thin_of(asked.least, counts[0][0], candidates, delta)
    level: list[Part] = [((a, v),) for a, axis in enumerate(axes) for v in range(len(axis.values))]
    for depth in range(1, asked.depth + 1):
        found = ask(level) if level else counts[0][:0]
        enough = found.sum(axis=(1, 2, 3)) >= least
        kept = [part for part, there in zip(level, enough, strict=True) if there]
        parts, counts = [*parts, *kept], [*counts, found[enough]]
        both = ((*a, *b) for a, b in combinations(kept, 2) if a[0][0] != b[0][0])
        level = [*both] if depth == 1 else triples(kept)
    sets = sum(comb(len(sizes), d) for d in deep)
    names = tuple(part_name(axes, part) for part in parts)
    return Found(tuple(parts), names, np.concatenate(counts), candidates, sets, asked.least)


def listed(axes: Sequence[Axis], parts: Sequence[Part], ask: Asked, least: float) -> Found:
    """Counts of everybody and of these parts."""
    every: tuple[Part, ...] = ((), *parts)
    sets = len({tuple(a for a, _ in part) for part in every})
    names = tuple(part_name(axes, part) for part in every)
    return Found(every, names, ask(every), len(every), sets, least)


def thin_of(least: float, everybody: np.ndarray, candidates: int, delta: float) -> int:
    """The fewest rows of a part that is looked at.  everybody: (G, 2, 2), counts of all rows."""
    n, cells = float(everybody.sum()), 2 * len(everybody) + 1
    return max(confidence.thinnest(least, n, cells, candidates, delta), 1)


def _compared(
    found: Found, notion: str, precision: float, spends: float, bounded: bool
) -> tuple[Bounds, Bounds]:
    """Every part's difference and ratio, and their ends, all of which together may fail with ``spends`` over
    OF_DIFFERENCES; nan unless bounded."""
    delta, able, keep = found.levels(notion, precision, spends)
    if not bounded:  # what is only measured compares all groups
        keep = np.all(confidence.compared(found.counts, notion)[1] > 0, axis=0).T
    rough = ~able | (not bounded)
    apart = confidence.differences(found.counts, delta, notion, keep, rough)
    of_ratios = (1 - OF_DIFFERENCES) / OF_DIFFERENCES * delta
    ratio = confidence.ratios(found.counts, of_ratios, notion, keep, rough)
    if not bounded:
        nothing = np.full(len(able), np.nan)
        return replace(apart, low=nothing, high=nothing), replace(ratio, low=nothing, high=nothing)
    most = confidence.within(found.counts, found.sample(notion, precision), spends, notion)
    high = np.where(able, np.minimum(apart.high, most), apart.high)
    return replace(apart, high=high), ratio


def records(
    found: Found,
    groups: Sequence[str],
    notion: str,
    level: float,
    precision: float,
    share: float = 1.0,
    bounded: bool = True,
) -> tuple[PartRecord, ...]:
    """What holds for every part at the confidence ``level``, in the order they were found.

    share: of delta that these bounds may spend, where others are made of the same rows.  bounded: else the ends are
    nan, for nothing holds beyond these rows, and no sharp one is searched.
    """
    require(CONFIDENCE, confidence=level)
    require(POSITIVE, precision=precision)
    spends = OF_DIFFERENCES * share * (1 - level)
    _, able, keep = found.levels(notion, precision, spends)
    k, n = confidence.compared(found.counts, notion)
    total = found.total
    apart, ratio = _compared(found, notion, precision, spends, bounded)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = (k.sum(axis=0) / n.sum(axis=0)).T
        impact = rates / np.where(keep, rates, -np.inf).max(axis=1, keepdims=True)
    return tuple(
        PartRecord(
            name=found.names[m],
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
            depth=len(found.parts[m]),
        )
        for m in range(len(found.names))
        if total[m] >= found.least * total[0]
    )


def checked_groups(found: Found, groups: Sequence[str], notion: str) -> None:
    """Raise where a group, or two for a comparison, have no row that the notion looks at."""
    rows = confidence.compared(found.counts[:1], notion)[1][..., 0].min(axis=0)
    there = [name for name, n in zip(groups, rows, strict=True) if n > 0]
    if len(there) < (1 if NOTIONS[notion].bounds else 2):
        absent = next(name for name, n in zip(groups, rows, strict=True) if not n > 0)
        raise SettingsError(
            f"group {absent!r} has no row that {notion!r} looks at, and so has no rate: audit rows that hold each "
            "group and label, or name another notion"
        )


def upper_of(made: Sequence[PartRecord]) -> float:
    """The bound over all estimable parts; 1, which bounds every rate, where there is none."""
    return max((part.high for part in made if part.estimable), default=1.0)


def worst_of(made: Sequence[PartRecord]) -> PartRecord | None:
    """The estimable part of the largest measured difference."""
    able = [part for part in made if part.estimable]
    return max(able, key=lambda part: part.difference, default=None)
