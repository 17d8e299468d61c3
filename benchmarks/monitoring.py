"""False alarms and power of the monitor, on real rows.

python benchmarks/monitoring.py --streams 1000                  # false alarms, watched after every batch
python benchmarks/monitoring.py --power --data-folder FOLDER    # rows until a real shift is seen
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from scipy.stats import chi2_contingency

from agnosticfair import fit, load_dataset
from agnosticfair.data.axes import codes_of
from agnosticfair.data.table import concatenate
from agnosticfair.experiments.detail import split_of
from agnosticfair.mathematics.parts import sizes_of, starts_of
from agnosticfair.monitoring.baseline import baseline_of
from agnosticfair.monitoring.monitor import Monitor

BATCH, STREAM = 250, 5000


def setting(seed=0, rows=15000):
    """A model, rows it was not fitted on, and a limit that these rows keep in every part."""
    table = load_dataset("adult")
    order = np.random.default_rng(seed).permutation(len(table))
    train, pool = table.take(order[:20000]), table.take(order[20000:])
    model = fit({"all": train}, "fairfl").model
    loose = baseline_of(model, pool, limit=1.0)
    monitor = Monitor(model, loose)
    worst = max(p.difference for p in monitor.update(pool).parts if p.rows >= 200)
    return model, pool, worst


def stream(task):
    """Whether a stream without change ever raised an alarm; and how many of its rows broke the certified limit."""
    model, pool, limit, seed = task
    rng = np.random.default_rng([seed, 7])
    certified = pool.take(rng.integers(0, len(pool), 12000))
    monitor = Monitor(model, baseline_of(model, certified, limit=limit))
    drawn = pool.take(rng.integers(0, len(pool), STREAM))
    for first in range(0, STREAM, BATCH):
        verdict = monitor.update(drawn.take(np.arange(first, first + BATCH)), again=True)
        if verdict.alarm:
            return True, verdict.changed
    return False, verdict.changed


def false_alarms(streams, jobs):
    model, pool, limit = setting()
    tasks = [(model, pool, limit, seed) for seed in range(streams)]
    begin = time.perf_counter()
    with ProcessPoolExecutor(jobs) as workers:
        found = np.array([*workers.map(stream, tasks, chunksize=4)])
    alarms, changed = found.mean(axis=0)
    print(
        f"{streams} streams of {STREAM} rows without change, looked at every {BATCH} rows, at 95%:"
    )
    print(f"  ever 'broken' or 'outside': {alarms:.3%}; ever 'changed': {changed:.3%}")
    print(f"  {time.perf_counter() - begin:.0f} s")


def fixed_sample(baseline, rows, n):
    """p-value of a plain chi-square of the first n rows against the baseline, Bonferroni over columns."""
    codes, starts = (
        codes_of(rows.take(np.arange(n)), baseline.axes),
        starts_of(sizes_of(baseline.axes)),
    )
    values = []
    for c, axis in enumerate(baseline.axes):
        now = np.bincount(np.maximum(codes[:, c], 0), minlength=len(axis.values))
        then = np.diag(baseline.counts)[starts[c] : starts[c + 1]]
        keep = (now + then) > 0
        values.append(chi2_contingency(np.stack([now, then])[:, keep]).pvalue)
    return min(values) * len(values)


def power(folder):
    print(
        "| shift | rows until 'changed' (any look) | chi-square, one look at n known beforehand | verdict |"
    )
    print("|---|---:|---:|---|")
    for name, how in (
        ("adult", "shift"),
        ("dutch", "shift"),
        ("oulad", "natural"),
        ("bank", "natural"),
        ("compas", "natural"),
        ("law", "natural"),
    ):
        try:
            split = split_of(name, how, 2, 0, folder)
        except Exception as error:
            print(f"| {name} ({how}) | {error} | | |")
            continue
        train = concatenate([*split.train.values()])
        model = fit(split.train, "fl").model
        baseline = baseline_of(model, train, limit=0.5)
        rows = split.test.take(np.random.default_rng(0).permutation(len(split.test)))
        monitor, seen = Monitor(model, baseline), None
        for first in range(0, len(rows), 50):
            verdict = monitor.update(
                rows.take(np.arange(first, min(first + 50, len(rows)))), again=True
            )
            if verdict.changed:
                seen = verdict.rows
                break
        plain = next(
            (n for n in range(25, len(rows), 25) if fixed_sample(baseline, rows, n) < 0.05), None
        )
        print(
            f"| {name} ({how}) | {seen} | {plain} | {verdict.where}: {verdict.because} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--power", action="store_true")
    parser.add_argument("--data-folder")
    asked = parser.parse_args()
    power(asked.data_folder) if asked.power else false_alarms(asked.streams, asked.jobs)
