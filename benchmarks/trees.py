"""Boosted trees over clients against scikit-learn's HistGradientBoosting and LightGBM, with like settings.

Quality: log loss and accuracy on the held-out 30 % of each data set for each seed, with equal rate, depth, leaves, L2,
rows and Hessian of a leaf, and bins, written to trees.json, from which `table` writes docs/trees.md. Choose: log loss
out of fold on the other 70 %, by `min_bin`. Stream: rows out of Parquet files, and the largest memory. Level: a root's
histogram against a bare count of the same codes. Time: of the processor, one thread, columns of numbers, two clients in
this process, from the tables to the trees; and prediction from a table. LightGBM is compared with where it is
installed; it is no dependency.
(-P: a script of this folder has the name of a module that Numba looks for.)

    python -P benchmarks/trees.py choose [--seeds 5]
    python -P benchmarks/trees.py quality [--seeds 5] [--trees 100] [--sets adult bank]
    python -P benchmarks/trees.py table
    python -P benchmarks/trees.py stream --rows 1e7 --folder rows
    python -P benchmarks/trees.py level --rows 1e6
    python -P benchmarks/trees.py time [--rows 1e5 1e6] [--repeats 3]
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from time import process_time

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from agnosticfair.data.table import Column, Table
from agnosticfair.federation import coordinator_for, in_process, statistics_of_all, summaries
from agnosticfair.learners import trees
from agnosticfair.learners.estimates import LABEL
from agnosticfair.mathematics.boosting import Boosting
from agnosticfair.mathematics.trees import Bins
from agnosticfair.methods import method
from agnosticfair.protocol.faults import policy
from agnosticfair.protocol.messages import Broadcast, pack
from agnosticfair.server import boosted
from agnosticfair.server.plan import plan
from agnosticfair_research.datasets import DATASETS, load_dataset

DEPTH = 5
RESULTS = Path(__file__).with_suffix(".json")
DOCS = Path(__file__).parents[1] / "docs" / "trees.md"


def grown(tables, settings, folds=0, seed=0, weigh=False):
    """Our trees of the label over clients; rounds, bytes of requests and replies where they are weighed, and the log
    loss out of fold."""
    coordinator = coordinator_for(in_process(tables), policy("stop"), None, False, None)
    statistics = statistics_of_all(coordinator, summaries(coordinator))
    one_plan = plan(method("fl"), statistics, coordinator.keys)
    state, sizes = boosted.begun(one_plan, (LABEL,), seed, folds, settings), [0, 0]
    while state.outcome == "running":
        request = Broadcast(state.round + 1, one_plan.task, boosted.request(state))
        total = coordinator.total(request)
        if weigh:
            sizes = [sizes[0] + len(pack(request)), sizes[1] + len(pack(total))]
        state = boosted.step(state, total)
    return (
        boosted.estimates_of(state, one_plan).arrays,
        one_plan.task,
        state.round,
        sizes,
        state.held_out,
    )


def split_in_two(table):
    even = np.arange(len(table)) % 2 == 0
    return {"north": table.take(np.flatnonzero(even)), "south": table.take(np.flatnonzero(~even))}


def by_frequency(column, maximum=250):
    """Codes of categories, the most frequent first; beyond ``maximum``, for scikit-learn takes 255, they share one."""
    counts = np.bincount(column.codes, minlength=len(column.categories))
    rank = np.empty(len(counts), int)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return np.minimum(rank, maximum)[column.codes]


def matrix(table):
    """Numbers, then categories as codes; and which columns are categories."""
    numbers = [np.asarray(v, float) for _, v in sorted(table.numeric.items())]
    codes = [by_frequency(c).astype(float) for _, c in sorted(table.categorical.items())]
    return np.stack(numbers + codes, axis=1), list(range(len(numbers), len(numbers) + len(codes)))


def rivals(count, categorical):
    """Classifiers with like settings, by name; what LightGBM alone has is left at its defaults."""
    boosting = Boosting()
    made = {
        "scikit-learn": HistGradientBoostingClassifier(
            max_iter=count, max_depth=DEPTH, max_leaf_nodes=None, early_stopping=False,
            learning_rate=boosting.rate, l2_regularization=boosting.l2, min_samples_leaf=boosting.min_rows,
            categorical_features=categorical or None,
        )
    }  # fmt: skip
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        return made
    made["LightGBM"] = LGBMClassifier(
        n_estimators=count, max_depth=DEPTH, num_leaves=2**DEPTH, n_jobs=1, verbose=-1, max_bin=255,
        learning_rate=boosting.rate, reg_lambda=boosting.l2, min_child_samples=boosting.min_rows,
        min_child_weight=boosting.min_hessian,
    )  # fmt: skip
    return made


def scored(y, p):
    return log_loss(y, np.clip(p, 1e-7, 1 - 1e-7)), float(((p > 0.5) == y).mean())


def compare(table, seed, count):
    """Log loss and accuracy of everybody on 30 % of the rows."""
    order = np.random.default_rng(seed).permutation(len(table))
    cut = int(0.7 * len(order))
    train, test = table.take(order[:cut]), table.take(order[cut:])
    arrays, task, *_ = grown(split_in_two(train), Boosting(trees=count, depth=DEPTH))
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
    """Log losses and accuracies of every seed, written to RESULTS after each data set."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        table = replace(load_dataset(name), sensitive_features={})
        runs = [compare(table, seed, count) for seed in range(seeds)]
        results[name] = {
            who: {
                "log_loss": [round(run[who][0], 5) for run in runs],
                "accuracy": [round(run[who][1], 5) for run in runs],
            }
            for who in runs[0]
        }
        RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
        print(rows_of({name: results[name]}), flush=True)


