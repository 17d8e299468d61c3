"""``agnosticfair schema``: draft what all sites agree on, and check files against it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from agnosticfair.commands.options import Files, Roles, example, with_roles

if TYPE_CHECKING:
    import numpy as np

    from agnosticfair.data.schema import Schema
    from agnosticfair.data.stream import Stream
    from agnosticfair.data.summary import SummaryStatistics
    from agnosticfair.data.table import Table


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
    from agnosticfair.errors import DataError, SettingsError

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
