"""Bins of numbers and axes of subgroups: agreed from clients' summary statistics and from counts in cells, which add up
over clients, never from pooled rows.

For trees (``Binning``) cells are counted a few times, each time finer where many rows lie: a column with a long tail
has bins there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from agnosticfair.data.encoding import Encoding, bin_codes, bin_names, check_finite, shown
from agnosticfair.data.summary import MAX_VALUES, SummaryStatistics, summary_statistics
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.mathematics.subgroups import FEATURES, SITE, Axis
from agnosticfair.mathematics.trees import MAX_CODES, Bins, number_codes

Edges = Callable[[np.ndarray, np.ndarray, int], tuple[float, ...]]
FINE = 1024
"""Cells of a column of numbers in which clients count at a time."""


MIN_BIN = 20
"""Rows of a bin, about: fewer tell too little."""


def round_cuts(low: float, high: float, cells: int = FINE) -> np.ndarray:
    """Cuts from low to high of few digits, multiples of 1, 2, 2.5 or 5 times a power of ten, (cells - 1,). The last one
    fills the rest up, and cuts no more.

    >>> round_cuts(17.0, 90.0)[[0, 1, 9, -1]], round_cuts(0.0, 99999.0)[:2]
    (array([17.1, 17.2, 18. , 90. ]), array([100., 200.]))
    """
    cuts = np.full(cells - 1, high)
    if not high - low > 1e-300:
        return cuts
    power = int(np.floor(np.log10((high - low) / cells))) - 1
    scale = np.float64(10.0) ** abs(power)
    for unit in (10.0, 20.0, 25.0, 50.0, 100.0):
        step = unit * scale if power >= 0 else unit / scale
        first, last = np.floor(low / step) + 1, np.floor(high / step)
        if last - first < cells - 1:
            break
    multiples = unit * np.minimum(first + np.arange(cells - 1), last)
    cuts = multiples * scale if power >= 0 else multiples / scale
    return np.clip(cuts, low, high)


def histogram(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Rows in each cell between ``round_cuts``, (FINE,): sums, which add up over clients. Missing numbers are in none.

    >>> histogram(np.array([0.0, 1.0, 1.0]), 0.0, 1.0).nonzero()
    (array([   0, 1023]),)
    """
    return count_fine_bins(values, round_cuts(low, high))[:-1]


def edges_at_quantiles(cuts: np.ndarray, counts: np.ndarray, bins: int) -> tuple[float, ...]:
    """Edges near the quantiles 1 / bins, 2 / bins, ... of what clients counted; fewer where cells are heavy.

    >>> edges_at_quantiles(round_cuts(17.0, 90.0), histogram(np.arange(17.0, 91.0), 17.0, 90.0), 3)
    (42.0, 67.0)
    """
    full = np.flatnonzero(counts)
    wanted = counts.sum() * np.arange(1, bins) / bins
    return _edges_after(cuts, full, np.searchsorted(np.cumsum(counts[full]), wanted - 1e-9))


def edges_of(
    cuts: np.ndarray, counts: np.ndarray, bins: int, min_rows: int = MIN_BIN
) -> tuple[float, ...]:
    """Edges of at most so many bins with about as many rows each, and ``min_rows`` at least; a cell with more, a spike,
    is a bin by itself.  counts: of the cells between cuts.

    >>> spike = np.concatenate([np.zeros(900), np.arange(1.0, 101.0)])
    >>> edges_of(round_cuts(0.0, 100.0), histogram(spike, 0.0, 100.0), 5)
    (1.0, 26.0, 51.0, 76.0)
    """
    full = np.flatnonzero(counts)
    rows = counts[full]
    last = _last_fine_bins(rows, min_rows, min_rows)
    heavy = rows > rows.sum() / bins
    wanted = rows[~heavy].sum() / max(bins - int(heavy.sum()), 1)
    while len(last) >= bins:
        last = _last_fine_bins(rows, wanted, min_rows)
        wanted *= 1.05
    return _edges_after(cuts, full, last)


