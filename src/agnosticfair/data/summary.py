"""Round zero: what a client counts of its own rows, as a value that adds with ``+``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from agnosticfair.data import wire
from agnosticfair.data.encoding import FEATURE_BITS, Encoding, check_finite, shown
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, FederationError

MAX_LABELS = 20
MAX_GROUPS = 50
"""A sensitive feature with more is an age or an identifier: its groups are too small to compare."""

MAX_FEATURES = 10_000
MAX_VALUES = 200
"""A column with more values names nobody's subgroup."""

_YES = "1 yes y true t positive approved accepted granted admitted hired passed pass good high success successful"
YES = {*_YES.split(), "paid", "won", "favorable", "+"}
_NO = "0 -1 no n false f negative denied declined rejected refused failed fail bad low failure unsuccessful lost"
NO = {*_NO.split(), "unfavorable", "-", "none"}


@dataclass(frozen=True)
class SummaryStatistics:
    """Counts, ranges and vocabularies of a client's rows, or of several clients' together.

    labels: target value -> rows.  groups: sensitive feature -> group -> rows.  numeric:
    column -> (low, high).  categorical: column -> sorted vocabulary, of which not all need occur.
    weight: of all rows, where they have weights; None for one each.  other: the values of columns that are no
    features and may name subgroups, of those that all clients have.  dates: the numeric columns that are dates, at all
    clients.  bins: column -> edges of its bins, where a schema declares them.  missing: the numeric columns that some
    rows lack; the range of one that all rows lack is empty: its low end is LARGEST, its high end -LARGEST.

    >>> one = SummaryStatistics(2, {"no": 2}, {}, {"age": (20.0, 30.0)}, {"job": ("a",)})
    >>> both = one + SummaryStatistics(1, {"yes": 1}, {}, {"age": (25.0, 40.0)}, {"job": ("b",)})
    >>> both.n, both.labels, both.numeric, both.categorical
    (3, {'no': 2, 'yes': 1}, {'age': (20.0, 40.0)}, {'job': ('a', 'b')})
    """

    n: int
    labels: Mapping[str, int]
    groups: Mapping[str, Mapping[str, int]]
    numeric: Mapping[str, tuple[float, float]]
    categorical: Mapping[str, tuple[str, ...]]
    weight: float | None = field(default=None, repr=False)
    other: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    dates: tuple[str, ...] = field(default=(), repr=False)
    bins: Mapping[str, tuple[float, ...]] = field(default_factory=dict, repr=False)
    missing: tuple[str, ...] = field(default=(), repr=False)

    @property
    def mass(self) -> float:
        return self.n if self.weight is None else self.weight

    def __add__(self, other: SummaryStatistics) -> SummaryStatistics:
        _check_same_columns(self, other)
        return SummaryStatistics(
            n=self.n + other.n,
            labels=_added(self.labels, other.labels),
            groups={k: _added(self.groups[k], other.groups[k]) for k in sorted(self.groups)},
            numeric={
                k: (min(low, other.numeric[k][0]), max(high, other.numeric[k][1]))
                for k, (low, high) in sorted(self.numeric.items())
            },
            categorical={
                k: tuple(sorted({*self.categorical[k], *other.categorical[k]}))
                for k in sorted(self.categorical)
            },
            weight=None if self.weight is other.weight is None else self.mass + other.mass,
            other={
                k: tuple(sorted({*self.other[k], *other.other[k]}))
                for k in sorted({*self.other} & {*other.other})
            },
            dates=tuple(sorted({*self.dates} & {*other.dates})),
            bins={k: v for k, v in self.bins.items() if other.bins.get(k) == v},
            missing=tuple(sorted({*self.missing} | {*other.missing})),
        )

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The ranges of columns of numbers, in the order of their names; (0, 0) where all rows lack the number."""
        return {k: (v if v[0] <= v[1] else (0.0, 0.0)) for k, v in sorted(self.numeric.items())}

    def outline(self) -> SummaryStatistics:
        """The same without a count: which labels and groups there are, ranges and categories."""
        none = {name: dict.fromkeys(groups, 0) for name, groups in self.groups.items()}
        weight = None if self.weight is None else 0.0
        return replace(self, n=0, labels=dict.fromkeys(self.labels, 0), groups=none, weight=weight)

    def to_json(self) -> dict[str, Any]:
        return dict(wire.plain(self))

    @classmethod
    def from_json(cls, data: object, who: str = "a client") -> SummaryStatistics:
        """The inverse of ``to_json``; the data is not trusted.

        >>> SummaryStatistics.from_json(
        ...     {"n": 1, "labels": {"no": 1}, "groups": {}, "numeric": {}, "categorical": {}}
        ... ).n
        1
        """
        try:
            return _checked(wire.record(cls, data))
        except ValueError as problem:
            raise FederationError(
                f"the summary statistics of {who} are damaged: {problem}; check that client's version"
            ) from None


def summary_statistics(table: Table, who: str) -> SummaryStatistics:
    """Summarise a client's rows; ``who`` names the client in errors, e.g. "client 'north'".

    >>> summary_statistics(Table({}, {}, Column.of(["no", "yes", "no"]), {}), "client 'north'").labels
    {'no': 2, 'yes': 1}
    """
    if table.target is None:
        raise DataError(f"{who} has no label: name the target column")
    if len(table) == 0:
        raise DataError(f"{who} has no rows: drop it or check its file")
    numeric = sorted(table.numeric.items())
    for name, values in numeric:
        check_finite(name, values, who, missing=True)
    for name, column in table.categorical.items():
        _counts(column, f"column {name!r}", who)
    return SummaryStatistics(
        n=len(table),
        labels=_counts(table.target, "the label", who),
        groups={
            k: _counts(table.sensitive_features[k], f"sensitive feature {k!r}", who)
            for k in sorted(table.sensitive_features)
        },
        numeric={
            k: (  # -0.0 is 0.0; fmin and fmax pass over missing numbers
                float(np.fmin.reduce(v, initial=wire.LARGEST)) + 0.0,
                float(np.fmax.reduce(v, initial=-wire.LARGEST)) + 0.0,
            )
            for k, v in numeric
        },
        categorical={k: tuple(sorted(c.categories)) for k, c in sorted(table.categorical.items())},
        weight=None if table.weights is None else _on_grid(float(table.weights.sum())),
        other={
            k: tuple(sorted(c.categories))
            for k, c in sorted(table.other.items())
            if len(c.categories) <= MAX_VALUES
        },
        dates=table.dates,
        missing=tuple(k for k, v in numeric if np.isnan(v).any()),
    )


def counts_of(
    statistics: SummaryStatistics, agreed: SummaryStatistics, who: str
) -> dict[str, np.ndarray]:
    """The counts of summary statistics as sums, in the order of the outline that was agreed on.

    >>> one = SummaryStatistics(3, {"no": 2, "yes": 1}, {}, {}, {})
    >>> counts_of(one, one.outline(), "client 'north'")["labels"]
    array([2., 1.])
    """
    fields = {"n": np.array(float(statistics.n)), "weight": np.array(float(statistics.mass))}
    columns = {"labels": (statistics.labels, agreed.labels)}
    for name in agreed.groups:
        columns[f"groups {name}"] = (statistics.groups.get(name, {}), agreed.groups[name])
    for field_name, (counts, known) in columns.items():
        if new := sorted({*counts} - {*known}):
            raise DataError(
                f"{field_name.replace('groups ', 'sensitive feature ')} of {who} has {shown(new)}, which was not "
                "agreed on: add it to the schema, or correct the rows"
            )
        fields[field_name] = np.array([float(counts.get(value, 0)) for value in sorted(known)])
    return fields


def counted(agreed: SummaryStatistics, total: Mapping[str, np.ndarray]) -> SummaryStatistics:
    """The summary statistics of all clients together, from what was agreed on and the total of ``counts_of``.

    >>> one = SummaryStatistics(3, {"no": 2, "yes": 1}, {}, {}, {})
    >>> counted(one.outline(), counts_of(one, one.outline(), "")) == one
    True
    """

    def rows(names: Mapping[str, int], field_name: str) -> dict[str, int]:
        values = total[field_name].astype(int).tolist()
        return {k: v for k, v in zip(sorted(names), values, strict=True) if v}

    return replace(
        agreed,
        n=int(total["n"]),
        labels=rows(agreed.labels, "labels"),
        groups={k: rows(v, f"groups {k}") for k, v in sorted(agreed.groups.items())},
        weight=None if agreed.weight is None else float(total["weight"]),
    )


def counts_shapes(agreed: SummaryStatistics) -> dict[str, tuple[int, ...]]:
    """What every client's answer of ``counts_of`` must look like."""
    groups = {f"groups {name}": (len(values),) for name, values in agreed.groups.items()}
    return {"n": (), "weight": (), "labels": (len(agreed.labels),), **groups}


