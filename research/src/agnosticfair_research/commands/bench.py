"""``agnosticfair-research bench``: the benchmark, chosen blind, on deployments that nobody saw."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from typer import Option

from agnosticfair.commands.options import Jobs, Json, example
from agnosticfair.commands.output import check_folder, deliver, progress
from agnosticfair.errors import DataError
from agnosticfair.threads import cpus
from agnosticfair_research.commands.options import DataFolder, listed


@example("bench --quick --out bench")
def bench(
    datasets: Annotated[
        str | None, Option(help="Names with commas between, or all; by default all that are here.")
    ] = None,
    splits: Annotated[str, Option(help="shift (each data set's own), iid, or both.")] = "shift",
    entrants: Annotated[
        str | None,
        Option(
            help="Names, or files of your own, with commas between; by default all but networks."
        ),
    ] = None,
    seeds: Annotated[
        str, Option(help="As in 0-4,7: 0 to 19 for development, 20 to 39 for reporting.")
    ] = "0-2",
    quick: Annotated[
        bool,
        Option(
            "--quick", help="One seed and limit; two data sets and five entrants, unless named."
        ),
    ] = False,
    jobs: Jobs = None,
    commit: Annotated[
        str | None, Option(help="The code's commit, where there is no repository to ask.")
    ] = None,
    data_folder: DataFolder = None,
    out: Annotated[
        Path, Option(help="Folder for results; cells in it that this code made are not run again.")
    ] = Path("bench"),
    as_json: Json = False,
) -> None:
    """Run the benchmark: all entrants, settings chosen on training rows by one rule, unseen deployments.

    Writes results.json, bench.md and one page, bench.html; cells/ holds what is done, so that a run that was
    stopped is taken up again. The same commit gives the same numbers; only times differ.
    """
    from agnosticfair_research.benchmark import LIMITS, cells, here, parsed
    from agnosticfair_research.datasets import DATASETS
    from agnosticfair_research.entrants import ENTRANTS, is_file
    from agnosticfair_research.kept import authorise, code, results_of, run_kept

    check_folder(out)
    folder = None if data_folder is None else str(data_folder)
    code_here, numbers = code(commit), parsed(seeds)
    names = listed(entrants, ENTRANTS) if entrants else [k for k in ENTRANTS if "mlp" not in k]
    authorise(numbers, code_here, filter(is_file, names))
    request = listed(datasets or "all", DATASETS)
    options: dict[str, Any] = {"limits": LIMITS, "folder": folder}
    if quick:
        numbers, options = numbers[:1], options | QUICK
        request, names = request if datasets else QUICK_DATA, names if entrants else QUICK_ENTRANTS
    wanted = cells(request, numbers, names, listed(splits, ("shift", "iid")), **options)
    found, absent = here(
        request, folder
    )  # after the words are found to make sense: it may download
    if not found:
        raise DataError(next(iter(absent.values())))
    wanted = [cell for cell in wanted if cell.dataset in found]
    begin = perf_counter()
    with progress(len(wanted), "cells") as advance:
        rows, ran = run_kept(wanted, out, code_here, cpus() if jobs is None else jobs, advance)
    _present(results_of(rows, code_here, absent), out, perf_counter() - begin, ran, as_json)


QUICK_DATA = ["adult", "oulad"]
QUICK_ENTRANTS = [
    "rule",
    "fairfl",
    "fairlearn-eg",
    "fairlearn-threshold",
    "boosted-tree",
]
QUICK: dict[str, Any] = {"limits": (0.1,), "request": (0.02, 0.05, 0.12)}


def _present(results: dict[str, Any], out: Path, seconds: float, ran: int, as_json: bool) -> None:
    from agnosticfair_research.report import bench as report
    from agnosticfair_research.report.bench_page import page

    text = json.dumps(results, allow_nan=False)
    files = {
        "results.json": f"{text}\n".encode(),
        "bench.md": report.document(results).encode(),
        "bench.html": page(results).encode(),
    }
    said = f"{ran} cells in {seconds:.0f} s, {len(results['cells']) - ran} taken up from before."
    said += "".join(f"\nLeft out: {name}: {why}" for name, why in results["absent"].items())
    deliver(out, files, report.grids(results), said, text if as_json else None)
