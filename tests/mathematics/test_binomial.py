"""Limits of binomial rates against exact coverage and brute force."""

import numpy as np
import pytest
from scipy.stats import beta, binom

from agnosticfair.mathematics import binomial, confidence
from agnosticfair.mathematics.metrics import METRICS

GRID = np.linspace(0.02, 0.98, 17)


def outcomes(n0, n1):
    """All pairs of counts, (2, J), and the rows behind them."""
    k0, k1 = (k.ravel() for k in np.meshgrid(np.arange(n0 + 1), np.arange(n1 + 1), indexing="ij"))
    return np.stack([k0, k1]), np.stack([np.full(k0.shape, n0), np.full(k1.shape, n1)])


def failure(k, n, bound, p0, p1, truth):
    chance = binom.pmf(k[0], n[0], p0) * binom.pmf(k[1], n[1], p1)
    return chance[bound < truth - 1e-12].sum()


def likely(n0, n1, p0, p1, less=1e-13):
    """The pairs of counts that are not too unlikely to matter, (2, J), and the rows behind them."""
    few = [
        np.flatnonzero(binom.pmf(np.arange(n + 1), n, p) > less) for n, p in ((n0, p0), (n1, p1))
    ]
    k = np.stack([grid.ravel() for grid in np.meshgrid(*few, indexing="ij")])
    return k, np.broadcast_to(np.array([[n0], [n1]]), k.shape)


