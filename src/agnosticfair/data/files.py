"""A user's own data: CSV or Parquet files, one with a client column, or a file or a folder per client."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from agnosticfair.data.arrow import readable, to_column, to_numbers
from agnosticfair.data.encoding import Encoding, shown
from agnosticfair.data.stream import ENDINGS, Stream, pieces
from agnosticfair.data.table import Column, Table, concatenate
from agnosticfair.errors import DataError, SettingsError

MOST_CATEGORIES = 1000  # a text column with more is a name or a key, unless the user insists
STREAMED = 1 << 30  # bytes of values, 8 each, beyond which Parquet and Arrow are streamed, not kept
Rows = TypeVar("Rows", bound=Table | Stream)
_INDEX = re.compile(r"__index_level_\d+__")  # pandas' row index is not a feature


@dataclass(frozen=True)
class Roles:
    """What the columns of a file are for; every other column is a feature.

    Numbers are numeric and text is categorical unless named in ``numeric`` or ``categorical``.

    >>> Roles("income", ("sex",), drop=("id",)).target
    'income'
    """

    target: str | None
    sensitive_features: tuple[str, ...]
    client: str | None = None
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, times in Counter(self.named()).items():
            if times > 1:
                raise SettingsError(f"column {name!r} is named for two purposes: keep one of them")

    def named(self) -> tuple[str, ...]:
        """Every column that is named."""
        single = (name for name in (self.target, self.client) if name is not None)
        return (*single, *self.sensitive_features, *self.numeric, *self.categorical, *self.drop)


def read_table(path: str | Path, roles: Roles, *, who: str | None = None) -> Table:
    """The rows of one file; ``who`` names it in errors."""
    who = who or _called(path)
    rows = _open(path, _as_text(roles), who)
    for name in roles.named():
        _check_column(name, rows.column_names, who)
    return _checked(_table(rows, _kinds(rows.schema, roles, who), roles, who), roles, who)


def read_source(path: str | Path, roles: Roles, *, who: str | None = None) -> Table | Stream:
    """The rows of a file, or of a folder of Parquet or Arrow files with the same columns: in memory, or
    as a stream where they are many."""
    path, who = Path(path), who or _called(path)
    files = _parts_of(path, who) if path.is_dir() else [path]
    if files[0].suffix.lower() not in ENDINGS or not files[0].is_file():
        return read_table(path, roles, who=who)
    stream = _stream(files, roles, who)
    if len(stream) * len(stream.columns) * 8 > STREAMED:
        return stream
    return _checked(concatenate(stream.added_up(lambda table: [table])), roles, who)


def _parts_of(folder: Path, who: str) -> list[Path]:
    """The files of a folder, in the order of their names; what begins with '.' or '_' is not data."""
    files = sorted(file for file in folder.iterdir() if file.name[0] not in "._")
    for file in files:
        if not file.is_file() or file.suffix.lower() not in ENDINGS:
            raise DataError(
                f"{who} is a folder with {file.name!r} in it: keep nothing but "
                f"{' or '.join(ENDINGS)} files there"
            )
    if not files:
        raise DataError(f"{who} is an empty folder: put its {' or '.join(ENDINGS)} files there")
    return files


def _stream(files: Sequence[Path], roles: Roles, who: str) -> Stream:
    """A stream over files that have the same columns, of the same kinds."""
    found: list[tuple[Path, int]] = []
    rows, all_kinds = 0, []
    for file in files:
        here = _called(file) if len(files) > 1 else who
        if file.stat().st_size == 0:
            raise DataError(f"{here} is empty: check how it was written")
        with readable(here):
            schema, parts, size = pieces(file)
        _check_names(schema.names, here)
        for name in roles.named():
            _check_column(name, schema.names, here)
        all_kinds.append(_kinds(schema, roles, here))
        _check_alike(all_kinds[0], all_kinds[-1], here, _called(files[0]))
        found, rows = found + parts, rows + size
    if not rows:
        raise DataError(f"{who} has no rows: drop it or check how it was written")
    kinds = all_kinds[0]
    others = (roles.target, roles.client, *roles.sensitive_features)
    columns = (*kinds, *(name for name in others if name is not None))
    return Stream(tuple(found), rows, kinds, columns, partial(_batch, kinds=kinds, roles=roles))


def read_clients(paths: Iterable[str | Path], roles: Roles) -> dict[str, Table]:
    """The rows of every client, by name: from one file with a client column, or a file each.

    A client that has its own file is named after it, without the ending.
    """
    files = _one_or_each(paths, roles)
    if roles.client is not None:
        return _by_client(read_table(files[0], roles), roles.client)
    return _alike({file: read_table(file, roles) for file in files})


def read_sources(paths: Iterable[str | Path], roles: Roles) -> Mapping[str, Table | Stream]:
    """``read_clients``, where a client may also be a folder, and is streamed where its rows are many."""
    files = _one_or_each(paths, roles)
    if roles.client is not None:
        return read_clients(files, roles)
    return _alike({file: read_source(file, roles) for file in files})


def _one_or_each(paths: Iterable[str | Path], roles: Roles) -> list[Path]:
    files = [Path(path) for path in paths]
    if not files:
        raise SettingsError("no files: name one with a client column, or one for each client")
    if roles.client is not None and len(files) > 1:
        raise SettingsError(
            f"{len(files)} files and a client column {roles.client!r}: "
            "name one file, or no client column"
        )
    for stem, times in Counter(file.stem for file in files).items():
        if times > 1:
            raise DataError(f"{times} files would be client {stem!r}: rename all but one")
    return files


def _alike(tables: dict[Path, Rows]) -> dict[str, Rows]:
    """The tables by their clients' names, in order, if they have the same features."""
    (first, model), *rest = tables.items()
    for file, table in rest:
        _check_alike(model.kinds, table.kinds, _called(file), _called(first))
    return {file.stem: tables[file] for file in sorted(tables, key=lambda file: file.stem)}


