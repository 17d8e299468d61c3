"""The rule's rounds and the histograms of trees on a GPU, against floors that are measured in the same run.

Rows are drawn on the device: twelve columns of five values (60 values, about 1,700 subgroups) and 20 columns of 255
bins. The floor of a round: every row read once at the read bandwidth, its exponentials, and its Gram products at the
rate of a large float64 product, added. Its bare arithmetic: the same products and exponentials of indicators made
beforehand, with nothing rounded. The floor of a histogram: every row read once; its bare counting: ``torch.bincount``
of every column three times, unweighted and with the gradients as weights. Needs Python, numpy and PyTorch.

    PYTHONPATH=src python3 benchmarks/rule_gpu.py [--rows 1e6 1e7 1e8] [--device cuda] [--out result.json]
"""

import argparse
import json
import time
import traceback
from pathlib import Path
from statistics import median

import numpy as np
import torch

from agnosticfair.client import rule_device
from agnosticfair.mathematics import boosting, growing, scores
from agnosticfair.mathematics.multipliers import RateLimits, coordinates
from agnosticfair.mathematics.scores import Estimated, Points
from agnosticfair.mathematics.trees import Bins

BEGIN, RECORD = time.perf_counter(), {"rates": {}, "program": [], "trees": []}
AXES, VALUES, ACTIVE, EPS, TAU = 12, 5, 150, 0.02, 0.05
COLUMNS, CODES, TREES = 20, 256, 3


def say(*what):
    print(f"[{time.perf_counter() - BEGIN:6.1f} s]", *what, flush=True)


def seconds(work, where, repeats=3):
    """Median time of a call, its results waited for, after one that is not counted."""
    took = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        work()
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        took.append(time.perf_counter() - begin)
    return median(took[1:])


def measure_rates(where):
    """Bytes, float64 operations of a product, and exponentials, a second."""
    rates, cuda = RECORD["rates"], where.type == "cuda"
    big = torch.rand(1 << (31 if cuda else 24), device=where)
    rates["read"] = big.nbytes / seconds(big.sum, where, 5)
    del big
    size = 8192 if cuda else 512
    a = torch.rand((size, size), dtype=torch.float64, device=where)
    rates["float64"] = 2 * size**3 / seconds(lambda: a @ a, where, 5)
    v = torch.rand(1 << (27 if cuda else 22), dtype=torch.float64, device=where)
    rates["exp"] = len(v) / seconds(v.exp, where, 5)
    for name, rate in rates.items():
        say(f"{name:8s} {rate / 1e12:9.3f} T/s")


def subgroup_list():
    """All single values and pairs."""
    ones = [(a, v) for a in range(AXES) for v in range(VALUES)]
    pairs = [(one, two) for one in ones for two in ones if one[0] < two[0]]
    return [(one,) for one in ones] + pairs


def rule_rows(n, where, seed=0):
    """Rows on the device, whose probabilities lie on their grid."""
    draw = torch.Generator(where).manual_seed(seed)
    codes = torch.randint(0, VALUES, (AXES, n), generator=draw, device=where, dtype=torch.int16)
    eta, gamma = (
        torch.round(torch.rand(n, generator=draw, device=where, dtype=torch.float64) * 2**20)
        / 2**20
        for _ in range(2)
    )
    y = (torch.rand(n, generator=draw, device=where, dtype=torch.float64) < eta).double()
    rows = Estimated(2 * eta - 1, torch.stack([1 - gamma, gamma]))
    sizes = (VALUES,) * AXES
    return rule_device.RuleRows(codes, sizes, rule_device.ends_of(sizes, subgroup_list()), rows, y)


