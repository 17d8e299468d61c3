"""Run the benchmark's cells where there are only numpy, scipy, scikit-learn, pyarrow and clarabel.

    PYTHONPATH=src python benchmarks/bench_cells.py --seeds 20-24 --jobs 16 --data-folder data --commit HASH --out bench

Takes up what is in the folder (``--add RESULTS`` puts another machine's results there first: the same code, other
entrants), and writes results.json; ``benchmarks/write_benchmark.py`` makes the texts of it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter

from agnosticfair_research.benchmark import cells, here, parsed
from agnosticfair_research.datasets import DATASETS
from agnosticfair_research.entrants import ENTRANTS, is_file
from agnosticfair_research.kept import authorise, code, results_of, run_kept, unpack


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--seeds", default="0-2")
    words.add_argument("--datasets", default=",".join(DATASETS))
    words.add_argument("--entrants", default=",".join(k for k in ENTRANTS if "mlp" not in k))
    words.add_argument("--splits", default="shift")
    words.add_argument("--jobs", type=int, default=2)
    words.add_argument("--data-folder")
    words.add_argument("--commit")
    words.add_argument("--out", type=Path, default=Path("bench"))
    words.add_argument("--add", type=Path, action="append", default=[])
    request = words.parse_args()
    for path in request.add:
        unpack(json.loads(path.read_text()), request.out)
    code_here, seeds = code(request.commit), parsed(request.seeds)
    names, splits = request.entrants.split(","), request.splits.split(",")
    authorise(seeds, code_here, filter(is_file, names))
    found, absent = here(request.datasets.split(","), request.data_folder)
    wanted = cells(found, seeds, names, splits, folder=request.data_folder)
    begin = perf_counter()
    rows, ran = run_kept(
        wanted,
        request.out,
        code_here,
        request.jobs,
        lambda key: print(f"{perf_counter() - begin:.0f} s {key}", flush=True),
    )
    text = json.dumps(results_of(rows, code_here, absent), allow_nan=False)
    (request.out / "results.json").write_text(text)
    print(f"{ran} cells run, {len(rows) - ran} taken up; absent: {absent}")


if __name__ == "__main__":
    main()
