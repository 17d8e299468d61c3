"""The sceptic's row: fewer (or more) positives alone lower any risk difference, so move a threshold and see."""

from __future__ import annotations

import numpy as np


def as_accurate(d: np.ndarray, y: np.ndarray, accuracy: float, rate: float) -> tuple[float, float]:
    """Sign and threshold t of the decision [sign * d > t] that is as accurate as another one on these rows.

    The threshold of a score d (n,) is moved towards the other's positive ``rate``: up where that is lower
    than the score's own, down where it is higher.

    >>> as_accurate(np.array([1.0, 2.0, 3.0, -1.0]), np.array([1, 1, 1, 0]), 0.75, 0.5)
    (1.0, 1.0)
    """
    if rate <= float((d > 0).mean()):
        return 1.0, matching_threshold(d, y, "accuracy", accuracy)
    return -1.0, matching_threshold(-d, 1 - np.asarray(y), "accuracy", accuracy)


def moved(d: np.ndarray, sign: float, threshold: float) -> np.ndarray:
    """The decisions, 0 or 1, after the move; with sign -1 those passed the other way are the positives."""
    passed = sign * d > threshold
    return (passed if sign > 0 else ~passed).astype(float)


def matching_threshold(d: np.ndarray, y: np.ndarray, what: str, target: float) -> float:
    """The smallest threshold t >= 0 on d at which [d > t] has accuracy, or balanced accuracy, of at
    most ``target``; where there is none, that of the closest.

    d: (n,) signed distances.  y: (n,) labels 0 and 1.

    >>> matching_threshold(np.array([1.0, 2.0, 3.0, -1.0]), np.array([1, 1, 1, 0]), "accuracy", 0.75)
    1.0
    """
    y = np.asarray(y, float)
    sizes = np.array([len(y), len(y)] if what == "accuracy" else 2 * np.bincount(y.astype(int)))
    worth = 1.0 / sizes[y.astype(int)]
    start = worth @ ((d > 0) == (y > 0))
    order = np.argsort(d)[(d <= 0).sum() :]
    steps = np.concatenate([[0.0], d[order]])  # a row that is passed is now decided negatively
    values = start + np.concatenate([[0.0], np.cumsum((worth * (1 - 2 * y))[order])])
    last = np.append(steps[1:] > steps[:-1], True)  # of rows at the same distance
    steps, values = steps[last], values[last]
    low = np.flatnonzero(values <= target + 1e-12)
    return float(steps[low[0] if len(low) else np.argmin(np.abs(values - target))])
