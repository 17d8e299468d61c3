"""A linear model from few noisy totals: one noisy second moment, then some steps with noisy slopes.

    min_w  mean loss + ridge |w|^2 / 2   subject to   |rate_j - rate_k| <= tau  for the groups compared

Noise goes furthest on few numbers. The curvature of the logistic loss is at most a quarter of the second
moment of the rows, and on average a fraction of it that one number per round tells: so the moment is asked
for once, and a round sends D slopes of the loss, a slope and a count for each group. A step minimises

    gradient . p + p . H p / 2   subject to   |r + J p| <= tau,   H = (1 + slack) curve S / n + ridge

with r the difference of the *decisions'* rates and J its slope, smoothed by a sigmoid as wide as the scores'
standard deviation, which S and w tell. Everything here is post-processing of noisy totals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from agnosticfair.mathematics.ambiguity import Outcome
from agnosticfair.mathematics.fairness import Comparisons
from agnosticfair.mathematics.quadratic import minimise

ROUNDS = 8
SLACK, LEAST_CURVE, LEAST_TEMPERATURE = 0.3, 0.02, 0.1
FIRST_STEP, LATER_STEP = 2.0, 1.0
"""How far the scores may move in a round, as a root mean square: the first step begins at zero."""


@dataclass(frozen=True)
class Problem:
    """n, groups: noisy counts, of all rows and by cell.  S: (D, D), the noisy second moment, a sum, made
    positive definite.  compared: the parts and their pairs; tau: what is allowed between them."""

    n: float
    groups: np.ndarray
    S: np.ndarray
    compared: Comparisons
    tau: float
    ridge: float


def second_moment(upper: np.ndarray, deviation: float) -> np.ndarray:
    """S from its noisy upper triangle: without negative eigenvalues, and damped by twice the noise's
    standard deviation, under which a direction is noise.

    >>> second_moment(np.array([4.0, 0.0, -1.0]), 0.5)
    array([[5., 0.],
           [0., 1.]])
    """
    D = int(np.sqrt(2 * len(upper)))
    S = np.zeros((D, D))
    S[np.triu_indices(D)] = upper
    values, vectors = np.linalg.eigh(S + np.triu(S, 1).T)
    return (vectors * (np.maximum(values, 0.0) + 2 * deviation)) @ vectors.T


def temperature(problem: Problem, w: np.ndarray) -> float:
    """The scores' standard deviation under w, by the noisy moments; the intercept's column holds the means."""
    mean, square = problem.S[-1] @ w / problem.n, w @ problem.S @ w / problem.n
    return float(max(np.sqrt(max(square - mean * mean, 0.0)), LEAST_TEMPERATURE))


def stepped(
    problem: Problem, w: np.ndarray, sums: Mapping[str, np.ndarray], number: int
) -> np.ndarray:
    """w after round ``number``; the first one looks at the loss alone, for at w = 0 all decisions are equal.
    From the second on steps in the loss grow shorter, as those of stochastic approximation do, while what
    the constraint asks for is done in full."""
    first = number == 1
    n, D = problem.n, len(w)
    curve = np.clip((1 + SLACK) * float(sums["curve"]) / 4 / n, LEAST_CURVE, 0.25)
    H = max(1, number - 1) * curve * problem.S / n + problem.ridge * np.eye(D)
    gradient = sums["gradient"] / n + problem.ridge * w
    p = -np.linalg.solve(H, gradient)
    if not first and problem.compared.pairs:
        r, J = differences(problem, sums, temperature(problem, w))
        limits = np.concatenate([problem.tau - r, problem.tau + r])
        found = minimise(H, gradient, np.vstack([J, -J]), limits)
        p = found.x if found.outcome is Outcome.OPTIMAL else p
    length = np.sqrt(max(p @ problem.S @ p / n, 0.0))
    return w + p * min(1.0, (FIRST_STEP if first else LATER_STEP) / max(length, 1e-12))


def differences(
    problem: Problem, sums: Mapping[str, np.ndarray], temperature: float
) -> tuple[np.ndarray, np.ndarray]:
    """r, (pairs,): differences of the rates of decisions; J, (pairs, D): their slopes."""
    parts = problem.compared.parts
    rows = np.maximum(parts @ problem.groups, 1.0)
    rates = parts @ sums["hat"] / rows
    slopes = parts @ sums["slopes"] / (4 * temperature) / rows[:, None]
    first, second = (np.array(side) for side in zip(*problem.compared.pairs, strict=True))
    return rates[first] - rates[second], slopes[first] - slopes[second]


def bounded(
    sums: Mapping[str, np.ndarray],
    deviations: Mapping[str, float],
    compared: Comparisons,
    quantile: float,
) -> tuple[float, float]:
    """The largest difference of rates as measured, and what it is at most on these rows: every noisy count
    may be off by ``quantile`` standard deviations, in whichever direction is worst."""
    parts = compared.parts
    cells = np.sqrt(parts.sum(axis=1))
    off_rows, off_hat = (quantile * deviations[name] * cells for name in ("groups", "hat"))
    rows, hat = parts @ sums["groups"], parts @ sums["hat"]
    rates = np.clip(hat / np.maximum(rows, 1.0), 0.0, 1.0)
    high = np.clip((hat + off_hat) / np.maximum(rows - off_rows, 1.0), 0.0, 1.0)
    low = np.clip((hat - off_hat) / np.maximum(rows + off_rows, 1.0), 0.0, 1.0)
    pairs = [(j, k) for j, k in compared.pairs if k is not None]
    measured = max((abs(rates[j] - rates[k]) for j, k in pairs), default=0.0)
    at_most = max((max(high[j] - low[k], high[k] - low[j]) for j, k in pairs), default=0.0)
    return float(measured), float(at_most)