def rows_of(results):
    """Lines of a table: mean log losses, our ratio to each rival's, and mean accuracies."""
    lines = []
    for name, runs in results.items():
        loss = {who: mean(run["log_loss"]) for who, run in runs.items()}
        right = [f"{mean(run['accuracy']):.4f}" for run in runs.values()]
        ratios = [f"{loss['ours'] / own:.4f}" for who, own in loss.items() if who != "ours"]
        losses = [f"{own:.4f}" for own in loss.values()]
        lines.append(f"| {' | '.join([name, *losses, *ratios, *right])} |")
    return "\n".join(lines)


def write_table():
    """Put the table of RESULTS between the marks in docs/trees.md."""
    before, mark, rest = DOCS.read_text().partition("<!-- quality -->\n")
    _, end, after = rest.partition("<!-- end of quality -->")
    head = "| | ours | scikit-learn | LightGBM | / scikit-learn | / LightGBM | accuracy | scikit-learn | LightGBM |\n"
    body = rows_of(json.loads(RESULTS.read_text()))
    DOCS.write_text(f"{before}{mark}{head}|{'---|' * 9}\n{body}\n{end}{after}")


def choose(names, seeds, count):
    """Mean log loss out of three folds on training rows (70 %) by ``min_bin``, over that of the best."""
    for name in names:
        table, losses = replace(load_dataset(name), sensitive_features={}), {}
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(table))
            train = {"all": table.take(order[: int(0.7 * len(order))])}
            for rows in (1, 3, 5, 10, 20):
                settings = Boosting(trees=count, depth=DEPTH, min_bin=rows)
                losses.setdefault(rows, []).append(grown(train, settings, 3, seed)[-1])
        best = min(map(mean, losses.values()))
        shown = "  ".join(f"{rows}: {mean(own) / best:.4f}" for rows, own in losses.items())
        print(f"{name:10} {shown}", flush=True)


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
            arrays, task, rounds, *_ = grown(clients, Boosting(trees=count, depth=DEPTH))
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


