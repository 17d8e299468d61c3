"""A fit of the rule on wide data: seconds and peak memory by columns, each in a process of its own.

Half of the columns are numbers, half have four categories; 20,000 rows.

    python -P benchmarks/wide.py [--columns 20 100 300 1500] [--rows 20000] [--learner additive]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from time import perf_counter, process_time

import numpy as np

from agnosticfair.data.table import Column, Table
from agnosticfair.federation import fit
from agnosticfair.methods import method


def wide(n: int, columns: int, seed: int = 0) -> Table:
    """Rows of a few columns that matter and many that do not."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    numeric = {f"x{j}": rng.normal(size=n) + 0.3 * group * (j < 5) for j in range(columns // 2)}
    names = tuple("abcd")
    categorical = {
        f"c{j}": Column(((rng.random(n) + 0.2 * group * (j < 5)) * 3.33).astype(np.int32), names)
        for j in range(columns - columns // 2)
    }
    score = sum(numeric[f"x{j}"] for j in range(5)) + 0.5 * group + rng.normal(size=n)
    target = Column((score > 1.5).astype(np.int32), ("no", "yes"))
    return Table(numeric, categorical, target, {"sex": Column(group.astype(np.int32), ("f", "m"))})


def one(rows: int, columns: int, learner: str) -> str:
    """One line of the table."""
    table = wide(rows, columns)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin, cpu = perf_counter(), process_time()
    fitted = fit({"all": table}, method("rule", learner=learner), positive="yes")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    subgroups = 0 if fitted.subgroups is None else len(fitted.subgroups.values)
    return (
        f"{columns:6} columns {fitted.rounds:4} rounds {subgroups:6} subgroups {process_time() - cpu:8.1f} s of the "
        f"processor {perf_counter() - begin:8.1f} s  {before / 2**20:6.2f} GiB before {peak / 2**20:6.2f} GiB at most "
        f" {fitted.bytes_per_round / 1e3:8.0f} kB a message {' '.join(fitted.notes)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--columns", type=int, nargs="+", default=[20, 100, 300, 1500])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--learner", default="additive")
    arguments = parser.parse_args()
    if len(arguments.columns) == 1:
        print(one(arguments.rows, arguments.columns[0], arguments.learner), flush=True)
        return
    for columns in arguments.columns:
        more = [
            "--rows",
            str(arguments.rows),
            "--learner",
            arguments.learner,
            "--columns",
            str(columns),
        ]
        subprocess.run([sys.executable, "-P", __file__, *more], check=False)


if __name__ == "__main__":
    main()
