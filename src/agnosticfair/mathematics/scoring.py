"""What a decision does: accuracy, rates per group, risk difference; each under row weights.

`y`, `y_hat`: (n,) labels and decisions, 1 (or True) is positive.  `s`: (n,) group codes 0..G-1.
`weights`: (n,) and non-negative, or None for equal ones; scaling all of them changes nothing.
A mean over no rows (or no weight) is nan: a group that is absent has no rate.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agnosticfair.mathematics import metrics

Array = np.ndarray[Any, Any]


def _mean(values: Array, weights: Array) -> float:
    """Weighted mean, nan where the weights sum to zero."""
    mass = weights.sum()
    return float(weights @ values / mass) if mass > 0 else float("nan")


def _weights(like: Array, weights: ArrayLike | None) -> Array:
    return np.ones(len(like)) if weights is None else np.asarray(weights, float)


def _group_means(values: Array, s: Array, weights: Array, n_groups: int | None) -> Array:
    """Weighted mean of `values` in each group: (G,), nan for a group of no weight."""
    size = 0 if n_groups is None else n_groups
    mass = np.bincount(s, weights=weights, minlength=size)
    total = np.bincount(s, weights=weights * values, minlength=size)
    return np.divide(total, mass, out=np.full(len(mass), np.nan), where=mass > 0)


def _spread(rates: Array) -> float:
    """Largest minus smallest rate among the groups that have one; nan if fewer than two do."""
    present = rates[~np.isnan(rates)]
    return float(present.max() - present.min()) if len(present) > 1 else float("nan")


def accuracy(y: ArrayLike, y_hat: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Share of the weight that is decided rightly: sum_i w_i [y_i = y_hat_i] / sum_i w_i.

    >>> accuracy([1, 0, 1, 0], [1, 0, 0, 0])
    0.75
    """
    right = np.asarray(y) == np.asarray(y_hat)
    return _mean(right, _weights(right, weights))


def balanced_accuracy(y: ArrayLike, y_hat: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Mean over the labels that occur of the accuracy among the rows with that label.

    >>> balanced_accuracy([1, 1, 1, 0], [1, 1, 1, 1])
    0.5
    """
    y, right = np.asarray(y), np.asarray(y) == np.asarray(y_hat)
    labels, codes = np.unique(y, return_inverse=True)
    recalls = _group_means(right, codes, _weights(right, weights), len(labels))
    return _mean(recalls[~np.isnan(recalls)], np.ones((~np.isnan(recalls)).sum()))


def majority_rate(y: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Accuracy of always answering the commonest label: what a classifier has to beat.

    >>> majority_rate([1, 0, 0, 0])
    0.75
    """
    labels, codes = np.unique(np.asarray(y), return_inverse=True)
    w = _weights(codes, weights)
    mass = np.bincount(codes, weights=w, minlength=len(labels))
    return float(mass.max() / mass.sum()) if mass.sum() > 0 else float("nan")


NEARLY_CONSTANT = 0.01  # nearly one answer: the other is given to a smaller share of rows;
FEWER = 0.25  # or to less than so many of those that have the rarer label,
NO_BETTER = 0.02  # by a classifier that is right on no more than so many above the majority's share


def nearly_constant(accuracy: float, majority: float, positive: float) -> bool:
    """Whether decisions are hardly more than a constant decision.

    Parameters
    ----------
    accuracy, majority
        Of the decisions, and of the commonest label given to all.
    positive
        The share of positive decisions.

    Examples
    --------
    >>> nearly_constant(0.765, 0.752, 0.02), nearly_constant(0.82, 0.752, 0.2)
    (True, False)
    """
    rarer = min(positive, 1 - positive)
    poor = accuracy < majority + NO_BETTER and rarer < FEWER * (1 - majority)
    return bool(rarer < NEARLY_CONSTANT or poor)


def positive_rate(y_hat: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Share of the weight that is decided positively.

    >>> positive_rate([1, 0, 0, 0])
    0.25
    """
    y_hat = np.asarray(y_hat, float)
    return _mean(y_hat, _weights(y_hat, weights))


def positive_rates(
    y_hat: ArrayLike, s: ArrayLike, weights: ArrayLike | None = None, n_groups: int | None = None
) -> Array:
    """Positive rate of each group: (G,), nan for a group of no weight.

    G is the largest code plus one, or `n_groups` where that is more.

    Weights of y give the true positive rates, those of 1 - y the false ones.

    >>> positive_rates([1, 0, 1, 1], [0, 0, 1, 1])
    array([0.5, 1. ])
    >>> positive_rates([1, 0, 1, 1], [0, 0, 0, 1], weights=[1, 1, 0, 1])
    array([0.5, 1. ])
    """
    y_hat = np.asarray(y_hat, float)
    return _group_means(y_hat, np.asarray(s), _weights(y_hat, weights), n_groups)


def risk_difference(y_hat: ArrayLike, s: ArrayLike, weights: ArrayLike | None = None) -> float:
    """RD = |rate_1 - rate_0|; with more groups, the largest positive rate minus the smallest.

    Groups of no weight are left out; nan if fewer than two groups remain.

    >>> risk_difference([1, 0, 1, 1], [0, 0, 1, 1])
    0.5
    """
    return _spread(positive_rates(y_hat, s, weights))


def gap(
    metric: str, y: ArrayLike, y_hat: ArrayLike, s: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """What a metric measures on these rows: a difference of rates, or the highest error rate of a group.

    y_hat: decisions, or their probabilities.

    >>> gap("equal_opportunity", [1, 1, 0, 1], [1, 0, 1, 1], [0, 0, 0, 1])
    0.5
    """
    decided, groups = np.asarray(y_hat, float), np.asarray(s, int)
    w = _weights(decided, weights)
    strata = np.zeros((int(groups.max(initial=-1)) + 1, 2, 2))
    for decision, share in enumerate((1.0 - decided, decided)):
        np.add.at(strata[..., decision], (groups, np.asarray(y, int)), w * share)
    return metrics.gap(metrics.metric_of(metric), strata)
