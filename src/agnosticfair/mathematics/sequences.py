"""Confidence sequences: intervals that hold for all times at once, so that one may look after every row.

Both tests here keep nothing but counts, so that the states of several sites add up.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

BETS = 0.002 * 1.8 ** np.arange(15)
"""lambda of the mixture: the best one is about sqrt(2 log(1/delta) / (n p (1 - p))), so these serve from ten
rows to ten million; one that is a third off costs 5% of the exponent."""


def rate_evidence(k: np.ndarray, n: np.ndarray, p: np.ndarray) -> np.ndarray:
    """log M(p) against "the mean rate is at most p", of which Ville's inequality says: at the true mean, M
    exceeds 1/delta at any time with probability at most delta.

    Let x_1, x_2, ... be 0 or 1 with conditional means p_t given the past, k = sum x_t, and p their average
    over the first n.  For lambda > 0, exp(lambda k - sum_t log(1 - p_t + p_t e^lambda)) is a martingale of
    mean one; log(1 - p + p e^lambda) is concave in p, so

        M(p) = mean over lambda of exp(lambda k - n log(1 - p + p e^lambda))

    at the true average is at most a mean of such martingales.  Nothing is assumed of the order of rows, nor
    that the rate stays the same.

    >>> rate_evidence(np.array(60.0), np.array(100.0), np.array([0.3, 0.6])).round(1)
    array([16.5, -0.6])
    """
    k, n, p = (np.asarray(v, float)[..., None] for v in np.broadcast_arrays(k, n, p))
    exponents = BETS * k - n * np.log1p(p * np.expm1(BETS))
    maximum = exponents.max(axis=-1, keepdims=True)
    return maximum[..., 0] + np.log(np.exp(exponents - maximum).mean(axis=-1))


def lowest_rate(k: np.ndarray, n: np.ndarray, delta: float | np.ndarray) -> np.ndarray:
    """A lower bound on the mean rate of 0/1 observations that holds for all n at once.

    Parameters
    ----------
    k, n : positive observations and all of them, of one shape
    delta : probability that the bound ever fails

    Returns
    -------
    array of the same shape, in [0, 1]: where ``rate_evidence``, which falls in p, crosses log(1/delta)

    Examples
    --------
    >>> lowest_rate(np.array([50.0, 5000.0]), np.array([100.0, 10000.0]), 0.025).round(3)
    array([0.331, 0.483])
    """
    k, n, threshold = np.broadcast_arrays(k, n, -np.log(delta))
    low, high = np.zeros(k.shape), np.ones(k.shape)
    for _ in range(22):  # to 2^-22, and the end that is kept is on the safe side
        p = (low + high) / 2
        rejected = rate_evidence(k, n, p) >= threshold
        low, high = np.where(rejected, p, low), np.where(rejected, high, p)
    return np.where(n > 0, low, 0.0)


def rate_bounds(
    k: np.ndarray, n: np.ndarray, delta: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of a mean rate on both sides, together valid at all times with probability 1 - delta.

    >>> low, high = rate_bounds(np.array(0.0), np.array(0.0), 0.05)
    >>> float(low), float(high)
    (0.0, 1.0)
    """
    k, n = np.asarray(k, float), np.asarray(n, float)
    half = np.asarray(delta) / 2
    return lowest_rate(k, n, half), 1.0 - lowest_rate(n - k, n, half)


STAKES = 0.01 * 2.0 ** np.arange(8)
LEANS = 4.0 ** np.arange(-2, 3)
"""The bets on a difference: how much is staked, and how the stakes on the two groups relate; the best relation is
that of the other group's rows to its own."""

_STAKE, _LEAN = (grid.ravel() for grid in np.meshgrid(STAKES, LEANS))
ON_ONE, ON_OTHER = _STAKE * np.sqrt(_LEAN), -_STAKE / np.sqrt(_LEAN)


