"""`agnosticfair fit` on wide CSV files: seconds and peak memory of the whole command, by columns and method.

Half of the columns are numbers, half have four categories. With --keep the numbers go to benchmarks/wide.json.

    python -P benchmarks/wide.py [--columns 107 300 1500] [--rows 10000] [--methods rule fairfl] [--keep]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from subprocess import DEVNULL, Popen
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import pyarrow as pa
from pyarrow import csv

from agnosticfair.data.table import Column, Table

FILE = Path(__file__).with_suffix(".json")


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


def write(path: Path, table: Table) -> None:
    """The rows as a CSV file."""
    texts = {**table.categorical, **table.sensitive_features, "y": table.target}
    columns = {name: pa.array(values.round(4)) for name, values in table.numeric.items()}
    columns |= {name: pa.array(column.values().tolist()) for name, column in texts.items()}
    csv.write_csv(pa.table(columns), path)


def measured(folder: Path, method: str) -> dict[str, float]:
    """Seconds, and GiB at most, of one command in a process of its own."""
    command = ["fit", "rows.csv", "--target", "y", "--sensitive-features", "sex"]
    command = [sys.executable, "-m", "agnosticfair", *command, "--method", method]
    begin = perf_counter()
    process = Popen(command, cwd=folder, stdout=DEVNULL, stderr=DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    return {
        "seconds": round(perf_counter() - begin, 1),
        "processor": round(usage.ru_utime + usage.ru_stime, 1),
        "gib": round(usage.ru_maxrss / 2**20, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--columns", type=int, nargs="+", default=[107, 300, 1500])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--methods", nargs="+", default=["rule", "fairfl"])
    parser.add_argument("--keep", action="store_true", help=f"in benchmarks/{FILE.name}")
    arguments = parser.parse_args()
    entries = []
    for columns in arguments.columns:
        with TemporaryDirectory() as folder:
            write(Path(folder) / "rows.csv", wide(arguments.rows, columns))
            for method in arguments.methods:
                about = {"columns": columns, "rows": arguments.rows, "method": method}
                entries.append(about | measured(Path(folder), method))
                print(entries[-1], flush=True)
    if arguments.keep:
        FILE.write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
