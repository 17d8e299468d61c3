"""``agnosticfair explain-messages``: what would leave a site, for its data-protection officer."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from agnosticfair.commands import options
from agnosticfair.commands.output import grid, progress, show
from agnosticfair.commands.rows import with_subgroup_set
from agnosticfair.errors import SettingsError
from agnosticfair.settings import DEFAULT


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
