"""``agnosticfair data``, ``methods`` and ``schema``: the example data, the methods by name, what sites agree on."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from agnosticfair.commands.options import Files, Json, Roles, example, with_roles
from agnosticfair.commands.output import check_folder, grid, show, write_files
from agnosticfair.errors import DataError, SettingsError

if TYPE_CHECKING:
    import numpy as np

    from agnosticfair.data.schema import Schema
    from agnosticfair.data.stream import Stream
    from agnosticfair.data.summary import SummaryStatistics
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


@with_roles
@example("schema north.csv --target income --sensitive-features sex --out schema.json")
def schema(
    files: Files,
    roles: Roles,
    check: Annotated[
        Path | None, Option(help="Check the files against this schema instead of drafting one.")
    ] = None,
    outside: Annotated[
        str, Option(help="What a draft says of values outside: refuse, or clip.")
    ] = "refuse",
    bins: Annotated[
        int, Option(help="Bins of each number in a draft, of about as many rows each; 0 for none.")
    ] = 4,
    out: Annotated[Path, Option(help="The draft's file; an existing one is kept.")] = Path(
        "schema.json"
    ),
) -> None:
    """Draft the schema that all sites agree on, or check a site's file against it.

    A draft shows the ranges and categories of the files it is made from: correct it to what is meant
    before it leaves the site. Sites have agreed when each has checked its own file and all see the same
    digest.
    """
    from agnosticfair.data.files import read_sources
    from agnosticfair.data.schema import OUTSIDE, load_schema, schema_of
    from agnosticfair.data.summary import merge, summary_statistics

    clients = read_sources(files, roles)
    if check is not None:
        agreed = load_schema(check)
        for name, source in clients.items():
            source.added_up(partial(_fitting, agreed, f"client {name!r}"))
        rows = sum(len(source) for source in clients.values())
        return print(f"{rows} rows fit the schema; its digest is {agreed.digest}.")
    if outside not in OUTSIDE:
        raise SettingsError(f"outside is {outside!r}: say {' or '.join(OUTSIDE)}")
    if out.exists():
        raise DataError(f"{str(out)!r} is there already: name another file by --out")
    all_statistics = {
        name: source.added_up(partial(summary_statistics, who=f"client {name!r}"))
        for name, source in clients.items()
    }
    assert roles.target is not None  # its option is required
    statistics = merge(all_statistics)
    draft = schema_of(statistics, roles.target, outside)
    if bins:
        draft = replace(draft, bins=_bins(clients, statistics, bins))
    out.write_text(json.dumps(draft.to_json(), indent=1) + "\n", encoding="utf-8")
    return print(f"Written: {out}, a draft: correct its ranges and categories before it leaves.")


def _bins(
    clients: Mapping[str, Table | Stream], statistics: SummaryStatistics, bins: int
) -> dict[str, tuple[float, ...]]:
    """The edges that a fit of these files would agree on, for every column of numbers."""
    import numpy as np

    from agnosticfair.data.axes import axis_of_bins, histogram

    def counted(table: Table) -> np.ndarray:
        return np.array([histogram(table.numeric[name], *ends) for name, ends in ranges])

    ranges = list(statistics.ranges.items())
    if not ranges:
        return {}
    counts = np.sum([source.added_up(counted) for source in clients.values()], axis=0)
    return {
        name: axis_of_bins(statistics, name, counts_here, bins)
        for (name, _), counts_here in zip(ranges, counts, strict=True)
    }


def _fitting(agreed: Schema, who: str, table: Table) -> list[int]:
    """The rows that fit, or the sentence that says why some do not."""
    from agnosticfair.data.schema import applied

    return [len(applied(agreed, table, who))]
