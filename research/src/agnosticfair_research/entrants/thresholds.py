"""Thresholds on scores: of least cost, within a limit on the overall difference, or at a rate of positives."""

from __future__ import annotations

import numpy as np

from agnosticfair_research.entrants.entrant import Train


def chosen_threshold(train: Train, scores: np.ndarray, limit: float) -> float:
    """On scores (n,) of the training rows: at the rate of positives, if one is fixed, else of best utility within the
    limit on the overall difference."""
    if train.positive_rate is not None:
        return rate_threshold(scores, train.positive_rate)
    rows = train.pooled
    return moved_within(scores, rows.y, rows.s, train.weights(rows.y), limit)


def gap(d: np.ndarray, s: np.ndarray) -> float:
    """Rate of group 1 less that of group 0.

    >>> gap(np.array([1.0, 0.0]), np.array([1, 0]))
    1.0
    """
    return float(d[s == 1].mean() - d[s == 0].mean())


def probability_threshold(costs: tuple[float, float]) -> float:
    """The log odds from which a positive decision costs less than a negative one.

    >>> probability_threshold((1.0, 1.0))
    0.0
    """
    return float(np.log(costs[0] / costs[1]))


def rate_threshold(scores: np.ndarray, rate: float) -> float:
    """The score that a share ``rate`` of these rows is above, or as near to it as ties allow.

    >>> scores = np.array([1.0, 2.0, 2.0, 3.0])
    >>> [float((scores > rate_threshold(scores, rate)).mean()) for rate in (0.25, 0.7, 1.0)]
    [0.25, 0.75, 1.0]
    """
    values, counts = np.unique(scores, return_counts=True)
    above = 1.0 - np.concatenate([[0], np.cumsum(counts)]) / len(scores)
    edges = np.concatenate([[values[0] - 1.0], (values[1:] + values[:-1]) / 2, [values[-1] + 1.0]])
    return float(edges[np.argmin(np.abs(above - rate))])


def moved_within(
    scores: np.ndarray, y: np.ndarray, s: np.ndarray, weights: np.ndarray, limit: float
) -> float:
    """Of the thresholds at which two groups' rates of positives differ by at most ``limit``, the one at which the
    weight of rows decided as labelled is largest.

    Thresholds between distinct scores are tried; those that decide everybody alike keep any limit.

    >>> scores, y, s = np.array([3.0, 2.0, 1.0, 0.0]), np.array([1, 1, 0, 0]), np.array([0, 0, 1, 1])
    >>> moved_within(scores, y, s, np.ones(4), 1.0), moved_within(scores, y, s, np.ones(4), 0.5)
    (1.5, 2.5)
    """
    order = np.argsort(-scores, kind="stable")
    scores, y, s, weights = scores[order], np.asarray(y)[order], s[order], weights[order]
    last = np.append(scores[1:] < scores[:-1], True)  # of rows with the same score
    gain = np.cumsum(weights * np.where(y > 0, 1.0, -1.0))[last]
    rates = [np.cumsum(s == g)[last] / max((s == g).sum(), 1) for g in np.unique(s)]
    values = scores[last]
    edges = np.append((values[1:] + values[:-1]) / 2, values[-1] - 1.0)
    gain = np.concatenate([[0.0], gain])
    apart = np.concatenate([[0.0], np.ptp(rates, axis=0)])
    gain[apart > limit] = -np.inf
    return float(np.concatenate([[values[0] + 1.0], edges])[gain.argmax()])