def _last_fine_bins(rows: np.ndarray, wanted: float, min_rows: int) -> list[int]:
    """After which cells an edge comes, if bins have about so many rows, and a cell with more is one by itself."""
    last, inside, left, counts = [], 0.0, float(rows.sum()), rows.tolist()
    for k in range(len(counts) - 1):
        inside += counts[k]
        left -= counts[k]
        if left < min_rows:
            break
        if inside >= wanted or (inside >= min_rows and counts[k + 1] >= wanted):
            last.append(k)
            inside = 0.0
    return last


def _edges_after(cuts: np.ndarray, full: np.ndarray, places: Iterable[int]) -> tuple[float, ...]:
    """The edges after these of the cells with rows: anywhere before the next such cell, so the number of fewest
    digits there."""
    inner = (int(k) for k in places if k + 1 < len(full))
    return tuple(sorted({shortest(cuts[full[k]], cuts[full[k + 1] - 1]) for k in inner}))


def shortest(low: float, high: float) -> float:
    """The number of fewest digits from low to high; of several the highest.

    >>> shortest(97.6553, 114.0), shortest(41.1, 42.9), shortest(-0.3, 2.0)
    (100.0, 42.0, 2.0)
    """
    largest = max(abs(low), abs(high))
    power = int(np.floor(np.log10(largest))) if largest > 0 else 0
    for place in range(power, power - 17, -1):
        multiple = round(high / 10.0**place)
        for number in (float(f"{multiple}e{place}"), float(f"{multiple - 1}e{place}")):
            if low <= number <= high:
                return number
    return float(high)


def axis_of_bins(
    statistics: SummaryStatistics,
    name: str,
    counts: np.ndarray | None,
    bins: int,
    edges_of: Edges = edges_at_quantiles,
) -> tuple[float, ...]:
    """The edges of a column from its histogram; those of dates without a time are dates, too.
    Where a schema declares bins, these."""
    if name in statistics.bins:
        return tuple(statistics.bins[name])
    low, high = statistics.ranges[name]
    assert counts is not None
    edges = edges_of(round_cuts(low, high), counts, bins)
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
    """The columns whose values name subgroups: those asked for, '*' being all features, which are the default,
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
    """The axes that all clients share.  counts: column of numbers -> ``histogram`` over its agreed range, added up over
    clients.  bins: of a number, each with about as many rows.  columns: as ``chosen_columns`` has them, 'site'
    being the client.  others: values of further columns."""
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
            bin_of_row = bin_codes(table.numeric[axis.name], axis.edges)
            codes[:, c] = np.where(bin_of_row < len(axis.values), bin_of_row, -1)
        elif axis.name == SITE and client in axis.values:
            codes[:, c] = axis.values.index(client)
        else:
            codes[:, c] = table.column(axis.name).aligned(axis.values)
    return codes


PASSES = 3
"""How many times cells are counted."""

HEAVY = 1 / 512
"""Cells with more than this share of the rows are cut again."""


@dataclass(frozen=True)
class Binning:
    """How values become codes of one byte (``mathematics.trees``).  edges: of every column of numbers, one after the
    other.  edge_sizes: how many edges each has.  codes: of every category, of one column after the other; 0 for those
    that are rare."""

    edges: np.ndarray
    edge_sizes: np.ndarray
    codes: np.ndarray

    @cached_property
    def by_column(self) -> list[np.ndarray]:
        ends = np.cumsum(np.asarray(self.edge_sizes, int))
        return np.split(np.asarray(self.edges, float), ends[:-1]) if len(ends) else []

    @property
    def key(self) -> bytes:
        arrays = (self.edges, self.edge_sizes, self.codes)
        return b"|".join(np.asarray(array, float).tobytes() for array in arrays)

    def categories(self, encoding: Encoding) -> list[np.ndarray]:
        ends = np.cumsum([len(values) for _, values in encoding.categorical])
        return np.split(np.asarray(self.codes).astype(np.uint8), ends[:-1]) if len(ends) else []

    def bins(self, encoding: Encoding) -> Bins:
        """How many codes every column has."""
        numeric = tuple(len(edges) + 2 for edges in self.by_column)
        more = tuple(int(codes.max()) + 1 for codes in self.categories(encoding))
        return Bins(numeric + more, len(numeric))

    def columns(self, encoding: Encoding, table: Table, who: str = "the data") -> np.ndarray:
        """The codes of a table's rows, (C, n) uint8: 0 for missing numbers, and for categories that are rare or new."""
        rows = np.empty((len(encoding.numeric) + len(encoding.categorical), len(table)), np.uint8)
        for j, ((name, _, _), edges) in enumerate(
            zip(encoding.numeric, self.by_column, strict=True)
        ):
            rows[j] = number_codes(_numbers(table, name, who), edges)
        pairs = zip(encoding.categorical, self.categories(encoding), strict=True)
        for j, ((name, values), codes) in enumerate(pairs, len(encoding.numeric)):
            if name not in table.categorical:
                raise DataError(
                    f"{who} has no column of categories {name!r}, which the model needs: add it"
                )
            # the last place is that of values which are not in the vocabulary: -1
            rows[j] = np.append(codes, np.uint8(0))[table.categorical[name].aligned(values)]
        return rows


