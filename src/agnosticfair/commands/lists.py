"""``agnosticfair methods`` and ``data``: what is known by name."""

from __future__ import annotations

import json
import os
from math import isfinite
from pathlib import Path
from typing import Any

from agnosticfair.commands.options import DataFolder, Json
from agnosticfair.commands.output import grid, show
from agnosticfair.errors import DataError

METHODS_EPILOG = "Example: agnosticfair methods --json"
DATA_EPILOG = "Example: agnosticfair data --data-folder ~/data"
LICENCES = {"adult": "CC BY 4.0", "dutch": "not stated by its source, so not shipped"}


def list_methods(as_json: Json = False) -> None:
    """List the methods by name, with what each minimises and its main values."""
    from dataclasses import asdict

    from agnosticfair.auditing.certificate import plain
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
        kernels = f" {m.basis.kernels}" if m.basis.kind == "gaussian" else ""
        bound = f"{m.bound:g}" if isfinite(m.bound) else ""
        values = (f"{m.basis.kind}{kernels}", bound, f"{tau}", f"{m.rounds}")
        lines.append((m.name, m.summary, *values))
    return show(grid("", ("method", "what it does", "basis", "B", "tau", "rounds"), lines))


def list_data(data_folder: DataFolder = None, as_json: Json = False) -> None:
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
    from agnosticfair.data import dutch
    from agnosticfair.data.census import encoding_of, take_census
    from agnosticfair.data.datasets import dataset, load_dataset

    source, named = dataset(name), folder or os.environ.get(dutch.VARIABLE)
    shift = f"{source.shift_column} {source.shift_value}, then all others"
    entry = {"name": name, "about": source.note, "licence": LICENCES.get(name, ""), "shift": shift}
    entry["positive"] = source.positive
    place = named or dutch.cache_folder()
    path = "in this package" if name == "adult" else dutch.find_dutch(place)
    if path is None:
        remedy = "put it there from" if named else "a first use downloads it from"
        return entry | {"here": False, "where": f"not in {place}: {remedy} {dutch.URL}"}
    try:
        census = take_census(load_dataset(name, folder), who=name)
    except DataError as error:
        return entry | {"here": False, "where": str(error)}
    counts = {"rows": census.n, "features": encoding_of(census).width, "labels": census.labels}
    groups = census.groups[source.sensitive]
    return entry | counts | {"groups": groups, "here": True, "where": str(path)}
