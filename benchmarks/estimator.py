"""The bars of the estimator on Adult: overhead over the bare solver, metrics over unseen deployments,
race and sex at once.  Run: python benchmarks/estimator.py [overhead metrics race target bases path kernels network]"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from time import perf_counter, process_time

import numpy as np
from threadpoolctl import threadpool_limits

from agnosticfair import AgnosticFairClassifier, target_weights
from agnosticfair.data.encoding import encode
from agnosticfair.data.table import Table
from agnosticfair.errors import AgnosticFairError
from agnosticfair.federation import fit
from agnosticfair.mathematics.basis import Basis, by_client
from agnosticfair.mathematics.scoring import accuracy, gap
from agnosticfair.methods import method
from agnosticfair.report.figures import BLUE, RED
from agnosticfair.tuning import trace
from agnosticfair_research.datasets import dataset, load_dataset
from agnosticfair_research.deployments import deployments
from agnosticfair_research.splits import shift

MIN_CELL = 200
"""Rows of every compared (group, label) that a deployment must have for its gap to be more than noise."""


def rows(tables: list[Table], encoding) -> tuple[np.ndarray, ...]:
    X = np.vstack([encode(encoding, t) for t in tables])
    y = np.concatenate([t.labels(">50K") for t in tables])
    return X, y, np.concatenate([t.column("sex").values() for t in tables])


def overhead(split) -> None:
    bare = fit(split.train, "agnosticfair", sensitive_features="sex")
    X, y, s = rows([*split.train.values()], bare.model.encoding)
    owners = np.repeat([*split.train], [len(t) for t in split.train.values()])
    times = {"bare": [], "estimator": []}
    for _ in range(3):
        begin = perf_counter()
        fit(split.train, "agnosticfair", sensitive_features="sex")
        times["bare"].append(perf_counter() - begin)
        begin = perf_counter()
        AgnosticFairClassifier().fit(X, y, sensitive_features=s, clients=owners)
        times["estimator"].append(perf_counter() - begin)
    ratio = min(times["estimator"]) / min(times["bare"])
    print(f"overhead: estimator / bare = {ratio:.3f} ({times})")


def metrics(taus=(0.03, 0.05, 0.08, 0.12), seeds=range(5)) -> None:
    """Gaps over the unseen deployments, with a constraint and without: means over seeds."""
    found: dict[tuple[str, str], list[list[float]]] = {}
    for seed in seeds:
        split = shift(load_dataset("adult"), dataset("adult"), seed=seed)
        y, s = split.test.labels(">50K"), split.test.column("sex").codes
        free = fit(split.train, "fl", sensitive_features="sex").model
        unseen = deployments(split.test, free.encoding, seed, "sex")
        for metric in ("equal_opportunity", "equalized_odds"):
            row = found.setdefault((metric, "unconstrained"), [])
            row.append(measured(free.predict(split.test), metric, y, s, unseen))
            for tau in taus:
                chosen_method = method("agnosticfair", metric=metric, tau=tau, nominal=0.01)
                fitted = fit(split.train, chosen_method, sensitive_features="sex", seed=seed)
                row = found.setdefault((metric, f"tau {tau}"), [])
                row.append(measured(fitted.model.predict(split.test), metric, y, s, unseen))
                print(seed, metric, tau, fitted.outcome, fitted.rounds, row[-1], flush=True)
    print("metric, method: mean (standard deviation) over seeds of", *MEASURED, sep="; ")
    for (metric, name), values in found.items():
        cells = zip(np.mean(values, axis=0), np.std(values, axis=0), strict=True)
        print(f"{metric}, {name}:", "; ".join(f"{m:.3f} ({sd:.3f})" for m, sd in cells))
    draw({key: np.mean(values, axis=0).tolist() for key, values in found.items()})


def draw(means: dict[tuple[str, str], list[float]], path: str = "metrics-adult.png") -> None:
    """Accuracy over the largest gap, a line for each metric, with tau at every point."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = drawn.subplots()
    for metric, colour, marker, side in (
        ("equal_opportunity", BLUE, "o", "right"),
        ("equalized_odds", RED, "s", "left"),
    ):
        away = {"xytext": (-8 if side == "right" else 8, -3), "textcoords": "offset points"}
        (x, y), *others = [(v[3], v[0]) for (n, _), v in means.items() if n == metric]
        names = [name for n, name in means if n == metric][1:]
        label = metric.replace("_", " ")
        axes.plot(x, y, marker, mfc="white", mec=colour, ms=8, label=f"{label}, unconstrained")
        axes.plot(*zip(*others, strict=True), "-" + marker, color=colour, label=label)
        axes.axvline(x / 2, color=colour, ls=":", lw=1)
        for name, place in zip(names, others, strict=True):
            axes.annotate(name, place, ha=side, color=colour, fontsize=9, **away)
    axes.set_xlabel("largest gap over unseen deployments (dotted: half the unconstrained one)")
    axes.set_ylabel("accuracy on the test set")
    axes.set_xlim(left=0)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    drawn.savefig(path, dpi=150)
    print("Written:", path)