def difference_evidence(k: np.ndarray, n: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """log of an e-process against "the mean rate of the first is at most ``limit`` above that of the second".

    k, n: (2, ...) positive observations and all of them, of two groups.  limit: (...), in [-1, 1].

    **Theorem.** While the difference of the two running mean rates is at most the limit, the evidence exceeds
    log(1 / delta) at any time with probability at most delta, whatever the order of rows, and with rates that change.

    *Proof.* For fixed a > 0 > b, exp(a k_1 + b k_2 - sum log(1 - p_t + p_t e^a) - sum log(1 - p_t + p_t e^b)), each
    sum over the rows of one group, is a martingale of mean one. log(1 - p + p e^a) is concave in p, so that with the
    running means p_1, p_2 in the place of all p_t it is no larger; so is the mean M(p_1, p_2) over several (a, b). M
    falls in p_1 and rises in p_2; its smallest value over all rates that differ by at most the limit lies where they
    differ by it, and is no larger than M at the true ones. Ville's inequality does the rest. []

    log M is convex along that line, so the smallest value is found by golden sections.

    >>> k, n = np.array([[60.0], [30.0]]), np.array([[100.0], [100.0]])
    >>> difference_evidence(k, n, np.array([0.0])).round(1), difference_evidence(k, n, np.array([0.3])).round(1)
    (array([5.8]), array([-0.8]))
    """
    k, n, limit = np.asarray(k, float), np.asarray(n, float), np.asarray(limit, float)
    first, last = np.maximum(-limit, 0.0), np.minimum(1.0 - limit, 1.0)

    def at(p: np.ndarray) -> np.ndarray:
        shifted, other = np.clip(p + limit, 0.0, 1.0)[..., None], p[..., None]
        exponents = ON_ONE * k[0][..., None] - n[0][..., None] * np.log1p(
            shifted * np.expm1(ON_ONE)
        )
        exponents += ON_OTHER * k[1][..., None]
        exponents -= n[1][..., None] * np.log1p(other * np.expm1(ON_OTHER))
        maximum = exponents.max(axis=-1, keepdims=True)
        return maximum[..., 0] + np.log(np.exp(exponents - maximum).mean(axis=-1))

    golden = (np.sqrt(5) - 1) / 2
    left, right = last - golden * (last - first), first + golden * (last - first)
    at_left, at_right = at(left), at(right)
    for _ in range(26):
        lower = at_left < at_right
        first, last = np.where(lower, first, left), np.where(lower, right, last)
        fresh = np.where(lower, last - golden * (last - first), first + golden * (last - first))
        value = at(fresh)
        left, right = np.where(lower, fresh, right), np.where(lower, left, fresh)
        at_left, at_right = np.where(lower, value, at_right), np.where(lower, at_left, value)
    return np.minimum(at_left, at_right)


def lowest_difference(k: np.ndarray, n: np.ndarray, delta: float | np.ndarray) -> np.ndarray:
    """A lower bound on the difference of two groups' mean rates, the first's less the second's, that holds at all
    times at once but for delta.

    k, n: (2, ...).  The upper bound is that of the groups turned round, with its sign changed.

    >>> k, n = np.array([[600.0, 6000.0], [300.0, 3000.0]]), np.array([[1000.0, 10000.0]] * 2)
    >>> lowest_difference(k, n, 0.025).round(2)
    array([0.22, 0.27])
    """
    k, n = np.asarray(k, float), np.asarray(n, float)
    threshold = -np.log(delta)
    low, high = np.full(k.shape[1:], -1.0), np.ones(k.shape[1:])
    for _ in range(14):  # to 2^-13, and the end that is returned is on the safe side
        middle = (low + high) / 2
        rejected = difference_evidence(k, n, middle) >= threshold
        low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
    return np.where((n > 0).all(axis=0), low, -1.0)


def likeliest(counts: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The shares pi in the box [low, high], of sum one, under which the counts are likeliest: pi_i is counts_i /
    nu, cut to the box, with the nu that makes the sum one.

    >>> likeliest(np.array([8.0, 2.0]), np.array([0.4, 0.4]), np.array([0.6, 0.6]))
    array([0.6, 0.4])
    """
    few, many = 1e-12, 1e12 + counts.sum()
    for _ in range(60):
        nu = np.sqrt(few * many)
        if np.clip(counts / nu, low, high).sum() > 1:
            few = nu
        else:
            many = nu
    pi = np.clip(counts / many, low, high)
    slack = (high if pi.sum() < 1 else low) - pi  # where no row is, the sum may not be one yet
    return pi + slack * (1 - pi.sum()) / slack.sum() if abs(slack.sum()) > 1e-12 else pi


def change_evidence(counts: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """log of an e-process against "the values' shares lie in the box": with probability 1 - delta it stays under
    log(1/delta) for ever while they do.

    The counts' probability under a Dirichlet(1/2) mixture over all shares, divided by that under fixed shares
    pi, is a martingale of mean one for rows drawn by pi; the smallest such ratio in the box is no larger.

    counts: (V,), of the rows so far.

    >>> change_evidence(np.array([50.0, 50.0]), np.array([0.45, 0.45]), np.array([0.55, 0.55])) < 0
    True
    >>> change_evidence(np.array([90.0, 10.0]), np.array([0.45, 0.45]), np.array([0.55, 0.55])) > 20
    True
    """
    counts = np.asarray(counts, float)
    prior, n = np.full(len(counts), 0.5), counts.sum()
    mixture = gammaln(prior.sum()) - gammaln(prior.sum() + n)
    mixture += float((gammaln(prior + counts) - gammaln(prior)).sum())
    pi, there = likeliest(counts, low, high), counts > 0
    return float(mixture - counts[there] @ np.log(np.maximum(pi[there], 1e-300)))
