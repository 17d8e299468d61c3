"""The estimator on Adult: overhead over the bare solver, weights for known deployments, bases of kernels.

python benchmarks/estimator.py [overhead target bases]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from time import perf_counter

import numpy as np

from agnosticfair import AgnosticFairClassifier, target_weights
from agnosticfair.data.encoding import encode
from agnosticfair.data.table import Table
from agnosticfair.errors import AgnosticFairError
from agnosticfair.federation import fit
from agnosticfair.mathematics.basis import Basis, by_client
from agnosticfair.mathematics.scoring import accuracy, gap
from agnosticfair.methods import method
from agnosticfair_research.datasets import dataset, load_dataset
from agnosticfair_research.deployments import deployments
from agnosticfair_research.splits import shift


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
        ("gaussian, kmeans", split.train, {"centres": "kmeans"}, (0.06, 0.125, 0.18, 0.22)),
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


if __name__ == "__main__":
    request = sys.argv[1:] or ["overhead", "target", "bases"]
    halves = shift(load_dataset("adult"), dataset("adult"))
    if "overhead" in request:
        overhead(halves)
    if "target" in request:
        target()
    if "bases" in request:
        bases(halves)