def read_rows(
    path: str | Path,
    encoding: Encoding,
    *,
    target: str | None = None,
    sensitive_features: Sequence[str] = (),
    client: str | None = None,
) -> Table:
    """The rows of a file to predict on: the columns the encoding needs, of the kinds it says.

    ``target``, ``sensitive_features`` and ``client`` are read where the file has them.
    """
    who = _called(path)
    numeric = tuple(name for name, _, _ in encoding.numeric)
    categorical = tuple(name for name, _ in encoding.categorical)
    rows = _open(
        path, (*categorical, *_as_text(Roles(target, tuple(sensitive_features), client))), who
    )
    for name in (*numeric, *categorical):
        _check_column(name, rows.column_names, who)
    there = set(rows.column_names)
    roles = Roles(
        target if target in there else None,
        tuple(name for name in sensitive_features if name in there),
        client if client in there else None,
    )
    kinds = dict.fromkeys(numeric, "numeric") | dict.fromkeys(categorical, "categorical")
    return _table(rows, kinds, roles, who)


def _called(path: str | Path) -> str:
    return f"file {Path(path).name!r}"


def _as_text(roles: Roles) -> list[str]:
    """Columns to take from a CSV file as they are written, so that '01234' stays that."""
    named = (roles.target, roles.client, *roles.sensitive_features, *roles.categorical)
    return [name for name in named if name is not None]


def _open(path: str | Path, text: Iterable[str], who: str) -> Any:
    """The file as an Arrow table with at least one row and distinct column names."""
    path = Path(path)
    readers = {".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise DataError(f"{who} is neither .csv nor .parquet: convert it to one of them")
    if not path.is_file():
        raise DataError(f"{who} is not in {str(path.parent)!r}: check the path")
    if path.stat().st_size == 0:
        raise DataError(f"{who} is empty: check how it was written")
    with readable(who):
        rows = readers[path.suffix.lower()](path, text)
        names = rows.column_names
    _check_names(names, who)
    if rows.num_rows == 0:
        raise DataError(f"{who} has no rows: drop it or check how it was written")
    return rows


def _read_csv(path: Path, text: Iterable[str]) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    return csv.read_csv(
        path,
        read_options=csv.ReadOptions(use_threads=False),  # so that errors have row numbers
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(text, pa.string()),
            strings_can_be_null=True,
            true_values=[],  # 'True' and 'true' stay as they are written
            false_values=[],
        ),
    )


def _read_parquet(path: Path, text: Iterable[str]) -> Any:
    import pyarrow.parquet as pq

    rows = pq.ParquetFile(path).read()
    keep = [i for i, name in enumerate(rows.column_names) if not _INDEX.fullmatch(name)]
    return rows.select(keep)


def _check_names(names: Sequence[str], who: str) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise DataError(f"{who} has {times} columns named {name!r}: rename all but one")
        if not name.strip():
            raise DataError(f"{who} has a column without a name: name it or remove it")


