"""``agnosticfair-research data``: the data sets of the experiments, and whether they are here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agnosticfair.commands.options import Json, example
from agnosticfair.commands.output import grid, show
from agnosticfair.errors import DataError
from agnosticfair_research.commands.options import DataFolder

if TYPE_CHECKING:
    from agnosticfair_research.datasets import Shift


@example("data --json")
def data(data_folder: DataFolder = None, as_json: Json = False) -> None:
    """List the data sets of the experiments, and whether they are here."""
    from agnosticfair_research.datasets import DATASETS

    entries = [describe(name, data_folder) for name in DATASETS]
    if as_json:
        return print(json.dumps(entries, indent=1))
    for entry in entries:
        lines = [(key, value) for key, value in entry.items() if key != "name"]
        show(grid(entry["name"], ("", ""), lines))
        print()
    return None


def describe(name: str, folder: Path | None) -> dict[str, Any]:
    """A data set in words and numbers; nothing is downloaded to know them."""
    from agnosticfair.data.summary import encoding_of, summary_statistics
    from agnosticfair_research.datasets import dataset, load_dataset
    from agnosticfair_research.sources import VARIABLE, cache_folder, find

    known, path = dataset(name), "in this package"
    entry = {"name": name, "about": known.note, "licence": known.licence}
    entry |= {"shift": _shift(known.shift), "positive": known.positive}
    if known.source is not None:
        named = folder or os.environ.get(VARIABLE)
        place = named or cache_folder()
        file = find(known.source, place)
        if file is None:
            remedy = "put it there from" if named else "a first use downloads it from"
            where = f"not in {place}: {remedy} {known.source.url}"
            return entry | {"here": False, "where": where}
        path = str(file)
    try:
        statistics = summary_statistics(load_dataset(name, folder), who=name)
    except DataError as error:
        return entry | {"here": False, "where": str(error)}
    counts = {
        "rows": statistics.n,
        "features": encoding_of(statistics).width,
        "labels": statistics.labels,
    }
    groups = statistics.groups[known.sensitive_features]
    return entry | counts | {"groups": groups, "here": True, "where": path}


def _shift(shift: Shift) -> str:
    if shift.drawn:
        return f"{shift.drawn} values of {shift.column}, drawn by the seed, are held back"
    rest = "all others" if shift.rates[1] else "all others held back"
    rest += f" ({', '.join(shift.left_out)} left out)" if shift.left_out else ""
    return f"{shift.column} {', '.join(shift.values)}, then {rest}"
