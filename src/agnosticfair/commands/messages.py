"""``agnosticfair explain-messages``: what would leave a site, for its data-protection officer."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from agnosticfair.commands import options
from agnosticfair.commands.output import grid, show
from agnosticfair.commands.rows import with_subgroup_set
from agnosticfair.errors import SettingsError
from agnosticfair.settings import DEFAULT

if TYPE_CHECKING:
    from agnosticfair.data.schema import Schema
    from agnosticfair.data.summary import SummaryStatistics
    from agnosticfair.mathematics.subgroups import Axis
    from agnosticfair.methods import Method
    from agnosticfair.privacy.fit import Budget
    from agnosticfair.report.messages import Explained


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
    features: Annotated[int, Option(help="Without a file: encoded features.")] = 100,
    groups: Annotated[int, Option(help="Without a file: sensitive groups.")] = 2,
    rows: Annotated[int, Option(help="Without a file: rows of all sites.")] = 30000,
    sites: Annotated[int, Option(help="Number of sites, taken to be of equal size.")] = 2,
    method: options.MethodName = DEFAULT,
    settings: options.Settings = options.NONE,
    secure: Annotated[bool, Option("--secure", help="As they are under secure sums.")] = False,
    epsilon: options.Epsilon = None,
    delta: options.Delta = 1e-5,
    site_rows: options.SiteRows = 0,
    schema: options.SchemaFile = None,
    as_json: options.Json = False,
) -> None:
    """Print every message of a fit: its round, fields, shapes and bytes, and what it could reveal.

    With a site's file the sizes are those of its own columns; other sites may add categories.
    """
    from agnosticfair.data.schema import load_schema
    from agnosticfair.methods import method as build_method
    from agnosticfair.privacy.fit import Budget
    from agnosticfair.report.messages import explain, explain_audit, explain_secure, learned

    if sites < 1 or features < 1 or groups < 2 or rows < sites:
        raise SettingsError("there must be at least one site, feature and row, and two groups")
    chosen = build_method(method, **settings)
    kinds = tuple(tuple(names or ()) for names in (numeric, categorical, drop))
    agreed = None if schema is None else load_schema(schema)
    if file is not None:
        names = tuple(sensitive_features or ())
        statistics = _message_of_fit(file, target, names, kinds, chosen, agreed)
    else:
        statistics = _supposed(features, groups, rows) if agreed is None else _agreed(agreed, rows)
    names = tuple(f"site-{k + 1}" for k in range(sites))
    if epsilon is not None:
        messages = _private(
            chosen, statistics, names, Budget(epsilon, delta, max_rows=site_rows), agreed
        )
    else:
        messages = explain(chosen, statistics, names, 1.0 if file is not None else 1 / sites)
        messages += explain_audit(chosen, statistics, names)
        messages = explain_secure(messages, statistics, sites, chosen) if secure else messages
    if as_json:
        return print(json.dumps([asdict(message) for message in messages], indent=1))
    for message in messages:
        way = "site to server" if message.sender == "site" else "server to every site"
        title = f"{message.step}, {way}, round {message.rounds}: {message.size:,} bytes"
        lines = [(k, v, message.reveals.get(k, "")) for k, v in message.fields.items()]
        show(grid(title, ("field", "shape", "what it could reveal"), lines))
        print()
    if epsilon is not None:
        hidden = "for the site as a whole" if site_rows else "per row of a site"
        print(f"All of them together cost epsilon {epsilon:g} at delta {delta:g}, {hidden}.")
    known = agreed is not None or epsilon is not None
    whom = learned(chosen, secure=secure, epsilon=epsilon, schema=known)
    show(grid("Who learns what from this run", ("who", "what"), [*whom.items()]))
    largest = max(messages, key=lambda message: message.size)
    return print(f"The largest is {largest.step}: {largest.size:,} bytes per site and message.")


def _private(
    method: Method,
    statistics: SummaryStatistics,
    sites: tuple[str, ...],
    budget: Budget,
    agreed: Schema | None,
) -> list[Explained]:
    """The messages of a private fit of this method; its subgroups are what the schema, or else the summary statistics,
    declares."""
    import numpy as np

    from agnosticfair.data.schema import schema_of
    from agnosticfair.privacy.fit import private_method, schema_axes
    from agnosticfair.privacy.server import ROUNDS
    from agnosticfair.report.messages import explain_private
    from agnosticfair.server.plan import fairness_of

    method = private_method(method)
    basis = fairness_of(method).basis
    axes: tuple[Axis, ...] = ()
    if basis.kind == "subgroups":
        drawn = agreed or schema_of(statistics, "label")
        if not drawn.categorical and not drawn.bins:  # nothing is known: quarters of every column
            cut = {k: tuple(np.linspace(*ends, 5)[1:-1]) for k, ends in drawn.numeric.items()}
            drawn = replace(drawn, bins=cut)
        axes = schema_axes(drawn, basis.columns)
    ruled = method.rule is not None
    noise = budget.multipliers(ROUNDS, subgroups=basis.kind == "subgroups", rule=ruled)
    bins = {} if agreed is None else agreed.bins
    return explain_private(method, statistics, sites, noise, axes, budget.max_rows, bins)


def _agreed(schema: Schema, rows: int) -> SummaryStatistics:
    """Summary statistics of that many rows, of labels and groups of equal size, as a schema declares them."""
    from agnosticfair.privacy.fit import imagined

    statistics = imagined(schema)
    groups = {name: _dealt(rows, values) for name, values in statistics.groups.items()}
    return replace(statistics, n=rows, labels=_dealt(rows, statistics.labels), groups=groups)


def _message_of_fit(
    file: Path,
    target: str | None,
    sensitive_features: tuple[str, ...],
    kinds: tuple[tuple[str, ...], ...],
    method: Method,
    agreed: Schema | None,
) -> SummaryStatistics:
    """The summary statistics of the site's own rows; with a schema, its columns, ranges and bins."""
    from agnosticfair.data.files import Roles, read_table
    from agnosticfair.data.schema import applied
    from agnosticfair.data.summary import summary_statistics

    if target is None or not sensitive_features:
        raise SettingsError("with a file, name its columns by --target and --sensitive-features")
    roles = with_subgroup_set(Roles(target, sensitive_features, None, *kinds), method)
    rows, who = read_table(file, roles), f"file {file.name!r}"
    if agreed is None:
        return summary_statistics(rows, who=who)
    counted = summary_statistics(applied(agreed, rows, who), who=who)
    outline = agreed.outline()
    groups = {name: {**values, **counted.groups[name]} for name, values in outline.groups.items()}
    return replace(outline, n=counted.n, labels={**outline.labels, **counted.labels}, groups=groups)


def _supposed(features: int, groups: int, rows: int) -> SummaryStatistics:
    """Summary statistics of that many features, groups and rows."""
    from agnosticfair.data.summary import SummaryStatistics

    columns = {f"feature-{k + 1}": (0.0, 1.0) for k in range(features)}
    names = [f"group-{k + 1}" for k in range(groups)]
    labels, counts = _dealt(rows, ("no", "yes")), _dealt(rows, names)
    return SummaryStatistics(rows, labels, {"sensitive_features": counts}, columns, {})


def _dealt(rows: int, names: Collection[str]) -> dict[str, int]:
    """So many rows, dealt to these names evenly; the first has the rest."""
    each = rows // len(names)
    return {k: each if i else rows - each * (len(names) - 1) for i, k in enumerate(names)}