def _check_column(name: str, names: Sequence[str], who: str) -> None:
    if name not in names:
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r} of" if near else "name one of"
        raise DataError(f"{who} has no column {name!r}: {hint} {shown(names, 12)}")


def _kinds(schema: Any, roles: Roles, who: str) -> dict[str, str]:
    """The features and their kinds: all columns that have no other purpose."""
    special = {roles.target, roles.client, *roles.sensitive_features, *roles.drop}
    names = [name for name in schema.names if name not in special and not _INDEX.fullmatch(name)]
    return {name: _kind(name, schema.field(name), roles, who) for name in names}


def _kind(name: str, values: Any, roles: Roles, who: str) -> str:
    import pyarrow as pa

    if name in roles.numeric:
        return "numeric"
    if name in roles.categorical:
        return "categorical"
    of = pa.types
    if of.is_integer(values.type) or of.is_floating(values.type) or of.is_decimal(values.type):
        return "numeric"
    if of.is_null(values.type):  # nothing but gaps: _full says so
        return "categorical"
    texts = (of.is_string, of.is_large_string, of.is_boolean, of.is_dictionary)
    if not any(is_text(values.type) for is_text in texts):
        raise DataError(
            f"column {name!r} of {who} is neither numbers nor text ({values.type}): drop it, or "
            "name it as categorical"
        )
    return "categorical"


def _checked(table: Table, roles: Roles, who: str) -> Table:
    """The table, unless one of its columns of text is a key."""
    for name, column in table.categorical.items():
        if len(column.categories) > MOST_CATEGORIES and name not in roles.categorical:
            raise DataError(
                f"column {name!r} of {who} has {len(column.categories)} different texts: drop it, "
                "or name it as numeric or categorical"
            )
    return table


def _batch(rows: Any, kinds: Mapping[str, str], roles: Roles, who: str) -> Table:
    return _checked(_table(rows, kinds, roles, who), roles, who)


def _table(rows: Any, kinds: Mapping[str, str], roles: Roles, who: str) -> Table:
    def column(name: str) -> Column:
        return _column(name, rows[name], who)

    def of(kind: str) -> list[str]:
        return [name for name in kinds if kinds[name] == kind]

    return Table(
        {name: _numbers(name, rows[name], who) for name in of("numeric")},
        {name: column(name) for name in of("categorical")},
        None if roles.target is None else column(roles.target),
        {name: column(name) for name in roles.sensitive_features},
        {} if roles.client is None else {roles.client: column(roles.client)},
    )


def _full(name: str, values: Any, who: str) -> None:
    if values.null_count:
        rows = "row" if values.null_count == 1 else "rows"
        raise DataError(
            f"column {name!r} of {who} is missing in {values.null_count} {rows}: "
            "fill them, or drop the rows or the column"
        )


def _column(name: str, values: Any, who: str) -> Column:
    import pyarrow as pa

    _full(name, values, who)
    try:
        return to_column(values)
    except (pa.ArrowException, ValueError):
        raise DataError(
            f"column {name!r} of {who} ({values.type}) cannot be read as text: drop it"
        ) from None


def _numbers(name: str, values: Any, who: str) -> np.ndarray:
    import pyarrow as pa

    _full(name, values, who)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    try:
        return to_numbers(values)
    except pa.ArrowException:
        raise DataError(
            f"column {name!r} of {who} should be numeric, but row {_first_text(values)} is not: "
            "correct it, or name the column as categorical"
        ) from None


def _first_text(values: Any) -> int:
    """The first row, from 1, that does not read as a number; a slow search, for an error only."""
    import pyarrow as pa

    for row, value in enumerate(values, 1):
        try:
            value.cast(pa.float64())
        except pa.ArrowException:
            return row
    return len(values)


def _by_client(table: Table, client: str) -> dict[str, Table]:
    column = table.other[client]
    return {name: table.take(column.codes == code) for code, name in enumerate(column.categories)}


def _check_alike(there: Mapping[str, str], here: Mapping[str, str], who: str, model: str) -> None:
    """Raise unless both files have the same features, of the same kinds."""
    for name in (*there, *here):
        if name not in here or name not in there:
            lacking = who if name in there else model
            raise DataError(f"{lacking} has no column {name!r}: add it there or drop it everywhere")
        if here[name] != there[name]:
            raise DataError(
                f"column {name!r} of {who} is {here[name]} and of {model} {there[name]}: "
                "name it as numeric or categorical, or correct the file"
            )
