"""A round's statistics on a GPU against the floor, and against float64 on the CPU.

The floor: every row read once at the read bandwidth, the matrix products at the rate of a large one, and
the exponentials at the rate of a kernel that does nothing else, each measured in this run and *added*.
Products are priced three ways: float32 without tensor cores, a third of the TF32 rate and a third of the
float16 rate (what float32's accuracy costs on the matrix units). Needs Python, numpy and PyTorch.

    PYTHONPATH=src python3 benchmarks/gpu_scale.py [--rows 1e8] [--device cuda] [--seconds 420]
"""

import argparse
import json
import os
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np
import torch

from agnosticfair.client.sums import float32 as accelerated
from agnosticfair.client.sums import torch_device as device
from agnosticfair.client.sums.float32 import Request32, Rows32, chunk_sums, exponents, moved
from agnosticfair.errors import AgnosticFairError
from agnosticfair.mathematics.basis import gaussian
from agnosticfair.mathematics.fairness import Surrogate

BEGIN, RATES, RECORD = time.perf_counter(), {}, []


def say(*what):
    print(f"[{time.perf_counter() - BEGIN:6.1f} s]", *what, flush=True)


def section(title, limit, work):
    """Run a subgroup by itself: what goes wrong in it is told, and the next one goes on."""
    if time.perf_counter() - BEGIN > limit:
        return say(f"--- {title}: left out, no time")
    say(f"--- {title}")
    try:
        return work()
    except Exception:  # everything, so that the rest still runs
        return say(f"{title} FAILED\n" + traceback.format_exc(limit=-6))


def seconds(work, where, repeats=3, warm=1):
    """Median time of a call, its results waited for."""

    def once():
        begin = time.perf_counter()
        work()
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        return time.perf_counter() - begin

    for _ in range(warm):
        once()
    return median(once() for _ in range(repeats))


