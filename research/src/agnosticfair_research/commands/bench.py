"""``agnosticfair-research bench``: the benchmark, chosen blind, on deployments that nobody saw."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from agnosticfair.commands.options import Jobs, Json, example
from agnosticfair.commands.output import check_folder, deliver, progress
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.threads import cpus
from agnosticfair_research.commands.options import DataFolder, listed

if TYPE_CHECKING:
    from agnosticfair_research.benchmark import Cell


@example("bench --quick --out bench")
def bench(
    datasets: Annotated[
        str | None, Option(help="Names with commas between, or all; by default all that are here.")
    ] = None,
    protocols: Annotated[
        str, Option(help="balanced (costs), rate (of positives, fixed), promise, or all.")
    ] = "all",
    entrants: Annotated[
        str | None,
        Option(help="Names, or files of your own, with commas between; by default all."),
    ] = None,
    seeds: Annotated[
        str, Option(help="As in 0-4,7: 0 to 19 for development, 40 to 59 for reporting.")
    ] = "0-2",
    quick: Annotated[
        bool,
        Option(
            "--quick", help="One seed and limit; two data sets and five entrants, unless named."
        ),
    ] = False,
    cell: Annotated[
        str | None,
        Option(help="Run one cell of the tables again, as in adult-03-balanced-rule, and compare."),
    ] = None,
    budget: Annotated[
        float | None, Option(help="Minutes after which no further cell is begun.")
    ] = None,
    jobs: Jobs = None,
    data_folder: DataFolder = None,
    out: Annotated[Path, Option(help="Folder for results; cells in it are not run again.")] = Path(
        "bench"
    ),
    as_json: Json = False,
) -> None:
    """Run the benchmark: all entrants, settings chosen on training rows by one rule, unseen deployments.

    Writes cells.jsonl, a line for each cell as it ends, so that a run that was stopped is taken up again, and bench.md.
    The same commit gives the same numbers; only times differ.
    """
    from agnosticfair_research.benchmark import LIMITS, PROTOCOLS, cells, here, parsed
    from agnosticfair_research.datasets import DATASETS
    from agnosticfair_research.entrants import ENTRANTS, is_file
    from agnosticfair_research.store import authorise, code, run_stored

    check_folder(out)
    folder = None if data_folder is None else str(data_folder)
    if cell is not None:
        return _again(cell, folder, out)
    code_here, numbers = code(), parsed(seeds)
    names = listed(entrants or "all", ENTRANTS)
    authorise(numbers, code_here, filter(is_file, names))
    request = listed(datasets or "all", DATASETS)
    options: dict[str, Any] = {"limits": LIMITS, "folder": folder}
    if quick:
        numbers, options = numbers[:1], options | QUICK
        request, names = request if datasets else QUICK_DATA, names if entrants else QUICK_ENTRANTS
    wanted = cells(request, numbers, names, listed(protocols, PROTOCOLS), **options)
    # after the words are found to make sense: it may download
    there, absent = here(request, folder)
    if not there:
        raise DataError(next(iter(absent.values())))
    wanted = [one for one in wanted if one.dataset in there]
    begin = perf_counter()
    with progress(len(wanted), "cells") as advance:
        workers = cpus() if jobs is None else jobs
        until = float("inf") if budget is None else 60 * budget
        rows, ran = run_stored(wanted, out, code_here, workers, advance, until)
    said = f"{ran} cells in {perf_counter() - begin:.0f} s, {len(rows) - ran} taken up from before."
    left = len(wanted) - len(rows)
    said += f" {left} are left: run it again." if left else ""
    said += "".join(f"\nLeft out: {name}: {why}" for name, why in absent.items())
    return _present(rows, out, said, as_json)


QUICK_DATA = ["adult", "oulad"]
QUICK_ENTRANTS = ["rule", "fairfl", "linearpost", "fairlearn-eg", "boosted-moved"]
QUICK: dict[str, Any] = {"limits": (0.1,), "request": (0.12, 0.03)}


def _again(key: str, folder: str | None, out: Path) -> None:
    """One cell once more: what it gives, and whether that is what is stored."""
    from agnosticfair_research.benchmark import run_cell
    from agnosticfair_research.store import FILE, authorise, code, read

    wanted = _named(key, folder)
    authorise([wanted.seed], code())
    row = json.loads(json.dumps(run_cell(wanted)))
    print(json.dumps(row, indent=1))
    stored = {_key(other): other for other in read(out / FILE)}.get(key)
    if stored is None:
        print(f"{str(out / FILE)!r} has no such cell to compare with.")
    else:
        same = all(row.get(k) == stored.get(k) for k in ("rows", "settings", "tried"))
        print("The same numbers as stored." if same else "Other numbers than stored.")


def _key(row: Mapping[str, Any]) -> str:
    from agnosticfair_research.benchmark import key_of

    return key_of(row)


def _named(key: str, folder: str | None) -> Cell:
    """The cell of that name."""
    from agnosticfair_research.benchmark import cells

    data, seed, protocol, entrant = (*key.split("-", 3), "", "", "")[:4]
    if not seed.isdigit():
        raise SettingsError(f"{key!r} names no cell: write adult-03-balanced-rule")
    (one,) = cells([data], [int(seed)], [entrant], [protocol], folder=folder)
    return one


def _present(rows: Sequence[Mapping[str, Any]], out: Path, said: str, as_json: bool) -> None:
    from agnosticfair_research.report import bench as report
    from agnosticfair_research.verdict import summary

    summed = summary(rows)
    said += f"\n{report.projection(summed['cost'])}"
    files = {"bench.md": report.document(summed).encode()}
    text = json.dumps(rows, allow_nan=False)
    deliver(out, files, report.grids(summed["lines"]), said, text if as_json else None)
