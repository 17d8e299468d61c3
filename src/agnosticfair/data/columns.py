"""What the columns of a file are for, of what kind they are, and how each was read.

Numbers are numeric and texts categorical, unless the user says otherwise. Texts that are all numbers
('1,045', '45%', '$12') are numbers, dates are days since 1970, and a missing text is the category '?'. What
cannot be decided is refused by name; nearly all values different is an identifier, and left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from agnosticfair.data.encoding import shown
from agnosticfair.data.reading import MISSING, feature_names, to_column, to_numbers
from agnosticfair.data.summary import MAX_VALUES
from agnosticfair.data.table import DATED, Column, Table
from agnosticfair.errors import DataError, SettingsError

MAX_CATEGORIES = 1000  # a text column with more is a name or a key, unless the user insists
ONE_VALUE = "one value, which tells nothing"
MIN_ROWS = 50  # below, different values say nothing about a column,
MIN_NAMED = 5  # unless it is called an identifier, and all of so many differ
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_CURRENCY = re.compile(r"^([+-]?)\s*[$€£¥]\s*|\s*[$€£¥]$")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}([,' \u00a0\u202f]\d{3})+(\.\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_BOTH = re.compile(r"[+-]?\d{1,3}([.' \u00a0\u202f]\d{3})+,\d+")
_DATE = re.compile(
    r"(\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2})|\d{1,2}[ .-]+[A-Za-z]{3,9}[ .,-]+\d{4}|[A-Za-z]{3,9} \d{1,2}, \d{4})( .*)?"
)
_KEY = re.compile(r"(?i)(^|[_\s-])(id|key|index|uuid|nr|no|number)$|[a-z](ID|Id|Key)$")


@dataclass(frozen=True)
class Roles:
    """What the columns of a file are for; every other column is a feature.

    Numbers are numeric and text is categorical unless named in ``numeric`` or ``categorical``. Those in ``subgroups``
    name subgroups, as text, and are no features.

    >>> Roles("income", ("sex",), drop=("id",)).target
    'income'
    """

    target: str | None
    sensitive_features: tuple[str, ...]
    client: str | None = None
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    subgroups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, times in Counter(self.all_names()).items():
            if times > 1:
                raise SettingsError(f"column {name!r} is named for two purposes: keep one of them")

    def all_names(self) -> tuple[str, ...]:
        single = (name for name in (self.target, self.client) if name is not None)
        kinds = (*self.numeric, *self.categorical, *self.drop, *self.subgroups)
        return (*single, *self.sensitive_features, *kinds)

    @property
    def beside(self) -> tuple[str, ...]:
        """The columns that are read beside features, target and groups."""
        return self.subgroups if self.client is None else (self.client, *self.subgroups)

    def as_text(self) -> list[str]:
        """Columns to take from a CSV file as they are written, so that '01234' stays that."""
        named = (self.target, *self.beside, *self.sensitive_features, *self.categorical)
        return [name for name in named if name is not None]


def check_columns(names: Iterable[str], there: Sequence[str], who: str) -> None:
    """Raise, with the nearest name, unless the columns are there."""
    for name in names:
        if name not in there:
            lower = {one.lower(): one for one in there}
            near = get_close_matches(name.lower(), lower, n=1)
            hint = f"did you mean {lower[near[0]]!r}? It has" if near else "name one of"
            hint = (
                "name its separator by --separator; its only column is" if len(there) == 1 else hint
            )
            raise DataError(f"{who} has no column {name!r}: {hint} {shown(there, 12)}")


def kinds_of(schema: Any, roles: Roles, who: str) -> dict[str, str]:
    """The features and their kinds by their types: all columns that have no other purpose."""
    special = {roles.target, *roles.beside, *roles.sensitive_features, *roles.drop}
    names = [name for name in feature_names(schema.names) if name not in special]
    return {name: _kind(name, schema.field(name).type, roles, who) for name in names}


def _kind(name: str, type_: Any, roles: Roles, who: str) -> str:
    import pyarrow as pa

    of = pa.types
    if name in roles.numeric:
        return "numeric"
    if name in roles.categorical:
        return "categorical"
    numbers = (of.is_integer, of.is_floating, of.is_decimal, of.is_date, of.is_timestamp)
    if any(is_number(type_) for is_number in numbers):
        return "numeric"
    texts = (of.is_string, of.is_large_string, of.is_boolean, of.is_dictionary, of.is_null)
    if not any(is_text(type_) for is_text in texts):  # of a column of gaps _full says so
        raise DataError(
            f"column {name!r} of {who} is neither numbers nor text ({type_}): drop it, or "
            "name it as categorical"
        )
    return "categorical"


def written_kinds(
    rows: Any, kinds: Mapping[str, str], roles: Roles, who: str, comma: bool
) -> dict[str, str]:
    """The kinds of a CSV file's columns: texts that are all numbers are numeric.

    comma: whether ',' is the decimal sign.
    """
    written = dict(kinds)
    for name, kind in kinds.items():
        if kind == "categorical" and name not in roles.categorical:
            written[name] = _written_kind(name, rows[name], who, comma)
    return written


def _written_kind(name: str, values: Any, who: str, comma: bool) -> str:
    import pyarrow.compute as pc

    counts = pc.value_counts(values.drop_null())
    rows = dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True))
    texts = {text: n for text, n in rows.items() if isinstance(text, str)}
    total = sum(texts.values())
    dates = sum(n for text, n in texts.items() if _DATE.fullmatch(text))
    if 2 * dates > total:
        raise DataError(
            f"column {name!r} of {who} has dates that may be read in two ways: write 2026-12-31, which is read as "
            "days since 1970, or drop the column"
        )
    numbers = sum(n for text, n in texts.items() if as_number(text, comma) is not None)
    if total and numbers == total:
        return "numeric"
    if 2 * numbers > total:
        row = _first_text(values, comma)
        raise DataError(
            f"column {name!r} of {who} has {total - numbers} text{'s' * (total - numbers > 1)} among "
            f"{numbers} numbers, the first in row {row}: correct them, or name the column as "
            "categorical"
        )
    return "categorical"


def as_number(text: str, comma: bool = False) -> float | None:
    """What a text says as a number: with a percent sign, a currency, with signs between thousands, or, where
    ``comma`` is the decimal sign, with that.

    >>> [as_number(text) for text in ("$1,045", "1.045,50", "45%", "old")], as_number("1,5 €", comma=True)
    ([1045.0, 1045.5, 45.0, None], 1.5)
    """
    text = _CURRENCY.sub(r"\1", text.strip().removesuffix("%").rstrip())
    if _BOTH.fullmatch(text) or (comma and _DECIMAL_COMMA.fullmatch(text)):
        whole, _, fraction = text.partition(",")
        return float(f"{re.sub(r'[^0-9+-]', '', whole)}.{fraction}")
    if _NUMBER.fullmatch(text):
        return float(text)
    return float(re.sub(r"[^0-9.+-]", "", text)) if _THOUSANDS.fullmatch(text) else None


def table_of(
    rows: Any,
    kinds: Mapping[str, str],
    roles: Roles,
    who: str,
    comma: bool = False,
    unknown: bool = False,
) -> Table:
    """Arrow rows as a table of ours; a text that is missing in a feature is the category '?', as is a group where
    it may be unknown."""

    def of(kind: str) -> list[str]:
        return [name for name in kinds if kinds[name] == kind]

    def column(name: str) -> Column:
        _full(name, rows[name], who)
        return _column(name, rows[name], who)

    for name in of("categorical"):
        if rows[name].null_count == len(rows[name]):
            _full(name, rows[name], who)
    notes = {name: _note(rows.schema.field(name).type) for name in of("numeric")}
    return Table(
        {name: _numbers(name, rows[name], who, comma) for name in of("numeric")},
        {name: _column(name, rows[name], who) for name in of("categorical")},
        None if roles.target is None else column(roles.target),
        {
            name: _column(name, rows[name], who) if unknown else column(name)
            for name in roles.sensitive_features
        },
        {name: column(name) for name in roles.beside},
        how={name: note for name, note in notes.items() if note}
        | dict.fromkeys(roles.drop, "dropped, as asked"),
    )


def _note(type_: Any) -> str:
    import pyarrow as pa

    if pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        return DATED
    return "numbers written with '%', ',' or a currency" if pa.types.is_string(type_) else ""


def without_keys(table: Table, roles: Roles, who: str) -> Table:
    """The table without identifiers that nobody named as a number or a category."""
    keys = keys_of(table, {*roles.numeric, *roles.categorical})
    table = dropped(table, {k: f"dropped, an identifier: {why}" for k, why in keys.items()})
    check_texts(table, roles, who)
    return table


def keys_of(table: Table, declared: Collection[str] = ()) -> dict[str, str]:
    """The features that are identifiers, and why: texts of which nine in ten differ, and whole numbers that all differ
    and are called so or count the rows."""
    sizes = {name: len(column.categories) for name, column in table.categorical.items()}
    keys = {
        name: f"{size:,} of {len(table):,} values differ"
        for name, size in sizes.items()
        if is_key(name, size, len(table))
    }
    keys |= {
        name: "it numbers the rows"
        for name, values in table.numeric.items()
        if numbers_rows(name, values)
    }
    return {name: why for name, why in keys.items() if name not in declared}


def described(table: Table) -> dict[str, str]:
    """How each feature was read, in words, and what was dropped and why.

    >>> described(Table({"age": np.array([20.0, 30.0])}, {"job": Column.of("a?")}, None, {}))
    {'age': 'numeric, 20 to 30', 'job': "categorical, 2 values, '?' (missing) in 1 row"}
    """
    descriptions = {}
    for name, values in table.numeric.items():
        known = values[~np.isnan(values)]
        low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
        text = table.how.get(name, f"{low:.6g} to {high:.6g}")
        descriptions[name] = f"numeric, {text if high > low else ONE_VALUE}"
        if rows := len(values) - len(known):
            descriptions[name] += f", missing in {rows} row{'s' * (rows != 1)}"
    for name, column in table.categorical.items():
        counts = np.bincount(column.codes, minlength=len(column.categories))
        size = int((counts > 0).sum())
        descriptions[name] = f"categorical, {f'{size} values' if size > 1 else ONE_VALUE}"
        if size > MAX_VALUES:
            descriptions[name] += f", too many to name subgroups (more than {MAX_VALUES})"
        if MISSING in column.categories:
            rows = int(counts[column.categories.index(MISSING)])
            descriptions[name] += f", {MISSING!r} (missing) in {rows} row{'s' * (rows != 1)}"
    return descriptions | {k: how for k, how in table.how.items() if k not in descriptions}


def check_texts(table: Table, roles: Roles, who: str) -> None:
    """Raise if a column of texts has more of them than categories have, unless the user insists."""
    for name, column in table.categorical.items():
        if len(column.categories) > MAX_CATEGORIES and name not in roles.categorical:
            raise DataError(
                f"column {name!r} of {who} has {len(column.categories)} different texts: drop it, "
                "or name it as numeric or categorical"
            )


def dropped(table: Table, why: Mapping[str, str]) -> Table:
    """The table without some features, and why."""
    if not why:
        return table
    return replace(
        table,
        numeric={name: values for name, values in table.numeric.items() if name not in why},
        categorical={name: values for name, values in table.categorical.items() if name not in why},
        how={**table.how, **why},
    )


def is_key(name: str, distinct: int, rows: int) -> bool:
    """Whether texts are an identifier: nine in ten differ, or all of fewer rows in a column that is called so."""
    return distinct >= max(0.9 * rows, MIN_ROWS) or (distinct == rows and _called_key(name, rows))


def _called_key(name: str, rows: int) -> bool:
    return rows >= MIN_NAMED and bool(_KEY.search(name))


def numbers_rows(name: str, values: np.ndarray) -> bool:
    """Whether whole numbers are an identifier: they count the rows, or are called so and all differ."""
    if not np.array_equal(values, np.floor(values)):
        return False
    counting = (
        len(values) >= MIN_ROWS and values[0] in (0, 1) and bool((np.diff(values) == 1).all())
    )
    return counting or (_called_key(name, len(values)) and len(np.unique(values)) == len(values))


def _full(name: str, values: Any, who: str) -> None:
    if values.null_count:
        rows = "row" if values.null_count == 1 else "rows"
        raise DataError(
            f"column {name!r} of {who} is missing in {values.null_count} {rows} (empty, NA, '?' and "
            "their like): fill them, or drop the rows or the column"
            + (", or name it as numeric" if values.null_count == len(values) else "")
        )


def _column(name: str, values: Any, who: str) -> Column:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        if values.null_count:
            plain = values.cast(pa.string())
            values = pc.fill_null(plain, MISSING)
        return to_column(values)
    except (pa.ArrowException, ValueError):
        raise DataError(
            f"column {name!r} of {who} ({values.type}) cannot be read as text: drop it"
        ) from None


def _numbers(name: str, values: Any, who: str, comma: bool) -> np.ndarray:
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        encoded = values.dictionary_encode().unify_dictionaries().combine_chunks()
        numbers = [as_number(text, comma) for text in encoded.dictionary.to_pylist()]
        if None not in numbers:  # a text that is missing has the last place
            return np.array([*numbers, np.nan])[encoded.indices.fill_null(len(numbers)).to_numpy()]
    try:
        return to_numbers(values)
    except pa.ArrowException:
        raise DataError(
            f"column {name!r} of {who} should be numeric, but row {_first_text(values, comma)} is not: "
            "correct it, or name the column as categorical"
        ) from None


def _first_text(values: Any, comma: bool) -> int:
    """The first row, from 1, that does not read as a number; a slow search, for an error only."""
    for row, value in enumerate(values.to_pylist(), 1):
        if value is not None and as_number(str(value), comma) is None:
            return row
    return len(values)
