"""A round of the rule's program against its bare arithmetic: rows like Adult's, about 700 subgroups.

The bare arithmetic is what the round stands for, of matrices made beforehand and with nothing rounded: scores
c - U x, their softplus and its two derivatives, the sums U'd of every group, and the Hessian V' diag(h) V of the rows
drawn for it; U sparse (a row's subgroups), V dense in float64. A second, lower floor counts by pairs of crossed
columns, as the round does, and leaves the Hessian, all rounding and all checks out. Times are of the processor
(``time.process_time``), one thread, in turn.

    python benchmarks/program_round.py [--rows 1e5 1e6] [--active 150] [--repeats 3]
"""

import argparse
from functools import partial
from statistics import median
from time import process_time

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from agnosticfair.client.program import Memberships
from agnosticfair.data.axes import axes_of, codes_of, histogram
from agnosticfair.data.summary import summary_statistics
from agnosticfair.mathematics.multipliers import RateLimits, coordinates
from agnosticfair.mathematics.scores import Estimated, Points, evaluate, sampled_rows, utility
from agnosticfair.mathematics.subgroups import all_places, conjunctions, cross, gram, sizes_of
from agnosticfair.protocol.grid import base_bits
from agnosticfair_research.datasets import load_dataset

EPS = 0.02


def rows_like_adult(n: int, rng: np.random.Generator):
    """Subgroups, labels and estimates of n rows whose values are drawn from Adult's."""
    table = load_dataset("adult")
    statistics = summary_statistics(table, who="adult")
    counts = {k: histogram(table.numeric[k], *statistics.numeric[k]) for k in statistics.numeric}
    axes = axes_of(statistics, counts, 4, None, clients=("one",))
    codes = codes_of(table, axes)[rng.integers(0, len(table), n)]
    crossed = cross(codes, sizes_of(axes))
    subgroups = conjunctions(gram(crossed, np.ones(n)), sizes_of(axes), 0.004 * n)
    subgroups_spec = Memberships(
        np.ascontiguousarray(codes.T), crossed, subgroups, all_places(sizes_of(axes), subgroups)
    )
    eta, gamma = (np.rint(rng.beta(1, 2, n) * 2**20) / 2**20 for _ in range(2))
    rows = Estimated(utility(eta), np.array([1 - gamma, gamma]))
    return rows, subgroups_spec, (rng.random(n) < eta).astype(int)


def points_of(rows, own, active: int, rng: np.random.Generator):
    """One point with multipliers on the active subgroups, and its coordinates."""
    n, K = len(rows.c), own.size
    at = coordinates({"mass": own.add(rows.pi)}, n, RateLimits(np.full(K, 0.05), ((0, 1),)))
    on = np.sort(rng.choice(K - 1, active, replace=False))
    x = np.zeros(at.size)
    x[on] = 1e-3 * rng.normal(size=active)
    return (
        at,
        on,
        x,
        Points(at.coefficients(x)[None], np.zeros(1), np.array([EPS]), at.directions(on)),
    )


def bare(rows, own, at, on, x):
    """The round's arithmetic, as a function without arguments."""
    n, K = len(rows.c), own.size
    every = np.arange(n)
    blocks = [
        sparse.csc_matrix(own.columns(np.arange(K), subgroup).T.astype(float))
        for subgroup in np.array_split(every, max(1, n // 20_000))
    ]
    b = sparse.vstack(blocks).tocsr()
    A, chosen = at.coefficients(x), np.flatnonzero(sampled_rows(rows, n))
    V = (b[chosen][:, on].toarray()) * (rows.pi[0][chosen, None] - 0.5)

    def arithmetic() -> None:
        t = rows.c - (rows.pi.T * (b @ A)).sum(axis=1)
        e = np.exp(-np.abs(t) / EPS)
        d = np.where(t > 0, 1.0, e) / (1 + e)
        (np.maximum(t, 0) + EPS * np.log1p(e)).sum()
        b.T @ (d * rows.pi).T
        V.T @ (V * (d * (1 - d))[chosen, None])

    return arithmetic


def counted(rows, own, at, x):
    """The same by crossed columns, without a Hessian."""
    A = at.coefficients(x)

    def arithmetic() -> None:
        t = rows.c - rows.pi[0] * own.weigh(A[:, 0]) - rows.pi[1] * own.weigh(A[:, 1])
        e = np.exp(-np.abs(t) / EPS)
        d = np.where(t > 0, 1.0, e) / (1 + e)
        (np.maximum(t, 0) + EPS * np.log1p(e)).sum()
        own.add(d * rows.pi)

    return arithmetic


def timed(run) -> float:
    begun = process_time()
    run()
    return process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6])
    parser.add_argument("--active", type=int, default=150)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(
        f"{'rows':>9} {'subgroups':>9} {'round s':>8} {'bare s':>8} {'ratio':>6} {'counted s':>9} {'ratio':>6}"
    )
    for n in map(int, arguments.rows):
        rng = np.random.default_rng(0)
        rows, own, y = rows_like_adult(n, rng)
        at, on, x, points = points_of(rows, own, arguments.active, rng)
        ours = partial(evaluate, rows, own, y, points, n, base_bits(n))
        runs = ours, bare(rows, own, at, on, x), counted(rows, own, at, x)
        with threadpool_limits(1):
            ours()
            times = [[timed(run) for run in runs] for _ in range(arguments.repeats)]
        took, floor, lower = (median(own) for own in zip(*times, strict=True))
        print(
            f"{n:>9} {own.size - 1:>9} {took:>8.3f} {floor:>8.3f} {took / floor:>6.2f} {lower:>9.3f} "
            f"{took / lower:>6.2f}"
        )


if __name__ == "__main__":
    main()
