"""False alarms and power of the monitor, on real rows.

python benchmarks/monitoring.py --streams 1000     # whole monitors, a look after every batch: false alarms, and power
python benchmarks/monitoring.py --power --data-folder FOLDER    # rows until a real shift is seen
python benchmarks/monitoring.py --inside --streams 400          # streams drawn from reweightings in the set
python benchmarks/monitoring.py --rows 1000000                  # seconds for so many rows
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
from scipy.special import ndtri
from scipy.stats import chi2_contingency

from agnosticfair import audit, fit
from agnosticfair.data.axes import codes_of
from agnosticfair.data.table import Column, Table, concatenate
from agnosticfair.mathematics.metrics import PARITY
from agnosticfair.mathematics.subgroups import members, sizes_of, starts_of
from agnosticfair.monitoring.baseline import baseline_of as monitored
from agnosticfair.monitoring.baseline import mix_changed
from agnosticfair.monitoring.monitor import Monitor
from agnosticfair.monitoring.verdict import rates_of
from agnosticfair_research.datasets import dataset, load_dataset
from agnosticfair_research.splits import split_of

STREAM = 5000


def setting(seed=0):
    """A model of Adult, and rows it was not fitted on."""
    table = load_dataset("adult")
    order = np.random.default_rng(seed).permutation(len(table))
    train, pool = table.take(order[:20000]), table.take(order[20000:])
    return fit({"all": train}, "fairfl").model, pool


JOBS, TOWNS, EVERY = "abcdefghij", "nesw", 250


def rates(bias=0.0):
    """The rate of positive decisions by job, town and group, (10, 4, 2); the bias is added where job = a."""
    rng = np.random.default_rng(0)
    made = rng.uniform(0.25, 0.35, (10, 4, 2))
    made[..., 1] += rng.uniform(0.05, 0.15, (10, 4))
    made[0, :, 1] += bias
    return made


def people(n, rng, bias=0.0):
    """Rows with their groups, and decisions by the rates."""
    job, town, group = (rng.integers(0, size, n) for size in (10, 4, 2))
    decided = (rng.random(n) < rates(bias)[job, town, group]).astype(int)
    columns = {"job": Column(job, tuple(JOBS)), "town": Column(town, tuple(TOWNS))}
    sex = {"sensitive_features": Column(group, ("F", "M"))}
    return Table({"id": rng.random(n)}, columns, None, sex), decided


def watched():
    """The subgroups of a certificate on 200,000 rows, each held to the population's own difference: every limit is
    kept, and none could be kept more narrowly."""
    table, decided = people(200_000, np.random.default_rng(1))
    group = table.sensitive_features["sensitive_features"].values()
    certificate = audit(decided, table, sensitive_features=group, subgroups=("job", "town"))
    baseline = monitored(certificate)
    limits = []
    for subgroup in baseline.subgroups:
        at = dict(subgroup)
        jobs, towns = ([at[a]] if a in at else [*range(size)] for a, size in ((0, 10), (1, 4)))
        limits.append(float(np.ptp(rates()[np.ix_(jobs, towns)].mean(axis=(0, 1)))))
    return replace(baseline, limits=tuple(limits))


def z_alarm(monitor):
    """Whether a z-test of a subgroup's "at most the limit", Bonferroni over subgroups and pairs, rejects as if there
    were one look."""
    _, k, n = rates_of(PARITY.name, monitor.state.counts)[0]
    rate = (k + 0.5) / (n + 1)
    error = np.sqrt((rate * (1 - rate) / np.maximum(n, 1)).sum(axis=1))
    beyond = np.abs(rate[:, 1] - rate[:, 0]) - monitor.baseline.limits
    return bool((beyond / error > -ndtri(0.025 / len(k) / 2)).any())


def stream(task):
    """The row by which the monitor raised an alarm and by which a z-test did, inf for never, looked at after every
    batch."""
    baseline, bias, rows, every, seed = task
    monitor, rng = Monitor(None, baseline), np.random.default_rng([seed, 7])
    first = [np.inf, np.inf]
    for row in range(every, rows + 1, every):
        batch, decided = people(every, rng, bias)
        verdict = monitor.update(batch, decisions=decided)
        for k, alarm in enumerate((verdict.alarm, z_alarm(monitor))):
            first[k] = min(first[k], row) if alarm else first[k]
        if bias and np.isfinite(first).all():
            break
    return first


def streamed(tasks, jobs, what):
    """What every stream gave, with progress on stderr."""
    with ProcessPoolExecutor(jobs) as workers:
        for done, first in enumerate(workers.map(stream, tasks, chunksize=4), 1):
            if done % max(len(tasks) // 20, 1) == 0:
                print(f"{what}: {done:,} of {len(tasks):,} streams", file=sys.stderr, flush=True)
            yield first


def alarms(streams, jobs):
    """False alarms of whole monitors, and rows until a bias beyond the limit in a tenth of the rows is seen."""
    baseline = watched()
    print(f"{len(baseline.subgroups)} subgroups, looked at after every batch")
    print("| beyond the limit | streams | monitor | z-test at every look |\n|---:|---:|---:|---:|")
    few = max(streams // 25, 4)
    for bias, rows, every, many in (
        (0.0, 10_000, 500, streams),
        (0.2, 40_000, 250, few),
        (0.1, 60_000, 500, few),
        (0.05, 200_000, 2000, few),
    ):
        tasks = [(baseline, bias, rows, every, seed) for seed in range(many)]
        values = np.array([*streamed(tasks, jobs, f"beyond by {bias:g}")])
        told = [f"{share:.1%} ever" for share in np.isfinite(values).mean(axis=0)]
        if bias:
            told = [f"{row:,.0f} rows" for row in np.median(values, axis=0)]
        print(f"| {bias:g} | {many:,} | {' | '.join(told)} |", flush=True)


COLUMNS = ["workclass", "age", "race", "marital-status", "education"]


def reweighting(task):
    """One stream from a reweighting in the set: the verdict, the population's and the measured difference of all
    rows, and the limit; None where a group has under the floor's share, which is in no set."""
    model, pool, seed, mixtures = task
    rng = np.random.default_rng([seed, 11])
    certified = pool.take(rng.permutation(len(pool))[:12000])
    certificate = audit(
        model, certified, sensitive_features="sex", subgroups=COLUMNS, mixtures=mixtures
    )
    monitor = Monitor(model, certificate)
    codes = codes_of(pool, monitor.baseline.axes)
    subgroups = [
        subgroup for subgroup in monitor.baseline.subgroups[1:] if len(subgroup) <= 1 + seed % 2
    ]
    chosen = [
        subgroups[k] for k in rng.choice(len(subgroups), int(rng.integers(1, 6)), replace=False)
    ]
    alpha = rng.dirichlet(np.ones(len(chosen)))
    theta = sum(
        a * members(codes, p) / members(codes, p).mean() for a, p in zip(alpha, chosen, strict=True)
    )
    s, decided = pool.sensitive_features["sex"].codes, model.predict(pool)
    mass = np.bincount(s, theta) / theta.sum()
    if mass.min() < certificate.floor:
        return None
    rates = np.bincount(s, theta * decided) / np.bincount(s, theta)
    drawn = pool.take(rng.choice(len(pool), STREAM, p=theta / theta.sum()))
    verdict = monitor.update(drawn)
    return verdict.where, abs(rates[1] - rates[0]), verdict.overall.difference, certificate.upper


