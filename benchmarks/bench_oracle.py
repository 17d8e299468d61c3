"""Would another choice of our default's setting have won the benchmark? Every setting, measured on test rows.

    python benchmarks/bench_oracle.py bench/results.json --seeds 20-24 --data-folder ../shared/data --jobs 2

The rule of the benchmark takes a setting by training rows. An oracle who sees the deployments takes whichever it
likes: for each data set and limit this says which of the settings asked for, the same in every seed, would have won, or
won among entrants of like accuracy, against everybody else as the results have them, on the seeds named. Where none
would, it is the method that is lost, and not the choice. Nothing is chosen by it.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from agnosticfair_research.benchmark import ASKED, on_deployments, parsed, prepared
from agnosticfair_research.entrants.ours import RULE
from agnosticfair_research.report.bench_numbers import OURS, aggregate, by_data, verdict

Json = dict[str, Any]


def measured(data: str, seed: int, folder: str | None, limits: tuple[float, ...]) -> list[Json]:
    """A cell of our default for each setting, as if that had been chosen at every limit."""
    with threadpool_limits(1):
        held, found = prepared(data, "shift", seed, folder), []
        for request in ASKED:
            decide = RULE.fit(replace(held.train), request)
            # how many are beyond a limit is asked of none: the same at all limits
            told = {"request": request} | on_deployments(decide, held, limits[0])
            rows = [told | {"limit": limit} for limit in limits]
            found.append({"dataset": data, "split": "shift", "seed": seed, "rows": rows})
    return found


def as_chosen(cell: Json, made: Json) -> Json:
    """The cell of our default with what a setting gives; whether that keeps a limit by training rows is known."""
    beyond = {tried["request"]: tried["beyond"] for tried in cell["tried"]}
    about = {"cross_worst": 0.0, "ratio": 0.0}
    rows = [row | about | {"kept": beyond[row["request"]] <= row["limit"]} for row in made["rows"]]
    return cell | {"rows": rows}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("results", type=Path)
    words.add_argument("--seeds", default="20-24")
    words.add_argument("--jobs", type=int, default=1)
    words.add_argument("--data-folder")
    request = words.parse_args()
    results, seeds = json.loads(request.results.read_text()), {*parsed(request.seeds)}
    cells = [c for c in results["cells"] if c["seed"] in seeds and c["split"] == "shift"]
    own = {(c["dataset"], c["seed"]): c for c in cells if c["entrant"] == OURS and c["rows"]}
    limits = tuple(row["limit"] for row in next(iter(own.values()))["rows"])
    with ProcessPoolExecutor(request.jobs) as pool:
        todo = [pool.submit(measured, *key, request.data_folder, limits) for key in own]
        found = dict(zip(own, [job.result() for job in todo], strict=True))
    others = [c for c in cells if c["entrant"] != OURS]
    judged: dict[tuple[str, float], list[Json]] = {}
    for k in range(len(ASKED)):
        made = [as_chosen(own[key], found[key][k]) for key in own]
        summary = aggregate({**results, "cells": others + made})
        for data, at in by_data(summary).items():
            for limit, lines in at.items():
                judged.setdefault((data, limit), []).append(verdict(lines))
    print(
        "| data | limit | accuracy, p90 / max, positives when asked for "
        + ", ".join(map(str, ASKED)),
        end="",
    )
    print(" | would win | among like accuracy |\n|---|---|---|---|---|")
    for (data, limit), verdicts in judged.items():
        each = "; ".join(
            f"{v['own']['accuracy']:.3f}, {v['own']['p90']:.3f} / {v['own']['max']:.3f}, {v['own']['positives']:.3f}"
            for v in verdicts
        )
        names = (
            ", ".join(str(a) for a, v in zip(ASKED, verdicts, strict=True) if v[name]) or "none"
            for name in ("won", "alike")
        )
        print(f"| {data} | {limit:g} | {each} | {' | '.join(names)} |")
    for name, limit in product(("won", "alike"), limits):
        count = sum(any(v[name] for v in vs) for (_, at), vs in judged.items() if at == limit)
        print(f"{name} at {limit:g}: {count} of {len({data for data, _ in judged})}")


if __name__ == "__main__":
    main()
