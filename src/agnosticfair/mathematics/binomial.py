"""Limits of one binomial rate, of the difference or ratio of two, and of a mean of values in [0, 1]: exact at a fixed
number of rows; and confidence sequences, which hold at all times at once, so that one may look after every row.

Sequences keep nothing but counts, so that the states of several sites add up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

BEND = 0.02
"""How much of the region's boundary is given up away from its middle: about 1% of width there, and the region
closes."""

CAP = 0.05
"""The share of a bound's level that either rate alone may use: the region lies within the box of the two limits at
that level."""

MINIMUM = -3.0
"""The lowest normal score that a rate may add: a cell that fits all too well makes up for no more of the other."""

FEW = 20
"""Positive or negative decisions of a cell under which the boundary bends too much for a search along it: the bound
is then that of the box, which holds the whole region."""

MARGIN = 1e-3
"""Added to a bound, relative to its distance from the estimate: more than the search along the boundary can miss."""

NODES = 60


def clopper_pearson(k: ArrayLike, n: ArrayLike, delta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Exact limits of binomial rates: each end fails with probability at most delta / 2.

    No rows (n = 0) bound nothing: 0 and 1.

    >>> [round(float(end), 4) for end in clopper_pearson(0, 10, 0.05)]
    [0.0, 0.3085]
    """
    from scipy.special import betaincinv  # slow to import, and only bounds need it

    k, n, tail = np.broadcast_arrays(*(np.asarray(v, float) for v in (k, n, np.divide(delta, 2.0))))
    with np.errstate(invalid="ignore", divide="ignore"):
        low = np.where(k > 0, betaincinv(np.maximum(k, 1e-9), n - k + 1, tail), 0.0)
        high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1e-9), 1 - tail), 1.0)
    return low, high


def largest(
    k: ArrayLike, n: ArrayLike, alpha: ArrayLike, relative: bool = False, rough: ArrayLike = False
) -> np.ndarray:
    """An upper bound on p[1] - p[0] (``relative``: on p[1] / p[0]) that fails with probability at most alpha.

    k, n : (2, J) positive decisions and rows of the two cells.  alpha: (J,) or a number.  A cell without rows bounds
    nothing: 1, or infinity.  rough: (J,), where the box of two limits at alpha / 2 will do, as for few rows.

    **Theorem.** For a point p, let P1 = P(X1 <= k1), P0 = P(X0 >= k0) under p and Z = max(Phi^-1(1 - P), MINIMUM) of
    each. The set of all p with ``F(p) = S + BEND T^2 <= c``, Z1 and Z0 at most B, has probability at least 1 - alpha
    of holding the true p, where ``S = w1 Z1 + w0 Z0, T = w0 Z1 - w1 Z0``, w a unit vector that depends on p and n
    alone, T is clipped to where F increases in Z1 and Z0, and c, B are such that standard normal G1, G0 have
    ``P(G1 + BEND G0^2 > c) (1 + 2 Phi(MINIMUM)) = (1 - 2 CAP) alpha`` and ``P(G1 > B) = CAP alpha``.

    *Proof.* Exact p-values are stochastically at least uniform, so each Phi^-1(1 - P) is stochastically at most
    normal; X1, X0 are independent, so there are independent normal G with Z <= max(G, MINIMUM). F and the two caps
    increase in Z, and clipping T makes F smaller. Where both G are at least MINIMUM, F exceeds c no more often than
    S + BEND T^2 of G itself, and a rotation leaves normals normal. Where G0 is less, with probability Phi(MINIMUM),
    F is at most what it is at Z0 = 0, w1 G1 + BEND w0^2 G1^2, which for G1 <= B < 1 / (2 BEND) is at most G1, so that
    it exceeds c no more often than G1 does; and likewise with G1. The level adds up to alpha. []

    The bound is the largest difference over that set: with w along the standard errors at p its boundary is nearly a
    line of equal differences, where the box of two limits at alpha / 2 has its corner. The boundary is searched by T.
    Where a cell has fewer than FEW positive or negative decisions the search could miss the maximum; the box of the
    two limits at CAP alpha each holds the whole set (Z1, Z0 <= B), so its corner is a bound in the same event.
    """
    k, n = np.asarray(k, float), np.asarray(n, float)
    alpha = np.broadcast_to(np.asarray(alpha, float), k.shape[1:])
    rough = np.broadcast_to(np.asarray(rough, bool), k.shape[1:])
    there = (np.minimum(k, n - k) >= FEW).all(axis=0) & ~rough
    ends = clopper_pearson(k, n, np.where(rough, alpha, 2 * CAP * alpha))
    low, high = ends[0][0], ends[1][1]
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(low > 0, high / low, np.inf) if relative else high - low
    distance = np.where((n > 0).all(axis=0), distance, np.inf if relative else 1.0)
    if there.any():
        distance[there] = _walked(k[:, there], n[:, there], alpha[there], relative)
    return distance


def _walked(k: np.ndarray, n: np.ndarray, alpha: np.ndarray, relative: bool) -> np.ndarray:
    """The largest difference along the boundary: a coarse look, then a fine one where that was best."""
    from scipy.special import ndtr, ndtri

    level = (1 - 2 * CAP) * alpha / (1 + 2 * ndtr(MINIMUM))
    limits = _critical(level), -ndtri(CAP * alpha)
    coarse = np.broadcast_to(np.linspace(-6.0, 6.0, 21), (k.shape[1], 21))
    near = coarse[0, _at(k, n, limits, coarse, relative, 6).argmax(axis=1)]
    fine = near[:, None] + np.linspace(-0.6, 0.6, 7)
    best = _at(k, n, limits, fine, relative, 8).max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = k / n
        if not relative:
            here = rates[1] - rates[0]
            return np.minimum(best + MARGIN * np.maximum(best - here, 0.0), 1.0)
        here = np.where(rates[0] > 0, rates[1] / rates[0], np.inf)
        return np.where(
            np.isfinite(best), best * (1 + MARGIN * (1 - np.minimum(here / best, 1))), np.inf
        )


