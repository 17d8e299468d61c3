"""``agnosticfair-research reproduce``: the paper's tables beside its own numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from typer import Option

import agnosticfair
from agnosticfair.commands.options import Jobs, Json, OutFolder, example
from agnosticfair.commands.output import check_folder, deliver, progress
from agnosticfair.threads import cpus
from agnosticfair_research.commands import options


@example("reproduce --dataset adult --methods fl,fairfl --seeds 5")
def reproduce(
    dataset: options.Datasets = "adult",
    setting: Annotated[str, Option(help="shift (Tables 1, 2), iid (Table 3) or all.")] = "all",
    methods: Annotated[str, Option(help="Names with commas between, or all.")] = "all",
    seeds: options.Seeds = 20,
    jobs: Jobs = None,
    data_folder: options.DataFolder = None,
    out: OutFolder = Path("results"),
    as_json: Json = False,
) -> None:
    """Run the paper's experiments and show its tables beside the paper's own numbers.

    Writes results.json (a row per data set, setting, method and seed) and tables.md.
    The numbers do not depend on the number of processes.
    """
    from agnosticfair.methods import METHODS
    from agnosticfair_research.paper import DATASETS
    from agnosticfair_research.report import tables
    from agnosticfair_research.reproduce import SETTINGS, cells, run_cells

    check_folder(out)
    folder = None if data_folder is None else str(data_folder)
    tasks = cells(
        options.listed(dataset, DATASETS),
        options.listed(setting, SETTINGS),
        options.listed(methods, METHODS),
        seeds,
        folder,
    )
    begin, jobs = perf_counter(), cpus() if jobs is None else jobs
    with progress(len(tasks), "fits") as advance:
        rows = run_cells(tasks, jobs, lambda row: advance(row["method"]))
    results = {
        "format": "agnosticfair-results-1",
        **_made_from(options.listed(dataset, DATASETS), folder),
        "request": {"dataset": dataset, "setting": setting, "methods": methods, "seeds": seeds},
        "rows": rows,
    }
    summaries = tables.summarise(rows)
    text = json.dumps(results, indent=1, allow_nan=False)
    made_by = (
        f"Made by `agnosticfair-research reproduce --dataset {dataset} --setting {setting} --methods {methods} "
        f"--seeds {seeds}`, version {agnosticfair.__version__}."
    )
    written = tables.document(tables.grids(summaries), made_by)
    files = {"results.json": f"{text}\n".encode(), "tables.md": written.encode()}
    said = (
        f"{len(rows)} fits in {perf_counter() - begin:.0f} s; mean±standard deviation over seeds."
    )
    deliver(out, files, tables.grids(summaries, digits=3), said, text if as_json else None)


def _made_from(names: Iterable[str], folder: str | None) -> dict[str, Any]:
    """By which command, versions and rows the results were made."""
    from agnosticfair.runs.provenance import provenance
    from agnosticfair_research.datasets import fingerprint, load_dataset

    loaded = {name: load_dataset(name, folder) for name in names}
    about = provenance(loaded)
    digests = {k: d | {"sha256": fingerprint(loaded[k])} for k, d in about["data"].items()}
    return about | {"data": digests}
