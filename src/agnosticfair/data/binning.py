"""Bins for trees: agreed from counts in cells, which add up over clients, never from pooled rows.

Cells are counted a few times, each time finer where many rows lie: a column with a long tail has bins there, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from agnosticfair.data.encoding import Encoding
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError
from agnosticfair.mathematics.trees import MAX_CODES, Bins, number_codes

FINE_BINS = 1024
"""Cells of a column of numbers that are counted at a time."""

PASSES = 3
"""How many times cells are counted."""

HEAVY = 1 / 512
"""Cells with more than this share of the rows are cut again."""


@dataclass(frozen=True)
class Binning:
    """How values become codes of one byte (``mathematics.trees``).

    Parameters
    ----------
    edges : array
        Of every column of numbers, one after the other.
    edge_sizes : array
        How many edges each has.
    codes : array
        The code of every category, of one column after the other; 0 for those that are rare.
    """

    edges: np.ndarray
    edge_sizes: np.ndarray
    codes: np.ndarray

    @cached_property
    def by_column(self) -> list[np.ndarray]:
        """The edges of each column of numbers."""
        ends = np.cumsum(np.asarray(self.edge_sizes, int))
        return np.split(np.asarray(self.edges, float), ends[:-1]) if len(ends) else []

    @property
    def key(self) -> bytes:
        """The content, for a cache."""
        arrays = (self.edges, self.edge_sizes, self.codes)
        return b"|".join(np.asarray(array, float).tobytes() for array in arrays)

    def categories(self, encoding: Encoding) -> list[np.ndarray]:
        """The codes of each column's categories."""
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
    """The cuts between equal cells of every column's range, (columns, CELLS - 1)."""
    inner = np.arange(1, FINE_BINS) / FINE_BINS
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
        count_fine_bins(_numbers(table, name, who), cuts_here) for (name, _, _), cuts_here in pairs
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
    share = FINE_BINS * counts / max(counts[heavy].sum(), 1.0)
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
        finer(cuts_here, count[:-1], low, high)
        for cuts_here, count, (_, low, high) in zip(cuts, counts, encoding.numeric, strict=True)
    ]
    width = max(map(len, new_cuts), default=0)
    filled = zip(new_cuts, encoding.numeric, strict=True)
    rows = [
        np.append(cuts_here, np.full(width - len(cuts_here), high))
        for cuts_here, (_, _, high) in filled
    ]
    return np.array(rows).reshape(len(rows), width)


def edges_from_fine_bins(
    cuts: np.ndarray, counts: np.ndarray, max_bins: int, min_rows: int
) -> np.ndarray:
    """Edges of at most so many bins with about as many rows each, and ``min_rows`` at least.

    Between two cells with rows an edge may lie anywhere: it is in the middle.  counts: (K + 1,).

    >>> edges_from_fine_bins(np.array([1.0, 2.0, 3.0]), np.array([50.0, 0.0, 30.0, 20.0]), 2, 1)
    array([1.5])
    """
    full = np.flatnonzero(counts)
    rows = counts[full]
    last = _last_fine_bins(rows, min_rows, min_rows)
    heavy = rows > rows.sum() / max_bins
    wanted = rows[~heavy].sum() / max(max_bins - int(heavy.sum()), 1)
    while len(last) >= max_bins:
        last = _last_fine_bins(rows, wanted, min_rows)
        wanted *= 1.05
    return np.array([(cuts[full[k]] + cuts[full[k + 1] - 1]) / 2 for k in last])


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
        edges_from_fine_bins(cuts_here, counts[:-1], max_bins, min_rows)
        for cuts_here, counts in zip(cuts, sums["fine_bin_counts"], strict=True)
    ]
    ends = np.cumsum([len(values) for _, values in encoding.categorical])
    by_value: Sequence[np.ndarray] = np.split(sums["value_counts"], ends[:-1]) if len(ends) else []
    codes = [category_codes(cuts_here, max_bins, min_rows) for cuts_here in by_value]
    return Binning(
        np.concatenate([np.zeros(0), *edges]),
        np.array([len(cuts_here) for cuts_here in edges], np.uint16),
        np.concatenate([np.zeros(0, np.uint8), *codes]),
    )
