"""The bars of the estimator on Adult: overhead over the bare solver, notions over unseen deployments,
race and sex at once.  Run: python benchmarks/estimator.py [overhead] [notions] [race] [target] [bases] [path]"""

from __future__ import annotations

import sys
from dataclasses import replace
from time import perf_counter, process_time

import numpy as np

from agnosticfair import AgnosticFairClassifier, target_weights
from agnosticfair.basis import Basis, by_client
from agnosticfair.data.datasets import dataset, load
from agnosticfair.data.encoding import encode
from agnosticfair.data.splits import shift
from agnosticfair.data.table import Table
from agnosticfair.errors import AgnosticFairError
from agnosticfair.experiments.deployments import deployments
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair.metrics import accuracy, gap
from agnosticfair.tuning import TAUS, fit_path

LEAST_CELL = 100
"""Rows of every compared (group, label) that a deployment must have for its gap to be more than noise."""


def rows(tables: list[Table], encoding) -> tuple[np.ndarray, ...]:
    X = np.vstack([encode(encoding, t) for t in tables])
    y = np.concatenate([t.labels(">50K") for t in tables])
    return X, y, np.concatenate([t.column("sex").values() for t in tables])


def overhead(split) -> None:
    bare = fit(split.train, "agnosticfair", attribute="sex")
    X, y, s = rows([*split.train.values()], bare.model.encoding)
    owners = np.repeat([*split.train], [len(t) for t in split.train.values()])
    times = {"bare": [], "estimator": []}
    for _ in range(3):
        begin = perf_counter()
        fit(split.train, "agnosticfair", attribute="sex")
        times["bare"].append(perf_counter() - begin)
        begin = perf_counter()
        AgnosticFairClassifier().fit(X, y, sensitive_features=s, clients=owners)
        times["estimator"].append(perf_counter() - begin)
    ratio = min(times["estimator"]) / min(times["bare"])
    print(f"overhead: estimator / bare = {ratio:.3f} ({times})")


def notions(split, taus=(0.03, 0.05, 0.08, 0.12)) -> None:
    y, s = split.test.labels(">50K"), split.test.column("sex").codes
    free = fit(split.train, "fl", attribute="sex").model
    found = deployments(split.test, free.encoding, 0, "sex")
    for notion in ("equal_opportunity", "equalized_odds"):
        solid = [x for x in found if least_cell(x.weights, y, s, notion) >= LEAST_CELL]
        print(f"{notion}: {len(solid)} of {len(found)} deployments have {LEAST_CELL} rows a cell")
        tell("unconstrained", free.predict(split.test), notion, y, s, solid, found)
        for tau in taus:
            begin = perf_counter()
            recipe = method("agnosticfair", notion=notion, tau=tau, nominal=tau / 2)
            made = fit(split.train, recipe, attribute="sex")
            name = f"tau {tau} {made.outcome} {made.rounds} rounds {perf_counter() - begin:.1f}s"
            tell(name, made.model.predict(split.test), notion, y, s, solid, found)


def least_cell(weights, y, s, notion) -> float:
    """Effective rows, (sum w)^2 / sum w^2, of the smallest cell compared."""
    labels = (1,) if notion == "equal_opportunity" else (0, 1)
    cells = [weights[(s == g) & (y == label)] for g in np.unique(s) for label in labels]
    return min(w.sum() ** 2 / max((w**2).sum(), 1e-300) for w in cells)


def tell(name, p, notion, y, s, solid, found) -> None:
    gaps = [gap(notion, y, p, s, x.weights) for x in solid]
    everywhere = [gap(notion, y, p, s, x.weights) for x in found]
    worst = solid[int(np.argmax(gaps))].name
    print(
        f"  {name}: accuracy {accuracy(y, p):.4f}, gap on test {gap(notion, y, p, s):.4f}, over "
        f"deployments mean {np.mean(gaps):.4f} max {max(gaps):.4f} ({worst}); "
        f"all {len(found)}: mean {np.mean(everywhere):.4f} max {max(everywhere):.4f}"
    )


def race(table) -> None:
    """Race (five groups) and sex at once, trained and audited."""
    census = replace(
        table, sensitive={"sex": table.column("sex"), "race": table.column("race")}, other={}
    )
    X = encode(fit({"a": census}, "fl", attribute="sex").model.encoding, census)
    groups = {k: c.values() for k, c in census.sensitive.items()}
    for together, floor in ((False, 0.05), (False, 0.01), (True, 0.05)):
        begin = perf_counter()
        fair = AgnosticFairClassifier(intersections=together, tau=0.1, floor=floor)
        fair.fit(X, census.labels(">50K"), sensitive_features=groups)
        trained = perf_counter() - begin
        made = fair.certificate_
        print(
            f"race and sex, intersections={together}, floor {floor}: {fair.n_iter_} rounds, converged "
            f"{fair.converged_}, trained {trained:.1f}s, audited {perf_counter() - begin - trained:.1f}s; "
            f"under the floor: {fair.under_floor_}"
        )
        for one in made.values() if isinstance(made, dict) else [made]:
            print("  ", one)


