"""Limits of binomial rates against exact coverage and brute force."""

import numpy as np
import pytest
from scipy.stats import beta, binom

from agnosticfair.mathematics import binomial, confidence
from agnosticfair.mathematics.notions import NOTIONS

GRID = np.linspace(0.02, 0.98, 17)


def outcomes(n0, n1):
    """All pairs of counts, (2, J), and the rows behind them."""
    k0, k1 = (k.ravel() for k in np.meshgrid(np.arange(n0 + 1), np.arange(n1 + 1), indexing="ij"))
    return np.stack([k0, k1]), np.stack([np.full(k0.shape, n0), np.full(k1.shape, n1)])


def failure(k, n, bound, p0, p1, truth):
    chance = binom.pmf(k[0], n[0], p0) * binom.pmf(k[1], n[1], p1)
    return chance[bound < truth - 1e-12].sum()


@pytest.mark.parametrize("alpha", [0.05, 0.004])
@pytest.mark.parametrize("sizes", [(12, 15), (5, 40), (30, 30)])
@pytest.mark.parametrize("relative", [False, True])
def test_the_largest_difference_or_ratio_fails_no_more_often_than_stated(alpha, sizes, relative):
    k, n = outcomes(*sizes)
    bound = binomial.largest(k, n, alpha, relative)
    worst = max(
        failure(k, n, bound, p0, p1, p1 / p0 if relative else p1 - p0) for p0 in GRID for p1 in GRID
    )
    assert alpha / 20 < worst <= alpha


def test_the_bound_is_the_largest_over_the_region_found_by_brute_force():
    k, n, alpha = np.array([[30], [60]]), np.array([[200], [150]]), 0.001
    c = binomial._critical(np.array([(1 - 2 * binomial.CAP) * alpha]))[0]
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
    for notion in sorted(NOTIONS):
        found = confidence.differences(counts, 0.05, notion)
        assert found.high[0] == 1.0
        assert found.low[0] == 0.0 or notion == "bounded_group_loss"
    assert np.isnan(confidence.differences(counts, 0.05, "demographic_parity").value[0])


def test_chernoff_holds_for_means_of_anything_in_the_unit_interval():
    rng, failed = np.random.default_rng(0), 0
    for _ in range(400):
        low, high = binomial.chernoff(rng.beta(0.5, 2, 80).sum(), 80, 0.2)
        failed += not low <= 0.2 <= high
    assert failed <= 80
