"""How often the certificates' bounds hold, and how wide they are: draws from a population that is known.

The population is Adult's rows with the decisions of a model; a draw is ``--rows`` of them with replacement. A draw
counts as kept if *all* its bounds hold at once. The width is compared with the best that the simulation allows: for
subgroups of 1,000 rows or more, the 95% quantile over draws of the largest studentised error, which no method knows.
*above* is what a bound adds to the measured difference, *interval* the whole of it, *upper - true* what the bound over
all subgroups adds to the population's worst.

    python benchmarks/coverage.py --draws 1000 --jobs 16
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial

import numpy as np

from agnosticfair import fit
from agnosticfair.auditing import subgroups as named
from agnosticfair.auditing.certify import AuditRequest, mixtures_of
from agnosticfair.data.axes import axes_of_table, codes_of
from agnosticfair.data.encoding import encode
from agnosticfair.mathematics import confidence
from agnosticfair.mathematics.basis import gaussian_kernel, subgroups
from agnosticfair.mathematics.metrics import METRICS, ratios
from agnosticfair.mathematics.subgroups import counted, sizes_of
from agnosticfair_research.datasets import load_dataset

GROUPS = ("Female", "Male")
DELTA, LARGE, FLOOR, KERNELS, BOUND = 0.05, 1000, 0.05, 20, 5.0


@cache
def population():
    """Codes, cells, kernels and axes of all rows, with the decisions of a plain model."""
    table = load_dataset("adult")
    train = np.random.default_rng(0).random(len(table)) < 0.5
    model = fit({"all": table.take(train)}, "fl", **ATTRIBUTE).model
    request = subgroups(depth=2, min_share=0.01)
    axes = axes_of_table(table, request.columns, request.bins)
    sex = table.column("sex")
    y, d = table.labels(model.positive) > 0, model.predict(table) > 0
    X = encode(model.encoding, table)
    K = gaussian_kernel(X, X[np.random.default_rng(1).choice(len(X), KERNELS)], 1.0)
    return request, axes, codes_of(table, axes), (sex.codes.astype(int) * 2 + y) * 2 + d, K


ATTRIBUTE = {"sensitive_features": "sex"}


def found(rows: np.ndarray, subgroups=None):
    """Counts of the subgroups over these rows."""
    request, axes, codes, cells, _ = population()

    def send(some):
        tallied = counted(codes[rows], sizes_of(axes), some, cells[rows], 8)
        return tallied.reshape(-1, 2, 2, 2)

    return named.searched(axes, request, send) if subgroups is None else send(subgroups)


@cache
def truth(metric: str):
    """Every subgroup's difference, ratio and standard error for one row, over the whole population."""
    everyone = found(np.arange(len(population()[3])))
    at = dict(zip(everyone.subgroups, range(len(everyone.subgroups)), strict=True))
    apart = confidence.differences(everyone.counts, 0.01, metric).value
    ratio = confidence.ratios(everyone.counts, 0.01, metric).value
    return at, apart, ratio, everyone


def highest(counts: np.ndarray, left_out: tuple[str, ...]) -> float:
    """The highest error rate of the groups of a subgroup, (2, 2, 2) counts, that are not left out."""
    k, n = confidence.compared(counts[None], "bounded_group_loss")
    kept = [g for g, name in enumerate(GROUPS) if name not in left_out and n[0, g, 0]]
    return max((float(k[0, g, 0] / n[0, g, 0]) for g in kept), default=float("nan"))


def deviations(metric: str, counts: np.ndarray, ts: list[int], left: list[tuple]) -> np.ndarray:
    """The standard error of each subgroup's value on a draw, from the population's rates: of two rates, or where rates
    stand alone of the highest one that is not left out."""
    k, n = confidence.compared(truth(metric)[3].counts[ts], metric)
    rates, rows = k / np.maximum(n, 1), confidence.compared(counts, metric)[1]
    variance = rates * (1 - rates) / np.maximum(rows, 1)
    if not METRICS[metric].bounds:
        return np.sqrt(variance.sum(axis=1).max(axis=0))
    out = np.array([[name in few for few in left] for name in GROUPS])
    highest = np.where(out, -1.0, rates[0]).argmax(axis=0)
    return np.sqrt(np.take_along_axis(variance[0], highest[None], axis=0)[0])


def masses(rows: np.ndarray) -> np.ndarray:
    """Sums of K by cell, (2, 2, 2, M)."""
    _, _, _, cells, K = population()
    return np.stack([K[rows][cells[rows] == c].sum(axis=0) for c in range(8)]).reshape(2, 2, 2, -1)


@cache
def worst_kernels(metric: str) -> float:
    """The population's worst over its own set, from its own sums: what the bound must not be below."""
    from agnosticfair.mathematics.ambiguity import Ambiguity
    from agnosticfair.mathematics.ratios import worst_difference, worst_ratio

    psi = masses(np.arange(len(population()[3])))
    A = Ambiguity(psi.sum(axis=(0, 1, 2)), float(len(population()[3])), BOUND)
    found_ = []
    for _, a, b in ratios(METRICS[metric], psi):
        if METRICS[metric].bounds:
            return max(worst_ratio(A, a[g], b[g], FLOOR).value for g in (0, 1))
        both = [worst_difference(A, a[[k, j]], b[[k, j]], FLOOR) for j, k in ((1, 0), (0, 1))]
        found_ += [worst.value - worst.tolerance for worst in both]
    return max(found_)