def _numbers(table: Table, name: str, who: str) -> np.ndarray:
    if name not in table.numeric:
        raise DataError(f"{who} has no column of numbers {name!r}, which the model needs: add it")
    return table.numeric[name]


def declared(encoding: Encoding) -> Binning:
    """The bins that the encoding has, and every category by itself, as far as codes of one byte reach.

    >>> declared(Encoding((("age", 0.0, 9.0),), (("job", ("a", "b")),), bins=(("age", (5.0,)),))).codes
    array([1, 2], dtype=uint8)
    """
    bins = dict(encoding.bins)
    edges = [np.array(bins.get(name, ()), float) for name, *_ in encoding.numeric]
    codes = [np.arange(1, len(values) + 1) for _, values in encoding.categorical]
    return Binning(
        np.concatenate([np.zeros(0), *edges]),
        np.array([len(some) for some in edges], np.uint16),
        np.concatenate([np.zeros(0), *(np.where(c < MAX_CODES, c, 0) for c in codes)]).astype(
            np.uint8
        ),
    )


def equal_fine_bins(encoding: Encoding) -> np.ndarray:
    """The cuts between equal cells of every column's range, (columns, FINE - 1)."""
    inner = np.arange(1, FINE) / FINE
    ranges = np.array([(low, high) for _, low, high in encoding.numeric], float).reshape(-1, 2)
    return ranges[:, :1] + (ranges[:, 1:] - ranges[:, :1]) * inner