def merge(all_statistics: Mapping[str, SummaryStatistics]) -> SummaryStatistics:
    """The sum over clients, in the order of their names; an error names the clients and the column.

    >>> a = SummaryStatistics(1, {"no": 1}, {}, {}, {})
    >>> merge({"north": a, "south": a}).n
    2
    """
    if not all_statistics:
        raise DataError("there are no clients: name at least one file")
    (first, total), *rest = sorted(all_statistics.items())
    for name, statistics in rest:
        _check_same_columns(
            all_statistics[first], statistics, f"client {first!r}", f"client {name!r}"
        )
        total = total + statistics
    return total


def check_labels_known(
    all_statistics: Mapping[str, SummaryStatistics], positive: str | None = None
) -> None:
    """Raise, naming the client, where its target has values that the others do not know.

    Two labels are meant unless the positive one is named. Then all others are negative; but a client
    without a positive row and with a label of its own is taken to spell its labels differently.

    >>> a = SummaryStatistics(2, {"no": 1, "yes": 1}, {}, {}, {})
    >>> check_labels_known({"north": a, "south": a})
    """
    clients = Counter(
        label for statistics in all_statistics.values() for label in statistics.labels
    )
    _check_case(clients, "the target")
    rows: Counter[str] = sum(
        (Counter(statistics.labels) for statistics in all_statistics.values()), Counter()
    )
    if len(clients) <= 2 or (positive is not None and positive not in clients):
        return
    two = sorted(clients, key=lambda label: (clients[label], rows[label]), reverse=True)[:2]
    for name, statistics in sorted(all_statistics.items()):
        unknown = [
            label for label in sorted(statistics.labels) if clients[label] < len(all_statistics)
        ]
        if positive is None:
            unknown = [label for label in unknown if label not in two]
        else:
            unknown = [
                label
                for label in unknown
                if clients[label] == 1 and positive not in statistics.labels
            ]
        if unknown:
            raise DataError(
                f"the target of client {name!r} has the value {unknown[0]!r}, which the others do not know "
                f"(they have {shown(sorted({*clients} - {*unknown}))}): write the same labels everywhere"
            )