def stream(n, count, folder):
    """Trees from files of n rows in all, which are made here: seconds of the processor, and the most memory."""
    import resource

    import pyarrow as pa
    import pyarrow.parquet as pq

    from agnosticfair.data import files

    files.STREAMED = 0  # whatever their size
    folder.mkdir(parents=True, exist_ok=True)
    sites = {}
    for k in range(2):
        path = folder / f"{k}.parquet"
        with pq.ParquetWriter(path, pa.table(columns_of(drawn(10)[2])).schema) as writer:
            for piece in range(max(1, n // 2_000_000)):
                rows = min(n // 2, 1_000_000)
                writer.write_table(pa.table(columns_of(drawn(rows, seed=2 * piece + k)[2])))
        sites[f"site {k}"] = files.read_source(path, files.Roles("label", ()))
    assert all(rows.streamed for rows in sites.values())
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, process_time()
    _, task, rounds, *_ = grown(sites, Boosting(trees=count, depth=DEPTH))
    taken, maximum = process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    values = task.n * 20 * 8 / 2**30
    print(
        f"{task.n} rows, {count} trees, {rounds} rounds: {taken:.0f} s, at most {maximum / 2**20:.2f} GiB of memory "
        f"(before the fit {before / 2**20:.2f}); the values alone have {values:.2f} GiB"
    )


def columns_of(table):
    return {**table.numeric, "label": table.target.values()}


def level(n, repeats):
    """Seconds of a root's histogram over those of counting the same codes, compiled both, and in NumPy both."""
    from agnosticfair.mathematics import boosting
    from agnosticfair.threads import compiled

    r, bins = np.random.default_rng(0), Bins((256,) * 20, 20)
    codes, slot = r.integers(1, 256, (n, 20), np.uint8), np.zeros(n, np.int16)
    g, h = boosting.gradients(r.normal(size=n), r.random(n) < 0.5, 20)
    loop, total = compiled(_count), np.zeros(20 * 256)
    places = bins.starts[:-1].astype(np.int32)
    ways = {"NumPy": (lambda: np.bincount((codes + places).ravel()), lambda own: None)}
    if loop is not None:
        ways["compiled"] = (lambda: loop(codes, bins.starts, total), compiled)
    for name, (bare, how) in ways.items():
        boosting.compiled = how
        seconds = {"bare": [], "histogram": []}
        for _ in range(repeats + 1):
            for what, run in (
                ("bare", bare),
                ("histogram", lambda: boosting.histogram(codes, slot, g, h, 1, bins)),
            ):
                begin = process_time()
                run()
                seconds[what].append(process_time() - begin)
        ours, other = (median(seconds[k][1:]) for k in ("histogram", "bare"))
        print(
            f"{n} rows, {name}: histogram {ours:.4f} s, bare count {other:.4f} s, ratio {ours / other:.2f}"
        )


def _count(codes, starts, total):
    for i in range(len(codes)):
        for c in range(codes.shape[1]):
            total[starts[c] + codes[i, c]] += 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["choose", "quality", "table", "time", "stream", "level"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--sets", nargs="+", default=sorted(DATASETS))
    parser.add_argument("--rows", nargs="+", type=float, default=[1e5, 1e6])
    parser.add_argument(
        "--folder", type=Path, default=Path("rows"), help="of the files of `stream`"
    )
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with threadpool_limits(1):
        if arguments.what == "quality":
            quality(arguments.sets, arguments.seeds, arguments.trees)
        elif arguments.what == "choose":
            choose(arguments.sets, arguments.seeds, arguments.trees)
        elif arguments.what == "table":
            write_table()
        elif arguments.what == "stream":
            stream(int(arguments.rows[0]), arguments.trees, arguments.folder)
        elif arguments.what == "level":
            level(int(arguments.rows[0]), arguments.repeats)
        else:
            times([int(n) for n in arguments.rows], arguments.repeats, arguments.trees)


if __name__ == "__main__":
    main()
