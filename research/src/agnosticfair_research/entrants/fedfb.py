"""FedFB (Zeng, Chen and Lee, 2021), re-implemented from the paper: FairBatch's weights by federated averaging.

Rows of label y and group a weigh lambda[y, a] over their share. Each round the server learns every group's rate of
positive decisions (the paper: a loss in its place); in a group whose rate is below that of all, weight moves from
negative labels to positive ones, and the other way round in the others.
"""

from __future__ import annotations

import numpy as np

from agnosticfair.mathematics.linear import sigmoid
from agnosticfair_research.entrants.entrant import Coded, Decide, Entrant, Train, above
from agnosticfair_research.entrants.thresholds import gap, rate_threshold

STEP = 0.01
ROUNDS, STEPS, RATE, DECAY = 60, 100, 2.0, 1e-5


def fedfb(train: Train, limit: float) -> Decide:
    """Weights move while the groups' rates differ by more than is asked."""
    clients, overall, costs = train.encoded, train.pooled, np.array(train.costs)
    rng, n = np.random.default_rng(train.seed), len(overall.y)
    share = np.array([[_stratum(overall, y, a).mean() for a in (0, 1)] for y in (0, 1)])
    sizes = np.array([len(rows.y) for rows in clients], float) / n
    weight, w = share.copy(), np.zeros(overall.X.shape[1] + 1)
    for round_ in range(ROUNDS):
        factor = costs[:, None] * weight / np.maximum(share, 1e-9)
        local = [
            local_epoch(
                w, rows, factor[rows.y, np.minimum(rows.s, 1)], RATE / (1 + round_ / 10), rng
            )
            for rows in clients
        ]
        w = np.asarray(sizes @ np.array(local))
        if abs(gap(_decisions(w, overall), overall.s)) > limit:
            weight = _moved(weight, w, overall)
    threshold = 0.0
    if train.positive_rate is not None:
        threshold = rate_threshold(overall.X @ w[:-1] + w[-1], train.positive_rate)
    return above(lambda table: train.rows(table).X @ w[:-1] + w[-1], threshold)


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


def _decisions(w: np.ndarray, rows: Coded) -> np.ndarray:
    """[x . w > 0], (n,) of 0 and 1."""
    return (rows.X @ w[:-1] + w[-1] > 0).astype(float)


def _moved(weight: np.ndarray, w: np.ndarray, rows: Coded) -> np.ndarray:
    """lambda, (2, 2) over labels and groups, after a step; each group keeps its total."""
    d = _decisions(w, rows)
    apart = d.mean() - np.array([d[rows.s == a].mean() for a in (0, 1)])
    total, weights = weight.sum(axis=0), weight.copy()
    step = STEP * apart / max(np.linalg.norm(apart), 1e-12)
    weights[1] = np.clip(weights[1] + step, 0.02 * total, 0.98 * total)
    weights[0] = total - weights[1]
    return weights


def _stratum(rows: Coded, y: int, a: int) -> np.ndarray:
    return np.asarray((rows.y == y) & (rows.s == a))


FEDFB = Entrant(
    "fedfb", fedfb, "re-implemented: FairBatch's weights by federated averaging", rates=True
)
