"""``agnosticfair-research shifts``: methods and peers on many deployments that none of them saw."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from typer import Option

from agnosticfair.commands.options import Jobs, Json, OutFolder, example
from agnosticfair.commands.output import check_folder, progress
from agnosticfair.errors import SettingsError
from agnosticfair.settings import SETTINGS
from agnosticfair.threads import cpus
from agnosticfair_research.commands import options
from agnosticfair_research.commands.output import deliver_study, made_from


@example("shifts --dataset adult --seeds 2 --no-frontier")
def shifts(
    dataset: options.Datasets = "adult",
    setting: Annotated[
        str, Option(help="shift, iid, or dirichlet (adult, beside published numbers).")
    ] = "shift",
    methods: Annotated[
        str | None, Option(help="Names with commas between, or all; by default the main ones.")
    ] = None,
    network: Annotated[str | None, Option(help=SETTINGS["network"].words)] = None,
    seeds: options.Seeds = 5,
    frontier: Annotated[
        bool, Option(help="Draw accuracy against risk difference as tau varies (3 seeds at most).")
    ] = True,
    peers: Annotated[
        bool, Option("--peers", help="Also fairlearn's and declearn's (extra 'peers').")
    ] = False,
    jobs: Jobs = None,
    strict: Annotated[bool, Option("--strict", help="Fail if a fit does not converge.")] = False,
    data_folder: options.DataFolder = None,
    out: OutFolder = Path("shifts"),
    as_json: Json = False,
) -> None:
    """Train methods on one split and test them on many deployments that none of them saw.

    Writes shifts.json (a row per data set, method and seed, with every deployment's numbers),
    shifts.md and PNG figures. The numbers do not depend on the number of processes; only times do.
    """
    from agnosticfair.methods import METHODS
    from agnosticfair_research.datasets import DATASETS
    from agnosticfair_research.pool import run_cells
    from agnosticfair_research.report import shifts as report
    from agnosticfair_research.shifts import COMPARED, DIRICHLET, cells, run_cell

    check_folder(out)
    usual = DIRICHLET if setting == "dirichlet" else COMPARED
    folder = None if data_folder is None else str(data_folder)
    names = options.listed(dataset, DATASETS)
    chosen = usual if methods is None else options.listed(methods, METHODS)
    how: dict[str, Any] = {"frontier": frontier, "strict": strict, "network": network}
    how |= {"peers": _peers() if peers else (), "folder": folder}
    tasks = cells(names, setting, chosen, seeds, **how)
    begin, jobs = perf_counter(), cpus() if jobs is None else jobs
    with progress(len(tasks), "fits") as advance:
        rows = run_cells(run_cell, tasks, jobs, lambda row: advance(row["method"]))
    request: dict[str, Any] = {
        "dataset": dataset,
        "setting": setting,
        "methods": methods or ",".join(usual),
    }
    request |= {"seeds": seeds} | ({} if network is None else {"network": network})
    about = made_from(names, folder)
    results = {"format": "agnosticfair-shifts-1", **about, "request": request | {"peers": peers}}
    results |= {"versions": about["versions"] | _versions(peers), "rows": rows}
    summaries, said = report.summarise(rows), f"{len(rows)} fits in {perf_counter() - begin:.0f} s."
    if missing := [name for name, version in results["versions"].items() if version is None]:
        said += f"\nNot installed, so left out: {', '.join(missing)}"
    grids = report.grids(summaries), report.grids(summaries, spread=False)
    drawn = report.figures(rows)
    deliver_study("shifts", results, report.HEAD, grids, drawn, said, out, as_json)


def _peers() -> list[str]:
    """The peers that are installed; none is an error."""
    from agnosticfair_research.shifts import PEERS

    found = [name for name, peer in PEERS.items() if peer.installed]
    if not found:
        raise SettingsError("no peer is installed: pip install 'agnosticfair-research[peers]'")
    return found


def _versions(peers: bool) -> dict[str, str | None]:
    """Versions of the peers; None for one that is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {}
    others = ("fairlearn", "scikit-learn", "declearn") if peers else ()
    for name in others:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found