def check_groups_known(all_statistics: Mapping[str, SummaryStatistics]) -> None:
    """Raise where clients seem to write the same groups differently: by case alone, or without a group in common.

    A client with one group says nothing of how others are written.

    >>> check_groups_known({"north": SummaryStatistics(2, {}, {"sex": {"F": 1, "M": 1}}, {}, {})})
    """
    for name in next(iter(all_statistics.values())).groups if all_statistics else ():
        met: list[tuple[str, set[str]]] = []  # groups that occur together somewhere, and a client
        for client, statistics in sorted(all_statistics.items()):
            groups = {*statistics.groups.get(name, ())}
            joined = [entry for entry in met if entry[1] & groups]
            met = [entry for entry in met if not entry[1] & groups]
            first = joined[0][0] if joined else client
            met.append((first, groups.union(*(there for _, there in joined))))
        _check_case([group for _, groups in met for group in groups], f"sensitive feature {name!r}")
        several = sorted(entry for entry in met if len(entry[1]) > 1)
        if len(several) > 1:
            (one, here), (two, there), *_ = several
            raise DataError(
                f"sensitive feature {name!r} has the groups {shown(sorted(here))} at client {one!r} and "
                f"{shown(sorted(there))} at client {two!r}: write the same groups alike, or, if these are different "
                "people, fit with a schema that lists all (--schema)"
            )


