"""How the time of a fit of three rounds grows with rows, clients and kernels: ratios to the smallest.

One BLAS thread, and the shortest of the repeats, which another process's work lengthens least.

python benchmarks/growth.py [--repeats 3]
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits
from timing import seconds

from agnosticfair.data.datasets import dataset, load_dataset
from agnosticfair.data.splits import iid
from agnosticfair.data.table import Table
from agnosticfair.federation import fit
from agnosticfair.mathematics.basis import gaussian
from agnosticfair.methods import Method, method

SOURCE = dataset("adult")
ROBUST = method("agnosticfair", tau=SOURCE.tau, max_rounds=3, centres="rows")


def fit_time(train: Mapping[str, Table], chosen: Method, repeats: int) -> float:
    """Shortest time of a fit."""

    def work() -> None:
        fit(train, chosen, sensitive_features=SOURCE.sensitive_features, positive=SOURCE.positive)

    with threadpool_limits(1):
        work()
        return min(seconds(work) for _ in range(repeats))


def kernels(number: int) -> Method:
    """The robust method with that many kernels for loss and fairness together."""
    assert ROBUST.fairness is not None
    fair = replace(ROBUST.fairness.basis, kernels=number)
    loss = gaussian(number // 2, ROBUST.basis.sigma, "rows")
    return replace(ROBUST, basis=loss, fairness=replace(ROBUST.fairness, basis=fair))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    table = load_dataset("adult")

    def some(rows: int, clients: int = 2) -> Mapping[str, Table]:
        chosen = np.random.default_rng(0).integers(0, len(table), round(rows / 0.8))
        return iid(table.take(chosen), clients, 0).train

    growing = {
        "rows": {n: (some(n), ROBUST) for n in (10_000, 20_000, 40_000, 80_000, 160_000)},
        "clients": {p: (some(40_000, p), ROBUST) for p in (2, 10, 50, 100, 1000)},
        "kernels": {m: (some(40_000), kernels(m)) for m in (50, 100, 200, 400)},
    }
    print("| what grows | size | size, ratio | time, ratio |\n|---|---:|---:|---:|")
    for what, cases in growing.items():
        times = {size: fit_time(*case, repeats) for size, case in cases.items()}
        first = min(times)
        for size, time in times.items():
            print(
                f"| {what} | {size:,} | {size / first:g} | {time / times[first]:.2f} |", flush=True
            )


if __name__ == "__main__":
    main()