MEASURED = (
    "accuracy",
    "gap on test",
    *("mean gap", f"largest gap, where every cell compared has {MIN_CELL} rows"),
    *("largest gap anywhere", "largest gap anywhere beyond 1.96 standard errors"),
)


def measured(p, metric, y, s, unseen) -> list[float]:
    gaps = np.array([gap(metric, y, p, s, x.weights) for x in unseen])
    solid = np.array([min_cell(x.weights, y, s, metric) >= MIN_CELL for x in unseen])
    beyond = max(beyond_noise(p, metric, y, s, x.weights) for x in unseen)
    of_solid = gaps[solid]
    return [accuracy(y, p), gaps[0], of_solid.mean(), of_solid.max(), gaps.max(), beyond]


def labels_of(metric: str) -> tuple[int, ...]:
    return (1,) if metric == "equal_opportunity" else (0, 1)


def effective(weights) -> float:
    """(sum w)^2 / sum w^2: rows that would say as much at equal weights."""
    return weights.sum() ** 2 / max((weights**2).sum(), 1e-300)


def min_cell(weights, y, s, metric) -> float:
    """Effective rows of the smallest cell compared."""
    cells = [weights[(s == g) & (y == label)] for g in np.unique(s) for label in labels_of(metric)]
    return min(map(effective, cells))


def beyond_noise(p, metric, y, s, weights) -> float:
    """The gap less 1.96 standard errors, of the label where that is largest; each rate as (k + 1) / (n + 2)
    in its own error, so that no cell of few rows is sure of itself."""
    found = [0.0]
    for label in labels_of(metric):
        rates, variances = [], []
        for g in np.unique(s):
            own = (s == g) & (y == label)
            w, n = weights[own], effective(weights[own])
            rate = float(w @ p[own] / max(w.sum(), 1e-300))
            smooth = (rate * n + 1) / (n + 2)
            rates.append(rate)
            variances.append(smooth * (1 - smooth) / (n + 2))
        found.append(max(rates) - min(rates) - 1.96 * np.sqrt(sum(variances)))
    return max(found)


def race(table) -> None:
    """Race (five groups) and sex at once, trained and audited."""
    statistics = replace(
        table,
        sensitive_features={"sex": table.column("sex"), "race": table.column("race")},
        other={},
    )
    X = encode(fit({"a": statistics}, "fl", sensitive_features="sex").model.encoding, statistics)
    groups = {k: c.values() for k, c in statistics.sensitive_features.items()}
    for together, floor in ((False, 0.05), (False, 0.01), (True, 0.05)):
        begin = perf_counter()
        fair = AgnosticFairClassifier(method("rule", intersections=together, tau=0.1, floor=floor))
        fair.fit(X, statistics.labels(">50K"), sensitive_features=groups)
        trained = perf_counter() - begin
        made = fair.certificate_
        print(
            f"race and sex, intersections={together}, floor {floor}: {fair.n_iter_} rounds, converged "
            f"{fair.converged_}, trained {trained:.1f}s, audited {perf_counter() - begin - trained:.1f}s; "
            f"under the floor: {fair.under_floor_}"
        )
        for one in made.values() if isinstance(made, dict) else [made]:
            print("  ", one)


def target(seeds=range(3)) -> None:
    """Every unseen deployment with its features known beforehand, and with nothing known: accuracy and
    risk difference *on that deployment*. Weights by density ratio, by themselves (fairfl under them) and
    as the centre of a set half as large."""
    ways = {
        "unknown, robust": None,
        "unknown, fair on the training rows": None,
        "known, weights by themselves": method("fairfl", tau=0.01),
        "known, centre of half the set": method("agnosticfair", tau=0.04, nominal=0.01, trust=0.5),
    }
    for seed in seeds:
        split = shift(load_dataset("adult"), dataset("adult"), seed=seed)
        encoding = fit(split.train, "fl", sensitive_features="sex").model.encoding
        X, y, s = rows([*split.train.values()], encoding)
        X_test, y_test, s_test = rows([split.test], encoding)
        codes = (s_test == "Male").astype(int)
        robust = AgnosticFairClassifier(tau=dataset("adult").tau, random_state=seed)
        plain = AgnosticFairClassifier("fairfl", tau=0.01)
        once = [m.fit(X, y, sensitive_features=s).predict(X_test) for m in (robust, plain)]
        rng, found = np.random.default_rng(seed), {name: [] for name in ways}
        for x in deployments(split.test, encoding, seed, "sex"):
            there = np.flatnonzero(x.weights)
            if x.kind == "kernel tilt":  # rows drawn as the tilt weighs them
                there = rng.choice(len(X_test), 4000, p=x.weights / x.weights.sum())
            weights = target_weights(X, X_test[there])
            for place, (name, settings) in enumerate(ways.items()):
                p = once[place] if settings is None else None
                if p is None:
                    agnostic_fair_classifier = AgnosticFairClassifier(settings, random_state=seed)
                    agnostic_fair_classifier.fit(X, y, sensitive_features=s, sample_weight=weights)
                    p = agnostic_fair_classifier.predict(X_test)
                rd = gap("demographic_parity", y_test, p, codes, x.weights)
                found[name].append((accuracy(y_test, p, x.weights), rd))
        for name, values in found.items():
            right, rd = np.transpose(values)
            print(
                f"seed {seed}, {name}: accuracy {right.mean():.4f}, risk difference mean {rd.mean():.4f} "
                f"p90 {np.quantile(rd, 0.9):.4f} max {rd.max():.4f}",
                flush=True,
            )


