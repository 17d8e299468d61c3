"""``agnosticfair shifts``: methods and peers on many deployments that none of them saw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from typer import Option

import agnosticfair
from agnosticfair.commands import options
from agnosticfair.commands.output import check_folder, deliver, progress
from agnosticfair.errors import SettingsError
from agnosticfair.threads import cpus

EPILOG = "Example: agnosticfair shifts --dataset adult --seeds 2 --no-frontier"


def shifts(
    dataset: options.Datasets = "adult",
    setting: Annotated[
        str, Option(help="shift, iid, or dirichlet (adult, beside published numbers).")
    ] = "shift",
    methods: Annotated[
        str | None, Option(help="Names with commas between, or all; by default the main ones.")
    ] = None,
    network: options.NetworkName = None,
    seeds: options.Seeds = 5,
    frontier: Annotated[
        bool, Option(help="Draw accuracy against risk difference as tau varies (3 seeds at most).")
    ] = True,
    peers: Annotated[
        bool, Option("--peers", help="Also fairlearn's and declearn's (extra 'peers').")
    ] = False,
    jobs: options.Jobs = None,
    strict: Annotated[bool, Option("--strict", help="Fail if a fit does not converge.")] = False,
    data_folder: options.DataFolder = None,
    out: options.OutFolder = Path("shifts"),
    as_json: options.Json = False,
) -> None:
    """Train methods on one split and test them on many deployments that none of them saw.

    Writes shifts.json (a row per data set, method and seed, with every deployment's numbers),
    shifts.md and PNG figures. The numbers do not depend on the number of processes; only times do.
    """
    from agnosticfair.data.datasets import DATASETS, load_dataset
    from agnosticfair.experiments.detail import decided_files
    from agnosticfair.experiments.shifts import COMPARED, DIRICHLET, cells, clients_of, run
    from agnosticfair.methods import METHODS
    from agnosticfair.runs.provenance import provenance

    check_folder(out)
    usual = DIRICHLET if setting == "dirichlet" else COMPARED
    folder = None if data_folder is None else str(data_folder)
    names = options.listed(dataset, DATASETS)
    tasks = cells(
        names,
        setting,
        usual if methods is None else options.listed(methods, METHODS),
        seeds,
        peers=_peers() if peers else (),
        frontier=frontier,
        strict=strict,
        folder=folder,
        network=network,
    )
    begin = perf_counter()
    with progress(len(tasks), "fits") as advance:
        rows = run(tasks, cpus() if jobs is None else jobs, lambda row: advance(row["method"]))
    chosen = methods or ",".join(usual)
    asked = {"dataset": dataset, "setting": setting, "methods": chosen, "seeds": seeds}
    asked |= {} if network is None else {"network": network}
    kept = decided_files(rows, clients_of(setting), folder)
    about = provenance({name: load_dataset(name, folder) for name in names})
    results: dict[str, Any] = {
        "format": "agnosticfair-shifts-1",
        **about,
        "versions": about["versions"] | _versions(peers),
        "asked": {**asked, "peers": peers},
        "rows": rows,
    }
    _present(results, out, kept, perf_counter() - begin, as_json)


def _peers() -> list[str]:
    """The peers that are installed; none is an error."""
    from agnosticfair.experiments.peers import PEERS

    found = [name for name, peer in PEERS.items() if peer.installed]
    if not found:
        raise SettingsError("no peer is installed: pip install 'agnosticfair[peers]'")
    return found


def _present(
    results: Mapping[str, Any], out: Path, kept: Mapping[str, bytes], seconds: float, as_json: bool
) -> None:
    """Write rows, tables and figures; then show the tables and say where the rest is."""
    from agnosticfair.report import shifts as report
    from agnosticfair.report.figures import png

    rows = results["rows"]
    summaries, drawn = report.summarise(rows), report.figures(rows)
    asked = {k: v for k, v in results["asked"].items() if k != "peers"}
    words = " ".join(f"--{key} {value}" for key, value in asked.items())
    words += " --peers" if results["asked"]["peers"] else ""
    made_by = f"Made by `agnosticfair shifts {words}`, version {agnosticfair.__version__}."
    captions = {name: text for name, (_, text) in drawn.items()}
    text = json.dumps(results, indent=1, allow_nan=False)
    document = report.document(report.grids(summaries), captions, made_by)
    files = {"shifts.json": f"{text}\n".encode(), "shifts.md": document.encode(), **kept}
    files |= {name: png(figure) for name, (figure, _) in drawn.items()}
    said = f"{len(rows)} fits in {seconds:.0f} s."
    missing = [name for name, version in results["versions"].items() if version is None]
    if missing:
        said += f"\nNot installed, so left out: {', '.join(missing)}"
    deliver(out, files, report.grids(summaries, spread=False), said, text if as_json else None)


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