def points_of(own, n, bits):
    """One point with multipliers on the active subgroups, and its Hessian there."""
    K, rng = own.ends.shape[1], np.random.default_rng(0)
    none = Points(np.zeros((1, K, 2)), np.zeros(1), np.array([EPS]), masses=True)
    sums = rule_device.evaluate(own, none, n, bits)
    at = coordinates(sums, n, RateLimits(np.full(K, TAU), ((0, 1),)))
    on, x = np.sort(rng.choice(K - 1, ACTIVE, replace=False)), np.zeros(at.size)
    x[on] = 1e-3 * rng.normal(size=ACTIVE)
    A = at.coefficients(x)
    return Points(A[None], np.zeros(1), np.array([EPS]), at.directions(on)), A


def bare_round(own, A):
    """The arithmetic of a round, of indicators that are there, as a function without arguments."""
    piece = min(rule_device.PIECE, len(own.y))
    with own.y.device:
        Z = rule_device.indicators(own.codes[:, :piece], own.sizes)
        i, j, _ = own.ends
        W = np.zeros((2, Z.shape[1], Z.shape[1]))
        for p in range(2):
            W[p, i, j] = A[:, p]
        W = torch.asarray(W)

    def arithmetic():
        for first in range(0, len(own.y), piece):
            c, pi = own.rows.c[first : first + piece], own.rows.pi[:, first : first + piece]
            z = Z[: len(c)]
            t = c - pi[0] * ((z @ W[0]) * z).sum(1) - pi[1] * ((z @ W[1]) * z).sum(1)
            e = torch.exp(-t.abs() / EPS)
            d = torch.where(t > 0, 1.0, e) / (1 + e)
            (t.clamp(min=0) + EPS * torch.log1p(e)).sum()
            for p in range(2):
                rule_device.gram(z, d * pi[p])

    return arithmetic


def differs(own, points, n, bits):
    """By how much the first rows' sums differ from those that float64 numpy adds up, by the largest of each kind."""
    few = min(len(own.y), 50_000)
    codes, ends = own.codes[:, :few].cpu().numpy(), own.ends
    rows = Estimated(own.rows.c[:few].cpu().numpy(), own.rows.pi[:, :few].cpu().numpy())
    Z = np.zeros((few, AXES * VALUES + 1))
    for axis in range(AXES):
        Z[np.arange(few), axis * VALUES + codes[axis]] = 1
    Z[:, -1] = 1
    dense = scores.Dense(Z[:, ends[0]] * Z[:, ends[1]])
    there = scores.evaluate(rows, dense, own.y[:few].cpu().numpy(), points, few, bits)
    some = rule_device.RuleRows(
        own.codes[:, :few],
        own.sizes,
        ends,
        Estimated(own.rows.c[:few], own.rows.pi[:, :few]),
        own.y[:few],
    )
    here = rule_device.evaluate(some, points, few, bits)
    return max(
        float(np.abs(here[k] - there[k]).max() / max(np.abs(there[k]).max(), 1e-300)) for k in there
    )


def program(n, where):
    """A round of the program over n rows."""
    rates, own = RECORD["rates"], rule_rows(n, where)
    bits = 50 - n.bit_length()
    points, A = points_of(own, n, bits)
    error = differs(own, points, n, bits)
    took = seconds(lambda: rule_device.evaluate(own, points, n, bits), where)
    with torch.inference_mode():
        bare = seconds(bare_round(own, A), where)
    size = AXES * VALUES + 1
    read = n * (2 * AXES + 4 * 8) / rates["read"]
    floor = read + 2 * n / rates["exp"] + 4 * 2 * n * size**2 / rates["float64"]
    entry = {
        "rows": n,
        "subgroups": own.ends.shape[1] - 1,
        "seconds": took,
        "bare": bare,
        "floor": floor,
    }
    entry |= {
        "of_bare": took / bare,
        "of_floor": took / floor,
        "of_reading": took / read,
        "error": error,
    }
    entry["peak_gib"] = peak(where)
    RECORD["program"].append(entry)
    say("program", json.dumps({k: round(v, 10) for k, v in entry.items()}))


