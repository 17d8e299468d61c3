"""Axes of subgroups: agreed from the clients' summary statistics and counts over agreed ranges, never from pooled
rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from agnosticfair.data.encoding import Encoding, bin_codes, bin_names, check_finite, shown
from agnosticfair.data.summary import MAX_VALUES, SummaryStatistics, summary_statistics
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.mathematics.subgroups import FEATURES, SITE, Axis

Edges = Callable[[np.ndarray, float, float, int], tuple[float, ...]]
FINE = 1024
"""The cells over a number's range in which clients count."""


MIN_BIN = 20
"""Rows of a bin, about: fewer tell too little."""


def histogram(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Rows in each of FINE equal cells from low to high, (FINE,): sums, which add up over clients. Missing numbers are
    in none.

    >>> histogram(np.array([0.0, 1.0, 1.0]), 0.0, 1.0)[[0, -1]]
    array([1., 2.])
    """
    values, width = values[~np.isnan(values)], (high - low) or 1.0
    place = np.clip((values - low) / width * FINE, 0, FINE - 1).astype(int)
    return np.bincount(place, minlength=FINE).astype(float)


def edges_of(counts: np.ndarray, low: float, high: float, bins: int) -> tuple[float, ...]:
    """Edges near the quantiles 1 / bins, 2 / bins, ... of what clients counted; fewer where cells are heavy.

    Between two cells with rows an edge may lie anywhere: it is the number of fewest digits there, and of whole numbers
    the first of the upper cell.

    >>> edges_of(histogram(np.arange(100.0), 0.0, 100.0), 0.0, 100.0, 2)
    (50.0,)
    >>> edges_of(histogram(np.arange(17.0, 91.0), 17.0, 90.0), 17.0, 90.0, 3)
    (42.0, 67.0)
    """
    below, full, edge = np.cumsum(counts), np.flatnonzero(counts), _edges_between(counts, low, high)
    edges = set()
    for k in range(1, bins):
        place = int(np.searchsorted(below, below[-1] * k / bins - 1e-9))
        after = full[full > place]
        if len(after):
            edges.add(edge(place, int(after[0])))
    return tuple(sorted(edges))


def bins_of(counts: np.ndarray, low: float, high: float, bins: int) -> tuple[float, ...]:
    """Edges of about so many bins with about as many rows each; a cell with more, a spike, is a bin by itself, and what
    lies beyond it is cut by its own quantiles.

    >>> spike = np.concatenate([np.zeros(900), np.arange(1.0, 101.0)])
    >>> bins_of(histogram(spike, 0.0, 100.0), 0.0, 100.0, 5)
    (1.0, 26.0, 51.0, 76.0)
    """
    full = np.flatnonzero(counts)
    heavy = counts[full] > counts.sum() / bins
    after = np.flatnonzero(heavy[:-1] | heavy[1:])  # an edge behind and before every spike
    rest = np.where(heavy, 0.0, counts[full])
    room = min(bins - int(heavy.sum()), int(rest.sum() // MIN_BIN))
    below = np.cumsum(rest)
    for k in range(1, room):
        place = int(np.searchsorted(below, below[-1] * k / room - 1e-9))
        after = np.append(after, place)
    edge = _edges_between(counts, low, high)
    places = [k for k in sorted({*after.tolist()}) if k + 1 < len(full)]
    return tuple(sorted({edge(int(full[k]), int(full[k + 1])) for k in places}))


def _edges_between(counts: np.ndarray, low: float, high: float) -> Callable[[int, int], float]:
    """The edge between two cells with rows. Where every cell with rows holds a whole number, and no more than one, the
    column is taken to be of whole numbers."""
    width, near = (high - low) / FINE, 1e-9 * max(1.0, abs(low), abs(high))
    starts = low + np.flatnonzero(counts) * width - near
    whole = width < 1.0 and bool((np.ceil(starts) <= starts + width + 2 * near).all())

    def edge(below: int, above: int) -> float:
        start = low + above * width
        return (
            float(np.ceil(start - near)) if whole else _shortest(low + (below + 1) * width, start)
        )

    return edge


def _shortest(low: float, high: float) -> float:
    """The number of fewest significant digits from low to high."""
    for digits in range(1, 17):
        for number in (high, low):
            rounded = float(f"{number:.{digits}g}")
            if low <= rounded <= high:
                return rounded
    return high


def axis_of_bins(
    statistics: SummaryStatistics,
    name: str,
    counts: np.ndarray | None,
    bins: int,
    edges_of: Edges = edges_of,
) -> tuple[float, ...]:
    """``edges_of`` a column over its range in the summary statistics; those of dates without a time are dates, too.
    Where a schema declares bins, these."""
    if name in statistics.bins:
        return tuple(statistics.bins[name])
    low, high = statistics.ranges[name]
    assert counts is not None
    edges = edges_of(counts, low, high, bins)
    if name in statistics.dates and low.is_integer() and high.is_integer():
        return tuple(sorted({float(np.ceil(edge)) for edge in edges}))  # the same rows lie below
    return edges


def bin_axis(name: str, edges: Sequence[float], dated: bool = False, missing: bool = False) -> Axis:
    """The axis of a number's bins, named by their edges; rows that lack it have a value of their own.

    >>> bin_axis("age", (30.0, 50.0)).values
    ('under 30', '30 to 50', '50 or more')
    """
    if not edges and not missing:
        return Axis(name, ("any",))
    return Axis(name, bin_names(edges, dated, missing), tuple(edges))


def chosen_columns(
    statistics: SummaryStatistics,
    columns: Sequence[str] | None,
    others: Mapping[str, Sequence[str]],
    clients: Sequence[str],
) -> tuple[str, ...]:
    """The columns whose values name subgroups: those asked for, '*' being all features, which are meant unless said,
    but for those with more than MAX_VALUES.  others: the values of further columns."""
    known = {**dict.fromkeys(statistics.numeric), **dict.fromkeys(statistics.categorical)}
    few = sorted(k for k in known if len(statistics.categorical.get(k, ())) <= MAX_VALUES)
    wanted_columns = (FEATURES,) if columns is None else columns
    names = tuple(
        dict.fromkeys(n for name in wanted_columns for n in (few if name == FEATURES else (name,)))
    )
    values = {**statistics.categorical, **values_of(statistics, others), SITE: tuple(clients)}
    for name in names:
        if name not in known and name not in values:
            there = shown(sorted({*known, *values}))
            raise SettingsError(
                f"no column {name!r} of at most {MAX_VALUES} values to name subgroups by; there are {there}"
            )
        if len(values.get(name, ())) > MAX_VALUES:
            raise SettingsError(
                f"column {name!r} has {len(values[name])} values, more than {MAX_VALUES}: leave it out of the columns "
                "that name subgroups, or join its values"
            )
    return names


def values_of(
    statistics: SummaryStatistics, others: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Sequence[str]]:
    """The values of columns that are no features: sensitive ones, those of the summary statistics, and further ones."""
    groups = {k: tuple(v) for k, v in statistics.groups.items()}
    return {**groups, **statistics.other, **(others or {})}


def axes_of(
    statistics: SummaryStatistics,
    counts: Mapping[str, np.ndarray],
    bins: int = 4,
    columns: Sequence[str] | None = None,
    others: Mapping[str, Sequence[str]] | None = None,
    clients: Sequence[str] = (),
) -> tuple[Axis, ...]:
    """The axes that all clients share.

    Parameters
    ----------
    statistics : Summary statistics
        Of all clients together: categories and ranges.
    counts : mapping
        Column of numbers -> ``histogram`` over its agreed range, added up over clients.
    bins : int
        Of a number, each with about the same share of rows.
    columns : sequence of str, optional
        Those that name subgroups; '*' is all features, which are meant unless said, and 'site' the client.
    others : mapping, optional
        Values of further columns.
    """
    others = others or {}
    axes = []
    for name in chosen_columns(statistics, columns, others, clients):
        if name in statistics.numeric:
            edges = axis_of_bins(statistics, name, counts.get(name), bins)
            axes.append(bin_axis(name, edges, name in statistics.dates, name in statistics.missing))
        elif name in statistics.categorical:
            axes.append(Axis(name, tuple(statistics.categorical[name])))
        else:
            values = values_of(statistics, others).get(name, clients)
            axes.append(Axis(name, tuple(sorted(values))))
    return tuple(axis for axis in axes if len(axis.values) > 1)


def within(statistics: SummaryStatistics, encoding: Encoding | None) -> SummaryStatistics:
    """The summary statistics with the ranges of an encoding."""
    if encoding is None:
        return statistics
    ranges = {
        name: (low, high) for name, low, high in encoding.numeric if name in statistics.numeric
    }
    return replace(statistics, numeric={**statistics.numeric, **ranges})


def axes_of_table(
    table: Table,
    columns: Sequence[str] | None = None,
    bins: int = 4,
    encoding: Encoding | None = None,
) -> tuple[Axis, ...]:
    """The axes of rows that lie in one place: those that they would agree on as the only client.  encoding: of the
    model that is audited, within whose ranges bins lie."""
    further = {**table.sensitive_features, **table.other}
    nothing = Column(np.zeros(len(table), np.int32), ("",))
    rows = Table(table.numeric, table.categorical, nothing, {}, further, how=table.how)
    statistics = within(summary_statistics(rows, "the rows"), encoding)
    counts = {name: histogram(v, *statistics.ranges[name]) for name, v in table.numeric.items()}
    others = {name: column.categories for name, column in further.items()}
    return axes_of(statistics, counts, bins, columns, others)


def codes_of(
    table: Table, axes: Sequence[Axis], who: str = "the data", client: str = ""
) -> np.ndarray:
    """Z, (n, C): every row's value on every axis, -1 where it has another one.

    >>> codes_of(Table({"age": np.array([20.0, 60.0])}, {}, None, {}), (bin_axis("age", (30.0,)),))
    array([[0],
           [1]], dtype=int16)
    """
    codes = np.empty((len(table), len(axes)), np.int16)
    for c, axis in enumerate(axes):
        if axis.edges or axis.name in table.numeric:
            if axis.name not in table.numeric:
                raise DataError(
                    f"{who} has no column of numbers {axis.name!r}, whose bins name subgroups: add it"
                )
            check_finite(axis.name, table.numeric[axis.name], who, missing=True)
            one_bin = bin_codes(table.numeric[axis.name], axis.edges)
            codes[:, c] = np.where(one_bin < len(axis.values), one_bin, -1)
        elif axis.name == SITE and client in axis.values:
            codes[:, c] = axis.values.index(client)
        else:
            codes[:, c] = table.column(axis.name).aligned(axis.values)
    return codes
