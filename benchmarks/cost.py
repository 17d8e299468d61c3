"""What the rule costs, as ratios of processor time in one run with one thread: a round of its program to the bare
arithmetic, and a whole fit with the additive learner to scikit-learn's LogisticRegression.

A round: rows like Adult's with all subgroups of 0.4%, one point and the Hessian in 150 directions. Its bare arithmetic,
of matrices made beforehand and with nothing rounded: scores c - U x, their softplus and its two derivatives, the sums
U'd of every group, and the Hessian V' diag(h) V of the rows drawn for it; U sparse (a row's subgroups), V dense. A fit:
statistics, bins, six models (five folds and all rows) of both targets, the program at the default tau and what larger
limits would cost, on 70% of the rows; LogisticRegression, at its default tolerance, fits the same one-hot features once
for each target.

    python benchmarks/cost.py [--rows 1e6] [--datasets adult,dutch] [--out benchmarks/cost.json]
"""

import argparse
import json
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from agnosticfair.data.axes import axes_of_table, codes_of
from agnosticfair.data.encoding import encode
from agnosticfair.federation import fit
from agnosticfair.learners.estimates import targets
from agnosticfair.mathematics.multipliers import RateLimits, coordinates
from agnosticfair.mathematics.scores import (
    Estimated,
    Memberships,
    Points,
    evaluate,
    sampled_rows,
    utility,
)
from agnosticfair.mathematics.subgroups import (
    all_places,
    conjunctions,
    cross,
    gram,
    overlaps,
    sizes_of,
)
from agnosticfair.methods import method
from agnosticfair.protocol.messages import base_bits
from agnosticfair_research.datasets import dataset, load_dataset

EPS, ACTIVE, REPEATS = 0.02, 150, 3


def rows_like_adult(n, rng):
    """Estimates, subgroups and labels of n rows whose values are drawn from Adult's."""
    table = load_dataset("adult")
    axes = axes_of_table(table, sorted({*table.numeric, *table.categorical}))
    sizes = sizes_of(axes)
    codes = codes_of(table, axes)[rng.integers(0, len(table), n)]
    crossed = cross(codes, sizes)
    subgroups = conjunctions(gram(crossed, np.ones(n)), sizes, 0.004 * n)
    own = Memberships(
        np.ascontiguousarray(codes.T), crossed, subgroups, all_places(sizes, subgroups)
    )
    eta, gamma = (np.rint(rng.beta(1, 2, n) * 2**20) / 2**20 for _ in range(2))
    rows = Estimated(utility(eta), np.array([1 - gamma, gamma]))
    return rows, own, (rng.random(n) < eta).astype(int)


def bare(rows, own, A, on):
    """The round's arithmetic, as a function without arguments."""
    n, every = len(rows.c), np.arange(own.size)
    blocks = [
        sparse.csc_matrix(own.columns(every, some).T.astype(float))
        for some in np.array_split(np.arange(n), max(1, n // 20_000))
    ]
    b, chosen = sparse.vstack(blocks).tocsr(), np.flatnonzero(sampled_rows(rows, n))
    V = b[chosen][:, on].toarray() * (rows.pi[0][chosen, None] - 0.5)

    def arithmetic():
        t = rows.c - (rows.pi.T * (b @ A)).sum(axis=1)
        e = np.exp(-np.abs(t) / EPS)
        d = np.where(t > 0, 1.0, e) / (1 + e)
        (np.maximum(t, 0) + EPS * np.log1p(e)).sum()
        b.T @ (d * rows.pi).T
        V.T @ (V * (d * (1 - d))[chosen, None])

    return arithmetic


def seconds(run):
    """Median processor time, after one call that is not counted."""
    took = []
    for _ in range(REPEATS + 1):
        overlaps.cache_clear()
        begin = process_time()
        run()
        took.append(process_time() - begin)
    return median(took[1:])


def a_round(n):
    """A round of the program over n rows, and its bare arithmetic."""
    rng = np.random.default_rng(0)
    rows, own, y = rows_like_adult(n, rng)
    K = own.size
    at = coordinates({"mass": own.add(rows.pi)}, n, RateLimits(np.full(K, 0.05), ((0, 1),)))
    on, x = np.sort(rng.choice(K - 1, ACTIVE, replace=False)), np.zeros(at.size)
    x[on] = 1e-3 * rng.normal(size=ACTIVE)
    A = at.coefficients(x)
    points = Points(A[None], np.zeros(1), np.array([EPS]), at.directions(on))
    ours = seconds(partial(evaluate, rows, own, y, points, n, base_bits(n)))
    return {"rows": n, "subgroups": K - 1} | compared(ours, seconds(bare(rows, own, A, on)))


def a_fit(name):
    """A whole fit, and LogisticRegression on the same features and both targets."""
    table, source = load_dataset(name), dataset(name)
    rows = table.take(np.random.default_rng(0).random(len(table)) < 0.7)
    settings = {"sensitive_features": source.sensitive_features, "positive": source.positive}
    additive = method("rule", learner="additive")
    fitted = fit({"all": rows}, additive, **settings)
    X, heads = encode(fitted.model.encoding, rows), fitted.model.estimates.heads
    t, counts = targets(heads, rows.labels(source.positive), rows.sensitive_features)

    def regress():
        for y, on in zip(t, counts, strict=True):
            LogisticRegression(max_iter=1000).fit(X[on], y[on])

    ours = seconds(lambda: fit({"all": rows}, additive, **settings))
    found = {"dataset": name, "rows": len(rows), "features": X.shape[1], "rounds": fitted.rounds}
    return found | compared(ours, seconds(regress))


def compared(ours, theirs):
    return {
        "seconds": round(ours, 3),
        "against": round(theirs, 3),
        "ratio": round(ours / theirs, 2),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--datasets", default="adult,dutch")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    arguments = parser.parse_args()
    with threadpool_limits(1):
        record = {"round": a_round(int(arguments.rows))}
        print(record["round"], flush=True)
        record["fits"] = [a_fit(name) for name in arguments.datasets.split(",")]
    print(*record["fits"], sep="\n")
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
