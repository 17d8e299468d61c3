"""Deployments that no method saw, each as weights over the test rows, and what a decision does there.

Some are inside the ambiguity set that a method was trained for, most are not: a sub-population is
no mixture of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.table import Table
from agnosticfair.federation import Fit
from agnosticfair.mathematics import metrics
from agnosticfair.mathematics.basis import gaussian_kernel

KINDS = ("test set", "sub-population", "age quartile", "kernel tilt")
LEAST_ROWS = 400  # of a sub-population
LEAST_SHARE = 0.05  # of every group in it
TILTS = 20
WIDTH = 1.0  # of a tilt's kernel, in the encoded space


@dataclass(frozen=True)
class Deployment:
    """weights: (n,) over the test rows, non-negative; a sub-population's are 0 and 1."""

    name: str
    kind: str
    weights: np.ndarray


@dataclass(frozen=True)
class Decider:
    """A fitted classifier, ours or another's, as the suite sees it.

    decide: from rows to (n,), the probability that each is decided positively; 0 or 1 where nothing
    is drawn by lot.  outcome, outcomes, rounds, seconds: how the fit went.  fitted: the fit itself,
    if it is one of ours.
    """

    decide: Callable[[Table], np.ndarray]
    outcome: str
    rounds: int
    seconds: float
    outcomes: Mapping[str, int] = field(default_factory=dict)
    fitted: Fit | None = None


def deployments(
    test: Table, encoding: Encoding, seed: int, sensitive_feature: str, tilts: int = TILTS
) -> list[Deployment]:
    """The test set itself, the sub-populations that are large enough, and tilts around random rows.

    A sub-population has one value of a categorical column, or lies between two quartiles of age.
    Every deployment holds rows of every group of ``sensitive_feature`` that the test set has.
    """
    s = test.column(sensitive_feature).codes
    found = [Deployment("test set", KINDS[0], np.ones(len(test)))]
    found += [
        Deployment(name, kind, rows.astype(float))
        for name, kind, rows in _parts(test)
        if rows.sum() >= LEAST_ROWS and _least_share(s, rows) >= LEAST_SHARE
    ]
    X = encode(encoding, test)
    chosen = np.random.default_rng(seed).choice(len(X), min(tilts, len(X)), replace=False)
    K = gaussian_kernel(X, X[chosen], WIDTH)
    assert all(_least_share(s, k) > 0 for k in K.T), "a tilt has lost a group"
    found += [Deployment(f"tilt to row {i}", KINDS[3], k) for i, k in zip(chosen, K.T, strict=True)]
    return found


def _parts(test: Table) -> Iterator[tuple[str, str, np.ndarray]]:
    """Name, kind and mask of every sub-population, however small."""
    for name, column in sorted({**test.categorical, **test.other}.items()):
        for k, value in enumerate(column.categories):
            yield f"{name} = {value}", KINDS[1], column.codes == k
    if "age" in test.numeric:
        age = test.numeric["age"]
        cuts = np.quantile(age, [0.25, 0.5, 0.75])
        band = np.searchsorted(cuts, age, side="right")
        names = (f"age < {cuts[0]:g}", *(f"age {a:g} to < {b:g}" for a, b in _pairs(cuts)))
        for k, name in enumerate((*names, f"age >= {cuts[2]:g}")):
            yield name, KINDS[2], band == k


def _pairs(cuts: np.ndarray) -> Iterator[tuple[float, float]]:
    yield from zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)


def _least_share(s: np.ndarray, weights: np.ndarray) -> float:
    """Smallest share of the weight among the groups that occur in s."""
    mass = np.bincount(s, weights=weights)[np.unique(s)]
    return float(mass.min() / mass.sum()) if mass.sum() > 0 else 0.0


MEASURES = ("risk_difference", "accuracy", "balanced_accuracy", "positive_rate")


def measure(
    y: np.ndarray, p: np.ndarray, s: np.ndarray, weights: np.ndarray | None = None
) -> dict[str, float]:
    """MEASURES of a decision on weighted rows.

    p: (n,), the probability that a row is decided positively: 0 or 1 for a classifier, between
    for one that decides at random, whose expected rates these are.

    >>> measure(np.array([1, 0]), np.array([1.0, 0.5]), np.array([0, 1]))["accuracy"]
    0.75
    """
    right = 1.0 - np.abs(y - p)
    by_label = metrics.positive_rates(right, y.astype(np.int64), weights)
    return {
        "risk_difference": metrics.risk_difference(p, s, weights),
        "accuracy": metrics.positive_rate(right, weights),  # a weighted mean, whatever of
        "balanced_accuracy": float(np.nanmean(by_label)),
        "positive_rate": metrics.positive_rate(p, weights),
    }


def summarise(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Measures of all deployments, each with its name, in the numbers that a table has room for."""
    by = {name: np.array([entry[name] for entry in found]) for name in MEASURES}
    rd, right = by["risk_difference"], by["accuracy"]
    return {
        "mean_risk_difference": float(rd.mean()),
        "p90_risk_difference": float(np.quantile(rd, 0.9)),
        "max_risk_difference": float(rd.max()),
        "worst": found[int(rd.argmax())]["name"],
        "mean_accuracy": float(right.mean()),
        "min_accuracy": float(right.min()),
        "mean_balanced_accuracy": float(by["balanced_accuracy"].mean()),
        "mean_positive_rate": float(by["positive_rate"].mean()),
    }
