"""False alarms and power of the monitor, on real rows.

python benchmarks/monitoring.py --streams 1000                  # false alarms, watched after every batch
python benchmarks/monitoring.py --power --data-folder FOLDER    # rows until a real shift is seen
python benchmarks/monitoring.py --inside --streams 400          # streams drawn from reweighings in the set
python benchmarks/monitoring.py --rows 1000000                  # seconds for so many rows
python benchmarks/monitoring.py --bias --streams 1000           # false alarms and rows until a bias in a tenth is seen
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
from scipy.special import ndtri
from scipy.stats import chi2_contingency

from agnosticfair import audit, fit
from agnosticfair.data.axes import codes_of
from agnosticfair.data.table import concatenate
from agnosticfair.mathematics.parts import members, sizes_of, starts_of
from agnosticfair.mathematics.sequences import difference_evidence, rate_bounds
from agnosticfair.monitoring.baseline import as_baseline, baseline_of
from agnosticfair.monitoring.mix import mix_changed
from agnosticfair.monitoring.monitor import Monitor
from agnosticfair.monitoring.verdict import level_of
from agnosticfair_research.datasets import dataset, load_dataset
from agnosticfair_research.splits import split_of

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
    certified = pool.take(rng.permutation(len(pool))[:12000])
    made = audit(model, certified, sensitive_features="sex", parts=COLUMNS)
    monitor = Monitor(model, replace(as_baseline(made, model), limit=limit, limits=None))
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


COLUMNS = ["workclass", "age", "race", "marital-status", "education"]


def reweighed(task):
    """One stream from a reweighing in the set: the verdict, the population's and the measured difference of all
    rows, and the limit; None where a group has under the floor's share, which is in no set."""
    model, pool, seed, mixtures = task
    rng = np.random.default_rng([seed, 11])
    certified = pool.take(rng.permutation(len(pool))[:12000])
    made = audit(model, certified, sensitive_features="sex", parts=COLUMNS, mixtures=mixtures)
    monitor = Monitor(model, made)
    codes = codes_of(pool, monitor.baseline.axes)
    parts = [part for part in monitor.baseline.parts[1:] if len(part) <= 1 + seed % 2]
    chosen = [parts[k] for k in rng.choice(len(parts), int(rng.integers(1, 6)), replace=False)]
    alpha = rng.dirichlet(np.ones(len(chosen)))
    theta = sum(
        a * members(codes, p) / members(codes, p).mean() for a, p in zip(alpha, chosen, strict=True)
    )
    s, decided = pool.sensitive_features["sex"].codes, model.predict(pool)
    mass = np.bincount(s, theta) / theta.sum()
    if mass.min() < made.floor:
        return None
    rates = np.bincount(s, theta * decided) / np.bincount(s, theta)
    drawn = pool.take(rng.choice(len(pool), STREAM, p=theta / theta.sum()))
    verdict = monitor.update(drawn)
    return verdict.where, abs(rates[1] - rates[0]), verdict.everybody.difference, made.upper


def inside(streams, jobs):
    model, pool, _ = setting()
    for mixtures in (True, False):
        tasks = [(model, pool, seed, mixtures) for seed in range(streams)]
        with ProcessPoolExecutor(jobs) as workers:
            found = [f for f in workers.map(reweighed, tasks, chunksize=4) if f is not None]
        within = np.array([f[1:] for f in found if f[0] == "inside"])
        over = (within[:, :2] > within[:, 2:]).mean(axis=0)
        print(
            f"certificate {'with' if mixtures else 'without'} mixtures, {len(found)} streams of {STREAM} rows: "
            f"{len(within)} 'inside', {sum(f[0] == 'outside' for f in found)} 'outside'; limit "
            f"{within[:, 2].mean():.3f}; over it {over[1]:.2%} measured, {over[0]:.2%} in the population"
        )


