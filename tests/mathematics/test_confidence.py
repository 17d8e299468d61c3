"""Bounds beyond the rows: exact coverage by enumeration, and by draws from a known population."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agnosticfair.mathematics import binomial, confidence
from agnosticfair.mathematics.metrics import METRICS

few = settings(max_examples=15, deadline=None)


# --- one pair of rates ---


@few
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.sampled_from(sorted(METRICS)))
def test_the_value_on_the_rows_lies_between_its_ends(seed, groups, metric):
    counts = np.random.default_rng(seed).integers(0, 60, (6, groups, 2, 2))
    for found in (
        confidence.differences(counts, 0.01, metric),
        confidence.ratios(counts, 0.01, metric),
    ):
        there = ~np.isnan(found.value)
        assert (found.low <= found.value + 1e-12)[there].all()
        assert (found.value <= found.high + 1e-12)[there].all()


# --- what each subgroup gets of delta ---


@few
@given(st.integers(0, 2**32 - 1))
def test_all_conjunctions_together_spend_no_more_than_delta(seed):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, size, 200) for size in (2, 3, 4)], axis=1)
    rows = [200]
    for axes in [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]:
        rows += [*np.unique(codes[:, axes], axis=0, return_counts=True)[1]]
    candidates = 1 + 9 + 6 + 8 + 12
    assert confidence.spent(rows, 200, 7, candidates, 0.05).sum() <= 0.05 + 1e-12


# --- subgroups, mixtures and kernels of a known population ---


def population(groups=2):
    """Shares (M, G, 2, 2) of cells by disjoint subgroup, group, label, decision."""
    rng = np.random.default_rng(7)
    return rng.dirichlet(np.full(4 * 4 * groups, 3.0)).reshape(4, groups, 2, 2)


def gap(masses, metric):
    """The worst difference of (G, 2, 2) masses."""
    k, n = confidence.compared(masses[None], metric)
    rates = (k / n)[..., 0]
    return float(rates.max() if metric == "bounded_group_loss" else np.ptp(rates, axis=1).max())


def mixed_gaps(shares, metric, floor, draws=400):
    """The gaps of random mixtures of subgroups in which each compared cell keeps the floor."""
    rng, subgroups = np.random.default_rng(1), shares / shares.sum(axis=(1, 2, 3), keepdims=True)
    for u in rng.dirichlet(np.full(len(shares), 0.3), draws):
        masses = np.tensordot(u, subgroups, 1)
        if confidence.compared(masses[None], metric)[1].min() >= floor:
            yield gap(masses, metric)


@pytest.mark.slow
@pytest.mark.parametrize("metric", sorted(METRICS))
def test_the_bounds_hold_at_once_in_draws_from_a_known_population(metric):
    shares, rng, delta, n, draws = population(), np.random.default_rng(3), 0.2, 2000, 40
    true = np.array([gap(subgroup, metric) for subgroup in shares])
    mixed = max(mixed_gaps(shares, metric, 0.05))
    true_ratio = confidence.ratios(shares, 0.1, metric).value
    failed = np.zeros(3)
    for _ in range(draws):
        counts = rng.multinomial(n, shares.ravel()).reshape(shares.shape)
        subgroup = confidence.spent(counts.sum(axis=(1, 2, 3)), n, 1, len(shares), delta)
        all_differences = confidence.differences(counts, subgroup, metric)
        failed[0] += ((true > all_differences.high) | (true < all_differences.low)).any()
        all_differences = confidence.ratios(counts, subgroup, metric)
        failed[1] += (
            (true_ratio > all_differences.high) | (true_ratio < all_differences.low)
        ).any()
        failed[2] += confidence.mixtures(counts, delta, metric, 0.05, 1e-2).value < mixed
    assert (failed <= draws * delta).all()


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_reweightings_of_the_population_stay_below_their_bound(metric):
    rng, n = np.random.default_rng(5), 3000
    shares = population()
    strata = rng.choice(shares.size, p=shares.ravel(), size=200_000)
    centres = rng.uniform(size=3)

    def masses(chosen):
        x = (chosen * 37 % 101) / 101
        K = np.exp(-(((x[:, None] - centres) / 0.5) ** 2))
        stratum = chosen % 8
        return np.stack([K[stratum == c].sum(axis=0) for c in range(8)]).reshape(2, 2, 2, 3)

    true = masses(strata) / len(strata)
    total = true.sum(axis=(0, 1, 2))
    for seed in range(10):
        drawn = masses(np.random.default_rng(seed).choice(strata, n))
        bound = confidence.reweightings(drawn, n, 0.1, metric, 5.0, 0.05).value
        for alpha in [*np.eye(3), *rng.dirichlet(np.ones(3), 50)]:
            alpha = alpha / (alpha @ total)
            if alpha.max() <= 5.0:
                assert gap(true @ alpha, metric) <= bound


def test_mixtures_are_no_better_than_the_worst_subgroup_and_see_simpsons_paradox():
    rows = 4_000_000
    counts = np.zeros((2, 2, 2, 2))
    for subgroup, (share, rate) in enumerate(((0.9, 0.8), (0.1, 0.2))):
        for group, of_group in enumerate((1 - share, share)):
            counts[subgroup, group, 0] = rows * of_group * np.array([1 - rate, rate])
    each = confidence.differences(counts, 0.01, "demographic_parity")
    assert each.high.max() < 0.01
    # half of each subgroup: 0.74 against 0.26
    assert confidence.mixtures(counts, 0.01, "demographic_parity", 0.05).value == pytest.approx(
        0.48, abs=0.01
    )


def test_three_groups_are_compared_in_all_pairs():
    counts = np.random.default_rng(2).integers(50, 90, (1, 3, 2, 2))
    all_differences = confidence.differences(counts, 0.06, "demographic_parity")
    k, n = (v[0] for v in confidence.compared(counts, "demographic_parity"))
    for level, end in ((0.03, all_differences.high[0]), (0.006, -all_differences.low[0])):
        ups = [
            binomial.largest(k[[j, i]], n[[j, i]], level)[0] for i, j in permutations(range(3), 2)
        ]
        assert end == pytest.approx(max(ups) if end > 0 else min(0.0, min(ups)))


def sample(rows, **changes):
    rows = np.asarray(rows)
    total = rows.sum(axis=(0, 1))
    made = {"min_share": 0.0, "sets": 1, "candidates": rows.shape[2], "precision": 0.1}
    return confidence.Sample(rows, total, **(made | changes))


def test_groups_are_compared_by_their_rows_alone():
    rows = np.array([[[2000, 2000, 500], [1900, 100, 400], [80, 1800, 0]]])
    keep = confidence.estimable(sample(rows), np.full(3, 1e-3))
    assert keep.tolist() == [[True, True, False], [True, False, True], [False, False, False]]
    counts = np.random.default_rng(0).multinomial(400, np.full(4, 0.25), (3, 3)).reshape(3, 3, 2, 2)
    one = confidence.differences(counts, 1e-3, "demographic_parity", keep)
    fewer = confidence.differences(counts[:, :2], 1e-3, "demographic_parity")
    assert one.high[0] == pytest.approx(
        fewer.high[0]
    )  # no price for groups that the worst is not between
    assert (one.high[2], one.low[2]) == (1.0, 0.0)


@few
@given(st.integers(0, 2**32 - 1))
def test_levels_add_up_to_less_than_delta_and_few_rows_cost_little(seed):
    rng = np.random.default_rng(seed)
    big, small = np.full((1, 2, 3), 5000), rng.integers(1, 60, (1, 2, 400))
    some = sample(np.concatenate([big, small], axis=2), candidates=403, sets=1)
    level, able = confidence.levels(some, 0.05)
    assert able.tolist() == [True] * 3 + [False] * 400
    assert level[:3].tolist() == pytest.approx([confidence.SHARP * 0.05 / 3] * 3)
    spent = (confidence.SHARP, confidence.REST, confidence.COUNTS, confidence.ONE, confidence.UPPER)
    assert sum(spent) + confidence.OVERALL == pytest.approx(1.0)


@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("copies", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_the_bound_over_all_subgroups_holds_and_has_no_price_for_their_number(metric, copies):
    rng, delta, n, failed, margins = np.random.default_rng(4), 0.4, 20_000, 0, []
    rates = np.array(
        [0.3, 0.4 if copies == 1 else 0.3]
    )  # one subgroup differs, or all alike and by nothing
    truth = float(rates.max() if metric == "bounded_group_loss" else np.ptp(rates))
    for _ in range(60):
        rows = rng.multinomial(n, np.full(4 * copies, 1 / (4 * copies))).reshape(copies, 2, 2)
        wrong = rng.binomial(rows, rates[None, :, None])
        if metric == "bounded_group_loss":  # k counts errors: decided 1 where 0, and 0 where 1
            strata = np.stack([rows - wrong, wrong], axis=3)
            strata[:, :, 1] = strata[:, :, 1, ::-1]
        else:
            strata = np.stack([rows - wrong, wrong], axis=3)
        _, of_rate = confidence.compared(strata, metric)
        total = strata.sum(axis=(1, 2, 3))
        alone = metric == "bounded_group_loss"
        some = confidence.Sample(of_rate, total, 0.0, 1, copies, 1.0, alone)
        bound = confidence.within(strata, some, delta, metric)
        failed += bound < truth
        level, able = confidence.levels(some, delta)
        each = confidence.differences(strata, level, metric)
        margins.append((bound - truth, each.high[able].max() - truth))
    assert failed <= 60 * delta
    ours, union = np.mean(margins, axis=0)
    assert copies == 1 or ours < union


def test_counts_stay_within_what_the_proof_inflates_them_to():
    rng, x, L = np.random.default_rng(1), 300.0, np.log(100)
    drawn = rng.binomial(10_000, x / 10_000, 20_000)
    assert (drawn > confidence._above(x, L)).mean() <= 0.01
    assert (confidence._below(drawn, L) < x).mean() <= 0.01
    thin = confidence.thinnest(0.1, 10_000, 3, 50, 0.05)
    tail = np.log(2 * 3 * 50 / 0.0005)
    reach = confidence._above(confidence._below(np.array([thin - 1, thin]), tail), tail)
    assert reach[0] < 1000 <= reach[1]
