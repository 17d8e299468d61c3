"""``agnosticfair data``: the data sets known by name, and their rows as ready files, one for each site."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from agnosticfair.commands.lists import list_data
from agnosticfair.commands.options import DataFolder, Json, example
from agnosticfair.commands.output import check_folder, write_files
from agnosticfair.errors import SettingsError

if TYPE_CHECKING:
    from agnosticfair.data.table import Table

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
