"""``agnosticfair explain-messages``: what would leave a site, for its data-protection officer."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from agnosticfair.commands import options
from agnosticfair.commands.output import grid, show
from agnosticfair.commands.reading import with_parts
from agnosticfair.errors import SettingsError
from agnosticfair.settings import DEFAULT

if TYPE_CHECKING:
    from agnosticfair.data.census import Census
    from agnosticfair.methods import Method

EPILOG = "Example: agnosticfair explain-messages north.csv --target income --sensitive-features sex"


@options.with_settings()
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
    bootstrap: Annotated[int, Option(help="Resamples of the certificate; 0 for none.")] = 50,
    secure: Annotated[bool, Option("--secure", help="As they are under secure sums.")] = False,
    epsilon: Annotated[
        float | None, Option(help="As they are under differential privacy of rows.")
    ] = None,
    delta: Annotated[float, Option(help="Of differential privacy.")] = 1e-5,
    as_json: options.Json = False,
) -> None:
    """Print every message of a fit: its round, fields, shapes and bytes, and what it could reveal.

    With a site's file the sizes are those of its own columns; other sites may add categories.
    """
    from agnosticfair.methods import method as recipe
    from agnosticfair.private import Budget
    from agnosticfair.server.private import ROUNDS
    from agnosticfair.server.reveals import explain, explain_audit, explain_private, explain_secure

    if bootstrap < 0:
        raise SettingsError(f"bootstrap is {bootstrap}; it must not be negative")
    if sites < 1 or features < 1 or groups < 2 or rows < sites:
        raise SettingsError("there must be at least one site, feature and row, and two groups")
    chosen = recipe(method, **settings)
    kinds = tuple(tuple(names or ()) for names in (numeric, categorical, drop))
    census = (
        _supposed(features, groups, rows)
        if file is None
        else _own(file, target, tuple(sensitive_features or ()), kinds, chosen)
    )
    names = tuple(f"site-{k + 1}" for k in range(sites))
    if epsilon is not None:
        found = explain_private(census, names, Budget(epsilon, delta).multipliers(ROUNDS))
    else:
        found = explain(chosen, census, names, 1.0 if file is not None else 1 / sites)
        found += explain_audit(chosen, census, bootstrap)
        found = explain_secure(found, census, sites) if secure else found
    if as_json:
        return print(json.dumps([asdict(message) for message in found], indent=1))
    for message in found:
        way = "site to server" if message.sender == "site" else "server to every site"
        title = f"{message.step}, {way}, round {message.rounds}: {message.size:,} bytes"
        lines = [(k, v, message.reveals.get(k, "")) for k, v in message.fields.items()]
        show(grid(title, ("field", "shape", "what it could reveal"), lines))
        print()
    if epsilon is not None:
        print(
            f"All of them together cost epsilon {epsilon:g} at delta {delta:g}, per row of a site."
        )
    largest = max(found, key=lambda message: message.size)
    return print(f"The largest is {largest.step}: {largest.size:,} bytes per site and message.")


def _own(
    file: Path,
    target: str | None,
    sensitive_features: tuple[str, ...],
    kinds: tuple[tuple[str, ...], ...],
    method: Method,
) -> Census:
    """The census of the site's own rows."""
    from agnosticfair.data.census import take_census
    from agnosticfair.data.files import Roles, read_table

    if target is None or not sensitive_features:
        raise SettingsError("with a file, name its columns by --target and --sensitive-features")
    roles = with_parts(Roles(target, sensitive_features, None, *kinds), method)
    return take_census(read_table(file, roles), who=f"file {file.name!r}")


def _supposed(features: int, groups: int, rows: int) -> Census:
    """A census of that many features, groups and rows."""
    from agnosticfair.data.census import Census

    columns = {f"feature-{k + 1}": (0.0, 1.0) for k in range(features)}
    first = rows - (groups - 1) * (rows // groups)
    counts = {f"group-{k + 1}": rows // groups if k else first for k in range(groups)}
    labels = {"no": rows - rows // 2, "yes": rows // 2}
    return Census(rows, labels, {"sensitive_features": counts}, columns, {})