def target(split) -> None:
    """The test set's features known beforehand: alone, and as the centre of a set that shrinks."""
    encoding = fit(split.train, "fl", attribute="sex").model.encoding
    X, y, s = rows([*split.train.values()], encoding)
    X_test, y_test, s_test = rows([split.test], encoding)
    codes = (s_test == "Male").astype(int)

    def show(name, weights, **settings) -> None:
        made = AgnosticFairClassifier(**settings)
        made.fit(X, y, sensitive_features=s, sample_weight=weights)
        p = made.predict(X_test)
        rd = gap("demographic_parity", y_test, p, codes)
        print(f"  {name}: test accuracy {accuracy(y_test, p):.4f}, risk difference {rd:.4f}")

    tau = dataset("adult").tau
    show("unknown target, robust", None, tau=tau)
    show("unknown target, fairfl", None, method="fairfl")
    for how in ("density_ratio", "kernel_mean_matching"):
        begin = perf_counter()
        weights = target_weights(X, X_test, how)
        print(f"{how}: {perf_counter() - begin:.1f}s, largest weight {weights.max():.2f}")
        show("alone (fairfl)", weights, method="fairfl")
        for trust in (0.0, 0.5, 0.9):
            show(f"centre, trust {trust}", weights, tau=tau, trust=trust)


def bases(split) -> None:
    """Bases by what they do on deployments that no method saw: compare at equal accuracy."""
    encoding = fit(split.train, "fl", attribute="sex").model.encoding
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
        ("gaussian, rows", split.train, {}, (0.06, 0.1, 0.125)),
        ("gaussian, ranges, width 1, bound 50", split.train, wide, (0.125,)),
        ("gaussian, ranges", split.train, {"centres": "ranges", "sigma": "median"}, (0.125,)),
        ("gaussian, kmeans", split.train, {"centres": "kmeans"}, (0.06, 0.125, 0.18, 0.22)),
        ("gaussian, kmeans", split.train, {"centres": "kmeans", "sigma": "median"}, (0.125,)),
        ("category indicators", own, {"reweigh": Basis("given", M)}, (0.06, 0.125, 0.18, 0.22)),
        ("clients", split.train, {"reweigh": by_client(), "bound": 100.0}, (0.125,)),
    ):
        for tau in taus:
            begin = perf_counter()
            try:
                made = fit(tables, method("agnosticfair", tau=tau, **changes), attribute="sex")
            except AgnosticFairError as error:
                print(f"  {name}, tau {tau}: {error}")
                continue
            p = made.model.predict(split.test)
            rd = [gap("demographic_parity", y, p, s, x.weights) for x in found]
            print(
                f"  {name}, tau {tau}: accuracy {accuracy(y, p):.4f}, risk difference on test {rd[0]:.4f}, "
                f"unseen mean {np.mean(rd):.4f} p90 {np.quantile(rd, 0.9):.4f} max {max(rd):.4f}; "
                f"{made.outcome} {made.rounds} rounds {perf_counter() - begin:.1f}s",
                flush=True,
            )


def path(split) -> None:
    """What ten points of the frontier cost, in single fits (processor time)."""
    taus = {"attribute": "sex"}
    times = []
    for tau in TAUS[::4]:
        begin = process_time()
        fit(split.train, method("agnosticfair", tau=tau), **taus)
        times.append(process_time() - begin)
    begin = process_time()
    rounds = [m.rounds for m in fit_path(split.train, method("agnosticfair"), TAUS, **taus)]
    ratio = (process_time() - begin) / np.mean(times)
    print(f"path: {len(TAUS)} points cost {ratio:.2f} single fits, rounds {rounds}")


if __name__ == "__main__":
    asked = sys.argv[1:] or ["overhead", "notions", "race", "target", "bases", "path"]
    adult = load("adult")
    halves = shift(adult, dataset("adult"))
    if "overhead" in asked:
        overhead(halves)
    if "notions" in asked:
        notions(halves)
    if "target" in asked:
        target(halves)
    if "bases" in asked:
        bases(halves)
    if "path" in asked:
        path(halves)
    if "race" in asked:
        race(adult)
