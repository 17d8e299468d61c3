"""``agnosticfair data`` and ``methods``: what is known by name, and data sets as ready files, one for each site."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from agnosticfair.commands.options import DataFolder, Json, example
from agnosticfair.commands.output import check_folder, grid, show, write_files
from agnosticfair.errors import DataError, SettingsError

if TYPE_CHECKING:
    from agnosticfair.data.datasets import Shift
    from agnosticfair.data.table import Table


@example("methods --json")
def list_methods(as_json: Json = False) -> None:
    """List the methods by name, with what each minimises and its main values."""
    from dataclasses import asdict

    from agnosticfair.auditing.certificate import plain
    from agnosticfair.mathematics.basis import is_centred
    from agnosticfair.methods import METHODS

    if as_json:
        return print(json.dumps([plain(asdict(m)) for m in METHODS.values()], indent=1))
    lines = []
    for m in METHODS.values():
        tau = (
            m.fairness.tau
            if m.fairness
            else m.averaging.tau
            if m.averaging and m.averaging.penalty
            else ""
        )
        kernels = f" {m.basis.kernels}" if is_centred(m.basis) else ""
        bound = f"{m.bound:g}" if isfinite(m.bound) else ""
        values = (f"{m.basis.kind}{kernels}", bound, f"{tau}", f"{m.max_rounds}")
        lines.append((m.name, m.summary, *values))
    return show(grid("", ("method", "what it does", "basis", "B", "tau", "rounds"), lines))


def list_data(data_folder: Path | None, as_json: bool) -> None:
    """List the data sets known by name, and whether they are here."""
    from agnosticfair.data.datasets import DATASETS

    found = [describe(name, data_folder) for name in DATASETS]
    if as_json:
        return print(json.dumps(found, indent=1))
    for entry in found:
        lines = [(key, value) for key, value in entry.items() if key != "name"]
        show(grid(entry["name"], ("", ""), lines))
        print()
    return None


def describe(name: str, folder: Path | None) -> dict[str, Any]:
    """A data set in words and numbers; nothing is downloaded to know them."""
    from agnosticfair.data.census import encoding_of, take_census
    from agnosticfair.data.datasets import dataset, load_dataset
    from agnosticfair.data.sources import VARIABLE, cache_folder, find

    known, path = dataset(name), "in this package"
    entry = {"name": name, "about": known.note, "licence": known.licence}
    entry |= {"shift": _shift(known.shift), "positive": known.positive}
    if known.source is not None:
        named = folder or os.environ.get(VARIABLE)
        place = named or cache_folder()
        found = find(known.source, place)
        if found is None:
            remedy = "put it there from" if named else "a first use downloads it from"
            where = f"not in {place}: {remedy} {known.source.url}"
            return entry | {"here": False, "where": where}
        path = str(found)
    try:
        census = take_census(load_dataset(name, folder), who=name)
    except DataError as error:
        return entry | {"here": False, "where": str(error)}
    counts = {"rows": census.n, "features": encoding_of(census).width, "labels": census.labels}
    groups = census.groups[known.sensitive_features]
    return entry | counts | {"groups": groups, "here": True, "where": path}


def _shift(shift: Shift) -> str:
    if shift.drawn:
        return f"{shift.drawn} values of {shift.column}, drawn by the seed, are held back"
    rest = "all others" if shift.rates[1] else "all others held back"
    rest += f" ({', '.join(shift.left_out)} left out)" if shift.left_out else ""
    return f"{shift.column} {', '.join(shift.values)}, then {rest}"


HELD_OUT = "held-out.csv"


@example("data adult --out adult")
def data(
    name: Annotated[
        str | None, Argument(help="A data set to write; without one all are listed.")
    ] = None,
    out: Annotated[Path | None, Option(help="Folder for its files, one for each site.")] = None,
    sites: Annotated[int, Option(help="Sites to deal the rows to; 0: its natural ones.")] = 2,
    seed: Annotated[int, Option(help="Draws which rows are held out, and who gets which.")] = 0,
    data_folder: DataFolder = None,
    as_json: Json = False,
) -> None:
    """List the data sets known by name; or write one as CSV files by site, with a fifth of the rows held out."""
    if name is None:
        return list_data(data_folder, as_json)
    from agnosticfair.data.datasets import dataset, load_dataset
    from agnosticfair.data.splits import iid

    known = dataset(name)
    folder = Path(name) if out is None else out
    check_folder(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise SettingsError(f"{str(folder)!r} is not empty: name another folder by --out")
    table = load_dataset(name, data_folder)
    if sites == 0:
        if known.sites is None:
            raise SettingsError(f"{name!r} has no natural sites: say how many by --sites")
        split = iid(table, 1, seed)
        (rows,) = split.train.values()
        column = rows.column(known.sites)
        parts = {v: rows.take(column.values() == v) for v in column.categories}
        parts = {v: part for v, part in parts.items() if len(part)}
    else:
        split = iid(table, sites, seed)
        parts = {f"site-{k}": part for k, part in enumerate(split.train.values(), 1)}
    files = {f"{_plain(key)}.csv": _csv(part, known.target) for key, part in parts.items()}
    write_files(folder, {**files, HELD_OUT: _csv(split.test, known.target)})
    for file, part in zip((*files, HELD_OUT), (*parts.values(), split.test), strict=True):
        print(f"  {folder / file}: {len(part):,} rows")
    asked = f"--target {known.target} --sensitive-features {known.sensitive_features}"
    trained = " ".join(str(folder / file) for file in files)
    if len(files) > 3:
        trained = f"{folder}/[!h]*.csv"
    print("Next:")
    return print(f"  agnosticfair fit {trained} {asked} --test {folder / HELD_OUT}")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-") or "site"


def _csv(table: Table, target: str) -> bytes:
    """The rows as CSV: numbers as they are, texts, groups, and the label last."""
    assert table.target is not None
    texts = {**table.categorical, **table.other, **table.sensitive_features, target: table.target}
    columns = {k: [f"{v:.10g}" for v in values] for k, values in table.numeric.items()}
    columns |= {k: column.values().tolist() for k, column in texts.items()}
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()