def measure_rates(where):
    """Ceilings: bytes a second, operations a second by number format, exponentials a second."""
    cuda = where.type == "cuda"
    big = torch.rand(1 << (31 if cuda else 24), device=where)
    RATES["read"] = big.nbytes / seconds(lambda: big.sum(), where, 10)
    half = big[: len(big) // 2].clone()
    RATES["copy"] = 2 * half.nbytes / seconds(lambda: half.clone(), where, 10)
    big = half = None  # back to the device
    n = 8192 if cuda else 512
    for name, kind, tf32 in (
        ("float32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("float16", torch.float16, False),
        ("float64", torch.float64, False),
    ):
        if not cuda and name in ("tf32", "float16"):
            RATES[name] = 3 * RATES["float32"]
            continue
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = (torch.randn((n, n), device=where, dtype=kind) for _ in range(2))
        RATES[name] = 2 * n**3 / seconds(lambda a=a, b=b: a @ b, where, 5, 3)
    torch.backends.cuda.matmul.allow_tf32 = False
    RATES["exp"] = exp_rate(where)
    for name, rate in RATES.items():
        say(f"{name:8s} {rate / 1e12:9.3f} T/s")


def exp_rate(where):
    v = torch.rand(1 << (26 if where.type == "cuda" else 20), device=where)
    return len(v) / seconds(lambda: torch.exp(v), where, 10)


def floor(n, d, M, M_L):
    """Seconds by how products are priced: bytes, products and exponentials added."""
    D = d + 1
    products = 2 * n * (d * M + M * (D + 3) + M_L * (D + 2) + D * D + M + M_L)
    rest = n * (4 * d + 4) / max(RATES["read"], RATES["copy"]) + n * M / RATES["exp"]
    rates = {"fp32": RATES["float32"], "tf32/3": RATES["tf32"] / 3, "fp16/3": RATES["float16"] / 3}
    return {name: products / rate + rest for name, rate in rates.items()}


def make_rows(n, d, where, seed=0):
    """Features on the grid, two groups sorted, labels that depend on both; made where they stay."""
    draw = torch.Generator(where).manual_seed(seed)
    Z, y = torch.empty((n, d + 2), device=where), torch.empty(n, device=where)
    beta = torch.from_numpy(np.random.default_rng(9).normal(size=d).astype(np.float32)).to(where)
    starts = np.array([0, n * 3 // 10, n])
    step = max(1, (1 << 28) // d)
    for first in range(0, n, step):
        subgroup = slice(first, min(first + step, n))
        x = torch.rand((subgroup.stop - first, d), generator=draw, device=where)
        x = torch.round(x * 2**20) / 2**20
        Z[subgroup, :d], Z[subgroup, d], Z[subgroup, d + 1] = x, 1.0, -(x * x).sum(1) / 2
        noise = torch.rand(subgroup.stop - first, generator=draw, device=where)
        y[subgroup] = (noise < torch.sigmoid((x - 0.5) @ beta - 0.5)).float()
    return Rows32(Z, y, starts)


def make_request(d, M, M_L, rows, seed=1):
    """Centres are rows, as in a fit; alpha and C as random as they may be."""
    rng = np.random.default_rng(seed)
    centres = rows.Z[:: max(1, len(rows.Z) // M)][:M, :d].cpu().double().numpy()
    sigma = 0.8 * (d / 40) ** 0.5
    return Request32(
        exponents(gaussian(M, sigma), centres, d),
        None,
        rng.normal(size=d + 1) * (40 / d) ** 0.5,
        rng.uniform(size=M_L),
        rng.normal(size=(2, M + 1)),
        0.1,
        Surrogate("sigmoid", 0.7),
    )


def narrowed(q):
    return moved(q, lambda v: v.astype(np.float32))


def some(rows, n):
    """The first rows of each cell, n in all."""
    subgroups = [slice(a, a + min(b - a, n // 2)) for a, b in zip(rows.starts, rows.starts[1:])]
    starts = np.cumsum([0] + [p.stop - p.start for p in subgroups])
    return Rows32(
        torch.cat([rows.Z[p] for p in subgroups]), torch.cat([rows.y[p] for p in subgroups]), starts
    )


def reference(rows, q):
    """The same rows in float64 on the CPU, by the same formulas in numpy."""
    Z, y = rows.Z.cpu().double().numpy(), rows.y.cpu().double().numpy()
    Z[:, -1] = -(Z[:, :-2] ** 2).sum(axis=1) / 2
    pieces, step = [], 50_000
    for j in range(len(rows.starts) - 1):
        for first in range(rows.starts[j], rows.starts[j + 1], step):
            subgroup = slice(first, min(first + step, rows.starts[j + 1]))
            ends = np.array([0] * (j + 1) + [subgroup.stop - first] * (len(rows.starts) - 1 - j))
            pieces.append(Rows32(Z[subgroup], y[subgroup], ends))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda piece: accelerated.add_up(piece, q), pieces))
    return tuple(sum(subgroups) for subgroups in zip(*found))


NAMES = ("of_L", "of_F", "loss", "uniform", "H", "correct")


def errors(found, true):
    """Largest error of each sum by the largest value of its kind: a row of the arrays (loss, mass, each
    gradient) is a kind, so that gradients are not excused by masses."""
    worst = {}
    for name, a, b in zip(NAMES, found, true):
        a, b = np.asarray(a, float), np.asarray(b, float)
        kinds = -1 if name in ("of_L", "of_F") else None
        size = np.abs(b).max(axis=kinds, keepdims=kinds is not None)
        worst[name] = float((np.abs(a - b) / np.maximum(size, 1e-300)).max())
    return worst


def told(found):
    return (
        f"worst {max(found.values()):.1e} ("
        + ", ".join(f"{k} {v:.0e}" for k, v in found.items())
        + ")"
    )


def line(what, n, d, M, M_L, time_, peak, error):
    floors = floor(n, d, M, M_L)
    RECORD.append({"what": what, "n": n, "d": d, "M": M, "M_L": M_L, "seconds": time_, "peak": peak,
                   "floors": floors, "error": error})  # fmt: skip
    ratios = " | ".join(f"{time_ / value:.2f}" for value in floors.values())
    shown = "" if error is None else f"{error:.1e}"
    print(f"| {what} | {n:.0e} | {d} | {M} | {time_ * 1e3:.2f} | {ratios} | {peak / 2**30:.1f} | {shown} |",
          flush=True)  # fmt: skip


HEADER = (
    "| what | rows | features | kernels | ms | / floor fp32 | / floor tf32/3 | / floor fp16/3 "
    "| peak GiB | error to float64 |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def timed(work, where, repeats=3):
    """Time and peak memory."""
    if where.type != "cuda":
        return seconds(work, where, repeats), 0
    torch.cuda.reset_peak_memory_stats(where)
    return seconds(work, where, repeats), torch.cuda.max_memory_allocated(where)


def fresh(where):
    if where.type == "cuda":
        torch.cuda.empty_cache()


def main_case(n, where):
    """Every way to do the round that the bar is about."""
    d, M, M_L = 40, 200, 100
    rows = make_rows(n, d, where)
    q = make_request(d, M, M_L, rows)
    say(
        "rows made;", "floors in ms", {k: round(v * 1e3, 2) for k, v in floor(n, d, M, M_L).items()}
    )
    subset = some(rows, min(n, 1_000_000))
    true = reference(subset, q)
    say("float64 reference on the CPU done,", len(subset.Z), "rows")
    q = narrowed(q)
    print(HEADER)
    request = moved(q, lambda v: torch.from_numpy(v).to(where))
    for maximum in (1 << 16, 1 << 18, 1 << 20):
        found = errors(device.plain(subset, request, maximum), true)
        time_, peak = timed(lambda m=maximum: device.plain(rows, request, m), where)
        line(f"torch, {maximum} rows at a time", n, d, M, M_L, time_, peak, max(found.values()))
    whole = everything64(rows, q) if where.type == "cuda" else None
    if whole:
        found = errors(device.add_up(rows, q), whole)
        say("all rows, against float64 on the GPU:", told(found))
    fresh(where)
    return rows


def everything64(rows, q):
    """All rows in float64 on the GPU, by ``chunk_sums``."""
    exact = moved(q, lambda v: torch.from_numpy(v.astype(float)).to(rows.Z.device))

    def work(xp, _, j, z, y, weights):
        z = z.double()
        z[..., -1] = -(z[..., :-2] ** 2).sum(-1) / 2
        return chunk_sums(xp, exact, j, z, y.double(), weights)

    return device.plain(rows, exact, 1 << 18, work)


def compiled(rows, where):
    """The same formulas through torch.compile."""
    d, M, M_L, n = 40, 200, 100, len(rows.Z)
    q = make_request(d, M, M_L, rows)
    request = moved(narrowed(q), lambda v: torch.from_numpy(v).to(where))
    work = torch.compile(chunk_sums, dynamic=False)
    maximum = 1 << 18
    ends = (
        rows.starts // maximum * maximum
    )  # whole stacks alone, so that there is one shape to compile for
    whole = Rows32(rows.Z, rows.y, np.array([0, ends[1], ends[2]]))
    time_, peak = timed(lambda: device.plain(whole, request, maximum, work), where)
    line("torch.compile", n, d, M, M_L, time_, peak, None)


def growth(where, maximum, limit):
    """Rows, kernels, features, clients: each grows by itself."""
    print(HEADER)
    cases = [("rows", int(n), 40, 200, 100) for n in (1e5, 1e6, 1e7) if n <= maximum]
    few = min(maximum, 10**7)
    cases += [("kernels", few, 40, M, M // 2) for M in (50, 100, 200, 400, 1000)]
    cases += [
        ("features", few // (10 if d > 200 else 1), d, 200, 100) for d in (40, 60, 100, 400, 1000)
    ]
    for what, n, d, M, M_L in cases:
        if time.perf_counter() - BEGIN > limit:
            return say("no time for the rest")
        rows = None
        fresh(where)
        try:
            rows = make_rows(n, d, where)
            q = make_request(d, M, M_L, rows)
            subset = some(rows, min(n, 20_000))
            error = max(errors(device.add_up(subset, narrowed(q)), reference(subset, q)).values())
            request = narrowed(q)
            time_, peak = timed(lambda r=rows, a=request: device.add_up(r, a), where, 5)
            line(what, n, d, M, M_L, time_, peak, error)
        except Exception as error:
            say(what, n, d, M, "FAILED:", type(error).__name__, str(error)[:300])
    rows = make_rows(few, 40, where)
    q = narrowed(make_request(40, 200, 100, rows))
    for clients in (1, 2, 10, 100, 1000):
        size = few // clients
        subgroups = [
            Rows32(rows.Z[k * size : (k + 1) * size], rows.y[k * size : (k + 1) * size],
                   np.array([0, size * 3 // 10, size])) for k in range(clients)
        ]  # fmt: skip

        def work(subgroups=subgroups):
            for subgroup in subgroups:
                device.add_up(subgroup, q)

        time_, peak = timed(work, where, 1)
        line(f"{clients} clients in turn", few, 40, 200, 100, time_, peak, None)
    return None


def misfortune(where):
    """No such device; no room."""
    for name in ("cuda:7", "nonsense"):
        try:
            device.device_of(name)
        except AgnosticFairError as error:
            say("as it should be:", error)
    if where.type != "cuda":
        return
    rows = make_rows(4_000_000, 40, where)
    q = narrowed(make_request(40, 200, 100, rows))
    there = device.add_up(rows, q)
    for left in (400, 40, 0):
        fresh(where)
        free, _ = torch.cuda.mem_get_info(where)
        hold = [torch.empty(free - (max(left, 40) << 20), dtype=torch.uint8, device=where)]
        while not left:  # to the last mebibyte
            try:
                hold.append(torch.empty(1 << 20, dtype=torch.uint8, device=where))
            except torch.cuda.OutOfMemoryError:
                break
        try:
            found = errors(device.add_up(rows, q, fuse=left == 400), there)
            say(f"{left} MiB left: done in smaller chunks, {told(found)}")
        except AgnosticFairError as error:
            say(f"{left} MiB left:", error)
        del hold


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--seconds", type=float, default=420, help="begin no further subgroup after these"
    )
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    request = parser.parse_args()
    where = device.device_of(request.device)
    n = int(request.rows)
    say(
        "torch",
        torch.__version__,
        "on",
        torch.cuda.get_device_name() if where.type == "cuda" else where,
    )
    section("ceilings", request.seconds, lambda: measure_rates(where))
    rows = section("the bar: rows x 40 features x 200 kernels (100 of them for the loss)", request.seconds,
                   lambda: main_case(n, where))  # fmt: skip
    section("growth", request.seconds, lambda: growth(where, n, request.seconds))
    section("misfortune", request.seconds, lambda: misfortune(where))
    if rows is not None:
        section("torch.compile", request.seconds, lambda: compiled(rows, where))
    if request.out is not None:
        request.out.write_text(json.dumps({"rates": RATES, "lines": RECORD}))
    say("done")


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