def worst_mixture(metric: str, counts: np.ndarray) -> float:
    """The worst of some mixtures of these subgroups in which both groups keep the floor."""
    subgroups = counts / counts.sum(axis=(1, 2, 3), keepdims=True)
    rng, worst = np.random.default_rng(2), 0.0
    for _ in range(1000):
        some = rng.choice(len(subgroups), 3, replace=False)
        mixed = np.tensordot(rng.dirichlet(np.ones(3)), subgroups[some], 1)[None]
        k, n = confidence.compared(mixed, metric)
        if n.min() >= FLOOR:
            rates = (k / n)[..., 0]
            worst = max(
                worst, rates.max() if METRICS[metric].bounds else np.ptp(rates, axis=1).max()
            )
    return float(worst)


def drawn(metric: str, n: int, slow: bool, seed: int) -> tuple:
    """One draw: whether differences, ratios, mixtures and kernels held; and the studentised errors and widths."""
    at, apart, ratio, _ = truth(metric)
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, len(population()[3]), n)
    got = found(rows)
    subgroups = named.records(got, GROUPS, metric, DELTA, 0.1)
    shown = [
        subgroup
        for subgroup, rows in zip(got.subgroups, got.total, strict=True)
        if rows >= got.min_share * n
    ]
    ms = {subgroup: m for m, subgroup in enumerate(got.subgroups)}
    known = [(m, at[subgroup]) for m, subgroup in enumerate(shown) if subgroup in at]
    if METRICS[metric].bounds:  # a group with too few rows is named, and no part of the claim
        apart = apart.copy()
        for m, t in known:
            apart[t] = highest(truth(metric)[3].counts[t], subgroups[m].left_out)
    held = all(
        subgroups[m].low <= apart[t] <= subgroups[m].high
        for m, t in known
        if not np.isnan(apart[t])
    )
    fair = all(
        subgroups[m].ratio_low <= ratio[t] <= subgroups[m].ratio_high
        for m, t in known
        if not np.isnan(ratio[t])
    )
    large = [(m, t) for m, t in known if subgroups[m].rows >= LARGE and subgroups[m].estimable]
    places = [ms[shown[m]] for m, _ in large]
    left = [subgroups[m].left_out for m, _ in large]
    spread = deviations(metric, got.counts[places], [t for _, t in large], left)
    error = np.array([abs(subgroups[m].difference - apart[t]) for m, t in large]) / spread
    high = np.array([subgroups[m].high - subgroups[m].difference for m, _ in large]) / spread
    low = np.array([subgroups[m].low for m, _ in large])
    measured = np.array([subgroups[m].difference for m, _ in large])
    own = [(m, t) for m, t in known if subgroups[m].estimable and not np.isnan(apart[t])]
    worst, bound = max(apart[t] for _, t in own), max(p.high for p in subgroups if p.estimable)
    mixed = kernels = True
    if slow:
        able = got.levels(metric, 0.1, DELTA)[1]
        true = truth(metric)[3].counts[
            [at[subgroup] for subgroup, fine in zip(got.subgroups, able, strict=True) if fine]
        ]
        request = AuditRequest(metric=metric, confidence=1 - 2 * DELTA, mixtures=True, floor=FLOOR)
        over = mixtures_of(got, request).value  # with an even share, DELTA
        mixed = over >= worst_mixture(metric, true)
        over = confidence.reweightings(masses(rows), n, DELTA, metric, BOUND, FLOOR, 1e-3).value
        kernels = not over < worst_kernels(metric)  # nan: no reweighting keeps the floor
    ends = np.stack([measured, low, spread])
    return held, fair, mixed, kernels, error.max(), high, ends, (bound >= worst, bound - worst)


def interval(high: np.ndarray, ends: np.ndarray, best: float) -> float:
    """The whole intervals over those of the best bound, which end at 0, too."""
    measured, low, spread = ends
    ours = high * spread + measured - low
    return float(ours.sum() / (best * spread + np.minimum(measured, best * spread)).sum())


def main() -> None:
    request = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    request.add_argument("--draws", type=int, default=100)
    request.add_argument("--rows", type=int, default=20_000)
    request.add_argument("--jobs", type=int, default=2)
    request.add_argument(
        "--every", type=int, default=10, help="mixtures and kernels in every k-th draw"
    )
    request.add_argument("--metric", choices=[*METRICS], action="append", help="of these alone")
    arguments = request.parse_args()
    print(
        "metric              draws  differences  ratios  mixtures  kernels  upper   above/best  interval  upper - true"
    )
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for metric in arguments.metric or METRICS:
            fast = partial(drawn, metric, arguments.rows, False)
            slow = partial(drawn, metric, arguments.rows, True)
            made = [*pool.map(fast, range(arguments.draws), chunksize=4)]
            more = [*pool.map(slow, range(0, arguments.draws, arguments.every))]
            held, fair = (np.mean([one[k] for one in made]) for k in (0, 1))
            mixed, kernels = (np.mean([one[k] for one in more]) for k in (2, 3))
            best = np.quantile([one[4] for one in made], 1 - DELTA)
            width = np.mean(np.concatenate([one[5] for one in made])) / best
            whole = np.mean([interval(one[5], one[6], best) for one in made])
            kept, above = (np.mean([one[7][k] for one in made]) for k in (0, 1))
            print(
                f"{metric:20}{arguments.draws:5}  {held:11.3f}  {fair:6.3f}  {mixed:8.3f}  {kernels:7.3f}  {kept:5.3f}"
                f"   {width:10.3f}  {whole:8.3f}  {above:11.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
