"""A user's own data: CSV or Parquet files, one with a client column, or a file or a folder per client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from agnosticfair.data.columns import (
    Roles,
    check_columns,
    check_texts,
    dropped,
    kinds_of,
    table_of,
    without_keys,
    written_kinds,
)
from agnosticfair.data.encoding import Encoding
from agnosticfair.data.reading import BINARY, Dialect, called, check_names, open_rows, readable
from agnosticfair.data.stream import Stream, pieces
from agnosticfair.data.table import Table, concatenate
from agnosticfair.errors import DataError, SettingsError

STREAMED = 1 << 30  # bytes of values, 8 each, beyond which Parquet and Arrow are streamed, not kept
Rows = TypeVar("Rows", bound=Table | Stream)
DETECTED = Dialect()


def read_table(
    path: str | Path, roles: Roles, *, who: str | None = None, dialect: Dialect = DETECTED
) -> Table:
    """The rows of one file, CSV or Parquet.

    Parameters
    ----------
    path : str or Path
    roles : Roles
        What its columns are for.
    who : str, optional
        Names it in errors.
    dialect : Dialect
        Separator and encoding of a CSV file, found out unless said.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rows.csv"
    >>> _ = path.write_text("age,sex,income" + 2 * (chr(10) + "30,F,low" + chr(10) + "41,M,high"))
    >>> read_table(path, Roles("income", ("sex",))).numeric["age"]
    array([30., 41., 30., 41.])
    """
    who = who or called(path)
    rows, written = open_rows(path, roles.as_text(), who, dialect)
    check_columns(roles.all_names(), rows.column_names, who)
    kinds, comma = kinds_of(rows.schema, roles, who), written.separator == ";"
    if written.separator is not None:
        kinds = written_kinds(rows, kinds, roles, who, comma)
    return without_keys(table_of(rows, kinds, roles, who, comma), roles, who)


def read_source(
    path: str | Path, roles: Roles, *, who: str | None = None, dialect: Dialect = DETECTED
) -> Table | Stream:
    """The rows of a file, or of a folder of Parquet or Arrow files with the same columns: in memory, or
    as a stream where they are many."""
    path, who = Path(path), who or called(path)
    files = _files_of(path, who) if path.is_dir() else [path]
    if files[0].suffix.lower() not in BINARY or not files[0].is_file():
        return read_table(path, roles, who=who, dialect=dialect)
    stream = _stream(files, roles, who)
    if len(stream) * len(stream.columns) * 8 > STREAMED:
        return stream
    whole = replace(stream, table=partial(table_of, kinds=stream.kinds, roles=roles))
    return without_keys(concatenate(whole.added_up(lambda table: [table])), roles, who)


def _files_of(folder: Path, who: str) -> list[Path]:
    """The files of a folder, in the order of their names; what begins with '.' or '_' is not data."""
    files = sorted(file for file in folder.iterdir() if file.name[0] not in "._")
    for file in files:
        if not file.is_file() or file.suffix.lower() not in BINARY:
            raise DataError(
                f"{who} is a folder with {file.name!r} in it: name CSV files one by one; a folder holds "
                f"{' or '.join(BINARY)} files alone"
            )
    if not files:
        raise DataError(f"{who} is an empty folder: put its {' or '.join(BINARY)} files there")
    return files


def _stream(files: Sequence[Path], roles: Roles, who: str) -> Stream:
    """A stream over files that have the same columns, of the same kinds."""
    row_counts: list[tuple[Path, int]] = []
    rows, all_kinds = 0, []
    for file in files:
        here = called(file) if len(files) > 1 else who
        if file.stat().st_size == 0:
            raise DataError(f"{here} is empty: check how it was written")
        with readable(here):
            schema, batches, size = pieces(file)
        check_names(schema.names, here)
        check_columns(roles.all_names(), schema.names, here)
        all_kinds.append(kinds_of(schema, roles, here))
        _check_alike(all_kinds[0], all_kinds[-1], here, called(files[0]))
        row_counts, rows = row_counts + batches, rows + size
    if not rows:
        raise DataError(f"{who} has no rows: drop it or check how it was written")
    kinds = all_kinds[0]
    others = (roles.target, *roles.beside, *roles.sensitive_features)
    columns = (*kinds, *(name for name in others if name is not None))
    return Stream(
        tuple(row_counts), rows, kinds, columns, partial(_batch, kinds=kinds, roles=roles)
    )


def read_clients(
    paths: Iterable[str | Path], roles: Roles, *, dialect: Dialect = DETECTED
) -> dict[str, Table]:
    """The rows of every client, by name: from one file with a client column, or a file each.

    A client that has its own file is named after it, without the ending; files of one name are
    named after their folders, too.
    """
    files = _one_or_each(paths, roles)
    if roles.client is not None:
        return _by_client(read_table(files[0], roles, dialect=dialect), roles.client)
    return _alike({file: read_table(file, roles, dialect=dialect) for file in files})


def read_sources(
    paths: Iterable[str | Path], roles: Roles, *, dialect: Dialect = DETECTED
) -> Mapping[str, Table | Stream]:
    """``read_clients``, where a client may also be a folder, and is streamed where its rows are many."""
    files = _one_or_each(paths, roles)
    if roles.client is not None:
        return read_clients(files, roles, dialect=dialect)
    return _alike({file: read_source(file, roles, dialect=dialect) for file in files})


def _one_or_each(paths: Iterable[str | Path], roles: Roles) -> list[Path]:
    files = [Path(path) for path in paths]
    if not files:
        raise SettingsError("no files: name one with a client column, or one for each client")
    if roles.client is not None and len(files) > 1:
        raise SettingsError(
            f"{len(files)} files and a client column {roles.client!r}: "
            "name one file, or no client column"
        )
    client_names(files)
    return files


def client_names(files: Sequence[Path]) -> dict[Path, str]:
    """The client of each file: its name without the ending, and its folder's before it where two are alike.

    >>> list(client_names([Path("a/rows.csv"), Path("b/rows.csv"), Path("c.csv")]).values())
    ['a-rows', 'b-rows', 'c']
    """
    stems = Counter(file.stem for file in files)
    names = {
        file: file.stem
        if stems[file.stem] == 1
        else f"{file.absolute().parent.name}-{file.stem}".lstrip("-")
        for file in files
    }
    for file, times in Counter(files).items():
        if times > 1:
            raise DataError(f"{called(file)} is named {times} times: name it once")
    clients = Counter(names[file] for file in files)
    for file in files:
        if (times := clients[names[file]]) > 1:
            raise DataError(f"{times} files would be client {file.stem!r}: rename all but one")
    return names


def _alike(tables: dict[Path, Rows]) -> dict[str, Rows]:
    """The tables by their clients' names, in order, if they have the same features; what is an identifier
    at one client is left out at all."""
    read_tables = {
        file: _without_others_keys(table, tables.values()) for file, table in tables.items()
    }
    (first, model), *rest = read_tables.items()
    for file, table in rest:
        _check_alike(model.kinds, table.kinds, called(file), called(first))
    names = client_names([*tables])
    return {names[file]: read_tables[file] for file in sorted(read_tables, key=names.__getitem__)}


def _without_others_keys(table: Rows, tables: Iterable[Rows]) -> Rows:
    if table.streamed:
        return table
    keys = {
        name: "dropped, an identifier at another client"
        for other in tables
        for name, how in other.how.items()
        if how.startswith("dropped, an identifier") and name in table.kinds
    }
    return cast(Rows, dropped(cast(Table, table), keys))


def read_rows(
    path: str | Path,
    encoding: Encoding,
    *,
    target: str | None = None,
    sensitive_features: Sequence[str] = (),
    client: str | None = None,
    dialect: Dialect = DETECTED,
    unknown: bool = False,
) -> Table:
    """The rows of a file to predict on: the columns the encoding needs, of the kinds it says.

    ``target``, ``sensitive_features`` and ``client`` are read where the file has them; ``unknown``: a row may lack
    its group.
    """
    who = called(path)
    numeric = tuple(name for name, _, _ in encoding.numeric)
    categorical = tuple(name for name, _ in encoding.categorical)
    text = (*categorical, *Roles(target, tuple(sensitive_features), client).as_text())
    rows, written = open_rows(path, text, who, dialect)
    check_columns((*numeric, *categorical), rows.column_names, who)
    there = set(rows.column_names)
    roles = Roles(
        target if target in there else None,
        tuple(name for name in sensitive_features if name in there),
        client if client in there else None,
    )
    kinds = dict.fromkeys(numeric, "numeric") | dict.fromkeys(categorical, "categorical")
    return table_of(rows, kinds, roles, who, written.separator == ";", unknown)


def _batch(rows: Any, kinds: Mapping[str, str], roles: Roles, who: str) -> Table:
    table = table_of(rows, kinds, roles, who)
    check_texts(table, roles, who)
    return table


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