def _check_case(values: Iterable[str], what: str) -> None:
    """Raise where two values differ in case alone."""
    alike: dict[str, str] = {}
    for value in sorted(values):
        other = alike.setdefault(value.casefold(), value)
        if other != value:
            raise DataError(
                f"{what} has the values {other!r} and {value!r}, which differ in case alone: write them alike"
            )


def encoding_of(statistics: SummaryStatistics, scale: bool = True) -> Encoding:
    """The encoding all clients use, its columns in the order of their names.

    >>> encoding_of(SummaryStatistics(1, {"no": 1}, {}, {"age": (20.0, 40.0)}, {})).numeric
    (('age', 20.0, 40.0),)
    """
    return Encoding(
        tuple((name, low, high) for name, (low, high) in statistics.ranges.items()),
        tuple(sorted(statistics.categorical.items())),
        scale,
        dates=statistics.dates,
        missing=statistics.missing,
    )


def check_statistics(statistics: SummaryStatistics) -> None:
    """Raise unless the merged summary statistics can be learned from: two labels, two groups, a feature.

    >>> check_statistics(SummaryStatistics(2, {"no": 1, "yes": 1}, {}, {"age": (1.0, 2.0)}, {}))
    """
    labels = _present(statistics.labels)
    if len(labels) < 2:
        raise DataError(
            f"the label is {shown(labels) or 'missing'} in every row of every client; "
            "learning needs two labels: check the target column"
        )
    for sensitive_feature, counts in statistics.groups.items():
        groups = _present(counts)
        if len(groups) < 2:
            raise DataError(
                f"sensitive feature {sensitive_feature!r} has one group ({shown(groups)}) over all clients; "
                "fairness needs at least two: check the column"
            )
        if len(groups) > MAX_GROUPS:
            raise DataError(
                f"sensitive feature {sensitive_feature!r} has {len(groups)} groups, more than {MAX_GROUPS}: "
                "cut its numbers into bins in the file (under 30, 30 to 50, 50 or more), or join its values"
            )
    if not statistics.numeric and not statistics.categorical:
        raise DataError("there are no feature columns: keep at least one beside label and groups")
    ranges = statistics.numeric.items()
    alike = [low == high and k not in statistics.missing for k, (low, high) in ranges]
    alike += [len(values) < 2 for values in statistics.categorical.values()]
    if all(alike):
        raise DataError("every feature has one value, which tells nothing: keep one that differs")
    width = encoding_of(statistics).width
    if width > MAX_FEATURES:
        raise DataError(
            f"the columns make {width} features; {MAX_FEATURES} are the most that can be solved for: "
            "drop columns, or those with many categories"
        )


def positive_label(statistics: SummaryStatistics, positive: str | None = None) -> str:
    """The label that counts as 1: the one named, else of two the one that ``positive_rule`` finds.

    >>> positive_label(SummaryStatistics(2, {"<=50K": 1, ">50K": 1}, {}, {}, {}))
    '>50K'
    """
    labels = _present(statistics.labels)
    if positive is not None:
        if positive not in labels:
            raise DataError(f"no row has the label {positive!r}; name one of {shown(labels)}")
        return positive
    if len(labels) > MAX_LABELS and all(number_in(label) is not None for label in labels):
        raise DataError(
            f"the target has {len(labels)} different numbers, which is a quantity and not a label: "
            "make a column that says whether it is above a limit"
        )
    if len(labels) != 2:
        raise DataError(
            f"the target has {len(labels)} labels ({shown(labels)}): name the positive one"
        )
    return positive_rule(labels)[0]


def positive_rule(labels: Sequence[str]) -> tuple[str, str]:
    """Which of two labels counts as 1, and why: the larger of two numbers, one that begins with '>', a word that
    says yes, the other of one that says no ('not ...', 'denied', 'bad'); else the last in sorted order.

    >>> positive_rule(["approved", "denied"]), positive_rule(["good", "bad"])[0]
    (('approved', 'it says yes'), 'good')
    >>> positive_rule(["A", "B"])
    ('B', 'the last in sorted order')
    """
    one, two = sorted(labels, key=lambda label: (label.casefold(), label))
    numbers = number_in(one), number_in(two)
    if numbers[0] is not None and numbers[1] is not None:
        return (one if numbers[0] > numbers[1] else two), "the larger number"
    rules: list[tuple[str, Callable[[str], bool]]] = [
        ("it begins with '>'", lambda label: label.startswith(">")),
        ("it says yes", lambda label: label.strip().casefold() in YES),
        ("the other says no", lambda label: not _means_no(label)),
    ]
    for why, holds in rules:
        if holds(one) != holds(two):
            return (one if holds(one) else two), why
    return two, "the last in sorted order"