def coded(n, where, seed=1):
    """Rows of trees on the device: 255 bins a column, a label that hangs on some."""
    draw = torch.Generator(where).manual_seed(seed)
    codes = torch.randint(1, CODES, (n, COLUMNS), generator=draw, device=where, dtype=torch.uint8)
    margin = (codes[:, 0].double() + codes[:, 1] * 1.0 - codes[:, 2]) / 64 - 2
    y = torch.rand(n, generator=draw, device=where, dtype=torch.float64) < torch.sigmoid(margin)
    fold = torch.zeros(n, dtype=torch.int16, device=where)
    bits = min(boosting.GRADIENT_BITS, 50 - n.bit_length())
    return rule_device.CodedOnDevice(
        Bins((CODES,) * COLUMNS, COLUMNS),
        codes,
        None,
        y[None],
        torch.ones_like(y)[None],
        fold,
        0,
        None,
        bits,
    )


def bare_counts(rows, way, where):
    """Seconds of counting every column with PyTorch's own count, and with gradients as weights, three times each."""
    g, one = way.g.double(), way.h.double()

    def plain():
        for c in range(COLUMNS):
            torch.bincount(rows.codes[:, c], minlength=CODES)

    def weighted():
        for c in range(COLUMNS):
            for v in (g, one):
                torch.bincount(rows.codes[:, c], v, CODES)

    return 3 * seconds(plain, where, 1), seconds(weighted, where, 1) * 1.5


def trees(n, where):
    """Levels of TREES trees, and the histogram of a root."""
    rates, rows = RECORD["rates"], coded(n, where)
    growth = growing.begin(rows.bins, boosting.Boosting(trees=TREES, depth=5), 1, 0)
    levels = []
    while not growth.finished:
        forests = [
            (done, now) for done, now in zip(growth.done, growing.current(growth), strict=True)
        ]
        begin = time.perf_counter()
        sums = rule_device.level_sums(rows, forests, max(growth.level, 0), growth.count)
        levels.append([growth.level, len(growth.count), time.perf_counter() - begin])
        growth = growing.advance(growth, sums["hist"], sums["loss"])
    way, slots = rows.ways[0], np.full(256, -1, np.int16)
    slots[0] = 0
    with torch.inference_mode(), where:
        way.place = rows.places()
        took = seconds(lambda: rows.histogram(way, slots), where)
        plain, weighted = bare_counts(rows, way, where)
    read = n * (COLUMNS + 9) / rates["read"]
    entry = {
        "rows": n,
        "columns": COLUMNS,
        "root": took,
        "counting": plain,
        "weighted": weighted,
        "read": read,
    }
    entry |= {
        "of_counting": took / plain,
        "of_weighted": took / weighted,
        "of_reading": took / read,
    }
    entry |= {"a_tree": sum(v for *_, v in levels) / TREES, "peak_gib": peak(where)}
    RECORD["trees"].append(entry | {"levels": levels})
    say("trees", json.dumps({k: round(v, 6) for k, v in entry.items()}))


def peak(where):
    if where.type != "cuda":
        return 0.0
    most = torch.cuda.max_memory_allocated(where) / 2**30
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(where)
    return most


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=400, help="begin nothing after these")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    asked = parser.parse_args()
    where = rule_device.device_of(asked.device)
    name = torch.cuda.get_device_name() if where.type == "cuda" else str(where)
    RECORD.update(torch=torch.__version__, device=name)
    say("torch", torch.__version__, "on", name)
    measure_rates(where)
    for n in map(int, asked.rows):
        for work in (program, trees):
            if time.perf_counter() - BEGIN > asked.seconds:
                say("no time for", work.__name__, n)
                continue
            try:
                work(n, where)
            except Exception:  # everything, so that the rest still runs
                say(work.__name__, n, "FAILED\n" + traceback.format_exc(limit=-6))
            if asked.out is not None:
                asked.out.write_text(json.dumps(RECORD, indent=1) + "\n")
    say("done")


if __name__ == "__main__":
    main()