@pytest.mark.parametrize("alpha", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(
    ("sizes", "rates"),
    [
        ((300, 300), (0.001, 0.999)),
        ((300, 300), (0.02, 0.97)),
        ((50, 300), (0.1, 0.995)),
        ((20, 300), (0.75, 0.999)),
        ((100, 100), (0.3, 0.998)),
        ((400, 40), (0.004, 0.3)),
    ],
)
@pytest.mark.parametrize("relative", [False, True])
def test_the_bound_holds_near_rates_of_zero_and_one(alpha, sizes, rates, relative):
    (p0, p1) = rates
    k, n = likely(*sizes, *rates)
    bound = binomial.largest(k, n, alpha, relative)
    assert failure(k, n, bound, p0, p1, p1 / p0 if relative else p1 - p0) <= alpha
    back = binomial.largest(k[::-1], n[::-1], alpha, relative)
    assert failure(k, n, back, p0, p1, p0 / p1 if relative else p0 - p1) <= alpha


def critical(alpha):
    from scipy.special import ndtr

    level = (1 - 2 * binomial.CAP) * alpha / (1 + 2 * ndtr(binomial.MINIMUM))
    return binomial._critical(np.array([level]))[0]


def maximum(k, n, alpha, relative, points=400):
    """The largest difference or ratio over the region, by a grid over all of it."""
    from scipy.special import betaincinv, ndtr, ndtri

    bend, (k0, k1), (n0, n1) = binomial.BEND, k, n
    c = critical(alpha)
    z = np.linspace(-8, -ndtri(binomial.CAP * alpha), points)
    p0 = betaincinv(k0, n0 - k0 + 1, ndtr(-z))[:, None]
    p1 = betaincinv(k1 + 1, n1 - k1, ndtr(z))[None]
    s0, s1 = (np.sqrt((p * (1 - p) + 0.25 / m) / m) for p, m in ((p0, n0), (p1, n1)))
    if relative:
        s0, s1 = s0 / (p0 + 0.25 / n0), s1 / (p1 + 0.25 / n1)
    w0, w1 = s0 / np.hypot(s0, s1), s1 / np.hypot(s0, s1)
    z = np.maximum(z, binomial.MINIMUM)
    T = np.clip(w0 * z - w1 * z[:, None], -w1 / (2 * bend * w0), w0 / (2 * bend * w1))
    inside = w1 * z + w0 * z[:, None] + bend * T**2 <= c
    return (p1 / p0 if relative else p1 - p0)[inside].max()


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.slow
def test_the_search_along_the_boundary_never_misses_the_maximum(relative):
    rng = np.random.default_rng(0)
    for _ in range(150):
        few = rng.choice([20, 25, 40, 100], 2)
        n = np.maximum(rng.choice([50, 100, 300, 1000, 5000], 2), 2 * few)
        k = np.where(rng.random(2) < 0.5, few, n - few)
        alpha = 10.0 ** -rng.integers(2, 8)
        bound = binomial.largest(k[:, None], n[:, None], alpha, relative)[0]
        assert bound >= maximum(k, n, alpha, relative), (k, n, alpha)


@pytest.mark.parametrize("alpha", [0.05, 0.004])
@pytest.mark.parametrize("sizes", [(12, 15), (5, 40), (50, 60)])
@pytest.mark.parametrize("relative", [False, True])
def test_the_largest_difference_or_ratio_fails_no_more_often_than_stated(alpha, sizes, relative):
    """And, where cells have rows enough for the search, not far less often: with fewer than FEW decisions the bound is
    the corner of a box at CAP alpha each, and fails as rarely as that."""
    k, n = outcomes(*sizes)
    bound = binomial.largest(k, n, alpha, relative)
    worst = max(
        failure(k, n, bound, p0, p1, p1 / p0 if relative else p1 - p0) for p0 in GRID for p1 in GRID
    )
    minimum = alpha / 20 if min(sizes) > 2 * binomial.FEW else alpha * binomial.CAP / 1000
    assert minimum < worst <= alpha


def test_the_bound_is_the_largest_over_the_region_found_by_brute_force():
    k, n, alpha = np.array([[30], [60]]), np.array([[200], [150]]), 0.001
    c = critical(alpha)
    from scipy.special import ndtri

    p0, p1 = np.meshgrid(np.linspace(0.03, 0.4, 500), np.linspace(0.2, 0.7, 500))
    z0 = -ndtri(binom.sf(29, 200, p0))
    z1 = -ndtri(binom.cdf(60, 150, p1))
    s0 = np.sqrt((p0 * (1 - p0) + 0.25 / 200) / 200)
    s1 = np.sqrt((p1 * (1 - p1) + 0.25 / 150) / 150)
    w0, w1 = s0 / np.hypot(s0, s1), s1 / np.hypot(s0, s1)
    inside = w1 * z1 + w0 * z0 + binomial.BEND * (w0 * z1 - w1 * z0) ** 2 <= c
    inside &= np.maximum(z0, z1) <= -ndtri(binomial.CAP * alpha)
    brute = (p1 - p0)[inside].max()
    assert binomial.largest(k, n, alpha)[0] == pytest.approx(brute, abs=2e-3)
    assert binomial.largest(k, n, alpha)[0] >= brute


def test_it_is_much_tighter_than_the_box_of_both_limits():
    k, n, alpha = np.array([[100], [160]]), np.array([[1000], [1000]]), 1e-4
    low = beta.ppf(alpha / 2, 100, 901)
    high = beta.ppf(1 - alpha / 2, 161, 840)
    normal = np.sqrt(0.1 * 0.9 / 1000 + 0.16 * 0.84 / 1000) * 3.719
    width = binomial.largest(k, n, alpha)[0] - 0.06
    assert width < 1.06 * normal
    assert high - low - 0.06 > 1.35 * width


def test_without_rows_nothing_is_bounded():
    assert binomial.largest([[0], [3]], [[0], [9]], 0.05).tolist() == [1.0]
    assert binomial.largest([[0], [3]], [[0], [9]], 0.05, relative=True).tolist() == [np.inf]
    counts = np.zeros((1, 2, 2, 2), int)
    counts[0, 0, 0] = 5
    for metric in sorted(METRICS):
        all_differences = confidence.differences(counts, 0.05, metric)
        assert all_differences.high[0] == 1.0
        assert all_differences.low[0] == 0.0 or metric == "bounded_group_loss"
    assert np.isnan(confidence.differences(counts, 0.05, "demographic_parity").value[0])


def test_chernoff_holds_for_means_of_anything_in_the_unit_interval():
    rng, failed = np.random.default_rng(0), 0
    for _ in range(400):
        low, high = binomial.chernoff(rng.beta(0.5, 2, 80).sum(), 80, 0.2)
        failed += not low <= 0.2 <= high
    assert failed <= 80