def inside(streams, jobs):
    model, pool = setting()
    for mixtures in (True, False):
        tasks = [(model, pool, seed, mixtures) for seed in range(streams)]
        with ProcessPoolExecutor(jobs) as workers:
            found = [f for f in workers.map(reweighting, tasks, chunksize=4) if f is not None]
        within = np.array([f[1:] for f in found if f[0] == "inside"])
        over = (within[:, :2] > within[:, 2:]).mean(axis=0)
        print(
            f"certificate {'with' if mixtures else 'without'} mixtures, {len(found)} streams of {STREAM} rows: "
            f"{len(within)} 'inside', {sum(f[0] == 'outside' for f in found)} 'outside'; limit "
            f"{within[:, 2].mean():.3f}; over it {over[1]:.2%} measured, {over[0]:.2%} in the population"
        )


def speed(rows):
    model, pool = setting()
    certificate = audit(model, pool, sensitive_features="sex")
    monitor, rng = Monitor(model, certificate), np.random.default_rng(0)
    batches = [pool.take(rng.integers(0, len(pool), 100_000)) for _ in range(rows // 100_000)]
    begin, cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        monitor.update(batch)
    print(
        f"{rows:,} rows, {len(monitor.baseline.subgroups)} subgroups: {time.perf_counter() - begin:.1f} s, "
        f"{time.process_time() - cpu:.1f} s of CPU; the state has {len(monitor.state.to_bytes()):,} bytes"
    )


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
        groups = train.column(model.sensitive_features[0]).values()
        baseline = monitored(audit(model.predict(train), train, sensitive_features=groups))
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
    request = parser.parse_args()
    if request.power:
        power(request.data_folder)
    elif request.inside:
        inside(request.streams, request.jobs)
    elif request.rows:
        speed(request.rows)
    else:
        alarms(request.streams, request.jobs)