def _at(
    k: np.ndarray,
    n: np.ndarray,
    limits: tuple[np.ndarray, np.ndarray],
    T: np.ndarray,
    relative: bool,
    steps: int,
) -> np.ndarray:
    """The difference, or ratio, at the points of the boundary with these T, (J, T), to that many steps."""
    from scipy.special import betaincinv, ndtr

    (k0, k1), (n0, n1) = k[..., None], n[..., None]
    c, cap = limits[0][:, None], limits[1][:, None]
    p0, p1 = (k0 + 0.5) / (n0 + 1) + 0 * T, (k1 + 0.5) / (n1 + 1) + 0 * T
    for _ in range(steps):  # the weights are those of the point they lead to
        s0 = np.sqrt((p0 * (1 - p0) + 0.25 / n0) / n0) / (p0 + 0.25 / n0 if relative else 1.0)
        s1 = np.sqrt((p1 * (1 - p1) + 0.25 / n1) / n1) / (p1 + 0.25 / n1 if relative else 1.0)
        w0, w1 = s0 / np.hypot(s0, s1), s1 / np.hypot(s0, s1)
        t = np.clip(
            T, (MINIMUM - w1 * c) / w0, (w0 * c - MINIMUM) / w1
        )  # where both scores are at least MINIMUM
        S = c - BEND * np.clip(t, -w1 / (2 * BEND * w0), w0 / (2 * BEND * w1)) ** 2
        z0, z1 = np.minimum(w0 * S - w1 * t, cap), np.minimum(w1 * S + w0 * t, cap)
        p0 = np.where(k0 > 0, betaincinv(np.maximum(k0, 1e-9), n0 - k0 + 1, ndtr(-z0)), 0.0)
        p1 = np.where(k1 < n1, betaincinv(k1 + 1, np.maximum(n1 - k1, 1e-9), ndtr(z1)), 1.0)
    with np.errstate(divide="ignore"):
        return np.where(p0 > 0, p1 / p0, np.inf) if relative else p1 - p0


def _critical(alpha: np.ndarray) -> np.ndarray:
    """c with P(G1 + BEND G0^2 > c) = alpha for independent standard normals, (J,)."""
    from scipy.special import ndtr

    t, weight = np.polynomial.hermite_e.hermegauss(NODES)
    weight = weight / weight.sum()
    low, high = np.zeros(len(alpha)), np.full(len(alpha), 40.0)
    for _ in range(60):
        middle = (low + high) / 2
        over = ndtr(BEND * t * t - middle[:, None]) @ weight > alpha
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    return high


def chernoff(total: ArrayLike, n: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Limits of the mean of variables in [0, 1], from their sum: each end fails with probability at most delta / 2.

    Chernoff's with the relative entropy: by convexity exp(t x) <= 1 - x + x exp(t), so that the mean's tails are
    at most those bounds of a binomial, exp(-n KL(mean || mu)).

    >>> [round(float(end), 3) for end in chernoff(20.0, 100, 0.05)]
    [0.107, 0.322]
    """
    mean, budget = np.asarray(total, float) / n, np.log(2 / delta) / n
    ends = []
    for outer in (0.0, 1.0):
        inside, outside = mean.copy(), np.full_like(mean, outer)
        for _ in range(60):
            middle = (inside + outside) / 2
            far = _entropy(mean, middle) > budget
            inside, outside = np.where(far, inside, middle), np.where(far, middle, outside)
        ends.append(outside)
    return ends[0], ends[1]


def _entropy(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """KL of two Bernoulli rates."""
    from scipy.special import rel_entr

    return rel_entr(p, q) + rel_entr(1 - p, 1 - q)


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
    """A lower bound on the mean rate of k positives among n observations that holds for all n at once, but with
    probability ``delta``: where ``rate_evidence``, which falls in p, crosses log(1/delta).

    >>> lowest_rate(np.array([50.0, 5000.0]), np.array([100.0, 10000.0]), 0.025).round(3)
    array([0.331, 0.483])
    """
    k, n, threshold = np.broadcast_arrays(k, n, -np.log(delta))
    low, high = np.zeros(k.shape), np.ones(k.shape)
    for _ in range(22):  # to 2^-22, and the end that stays is on the safe side
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
_ONE, _AT_ONE = np.unique(np.expm1(ON_ONE), return_inverse=True)  # few of the bets differ
_OTHER, _AT_OTHER = np.unique(np.expm1(ON_OTHER), return_inverse=True)


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
    won = ON_ONE * k[0][..., None] + ON_OTHER * k[1][..., None]

    def at(p: np.ndarray) -> np.ndarray:
        shifted, other = np.clip(p + limit, 0.0, 1.0)[..., None], p[..., None]
        exponents = won - (n[0][..., None] * np.log1p(shifted * _ONE))[..., _AT_ONE]
        exponents -= (n[1][..., None] * np.log1p(other * _OTHER))[..., _AT_OTHER]
        maximum = exponents.max(axis=-1, keepdims=True)
        exponents -= maximum
        return maximum[..., 0] + np.log(np.exp(exponents, out=exponents).mean(axis=-1))

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
