"""Boosted trees over clients against scikit-learn's HistGradientBoosting and LightGBM, with like settings.

Quality: log loss and accuracy on the held-out 30 % of each data set, means over seeds, and the ratio of our log loss to
each rival's. Time: of the processor, one thread, columns of numbers, two clients in this process, from the tables to
the trees; and prediction from a table. LightGBM is compared with where it is installed; it is no dependency.
(-P: a script of this folder has the name of a module that Numba looks for.)

    python -P benchmarks/trees.py quality [--seeds 5] [--trees 100] [--sets adult bank]
    python -P benchmarks/trees.py time [--rows 1e5 1e6] [--repeats 3]
"""

import argparse
from dataclasses import replace
from statistics import mean, median
from time import process_time

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from agnosticfair.data.table import Column, Table
from agnosticfair.federation import asking, census_of_all, in_process, summaries
from agnosticfair.learners import trees
from agnosticfair.learners.heads import LABEL
from agnosticfair.mathematics.boosting import Boosting
from agnosticfair.methods import method
from agnosticfair.protocol.faults import policy
from agnosticfair.protocol.messages import Broadcast, pack
from agnosticfair.server import boosted
from agnosticfair.server.plan import plan
from agnosticfair_research.datasets import DATASETS, load_dataset

DEPTH = 5


def grown(tables, settings, folds=0, seed=0, weigh=False):
    """Our trees of the label over clients; rounds and, where they are weighed, bytes of requests and replies."""
    asker = asking(in_process(tables), policy("stop"), None, False, None)
    census = census_of_all(asker, summaries(asker))
    made = plan(method("fl"), census, asker.keys)
    state, sizes = boosted.begun(made, (LABEL,), seed, folds, settings), [0, 0]
    while state.outcome == "running":
        asked = Broadcast(state.round + 1, made.task, boosted.question(state))
        total = asker.total(asked)
        if weigh:
            sizes = [sizes[0] + len(pack(asked)), sizes[1] + len(pack(total))]
        state = boosted.step(state, total)
    return boosted.estimates_of(state, made).arrays, made.task, state.round, sizes


def split_in_two(table):
    even = np.arange(len(table)) % 2 == 0
    return {"north": table.take(np.flatnonzero(even)), "south": table.take(np.flatnonzero(~even))}


def by_frequency(column, most=250):
    """Codes of categories, the most frequent first; beyond ``most``, for scikit-learn takes 255, they share one."""
    counts = np.bincount(column.codes, minlength=len(column.categories))
    rank = np.empty(len(counts), int)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return np.minimum(rank, most)[column.codes]


def matrix(table):
    """Numbers, then categories as codes; and which columns are categories."""
    numbers = [np.asarray(v, float) for _, v in sorted(table.numeric.items())]
    codes = [by_frequency(c).astype(float) for _, c in sorted(table.categorical.items())]
    return np.stack(numbers + codes, axis=1), list(range(len(numbers), len(numbers) + len(codes)))


def rivals(count, categorical):
    """Classifiers with like settings, by name."""
    made = {
        "scikit-learn": HistGradientBoostingClassifier(
            max_iter=count, max_depth=DEPTH, max_leaf_nodes=None, early_stopping=False,
            categorical_features=categorical or None,
        )
    }  # fmt: skip
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        return made
    made["LightGBM"] = LGBMClassifier(
        n_estimators=count, max_depth=DEPTH, num_leaves=2**DEPTH, n_jobs=1, verbose=-1, max_bin=255
    )
    return made


def scored(y, p):
    return log_loss(y, np.clip(p, 1e-7, 1 - 1e-7)), float(((p > 0.5) == y).mean())


def compare(table, seed, count):
    """Log loss and accuracy of everybody on 30 % of the rows."""
    order = np.random.default_rng(seed).permutation(len(table))
    cut = int(0.7 * len(order))
    train, test = table.take(order[:cut]), table.take(order[cut:])
    arrays, task, _, _ = grown(split_in_two(train), Boosting(trees=count, depth=DEPTH))
    y = test.labels(task.positive) > 0
    results = {"ours": scored(y, trees.predict(arrays, task.encoding, 0, test, "the data")[0])}
    X, categorical = matrix(table)
    y_train = train.labels(task.positive) > 0
    for name, rival in rivals(count, categorical).items():
        more = {"categorical_feature": categorical} if name == "LightGBM" else {}
        rival.fit(X[order[:cut]], y_train, **more)
        results[name] = scored(y, rival.predict_proba(X[order[cut:]])[:, 1])
    return results


def quality(names, seeds, count):
    """A table of means over seeds."""
    for name in names:
        table = replace(load_dataset(name), sensitive_features={})
        runs = [compare(table, seed, count) for seed in range(seeds)]
        for who in runs[0]:
            loss, right = (mean(run[who][k] for run in runs) for k in (0, 1))
            ratio = mean(run["ours"][0] for run in runs) / loss
            print(
                f"{name:10} {who:13} log loss {loss:.4f}  accuracy {right:.4f}  ours / its {ratio:.4f}",
                flush=True,
            )


def drawn(n, d=20, seed=0):
    """Rows with main effects, an interaction and noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * (X[:, 3] > 0) + X[:, 2] + rng.normal(size=n) > 0
    numeric = {f"x{j:02d}": np.ascontiguousarray(X[:, j]) for j in range(d)}
    return X, y, Table(numeric, {}, Column.of(np.where(y, "yes", "no")), {})


def times(rows, repeats, count):
    """Medians, and their ratios, taken in turn."""
    for n in rows:
        X, y, table = drawn(n)
        clients, found = split_in_two(table), {}
        for _ in range(repeats):
            begin = process_time()
            arrays, task, rounds, _ = grown(clients, Boosting(trees=count, depth=DEPTH))
            found.setdefault("ours fit", []).append(process_time() - begin)
            begin = process_time()
            trees.predict(arrays, task.encoding, 0, table, "the data")
            found.setdefault("ours predict", []).append(process_time() - begin)
            for name, rival in rivals(count, []).items():
                begin = process_time()
                rival.fit(X, y)
                found.setdefault(f"{name} fit", []).append(process_time() - begin)
                begin = process_time()
                rival.predict_proba(X)
                found.setdefault(f"{name} predict", []).append(process_time() - begin)
        for what, taken in found.items():
            ours = median(found[f"ours {what.rpartition(' ')[2]}"])
            print(
                f"{n:>9} rows  {what:22} {median(taken):8.3f} s  ours / its {ours / median(taken):.2f}"
            )
        print(f"{n:>9} rows  {rounds} rounds", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["quality", "time"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--sets", nargs="+", default=sorted(DATASETS))
    parser.add_argument("--rows", nargs="+", type=float, default=[1e5, 1e6])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with threadpool_limits(1):
        if given.what == "quality":
            quality(given.sets, given.seeds, given.trees)
        else:
            times([int(n) for n in given.rows], given.repeats, given.trees)


if __name__ == "__main__":
    main()
