"""Local steps of logistic regression and their average, which the federated peers share."""

from __future__ import annotations

import numpy as np

from agnosticfair.mathematics.linear import sigmoid
from agnosticfair_research.entrants.entrant import Coded

ROUNDS, STEPS, RATE, DECAY = 60, 100, 2.0, 1e-5


def local_epoch(
    w: np.ndarray, rows: Coded, weights: np.ndarray, rate: float, rng: np.random.Generator
) -> np.ndarray:
    """w (d + 1,), the intercept last, after one pass of STEPS minibatches over weighted rows."""
    w, order = w.copy(), rng.permutation(len(rows.y))
    for batch in np.array_split(order, min(STEPS, max(len(order) // 16, 1))):
        X = rows.X[batch]
        gradient = weights[batch] * (sigmoid(X @ w[:-1] + w[-1]) - rows.y[batch]) / len(batch)
        w[:-1] -= rate * (X.T @ gradient + DECAY * w[:-1])
        w[-1] -= rate * gradient.sum()
    return w


def rate_of(round_: int) -> float:
    """Steps become shorter: RATE / (1 + t / 10)."""
    return RATE / (1 + round_ / 10)


def decisions(w: np.ndarray, rows: Coded) -> np.ndarray:
    """[x . w > 0], (n,) of 0 and 1."""
    return (rows.X @ w[:-1] + w[-1] > 0).astype(float)


def gap(d: np.ndarray, s: np.ndarray) -> float:
    """Rate of group 1 less that of group 0; nan where one is absent.

    >>> gap(np.array([1.0, 0.0]), np.array([1, 0]))
    1.0
    """
    if not (s == 1).any() or not (s == 0).any():
        return float("nan")
    return float(d[s == 1].mean() - d[s == 0].mean())
