"""Rounds of the rule over streamed Parquet: the additive learner's, the program's, and a level of trees.

Rows are drawn from Adult's. Seconds of the processor for a million rows, in a process of its own for each number of
rows, whose largest resident size is its peak memory: it should not grow with the rows but for the trees' codes, a byte
a column.

    python benchmarks/rule_stream.py [--rows 1e6 1e7] [--folder /some/disk]
"""

import argparse
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data import files
from agnosticfair.data.files import Roles, read_source
from agnosticfair.learners.estimates import Estimates
from agnosticfair.methods import method
from agnosticfair.protocol.requests import step_of
from agnosticfair.server import plan as server
from agnosticfair.server import rule, solvers
from agnosticfair.server.plan import Beginning
from agnosticfair_research.datasets import dataset, load_dataset

SUBGROUP = 250_000


def write(folder: Path, n: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, rng = load_dataset("adult"), np.random.default_rng(0)
    columns = {**table.categorical, **table.sensitive_features, "income": table.target}
    for first in range(0, n, SUBGROUP):
        rows = rng.integers(0, len(table), min(SUBGROUP, n - first))
        made = {name: values[rows] for name, values in table.numeric.items()}
        made |= {k: np.array(c.categories)[c.codes[rows]] for k, c in columns.items()}
        pq.write_table(pa.table(made), folder / f"{first:09d}.parquet")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def one(folder: Path) -> None:
    files.STREAMED = 0
    client = Client("all", read_source(folder, Roles("income", ("sex",))))
    n = len(client.table) / 1e6

    def send(broadcast):
        begin, step = process_time(), step_of(broadcast.request)
        reply = answer(client, step, broadcast)
        seconds = (process_time() - begin) / n
        print(
            f"{n * 1e6:>12,.0f} {step:16} {seconds:7.2f} s a million rows   peak {peak():.2f} GiB",
            flush=True,
        )
        return reply

    statistics = answer(client, "statistics", None)
    positive = dataset("adult").positive
    for learner in ("additive", "trees"):
        stated = server.plan(
            method("rule", learner=learner), statistics, ("all",), positive=positive
        )
        made = rule.agreed(stated, statistics, send)
        state = solvers.init(made, Beginning(0))
        for _ in range(2 if learner == "additive" else 5):
            state = solvers.step(state, send(solvers.request(state)))
        if learner == "additive":
            inner = state.inner
            estimates = Estimates("additive", inner.heads, inner.folds, 0, {"w": inner.best})
            begun = rule.decided(rule.with_estimates(state, estimates), send)
            for _ in range(2):
                begun = solvers.step(begun, send(solvers.request(begun)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    request = parser.parse_args()
    if request.one is not None:
        return one(request.one)
    for n in request.rows:
        with TemporaryDirectory(dir=request.folder) as folder:
            write(Path(folder), int(n))
            subprocess.run([sys.executable, __file__, "--one", folder], check=True)
    return None


if __name__ == "__main__":
    main()
