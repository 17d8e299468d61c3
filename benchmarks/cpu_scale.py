"""A round's statistics over streamed Parquet against the floor, on the CPU.

The floor: every encoded number read once at the rate at which all threads read memory, the matrix products
at the rate of large float32 ones, and the exponentials at numpy's rate in cache; measured in the same
process between the rounds, with as many threads, and *added*. Decoding and encoding happen once, in the
first round, and stand in a column of their own. Every case runs in a process of its own, whose largest
resident size is its peak memory.

    python benchmarks/cpu_scale.py [--rows 1e7] [--repeats 3] [--folder /some/disk]
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from threadpoolctl import threadpool_limits
from timing import seconds

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data import files
from agnosticfair.data.files import Roles, read_source
from agnosticfair.mathematics.basis import gaussian
from agnosticfair.methods import Fairness, Method
from agnosticfair.protocol.messages import add_up
from agnosticfair.server import plan as server
from agnosticfair.server import solvers
from agnosticfair.threads import cpus

PER_FILE, PER_GROUP = 1_000_000, 250_000


def write(folder: Path, n: int, d: int, clients: int) -> None:
    """Clients of n rows together: uniform features, a group and a label that depend on them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, beta = np.random.default_rng(0), np.random.default_rng(9).normal(size=d)
    per_file = min(PER_FILE, PER_FILE * 40 // d)
    for k in range(clients):
        (folder / f"c{k:04d}").mkdir(parents=True)
        size = n // clients
        for first in range(0, size, per_file):
            m = min(per_file, size - first)
            X = rng.random((d, m), np.float32)
            s = rng.random(m) < 0.3 + 0.3 * X[0]
            y = beta @ (X - 0.5) * (40 / d) ** 0.5 + 0.7 * s + rng.logistic(size=m) > 0.5
            columns = {f"x{j:04d}": X[j] for j in range(d)}
            columns |= {"sex": pa.array(np.where(s, "F", "M")), "y": y.astype(np.int8)}
            path = folder / f"c{k:04d}" / f"{first:09d}.parquet"
            pq.write_table(pa.table(columns), path, row_group_size=PER_GROUP)


def floor(n: int, d: int, M: int, M_L: int, threads: int) -> float:
    """Seconds that reading, products and exponentials take at the rates of this moment."""
    size, D = 1536, d + 1
    A = [np.random.default_rng(t).random((size, size), np.float32) for t in range(threads)]
    long = [np.ones(1 << 24, np.float32) for _ in range(threads)]
    small = [np.linspace(-10, 0, 1 << 17, dtype=np.float32) for _ in range(threads)]
    out = [v.copy() for v in small]
    with ThreadPoolExecutor(threads) as pool:

        def rate(work, amount: float) -> float:
            def once() -> None:
                list(pool.map(work, range(threads)))

            once()
            return threads * amount / median(seconds(once) for _ in range(5))

        def exponentials(t: int) -> None:
            for _ in range(100):
                np.exp(small[t], out=out[t])

        products = rate(lambda t: A[t] @ A[t], 2 * size**3)
        reads = rate(lambda t: long[t].max(), long[0].nbytes)
        exps = rate(exponentials, 100 * len(small[0]))
    work = 2 * n * (d * M + M * (D + 3) + M_L * (D + 2) + D * D + M + M_L)
    return work / products + n * 4 * (d + 1) / reads + n * M / exps


def one(folder: Path, n: int, d: int, M: int, repeats: int) -> dict[str, float]:
    """Times of a round over the clients in a folder, and what they are of the floor."""
    files.STREAMED = 0
    threads, M_L = cpus(), M // 2
    clients = [
        Client(path.name, read_source(path, Roles("y", ("sex",))), threads)
        for path in sorted(folder.iterdir())
    ]
    fairness = Fairness(0.05, basis=gaussian(M, 0.8, "rows"), bound=5.0)
    method = Method("m", basis=gaussian(M_L, 0.8, "rows"), bound=5.0, share=0.1, fairness=fairness)
    statistics = [answer(c, "statistics", None) for c in clients]
    plan = server.plan(method, sum(statistics[1:], statistics[0]), tuple(c.key for c in clients))
    send = server.centres_request(plan, 0)
    offers = [answer(c, "centres", send) for c in clients]
    plan = server.with_centres(plan, sum(offers[1:], offers[0]))
    broadcast = solvers.request(solvers.init(plan))
    rng = np.random.default_rng(0)
    request = broadcast.request
    arrays = {k: 0.3 * rng.normal(size=getattr(request, k).shape) for k in ("w", "alpha", "C")}
    send = replace(broadcast, request=replace(request, **arrays))

    def round_() -> None:
        add_up([answer(c, "sums", send) for c in clients])

    with threadpool_limits(1):
        first = seconds(round_)
        times, floors = [], [floor(n, d, M, M_L, threads)]
        for _ in range(repeats):
            times.append(seconds(round_))
            floors.append(floor(n, d, M, M_L, threads))
    ratios = [2 * t / (a + b) for t, a, b in zip(times, floors, floors[1:])]
    return {
        "first": first,
        "round": median(times),
        "floor": median(floors),
        "ratio": median(ratios),
        "low": min(ratios),
        "high": max(ratios),
        "peak": largest_size(),
    }


def largest_size() -> float:
    """GiB that this process had at most; unlike getrusage's, not its parent's."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e7, help="of the largest case")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where the files are written")
    parser.add_argument("--only", default="", help="rows, kernels, features or clients")
    parser.add_argument("--one", nargs=4, default=None, help=argparse.SUPPRESS)
    request = parser.parse_args()
    if request.one:
        folder, *numbers = request.one
        return print(json.dumps(one(Path(folder), *map(int, numbers), request.repeats)))
    maximum = int(request.rows)
    cases = [("rows", n, 40, 200, 1) for n in (10**5, 10**6, 10**7) if n <= maximum]
    cases += [("kernels", maximum // 20, 40, M, 1) for M in (50, 100, 200, 400, 1000)]
    cases += [("features", maximum // 100, d, 200, 1) for d in (40, 100, 400, 1000)]
    cases += [("clients", maximum // 20, 40, 200, p) for p in (2, 10, 100, 1000)]
    print(
        "| what grows | rows | features | kernels | clients | first round, s | round, s | us a row "
        "| round / floor | peak GiB |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for what, n, d, M, p in cases:
        if request.only not in ("", what):
            continue
        with TemporaryDirectory(dir=request.folder) as folder:
            write(Path(folder), n, d, p)
            command = [sys.executable, __file__, "--one", folder, str(n), str(d), str(M)]
            done = subprocess.run(
                [*command, "--repeats", str(request.repeats)], capture_output=True, text=True
            )
        if done.returncode:
            print(what, n, d, M, p, done.stderr[-300:])
            continue
        r = json.loads(done.stdout)
        print(
            f"| {what} | {n:,} | {d} | {M} | {p} | {r['first']:.2f} | {r['round']:.2f} "
            f"| {r['round'] / n * 1e6:.2f} | {r['ratio']:.2f} ({r['low']:.2f} to {r['high']:.2f}) "
            f"| {r['peak']:.2f} |",
            flush=True,
        )
    return None


if __name__ == "__main__":
    main()
