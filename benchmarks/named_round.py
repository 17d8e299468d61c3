"""A round over named parts against its bare products, in memory and out of core.

In memory, Adult's shift: the bare products are what the round stands for, dense and in float64, of matrices made
beforehand: scores X w, Z' diag(v) Z of every cell for the surrogate and the decisions, slopes X' (g S) of the parts S
asked for, and the curvature X' diag(h) X. Out of core: rows like Adult's in Parquet, which each round decodes anew; the
floor is decoding them, without encoding or counting, and the same products: as they are made above, and once more as if
they were nothing but multiplications, at the rate of large float64 matrix products, all measured beside each round.

Times are of the processor (``time.process_time``), one thread, in turn.

    python benchmarks/named_round.py [--rows 1e7] [--slopes 100] [--repeats 3] [--folder /some/disk]
"""

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
from threadpoolctl import threadpool_limits

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data import files
from agnosticfair.data.axes import codes_of
from agnosticfair.data.census import merge
from agnosticfair.data.datasets import dataset, load_dataset
from agnosticfair.data.files import Roles, read_source
from agnosticfair.data.splits import shift
from agnosticfair.data.table import concatenate
from agnosticfair.federation import in_process, summaries
from agnosticfair.mathematics.parts import members, sizes_of
from agnosticfair.methods import METHODS
from agnosticfair.protocol.faults import Asker
from agnosticfair.server import named, solvers
from agnosticfair.server import plan as server

PER_FILE = 1_000_000


def planned(rows, positive, column):
    """The plan of a fit over one client's rows, and what asks it."""
    asker = Asker(in_process({"one": rows}), ("one",))
    census = merge(summaries(asker))
    about = {"sensitive_features": column, "positive": positive}
    plan = server.plan(METHODS["agnosticfair-named"], census, ("one",), **about)
    return named.agreed(plan, census, asker.total)


def asked_of(plan, slopes: int):
    """A question of a later round, with prices on a tenth of the parts."""
    broadcast, rng = solvers.question(solvers.init(plan)), np.random.default_rng(0)
    asked, every = broadcast.asked, plan.kernels[1]
    C = rng.normal(size=asked.C.shape) * (rng.random(asked.C.shape[1]) < 0.1)
    some = np.sort(rng.choice(every, min(slopes, every), replace=False)).astype(float)
    w = 0.3 * rng.normal(size=asked.w.shape)
    return replace(broadcast, asked=replace(asked, w=w, C=C, slopes=some))


def bare(rows, asked):
    """The round's products, dense, as a function without arguments; and how many operations they are."""
    task, client = asked.task, Client("one", rows)
    own, (axes, parts) = client.prepare(task), task.named.agreed
    codes, X, n = codes_of(rows, axes)[own.order], own.X, len(own.y)
    Z = np.hstack([codes[:, [a]] == np.arange(k) for a, k in enumerate(sizes_of(axes))]) * 1.0
    S = np.column_stack([members(codes, parts[int(m)]) for m in asked.asked.slopes]) * 1.0
    cells = [slice(a, b) for a, b in zip(own.starts, own.starts[1:])]

    def products() -> None:
        d = X @ asked.asked.w
        g = 1 / (1 + np.exp(-d))
        for cell in cells:
            for v in (g, d > 0):
                Z[cell].T @ (Z[cell] * v[cell, None])
            S[cell].T @ (X[cell] * g[cell, None])
        X.T @ (X * (g * (1 - g))[:, None])

    work = 2 * n * (X.shape[1] * (1 + S.shape[1] + X.shape[1]) + 2 * Z.shape[1] ** 2)
    return products, work


def rate(size: int = 1500) -> float:
    """Operations a second of a large float64 matrix product."""
    A = np.random.default_rng(0).random((size, size))
    return 2 * size**3 / median(timed(lambda: A @ A) for _ in range(3))