def bases(split) -> None:
    """Bases by what they do on deployments that no method saw: compare at equal accuracy."""
    encoding = fit(split.train, "fl", sensitive_features="sex").model.encoding
    y, s = split.test.labels(">50K"), split.test.column("sex").codes
    found = deployments(split.test, encoding, 0, "sex")
    hot = len(encoding.numeric)

    def values(table: Table) -> np.ndarray:
        """One kernel per category of every categorical column, and one for all rows."""
        return np.hstack([encode(encoding, table)[:, hot:], np.ones((len(table), 1))])

    own = {key: replace(t, kernels=values(t)) for key, t in split.train.items()}
    M = own[min(own)].kernels.shape[1]
    wide = {"centres": "ranges", "sigma": 1.0, "bound": 50.0}
    for name, tables, changes, taus in (
        ("gaussian, rows", split.train, {"centres": "rows"}, (0.06, 0.1, 0.125)),
        ("gaussian, ranges, width 1, bound 50", split.train, wide, (0.125,)),
        ("gaussian, ranges", split.train, {"centres": "ranges", "sigma": "median"}, (0.125,)),
        ("gaussian, kmeans", split.train, {"centres": "kmeans"}, (0.06, 0.125, 0.18, 0.22)),
        ("gaussian, kmeans", split.train, {"centres": "kmeans", "sigma": "median"}, (0.125,)),
        ("category indicators", own, {"basis": Basis("function", M)}, (0.06, 0.125, 0.18, 0.22)),
        ("clients", split.train, {"basis": by_client(), "bound": 100.0}, (0.125,)),
    ):
        for tau in taus:
            begin = perf_counter()
            try:
                fitted = fit(
                    tables, method("agnosticfair", tau=tau, **changes), sensitive_features="sex"
                )
            except AgnosticFairError as error:
                print(f"  {name}, tau {tau}: {error}")
                continue
            p = fitted.model.predict(split.test)
            rd = [gap("demographic_parity", y, p, s, x.weights) for x in found]
            print(
                f"  {name}, tau {tau}: accuracy {accuracy(y, p):.4f}, risk difference on test {rd[0]:.4f}, "
                f"unseen mean {np.mean(rd):.4f} p90 {np.quantile(rd, 0.9):.4f} max {max(rd):.4f}; "
                f"{fitted.outcome} {fitted.rounds} rounds {perf_counter() - begin:.1f}s",
                flush=True,
            )


def path(split, name="rule", repeats=5, **settings) -> None:
    """What ten points of the frontier and the fit of the one that is picked cost, in single fits (processor time)."""
    with threadpool_limits(1):
        chosen_method = method(name, **settings)
        send = {"sensitive_features": "sex"}
        frontier = trace(split.train, chosen_method, **send)  # to warm up, too
        times = {"single": [], "points": [], "pick": []}
        for _ in range(repeats):
            for what, work in (
                ("single", partial(fit, split.train, chosen_method, **send)),
                ("points", partial(trace, split.train, chosen_method, **send)),
                ("pick", frontier.pick),
            ):
                begin = process_time()
                work()
                times[what].append(process_time() - begin)
        single, points, pick = (np.array(times[what]) for what in ("single", "points", "pick"))
        shares = (points + pick) / single
        print(
            f"frontier of {name} {settings or ''}: {len(frontier.points)} points on {frontier.folds} folds with "
            f"{', '.join(frontier.references)} beside them cost {np.median(points / single):.2f} single fits, with the "
            f"picked one {np.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f}; one is {min(single):.2f} s)",
            flush=True,
        )


if __name__ == "__main__":
    request = sys.argv[1:] or ["overhead", "metrics", "race", "target", "bases", "path"]
    adult = load_dataset("adult")
    halves = shift(adult, dataset("adult"))
    if "overhead" in request:
        overhead(halves)
    if "metrics" in request:
        metrics()
    if "target" in request:
        target()
    if "bases" in request:
        bases(halves)
    if "path" in request:
        path(halves)
    if "kernels" in request:
        path(halves, "agnosticfair", 1)
    if "network" in request:
        path(halves, repeats=1, network="mlp")
    if "race" in request:
        race(adult)
