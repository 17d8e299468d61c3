"""The bars of the estimator on Adult: overhead over the bare solver, notions over unseen deployments,
race and sex at once.  Run: python benchmarks/estimator.py [overhead] [notions] [race]"""

from __future__ import annotations

import sys
from dataclasses import replace
from time import perf_counter

import numpy as np

from agnosticfair import AgnosticFairClassifier
from agnosticfair.data.datasets import dataset, load
from agnosticfair.data.encoding import encode
from agnosticfair.data.splits import shift
from agnosticfair.data.table import Table
from agnosticfair.experiments.deployments import deployments
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair.metrics import accuracy, gap

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
    bare = fit({"a": table.take(np.arange(2000))}, "fl", attribute="sex")
    del bare
    census = replace(
        table, sensitive={"sex": table.column("sex"), "race": table.column("race")}, other={}
    )
    X = encode(fit({"a": census}, "fl", attribute="sex").model.encoding, census)
    groups = {k: c.values() for k, c in census.sensitive.items()}
    for together in (False, True):
        begin = perf_counter()
        fair = AgnosticFairClassifier(intersections=together, tau=0.1)
        fair.fit(X, census.labels(">50K"), sensitive_features=groups)
        trained = perf_counter() - begin
        made = fair.certificate_
        print(
            f"race and sex, intersections={together}: {fair.n_iter_} rounds, converged "
            f"{fair.converged_}, trained {trained:.1f}s, audited {perf_counter() - begin - trained:.1f}s; "
            f"under the floor: {fair.under_floor_}"
        )
        for one in made.values() if isinstance(made, dict) else [made]:
            print("  ", one)


if __name__ == "__main__":
    asked = sys.argv[1:] or ["overhead", "notions", "race"]
    adult = load("adult")
    halves = shift(adult, dataset("adult"))
    if "overhead" in asked:
        overhead(halves)
    if "notions" in asked:
        notions(halves)
    if "race" in asked:
        race(adult)