def _means_no(label: str) -> bool:
    plain = label.strip().casefold()
    return plain in NO or plain.startswith(("not ", "not_", "non-", "no ", "no_"))


def number_in(text: str) -> float | None:
    """The number that a text is, if it is one."""
    try:
        return float(text)
    except ValueError:
        return None


def _checked(read: SummaryStatistics) -> SummaryStatistics:
    """Summary statistics from outside, their vocabularies sorted; ValueError says what does not fit."""
    if not (0 <= read.n < 2**53 and 0 <= read.mass <= wire.LARGEST):
        raise ValueError("'n' and 'weight' should not be negative")
    if both := sorted({*read.numeric} & {*read.categorical}):
        raise ValueError(f"column {both[0]!r} is both numeric and categorical")
    if not {*read.numeric} >= {*read.missing}:
        raise ValueError("'missing' should be columns of numbers")
    for name, rows in (("labels", read.labels), *read.groups.items()):
        if min(rows.values(), default=0) < 0 or sum(rows.values()) != read.n:
            raise ValueError(f"the rows of {name!r} should add up to n")
    for name, (low, high) in read.numeric.items():
        if not (name in read.missing and (low, high) == (wire.LARGEST, -wire.LARGEST)):
            wire.in_order(low, high, f"the range of {name!r}")
    for name, edges in read.bins.items():
        wire.ascending(edges, f"the bins of {name!r}")
    lists = (("dates", read.dates), ("missing", read.missing))
    for name, values in (*read.categorical.items(), *read.other.items(), *lists):
        wire.distinct(values, repr(name))
    categorical, other = map(sorted_vocabularies, (read.categorical, read.other))
    return replace(read, categorical=categorical, other=other)


def sorted_vocabularies(vocabularies: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(sorted(values)) for name, values in vocabularies.items()}


def _check_same_columns(
    one: SummaryStatistics,
    two: SummaryStatistics,
    first: str = "one client",
    second: str = "another",
) -> None:
    for name in sorted(
        ({*one.numeric} & {*two.categorical}) | ({*one.categorical} & {*two.numeric})
    ):
        kinds = ("numeric", "categorical") if name in one.numeric else ("categorical", "numeric")
        raise DataError(
            f"column {name!r} is {kinds[0]} at {first} and {kinds[1]} at {second}: name its kind when "
            "reading the files, or correct it"
        )
    for kind in ("numeric", "categorical", "groups"):
        for name in sorted({*getattr(one, kind)} ^ {*getattr(two, kind)}):
            there, away = (first, second) if name in getattr(one, kind) else (second, first)
            raise DataError(
                f"column {name!r} is missing at {away} and there at {there}: add it, or drop it everywhere"
            )


def _counts(column: Column, what: str, who: str) -> dict[str, int]:
    missing = np.count_nonzero((column.codes < 0) | (column.codes >= len(column.categories)))
    if missing:
        raise DataError(f"{what} of {who} is missing in {missing} rows: fill or drop them")
    counts = np.bincount(column.codes, minlength=len(column.categories)).tolist()
    return {k: n for k, n in sorted(zip(column.categories, counts, strict=True)) if n}


def _on_grid(weight: float) -> float:
    """A total of weights on the grid of features, so that clients' totals add up exactly."""
    return round(weight * 2**FEATURE_BITS) / 2**FEATURE_BITS


def _present(counts: Mapping[str, int]) -> list[str]:
    return sorted(value for value, rows in counts.items() if rows > 0)


def _added(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    return {k: one.get(k, 0) + two.get(k, 0) for k in sorted({*one, *two})}
