"""``agnosticfair data`` and ``methods``: the example data as ready files, and the methods by name."""

from __future__ import annotations

import csv
import io
import json
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from agnosticfair.commands.options import Json, example
from agnosticfair.commands.output import check_folder, grid, show, write_files
from agnosticfair.errors import SettingsError

if TYPE_CHECKING:
    from agnosticfair.data.table import Table

HELD_OUT = "held-out.csv"


@example("data adult --out adult")
def data(
    name: Annotated[str, Argument(help="The data set to write: adult.")],
    out: Annotated[Path | None, Option(help="Folder for its files, one for each site.")] = None,
    sites: Annotated[int, Option(help="Sites to deal the rows to.")] = 2,
    seed: Annotated[int, Option(help="Draws which rows are held out, and who gets which.")] = 0,
) -> None:
    """Write the example data as CSV files by site, with a fifth of the rows held out."""
    from agnosticfair.data.datasets import ADULT, iid, load_dataset

    table, folder = load_dataset(name), Path(name) if out is None else out
    check_folder(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise SettingsError(f"{str(folder)!r} is not empty: name another folder by --out")
    split = iid(table, sites, seed)
    tables = {f"site-{k}.csv": site_rows for k, site_rows in enumerate(split.train.values(), 1)}
    trained = " ".join(str(folder / file) for file in tables)
    tables[HELD_OUT] = split.test
    write_files(folder, {file: _csv(rows, ADULT.target) for file, rows in tables.items()})
    for file, rows in tables.items():
        print(f"  {folder / file}: {len(rows):,} rows")
    roles = f"--target {ADULT.target} --sensitive-features {ADULT.sensitive_features}"
    if sites > 3:
        trained = f"{folder}/site-*.csv"
    print("Next:")
    print(f"  agnosticfair fit {trained} {roles} --test {folder / HELD_OUT}")


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