def speed(rows):
    model, pool, _limit = setting()
    made = audit(model, pool, sensitive_features="sex")
    monitor, rng = Monitor(model, made), np.random.default_rng(0)
    batches = [pool.take(rng.integers(0, len(pool), 100_000)) for _ in range(rows // 100_000)]
    begin, cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        monitor.update(batch)
    print(
        f"{rows:,} rows, {len(monitor.baseline.parts)} parts: {time.perf_counter() - begin:.1f} s, "
        f"{time.process_time() - cpu:.1f} s of CPU; the state has {len(monitor.state.to_bytes()):,} bytes"
    )


PARTS, TENTH, LIMIT, EVERY = 41, 0.1, 0.1, 250
LEVEL = level_of(0.05 / 2 / PARTS, 1, 2)
"""What one of two groups' bounds in one of so many parts may fail with, at 95%."""


def differing(bias, streams, rows, rng):
    """Counts of two groups in a part that holds a tenth of the rows, at every look, (2, streams, looks) each."""
    looks = np.arange(EVERY, rows + 1, EVERY)
    k, n = np.zeros((2, 2, streams, len(looks)))
    for s in range(streams):
        inside = rng.random(rows) < TENTH
        group = rng.random(rows) < 0.5
        x = rng.random(rows) < 0.3 + (LIMIT + bias) * group
        for g, own in enumerate((group & inside, ~group & inside)):
            k[g, s], n[g, s] = np.cumsum(x & own)[looks - 1], np.cumsum(own)[looks - 1]
    return looks, k, n


def z_test(k, n):
    """Whether a z-test of "at most the limit" rejects at LEVEL, as if there were one look."""
    rate = (k + 0.5) / (n + 1)
    error = np.sqrt((rate * (1 - rate) / np.maximum(n, 1)).sum(axis=0))
    return (rate[0] - rate[1] - LIMIT) / error > -ndtri(LEVEL)


def boxes(k, n):
    """Whether two intervals of rates, valid at all times, are further apart than the limit."""
    low, high = rate_bounds(k, n, 2 * LEVEL)
    return low[0] - high[1] > LIMIT


def bets(k, n):
    return difference_evidence(k, n, np.full(k.shape[1:], LIMIT)) >= -np.log(LEVEL)


def bias(streams):
    """A part of a tenth of the rows, certified to differ by at most LIMIT, and as many others as to make PARTS."""
    ways = {"e-process": bets, "two intervals": boxes, "z-test": z_test}
    print("| beyond the limit | streams | " + " | ".join(ways) + " |\n|---:|---:|---:|---:|---:|")
    for beyond, rows, many in (
        (0.0, 20_000, streams),
        (0.05, 200_000, 40),
        (0.1, 80_000, 40),
        (0.2, 40_000, 100),
    ):
        looks, k, n = differing(beyond, many, rows, np.random.default_rng(0))
        told = []
        for way in ways.values():
            broken = way(k, n)
            first = np.where(broken.any(axis=1), looks[broken.argmax(axis=1)], np.inf)
            middle = f"{np.median(first):,.0f}" if np.median(first) < np.inf else f"over {rows:,}"
            told.append(f"{broken.any(axis=1).mean():.3%} ever" if not beyond else f"{middle} rows")
        print(f"| {beyond:g} | {many:,} | {' | '.join(told)} |", flush=True)


SHIFTS = (
    ("adult", "shift"),
    ("dutch", "shift"),
    ("oulad", "natural"),
    ("bank", "natural"),
    ("compas", "natural"),
    ("law", "natural"),
)
LOOKS = np.unique(np.geomspace(25, 8000, 40).astype(int))


def counted(codes, baseline):
    """Counts of values at every look, (looks, I + C)."""
    starts = starts_of(sizes_of(baseline.axes))
    place = np.where(codes < 0, starts[-1] + np.arange(len(starts) - 1), codes + starts[:-1])
    looks = LOOKS[len(codes) >= LOOKS]
    return looks, [
        np.bincount(place[:n].ravel(), minlength=starts[-1] + len(starts) - 1) for n in looks
    ]


def chi_square(baseline, values):
    """Whether a plain chi-square test of all values against the baseline rejects at 5%, Bonferroni over columns."""
    starts, then = starts_of(sizes_of(baseline.axes)), baseline.values
    for c in range(len(baseline.axes)):
        own = np.r_[starts[c] : starts[c + 1], starts[-1] + c]
        both = np.stack([values[own], then[own]])
        if chi2_contingency(both[:, both.sum(axis=0) > 0]).pvalue < 0.05 / len(baseline.axes):
            return True
    return False


def rows_for(found, looks):
    """The first look by which four of five streams have been told."""
    told = np.mean(found, axis=0) >= 0.8
    return f"{looks[told.argmax()]:,}" if told.any() else f"over {looks[-1]:,}"


def power(folder):
    print(
        "| shift | monitor, any time | chi-square, one look | at every look | false alarms of that | moved most |"
    )
    print("|---|---:|---:|---:|---:|---|")
    for name, how in SHIFTS:
        split, source = split_of(name, how, 2, 0, folder), dataset(name)
        train = concatenate([*split.train.values()])
        model = fit(split.train, "fl", sensitive_features=source.sensitive_features).model
        baseline = baseline_of(model, train, limit=0.5)
        codes = codes_of(split.test, baseline.axes).astype(int)
        before = codes_of(train, baseline.axes).astype(int)
        ever, once, false = [], [], []
        for seed in range(20):
            order = np.random.default_rng(seed).permutation(len(codes))
            looks, values = counted(codes[order], baseline)
            ever.append(np.maximum.accumulate([mix_changed(baseline, v, 0.05) for v in values]))
            once.append([chi_square(baseline, v) for v in values])
            same = before[np.random.default_rng([seed, 3]).integers(0, len(before), 8000)]
            false.append(any(chi_square(baseline, v) for v in counted(same, baseline)[1]))
        now, then = values[-1] / looks[-1], baseline.values / baseline.n
        k = int(np.abs(now - then).argmax())
        moved = f"{baseline.value_names[k]}: {then[k]:.0%} to {now[k]:.0%}"
        print(
            f"| {name}, {how} | {rows_for(ever, looks)} | {rows_for(once, looks)} | "
            f"{rows_for(np.maximum.accumulate(once, axis=1), looks)} | {np.mean(false):.0%} | {moved} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--power", action="store_true")
    parser.add_argument("--data-folder")
    parser.add_argument("--inside", action="store_true")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--bias", action="store_true")
    asked = parser.parse_args()
    if asked.bias:
        bias(asked.streams)
    elif asked.power:
        power(asked.data_folder)
    elif asked.inside:
        inside(asked.streams, asked.jobs)
    elif asked.rows:
        speed(asked.rows)
    else:
        false_alarms(asked.streams, asked.jobs)