def count_fine_bins(values: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Rows between cuts, and last those without a number, (len(cuts) + 2,); they add up over clients.

    >>> count_fine_bins(np.array([1.0, 2.0, np.nan, 9.0]), np.array([2.0, 5.0]))
    array([1., 1., 1., 1.])
    """
    ordered = np.sort(values)  # NaN last
    known = len(ordered) - int(np.isnan(values).sum())
    below = np.searchsorted(ordered[:known], cuts, "left")
    ends = np.concatenate([[0], below, [known, len(ordered)]])
    return np.diff(ends).astype(float)


def fine_bin_counts(encoding: Encoding, table: Table, cuts: np.ndarray, who: str) -> np.ndarray:
    """``count_fine_bins`` of every column of numbers, (columns, cells + 1)."""
    pairs = zip(encoding.numeric, cuts, strict=True)
    rows = [
        count_fine_bins(_numbers(table, name, who), of_column) for (name, _, _), of_column in pairs
    ]
    return np.array(rows).reshape(len(rows), cuts.shape[1] + 2)


def value_counts(encoding: Encoding, table: Table) -> np.ndarray:
    """How many rows have each category, of one column after the other."""
    counts = [np.zeros(0)]
    for name, values in encoding.categorical:
        codes = table.categorical[name].aligned(values)
        counts.append(np.bincount(codes[codes >= 0], minlength=len(values)).astype(float))
    return np.concatenate(counts)


def finer(cuts: np.ndarray, counts: np.ndarray, low: float, high: float) -> np.ndarray:
    """More cuts, where cells hold many rows, and none between empty ones.  counts: of the cells between cuts.

    >>> finer(np.array([5.0]), np.array([0.0, 9.0]), 0.0, 10.0)[[0, 1, -1]].round(3)
    array([ 5.   ,  5.005, 10.   ])
    """
    ends = np.concatenate([[low], cuts, [high]])
    heavy = (counts > HEAVY * counts.sum()) & (np.diff(ends) > 0)
    share = FINE * counts / max(counts[heavy].sum(), 1.0)
    pieces = np.where(heavy, np.maximum(4, share), 1).astype(int)
    full = np.flatnonzero(counts)
    pieces, fine_bin = pieces[full], np.repeat(full, pieces[full])
    step = np.arange(len(fine_bin)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    inside = ends[fine_bin] + (ends[fine_bin + 1] - ends[fine_bin]) * (
        step / np.repeat(pieces, pieces)
    )
    finer_cuts = np.unique(np.concatenate([inside, ends[full + 1]]))
    return finer_cuts[finer_cuts > low]


def refined(encoding: Encoding, cuts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """``finer`` cuts of every column, (columns, K); the highest number fills rows up, and changes no cell.

    counts: (columns, cells + 1), as ``fine_bin_counts`` has them.
    """
    new_cuts = [
        finer(of_column, count[:-1], low, high)
        for of_column, count, (_, low, high) in zip(cuts, counts, encoding.numeric, strict=True)
    ]
    width = max(map(len, new_cuts), default=0)
    filled = zip(new_cuts, encoding.numeric, strict=True)
    rows = [
        np.append(of_column, np.full(width - len(of_column), high))
        for of_column, (_, _, high) in filled
    ]
    return np.array(rows).reshape(len(rows), width)


def category_codes(counts: np.ndarray, max_bins: int, min_rows: int) -> np.ndarray:
    """The code of every category: 1, 2, ... for the most frequent ones, in their order; 0 for those that are rare.

    >>> category_codes(np.array([30.0, 2.0, 50.0]), 255, 20)
    array([1, 0, 2], dtype=uint8)
    """
    frequent = np.argsort(-counts, kind="stable")[: max_bins - 1]
    chosen = np.zeros(len(counts), bool)
    chosen[frequent] = counts[frequent] >= min_rows
    codes = np.zeros(len(counts), np.uint8)
    codes[chosen] = np.arange(1, chosen.sum() + 1)
    return codes


def agreed(
    encoding: Encoding,
    cuts: np.ndarray,
    sums: Mapping[str, np.ndarray],
    max_bins: int,
    min_rows: int,
) -> Binning:
    """The bins that all clients share, from their counts together."""
    max_bins = min(max_bins, MAX_CODES - 1)
    edges = [
        edges_of(of_column, counts[:-1], max_bins, min_rows)
        for of_column, counts in zip(cuts, sums["fine_bin_counts"], strict=True)
    ]
    ends = np.cumsum([len(values) for _, values in encoding.categorical])
    by_value: Sequence[np.ndarray] = np.split(sums["value_counts"], ends[:-1]) if len(ends) else []
    codes = [category_codes(of_column, max_bins, min_rows) for of_column in by_value]
    return Binning(
        np.concatenate([np.zeros(0), *edges]),
        np.array([len(of_column) for of_column in edges], np.uint16),
        np.concatenate([np.zeros(0, np.uint8), *codes]),
    )
