"""From the columns the clients agreed on to the feature matrix X, the same at every client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from agnosticfair.data import wire
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError, ModelError
from agnosticfair.mathematics.linear import on_grid

FEATURE_BITS = 20
LATEST = 2.9e6
"""Days from 1970 that are a date of four digits."""


@dataclass(frozen=True)
class Encoding:
    """How columns become features: numeric ones scaled by (low, high), then one-hots.

    numeric: (name, low, high) each.  categorical: (name, vocabulary) each.  bins: (name, edges) of
    columns of numbers that are one-hots of bins, too.  dates: columns of numbers that are days since 1970.  missing:
    columns of numbers that some rows lack, who have an indicator of their own behind the bins.  The intercept is not a
    feature here.

    >>> Encoding((("age", 17.0, 90.0),), (("sex", ("F", "M")),), bins=(("age", (30.0,)),)).names
    ('age', 'sex=F', 'sex=M', 'age under 30', 'age 30 or more')
    """

    numeric: tuple[tuple[str, float, float], ...]
    categorical: tuple[tuple[str, tuple[str, ...]], ...]
    scale: bool = True
    bins: tuple[tuple[str, tuple[float, ...]], ...] = ()
    dates: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The d feature names, in the order of X's columns."""
        hot = (f"{name}={value}" for name, values in self.categorical for value in values)
        cut = (f"{name} {bin_name}" for name in dict(self.bins) for bin_name in self.bins_of(name))
        return (*(name for name, _, _ in self.numeric), *hot, *cut)

    def bins_of(self, name: str) -> tuple[str, ...]:
        """The bins of a column of numbers, in words."""
        return bin_names(dict(self.bins)[name], name in self.dates, name in self.missing)

    def bin_sizes(self) -> list[int]:
        """How many indicators the bins of each column have."""
        return [len(edges) + 1 + (name in self.missing) for name, edges in self.bins]

    @property
    def width(self) -> int:
        """d, the number of features, without the intercept."""
        return indicators(self)[-1]

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers, for the model file and the wire."""
        return dict(wire.plain(self))

    @classmethod
    def from_json(cls, data: object) -> Encoding:
        """The inverse of ``to_json``; the data is not trusted.

        >>> Encoding.from_json({"numeric": [["age", 17, 90]], "categorical": [], "scale": True})
        Encoding(numeric=(('age', 17.0, 90.0),), categorical=(), scale=True, bins=(), dates=(), missing=())
        """
        try:
            encoding = wire.record(cls, data)
            _check(encoding)
        except ValueError as problem:
            raise ModelError(f"the encoding is damaged: {problem}; save the model again") from None
        return encoding


def _check(encoding: Encoding) -> None:
    numbers = {name for name, *_ in encoding.numeric}
    columns = [
        *(name for name, *_ in encoding.numeric),
        *(name for name, _ in encoding.categorical),
    ]
    wire.distinct(columns, "the list of columns")
    for name, low, high in encoding.numeric:
        wire.in_order(low, high, f"the range of {name!r}")
    for name, values in encoding.categorical:
        wire.distinct(values, f"the vocabulary of {name!r}")
    for name, edges in encoding.bins:
        if name not in numbers or not (edges or name in encoding.missing):
            raise ValueError(f"the bins of {name!r} should be edges of a column of numbers")
        wire.ascending(edges, f"the bins of {name!r}")
    wire.distinct(encoding.dates, "'dates'")
    wire.distinct(encoding.missing, "'missing'")
    if not numbers >= {*encoding.missing}:
        raise ValueError("'missing' should be columns of numbers")


def indicators(encoding: Encoding) -> tuple[int, ...]:
    """Where the indicators of each column's values begin among the features, and where the last ones end.

    >>> indicators(Encoding((("age", 17.0, 90.0),), (("sex", ("F", "M")),), bins=(("age", (30.0,)),)))
    (1, 3, 5)
    """
    sizes = [len(values) for _, values in encoding.categorical]
    sizes += encoding.bin_sizes()
    return tuple(accumulate(sizes, initial=len(encoding.numeric)))


def exponents(encoding: Encoding) -> np.ndarray:
    """Powers of two that no feature exceeds, (d + 1,): 0 where the encoding scales to [0, 1]."""
    bits = np.zeros(encoding.width + 1, int)
    if not encoding.scale:
        for j, (_, low, high) in enumerate(encoding.numeric):
            largest = max(abs(low), abs(high))
            bits[j] = int(np.ceil(np.log2(largest))) if largest > 0 else 0
    return bits


def day(days: float) -> str:
    """Days since 1970 as a date, with the time of the day where there is one.

    >>> day(20000.0), day(20000.5)
    ('2024-10-04', '2024-10-04 12:00')
    """
    if abs(days) > LATEST:
        return f"{days:g} days after 1970"
    minute = np.datetime64(round(days * 1440), "m")
    return str(minute).replace("T", " ").removesuffix(" 00:00")


def bin_names(
    edges: Sequence[float], dated: bool = False, missing: bool = False
) -> tuple[str, ...]:
    """The bins that edges make, in words; the last one of rows without a number, where there are such.

    >>> bin_names((30.0, 50.0))
    ('under 30', '30 to 50', '50 or more')
    >>> bin_names((20000.0,), dated=True)
    ('before 2024-10-04', '2024-10-04 or later')
    """
    if missing:
        return (*(bin_names(edges, dated) if len(edges) else ("known",)), "missing")
    if dated:
        inner = (f"{day(a)} to {day(b)}" for a, b in pairwise(edges))
        return f"before {day(edges[0])}", *inner, f"{day(edges[-1])} or later"
    inner = (f"{a:g} to {b:g}" for a, b in pairwise(edges))
    return f"under {edges[0]:g}", *inner, f"{edges[-1]:g} or more"


def encode(
    encoding: Encoding,
    table: Table,
    who: str = "the data",
    out: np.ndarray | None = None,
    places: np.ndarray | None = None,
) -> np.ndarray:
    """The feature matrix X, (n, d) float64: numeric columns scaled to [0, 1], then one-hots.

    Scaled values are multiples of 2^-20, so that sums over rows can be exact; float32 holds them, too.
    ``out``: where to write X, of any type.  places: the row of X for each row of the table; in order unless said.

    A numeric column that was constant in training encodes to 0, as does a number that is missing.

    >>> encode(Encoding((("age", 20.0, 40.0),), ()), Table({"age": np.array([25.0])}, {}, None, {}))
    array([[0.25]])
    """
    X = np.empty((len(table), encoding.width)) if out is None else out
    X[:] = 0.0
    every: Any = slice(None) if places is None else places
    for j, (name, low, high) in enumerate(encoding.numeric):
        X[every, j] = _scaled(encoding, (name, low, high), table, who)
    start, rows = len(encoding.numeric), np.arange(len(table)) if places is None else places
    for name, categories in encoding.categorical:
        X[rows, start + _codes(table, name, categories, who)] = 1.0
        start += len(categories)
    for name, edges in encoding.bins:
        X[rows, start + bin_codes(_values(encoding, table, name, who), edges)] = 1.0
        start += len(edges) + 1 + (name in encoding.missing)
    return X


def bin_codes(values: np.ndarray, edges: Sequence[float]) -> np.ndarray:
    """The bin of every number, (n,); that of a missing one is behind the last.

    >>> bin_codes(np.array([10.0, 30.0, np.nan]), (30.0,))
    array([0, 1, 2])
    """
    return np.searchsorted(edges, values, "right") + np.isnan(values)


def codes_and_numbers(
    encoding: Encoding, table: Table, who: str = "the data"
) -> tuple[np.ndarray, np.ndarray]:
    """What ``encode`` says, without zeros: the columns of numbers, (k, n), and which indicator of every categorical or
    binned column is 1, (C, n).

    >>> codes_and_numbers(Encoding((("age", 20.0, 40.0),), ()), Table({"age": np.array([25.0])}, {}, None, {}))
    (array([[0.25]]), array([], shape=(0, 1), dtype=int16))
    """
    numbers = np.empty((len(encoding.numeric), len(table)))
    for j, entry in enumerate(encoding.numeric):
        numbers[j] = _scaled(encoding, entry, table, who)
    sizes = [len(values) for _, values in encoding.categorical]
    kind = np.int16 if max(sizes, default=0) < 1 << 15 else np.int32
    codes = np.empty((len(sizes) + len(encoding.bins), len(table)), kind)
    for j, (name, categories) in enumerate(encoding.categorical):
        codes[j] = _codes(table, name, categories, who)
    for j, (name, edges) in enumerate(encoding.bins, len(sizes)):
        codes[j] = bin_codes(_values(encoding, table, name, who), edges)
    return numbers, codes


def _scaled(
    encoding: Encoding, entry: tuple[str, float, float], table: Table, who: str
) -> np.ndarray:
    """One column of numbers as the encoding scales it; zeros where it was constant in training, or is missing."""
    name, low, high = entry
    values = _values(encoding, table, name, who)
    if name in encoding.missing:
        values = np.where(np.isnan(values), low if encoding.scale else 0.0, values)
    if not encoding.scale:
        return values
    if high - low > 1 / wire.LARGEST:
        return on_grid((values - low) / (high - low), FEATURE_BITS)
    return np.zeros(len(values))


def check_finite(name: str, values: np.ndarray, who: str, missing: bool = False) -> None:
    """Raise if a value is infinite or too large to compute with, or NaN unless it may be missing; rows count from 1.

    >>> check_finite("age", np.array([30.0, 41.0]), "client 'north'")
    """
    if len(values) and values.min() >= -wire.LARGEST and values.max() <= wire.LARGEST:
        return
    large = np.abs(values) > wire.LARGEST
    for bad, what, remedy in (
        (large, f"is infinite or beyond {wire.LARGEST:g}", "correct these values"),
        (np.isnan(values) & (not missing), "is missing", "fill them, take learner 'trees',"),
    ):
        if bad.any():
            count, first = int(bad.sum()), int(bad.argmax()) + 1
            raise DataError(
                f"column {name!r} of {who} {what} in {count} row{'s' * (count > 1)}, the first being row {first}: "
                f"{remedy} or drop the rows"
            )


def far_outside(encoding: Encoding, table: Table) -> list[str]:
    """Sentences about the columns of numbers with values farther from those of the fit than these from each other.

    >>> far_outside(Encoding((("age", 20.0, 40.0),), ()), Table({"age": np.array([61.0])}, {}, None, {}))
    ["column 'age' has 1 value far outside of the fit's rows (20 to 40), the first being 61 in row 1: check its unit"]
    """
    sentences = []
    for name, low, high in encoding.numeric:
        values, span = table.numeric[name], high - low
        far = (values < low - span) | (values > high + span)
        if rows := int(far.sum()):
            say = day if name in encoding.dates else "{:.6g}".format
            place = int(far.argmax())
            sentences.append(
                f"column {name!r} has {rows} value{'s' * (rows > 1)} far outside of the fit's rows ({say(low)} to "
                f"{say(high)}), the first being {say(values[place])} in row {place + 1}: check its unit"
            )
    return sentences


def shown(values: Iterable[str], limit: int = 5) -> str:
    """Some values for an error message, shortened.

    >>> shown(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    listed = [repr(v if len(v) <= 40 else v[:39] + "…") for v in values]
    rest = len(listed) - limit
    return ", ".join(listed[:limit]) + (f" and {rest} more" if rest > 0 else "")


def _values(encoding: Encoding, table: Table, name: str, who: str) -> np.ndarray:
    if name not in table.numeric:
        raise _absent(name, "numeric", table.categorical, who)
    values = table.numeric[name]
    check_finite(name, values, who, name in encoding.missing)
    return values


def _codes(table: Table, name: str, categories: tuple[str, ...], who: str) -> np.ndarray:
    if name not in table.categorical:
        raise _absent(name, "categorical", table.numeric, who)
    codes = table.categorical[name].aligned(categories)
    if len(codes) and codes.min() < 0:
        value = str(table.categorical[name].values()[np.argmin(codes)])
        raise DataError(
            f"column {name!r} of {who} has the value {shown([value])}, unseen in training: "
            f"map it to a known one ({shown(categories)}) or retrain with it"
        )
    return codes


def _absent(name: str, kind: str, others: Mapping[str, object], who: str) -> DataError:
    if name in others:
        other = "categorical" if kind == "numeric" else "numeric"
        return DataError(
            f"column {name!r} of {who} is {other}, but the model was trained with it as {kind}: "
            "convert it, or name its kind when reading the file"
        )
    return DataError(f"{who} has no column {name!r}, which the model needs: add it")
