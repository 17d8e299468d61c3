"""Confidence sequences: valid however often one looks, and not much wider than one look's interval."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agnosticfair.mathematics.binomial import (
    change_evidence,
    clopper_pearson,
    difference_evidence,
    likeliest,
    lowest_difference,
    rate_bounds,
    rate_evidence,
)


def ever_missed(x, mean, delta):
    """Whether the interval at 1 - delta ever leaves out the running mean of the rates."""
    n, k = np.arange(1, len(x) + 1), np.cumsum(x)
    threshold = np.log(2 / delta)
    below = rate_evidence(k, n, mean) >= threshold
    return (below | (rate_evidence(n - k, n, 1 - mean) >= threshold)).any()


@pytest.mark.parametrize("p", [0.03, 0.4])
def test_one_may_look_after_every_row(p):
    rng = np.random.default_rng(0)
    missed = [ever_missed(rng.random(2000) < p, np.full(2000, p), 0.1) for _ in range(300)]
    assert np.mean(missed) <= 0.1


def test_a_rate_that_wanders_is_bounded_in_its_running_mean():
    rng, missed = np.random.default_rng(1), 0
    for _ in range(200):
        x, p, total = np.zeros(600), np.zeros(600), 0.0
        for t in range(600):  # it follows what was seen, as an opponent would have it
            p[t] = 0.9 if total > 0.5 * t else 0.1
            x[t] = rng.random() < p[t]
            total += x[t]
        missed += ever_missed(x, np.cumsum(p) / np.arange(1, 601), 0.1)
    assert missed / 200 <= 0.1


def test_a_bound_is_where_the_evidence_crosses_its_threshold():
    k, n = np.array([3.0, 40.0, 0.0]), np.array([10.0, 50.0, 0.0])
    low, high = rate_bounds(k, n, 0.05)
    np.testing.assert_allclose(rate_evidence(k, n, low)[:2], np.log(40), atol=1e-4)
    np.testing.assert_allclose(rate_evidence(n - k, n, 1 - high)[:2], np.log(40), atol=1e-4)
    assert (low[2], high[2]) == (0.0, 1.0)


def test_it_costs_a_third_more_than_an_exact_interval_of_one_look():
    n = np.array([100.0, 1e4, 1e6])
    for p in (0.05, 0.5):
        low, high = rate_bounds(p * n, n, 1e-4)
        one = [np.subtract(*clopper_pearson(p * m, m, 1e-4)[::-1]) for m in n]
        assert ((high - low) / one < 1.4).all()


@given(st.integers(0, 400), st.integers(0, 400))
def test_bounds_hold_the_measured_rate_and_mirror_each_other(k, more):
    n = k + more
    low, high = rate_bounds(np.array(k), np.array(n), 0.05)
    assert low <= (k / n if n else 0) + 1e-9
    assert high >= (k / n if n else 1) - 1e-9
    mirrored = rate_bounds(np.array(more), np.array(n), 0.05)
    np.testing.assert_allclose(1 - np.array(mirrored)[::-1], [low, high], atol=1e-9)


def test_the_likeliest_shares_are_those_of_a_search():
    rng = np.random.default_rng(0)
    for _ in range(20):
        counts = rng.integers(0, 50, 3).astype(float)
        centre = rng.dirichlet(np.ones(3))
        low, high = np.maximum(centre - 0.1, 0), np.minimum(centre + 0.1, 1)
        pi = likeliest(counts, low, high)
        assert abs(pi.sum() - 1) < 1e-9
        assert ((pi >= low - 1e-9) & (pi <= high + 1e-9)).all()
        grid = np.stack(np.meshgrid(*2 * [np.linspace(0, 1, 201)]), -1).reshape(-1, 2)
        grid = np.c_[grid, 1 - grid.sum(axis=1)]
        inside = ((grid >= low) & (grid <= high)).all(axis=1)
        best = (counts * np.log(np.maximum(grid[inside], 1e-300))).sum(axis=1).max()
        assert counts @ np.log(np.maximum(pi, 1e-300)) >= best - 1e-6


def test_shares_that_stay_raise_no_alarm_and_shares_that_move_do():
    rng, shares = np.random.default_rng(0), np.array([0.6, 0.3, 0.07, 0.03])
    alarms = 0
    for _ in range(100):
        low, high = clopper_pearson(rng.multinomial(5000, shares), 5000, 0.05 / 8)
        counts = np.cumsum(rng.multinomial(200, shares, 20), axis=0)
        alarms += max(change_evidence(c, low, high) for c in counts) > np.log(1 / 0.05)
    assert alarms <= 5
    moved = np.cumsum(rng.multinomial(100, [0.5, 0.4, 0.07, 0.03], 60), axis=0)
    assert change_evidence(moved[-1], low, high) > np.log(1 / 0.05)


def arrived(rates, shares, rows, looks, streams, rng):
    """Counts of two groups at every look, (2, streams, looks) each, of streams with these rates."""
    group = rng.random((streams, rows)) < shares
    x = rng.random((streams, rows)) < np.where(group, *rates)
    k = np.stack([np.cumsum(x & g, axis=1) for g in (group, ~group)])
    n = np.stack([np.cumsum(g, axis=1) for g in (group, ~group)])
    return k[..., looks - 1], n[..., looks - 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rates", "share"),
    [
        ((0.12, 0.02), 0.2),
        ((0.4, 0.3), 0.5),
        ((0.99, 0.89), 0.5),
    ],
)
def test_the_limit_of_a_difference_is_falsely_broken_in_few_streams_under_peeking(rates, share):
    rng, looks = np.random.default_rng(3), np.arange(20, 2001, 20)
    k, n = arrived(rates, share, 2000, looks, 1000, rng)
    evidence = difference_evidence(k, n, np.full(k.shape[1:], 0.1))
    alarms = (evidence >= np.log(1 / 0.05)).any(axis=1).mean()
    assert alarms <= 0.05
    turned = difference_evidence(k[::-1], n[::-1], np.full(k.shape[1:], -0.1))
    assert (turned >= np.log(1 / 0.05)).any(axis=1).mean() <= 0.05


def test_a_difference_that_wanders_is_bounded_in_its_running_means():
    rng, missed, T = np.random.default_rng(1), 0, 400
    for _ in range(150):
        group, x, p = np.arange(T) % 2 == 0, np.zeros(T), np.zeros(T)
        for t in range(T):  # rates follow what was seen
            p[t] = 0.8 if x[:t].sum() > 0.5 * t else 0.3 + 0.3 * group[t]
            x[t] = rng.random() < p[t]
        looks = np.arange(10, T)
        k, n, mean = (
            np.stack([np.cumsum(v * g)[looks] for g in (group, ~group)]) for v in (x, np.ones(T), p)
        )
        true = (mean[0] / n[0]) - (mean[1] / n[1])
        missed += (difference_evidence(k, n, true) >= np.log(10)).any()
    assert missed / 150 <= 0.1


def test_a_bias_in_a_tenth_of_the_rows_is_found_within_ten_thousand():
    """At what one of 41 subgroups has of 5%: the subgroup holds a tenth of the rows, so a thousand of ten thousand."""
    rng, looks = np.random.default_rng(4), np.arange(50, 1001, 50)
    level = 0.05 / 2 / 41 * 0.8 / 2
    k, n = arrived((0.5, 0.2), 0.5, 1000, looks, 100, rng)
    found = (difference_evidence(k, n, np.full(k.shape[1:], 0.1)) >= -np.log(level)).any(axis=1)
    assert found.mean() >= 0.9


def test_the_smallest_evidence_is_that_of_a_grid_and_bounds_are_ordered():
    k, n = np.array([[30.0, 3.0], [55.0, 0.0]]), np.array([[90.0, 9.0], [100.0, 40.0]])
    for limit in (-0.4, 0.0, 0.3):
        found = difference_evidence(k, n, np.full(2, limit))
        grid = np.linspace(max(-limit, 0), min(1 - limit, 1), 2000)
        from agnosticfair.mathematics.binomial import ON_ONE, ON_OTHER

        own, other = (grid + limit)[:, None, None], grid[:, None, None]
        e = ON_ONE * k[0][:, None] - n[0][:, None] * np.log1p(own * np.expm1(ON_ONE))
        e = e + ON_OTHER * k[1][:, None] - n[1][:, None] * np.log1p(other * np.expm1(ON_OTHER))
        np.testing.assert_allclose(found, np.log(np.exp(e).mean(axis=-1)).min(axis=0), atol=1e-3)
    low, high = lowest_difference(k, n, 0.05), -lowest_difference(k[::-1], n[::-1], 0.05)
    assert (low < k[0] / n[0] - k[1] / n[1]).all()
    assert (high > k[0] / n[0] - k[1] / n[1]).all()
    assert lowest_difference(np.zeros((2, 1)), np.zeros((2, 1)), 0.05)[0] == -1.0