def timed(work) -> float:
    begin = process_time()
    work()
    return process_time() - begin


def said(what: str, rounds: list[float], floors: list[float]) -> None:
    ratios = [a / b for a, b in zip(rounds, floors, strict=True)]
    print(
        f"{what}: round {median(rounds):.3f} s, floor {median(floors):.3f} s, ratio {median(ratios):.2f} "
        f"(from {min(ratios):.2f} to {max(ratios):.2f})",
        flush=True,
    )


def in_memory(slopes: int, repeats: int) -> None:
    source = dataset("adult")
    rows = concatenate(list(shift(load_dataset("adult"), source, 2, 0).train.values()))
    plan = planned(rows, source.positive, source.sensitive_features)
    asked = asked_of(plan, slopes)
    client, (products, work) = Client("one", rows), bare(rows, asked)
    answer(client, "part_sums", asked)
    products()
    rounds, floors, lowest = [], [], []
    for _ in range(repeats):
        rounds.append(timed(lambda: answer(client, "part_sums", asked)))
        floors.append(timed(products))
        lowest.append(work / rate())
    what = f"Adult in memory, {len(rows):,} rows, {plan.kernels[1]} parts, {len(asked.asked.slopes)} slopes"
    said(what, rounds, floors)
    said(f"{what}, multiplications alone", rounds, lowest)


def write(folder: Path, n: int) -> None:
    """Rows like Adult's: drawn from it, with noise on its columns of numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, rng = load_dataset("adult"), np.random.default_rng(0)
    for first in range(0, n, PER_FILE):
        some = rng.integers(len(table), size=min(PER_FILE, n - first))
        columns = {
            k: (v[some] + rng.random(len(some))).astype(np.float32)
            for k, v in table.numeric.items()
        }
        for name, column in {
            **table.categorical,
            **table.sensitive_features,
            "label": table.target,
        }.items():
            codes = pa.array(column.codes[some].astype(np.int16))
            columns[name] = pa.DictionaryArray.from_arrays(
                codes, pa.array(list(map(str, column.categories)))
            )
        pq.write_table(pa.table(columns), folder / f"{first:010d}.parquet", row_group_size=250_000)


def decoded(folder: Path) -> None:
    """Every row of the files, as Arrow has it."""
    import pyarrow.parquet as pq

    for path in sorted(folder.iterdir()):
        for batch in pq.ParquetFile(path).iter_batches(1 << 14, use_threads=False):
            assert batch.num_rows


def out_of_core(n: int, slopes: int, repeats: int, where: str | None) -> None:
    source = dataset("adult")
    few = load_dataset("adult")
    with TemporaryDirectory(dir=where) as made:
        folder = Path(made)
        write(folder, n)
        files.STREAMED = 0
        rows = read_source(folder, Roles("label", (source.sensitive_features,)))
        plan = planned(rows, source.positive, source.sensitive_features)
        asked = asked_of(plan, slopes)
        client, (products, work) = Client("one", rows), bare(few, asked)
        products()
        rounds, floors, lowest, times = [], [], [], n / len(few)
        for _ in range(repeats):
            rounds.append(timed(lambda: answer(client, "part_sums", asked)))
            decoding = timed(lambda: decoded(folder))
            floors.append(decoding + times * median(timed(products) for _ in range(3)))
            lowest.append(decoding + times * work / rate())
    what = f"out of core, {n:,} rows, {plan.kernels[1]} parts, {len(asked.asked.slopes)} slopes"
    said(what, rounds, floors)
    said(f"{what}, multiplications alone", rounds, lowest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e7, help="out of core; 0 for none")
    parser.add_argument("--slopes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where the files are written")
    asked = parser.parse_args()
    with threadpool_limits(1):
        in_memory(asked.slopes, 5 * asked.repeats)
        if asked.rows:
            out_of_core(int(asked.rows), asked.slopes, asked.repeats, asked.folder)


if __name__ == "__main__":
    main()
