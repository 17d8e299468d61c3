"""``agnosticfair data``, ``methods`` and ``schema``: the example data, the methods by name, what sites agree on;
and ``explain-messages``: what would leave a site, for its data-protection officer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from agnosticfair.commands.options import Files, Json, Roles, example, with_roles
from agnosticfair.commands.output import check_folder, csv_bytes, grid, show, write_files
from agnosticfair.errors import DataError, SettingsError

if TYPE_CHECKING:
    import numpy as np

    from agnosticfair.data.schema import Schema
    from agnosticfair.data.stream import Stream
    from agnosticfair.data.summary import SummaryStatistics
    from agnosticfair.data.table import Table
from dataclasses import asdict
from typing import Any

from agnosticfair.commands import options
from agnosticfair.commands.output import progress
from agnosticfair.commands.rows import with_subgroup_set
from agnosticfair.settings import DEFAULT

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
    return csv_bytes(columns)


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


@options.with_settings()
@options.example("explain-messages north.csv --target income --sensitive-features sex")
def explain_messages(
    file: Annotated[Path | None, Argument(help="The site's file; it is read here only.")] = None,
    target: Annotated[str | None, Option(help="Column with the label.")] = None,
    sensitive_features: Annotated[
        options.Columns, Option(help="Column with the groups; may be repeated.")
    ] = None,
    numeric: options.Numeric = None,
    categorical: options.Categorical = None,
    drop: options.Drop = None,
    sites: Annotated[int, Option(help="Number of sites, each with rows like these.")] = 2,
    method: options.MethodName = DEFAULT,
    settings: options.Settings = options.NONE,
    secure: Annotated[bool, Option("--secure", help="As they are under secure sums.")] = False,
    epsilon: options.Epsilon = None,
    delta: options.Delta = 1e-5,
    site_rows: options.SiteRows = 0,
    schema: options.SchemaFile = None,
    all_rows: Annotated[bool, Option("--all-rows", help="Not some of them; slower.")] = False,
    as_json: options.Json = False,
) -> None:
    """Print every message of a fit: its rounds, fields, shapes and bytes, and what it could reveal.

    It is a dry run here, over that many sites with 1,000 rows of the file each, or with rows drawn within the schema;
    nothing is sent. All rows have the same messages and fields, some of them longer, in more rounds.
    """
    from agnosticfair.data.files import Roles, read_table
    from agnosticfair.data.schema import load_schema, schema_of
    from agnosticfair.data.summary import summary_statistics
    from agnosticfair.methods import method as build_method
    from agnosticfair.privacy.fit import Budget
    from agnosticfair.privacy.messages import SAMPLE, drawn_rows, dry_run, learned

    if sites < 1 + secure:
        raise SettingsError(f"{sites} sites: give one at least, and two for secure sums")
    chosen = build_method(method, **settings)
    agreed = None if schema is None else load_schema(schema)
    budget = None if epsilon is None else Budget(epsilon, delta, max_rows=site_rows)
    if file is not None:
        if target is None or not sensitive_features:
            raise SettingsError("name the file's columns by --target and --sensitive-features")
        kinds = (tuple(names or ()) for names in (numeric, categorical, drop))
        roles = with_subgroup_set(Roles(target, tuple(sensitive_features), None, *kinds), chosen)
        rows = read_table(file, roles)
        if agreed is None and budget is not None:
            agreed = schema_of(summary_statistics(rows, who=f"file {file.name!r}"), target)
    elif agreed is not None:
        rows = drawn_rows(agreed)
    else:
        raise SettingsError("name a site's file, or the --schema that all agree on")
    sample = len(rows) if all_rows else SAMPLE
    how: dict[str, Any] = {"schema": agreed, "secure": secure, "budget": budget, "sample": sample}
    with progress(0, "messages") as advance:
        messages = dry_run(chosen, rows, sites, on_message=advance, **how)
    if as_json:
        content = [{**asdict(message), "rounds": message.rounds} for message in messages]
        return print(json.dumps(content, indent=1))
    for message in messages:
        way = "site to server" if message.sender == "site" else "server to every site"
        title = f"{message.step}, {way}, round {message.rounds}: {message.size:,} bytes"
        lines = [(k, v, message.reveals.get(k, "")) for k, v in message.fields.items()]
        show(grid(title, ("field", "shape", "what it could reveal"), lines))
        print()
    if epsilon is not None:
        hidden = "for the site as a whole" if site_rows else "per row of a site"
        print(f"All of them together cost epsilon {epsilon:g} at delta {delta:g}, {hidden}.")
    whom = learned(chosen, secure=secure, epsilon=epsilon, schema=agreed is not None)
    show(grid("Who learns what from this run", ("who", "what"), [*whom.items()]))
    largest = max(messages, key=lambda message: message.size)
    print(f"The largest is {largest.step}: {largest.size:,} bytes per site and message.")
    if len(rows) > sample:
        print(
            f"A dry run over {sample:,} of the file's {len(rows):,} rows: of all rows (--all-rows) some messages are "
            "longer, in more rounds."
        )
    return None
