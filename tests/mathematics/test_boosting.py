"""Splits against brute force; histograms; what is refused, rare or missing."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agnosticfair.mathematics.boosting import Boosting, G, H, N, add_rows, gradients, histogram
from agnosticfair.mathematics.growing import Monotone, best_splits, leaf_values, totals
from agnosticfair.mathematics.trees import LEAF, Bins

OPEN = Boosting(l2=0.5, min_rows=1, min_hessian=0.0, smooth=0.0)


def drawn(seed, n=60, sizes=(5, 4, 4), numeric=2, missing=True):
    r = np.random.default_rng(seed)
    low = [0 if missing or c >= numeric else 1 for c in range(len(sizes))]
    codes = np.stack([r.integers(a, s, n) for a, s in zip(low, sizes, strict=True)], 1)
    g, h = gradients(r.normal(size=n), r.random(n) < 0.5, 20)
    return codes.astype(np.uint8), g, h, Bins(tuple(sizes), numeric)


def score(g, h, rows, s):
    return float(g[rows].astype(float).sum()) ** 2 / (h[rows].astype(float).sum() + s.l2)


def brute_force(codes, g, h, bins, s):
    """The best gain over all thresholds, ways of missing values, and sets of categories."""
    everyone = np.ones(len(g), bool)
    best = 0.0
    for c, size in enumerate(bins.sizes):
        own = codes[:, c]
        if c < bins.numeric:
            lefts = [(own <= t) & ((own > 0) | on) for t in range(size) for on in (False, True)]
        else:
            lefts = [
                np.isin(own, chosen)
                for k in range(1, size)
                for chosen in combinations(range(size), k)
            ]
        for left in lefts:
            if min(left.sum(), (~left).sum()) >= s.min_rows:
                both = score(g, h, left, s) + score(g, h, ~left, s)
                best = max(best, both - score(g, h, everyone, s))
    return best


def sent_left(codes, splits, bins, q=0):
    c = int(splits.column[q])
    if c >= bins.numeric:
        return splits.sets[q][codes[:, c]] > 0
    return (codes[:, c] <= splits.threshold[q]) & (
        (codes[:, c] > 0) | (splits.missing_right[q] == 0)
    )


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_the_best_split_is_that_of_brute_force(seed, missing):
    codes, g, h, bins = drawn(seed, missing=missing)
    hist = histogram(codes, np.zeros(len(g), np.int16), g, h, 1, bins)
    splits = best_splits(hist, bins, OPEN)
    best = brute_force(codes, g, h, bins, OPEN)
    # thresholds are searched in full; an order by G / H finds the best set of categories where l2 is small beside H
    assert 0.9 * best <= splits.gain[0] <= best * (1 + 1e-9)
    left = sent_left(codes, splits, bins)
    assert splits.left[0, N] == left.sum()
    assert splits.left[0, G] == g[left].astype(float).sum()
    assert splits.left[0, H] == h[left].astype(float).sum()


@pytest.mark.parametrize("seed", range(10))
def test_thresholds_alone_are_exactly_optimal(seed):
    codes, g, h, bins = drawn(seed, sizes=(6, 9, 4), numeric=3)
    hist = histogram(codes, np.zeros(len(g), np.int16), g, h, 1, bins)
    assert best_splits(hist, bins, OPEN).gain[0] == pytest.approx(
        brute_force(codes, g, h, bins, OPEN)
    )


@given(st.integers(0, 10**6), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_histograms_add_up_over_any_split_of_rows(seed, subgroups):
    codes, g, h, bins = drawn(seed)
    r = np.random.default_rng(seed)
    slot, owner = r.integers(-1, 3, len(g)).astype(np.int16), r.integers(0, subgroups, len(g))
    whole = histogram(codes, slot, g, h, 3, bins)
    added = sum(
        histogram(codes[owner == k], slot[owner == k], g[owner == k], h[owner == k], 3, bins)
        for k in range(subgroups)
    )
    assert np.array_equal(whole, added)


def test_the_compiled_loop_has_the_same_bits(monkeypatch):
    codes, g, h, bins = drawn(3, n=500)
    slot = np.random.default_rng(0).integers(-1, 4, 500).astype(np.int16)
    monkeypatch.setattr("agnosticfair.mathematics.boosting.compiled", lambda loop: None)
    expected = histogram(codes, slot, g, h, 4, bins)
    for max_h, loop in (
        (1.0, add_rows),
        (2.0**17, add_rows),
        (2.0**40, None),
    ):  # whole, in pieces, not at all
        used = []
        monkeypatch.setattr(
            "agnosticfair.mathematics.boosting.compiled",
            lambda own: lambda *given: (used.append(len(given[1])), own(*given)),  # noqa: B023
        )
        more = np.append(h, np.float32(max_h))
        own = histogram(
            np.vstack([codes, codes[:1]]),
            np.append(slot, np.int16(-1)),
            np.append(g, g[:1]),
            more,
            4,
            bins,
        )
        assert np.array_equal(own, expected)
        assert bool(used) == (loop is not None)
        assert max_h != 2.0**17 or len(used) > 1


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_the_compiled_search_has_the_same_bits(seed, missing, monkeypatch):
    codes, g, h, bins = drawn(seed, n=300, sizes=(9, 6, 5, 7), numeric=2, missing=missing)
    slot = np.random.default_rng(seed).integers(-1, 5, 300).astype(np.int16)
    hist = histogram(codes, slot, g, h, 5, bins)
    monkeypatch.setattr("agnosticfair.mathematics.boosting.compiled", lambda loop: None)
    for settings_ in (OPEN, Boosting(min_rows=5)):
        expected = best_splits(hist, bins, settings_)
        with monkeypatch.context() as m:
            m.setattr("agnosticfair.mathematics.boosting.compiled", lambda loop: loop)
            searched = best_splits(hist, bins, settings_)
        for name, value in vars(expected).items():
            assert np.array_equal(getattr(searched, name), value), name


def test_a_histogram_of_many_blocks_is_that_of_one(monkeypatch):
    codes, g, h, bins = drawn(3, n=500)
    slot = np.random.default_rng(0).integers(-1, 4, 500).astype(np.int16)
    expected = histogram(codes, slot, g, h, 4, bins)
    monkeypatch.setattr("agnosticfair.mathematics.boosting._ROWS", 7)
    monkeypatch.setattr("agnosticfair.mathematics.boosting._CODES", 3 * 13)
    assert np.array_equal(histogram(codes, slot, g, h, 4, bins), expected)


def test_ties_go_to_the_lowest_column_and_code():
    codes, g, h, _ = drawn(0, sizes=(5,), numeric=1, missing=False)
    twice, bins = np.repeat(codes, 2, axis=1), Bins((5, 5), 2)
    hist = histogram(twice, np.zeros(len(g), np.int16), g, h, 1, bins)
    assert best_splits(hist, bins, OPEN).column[0] == 0
    wide = Bins((7,), 1)  # codes 3 and 4 have no rows: cuts after 2, 3 and 4 are the same
    gap = np.where(codes > 2, codes + 2, codes)
    hist = histogram(gap, np.zeros(len(g), np.int16), g, h, 1, wide)
    assert best_splits(hist, wide, OPEN).threshold[0] in (1, 2, 5)


@pytest.mark.parametrize(
    "codes",
    [np.ones((30, 1)), np.zeros((30, 1)), np.ones((1, 1))],
    ids=["constant", "all missing", "one row"],
)
def test_nothing_to_split_is_a_leaf(codes):
    r, bins = np.random.default_rng(0), Bins((3,), 1)
    g, h = gradients(r.normal(size=len(codes)), r.random(len(codes)) < 0.5, 20)
    hist = histogram(codes.astype(np.uint8), np.zeros(len(g), np.int16), g, h, 1, bins)
    splits = best_splits(hist, bins, OPEN)
    assert splits.column[0] == LEAF
    assert splits.gain[0] == 0


def test_small_children_are_refused():
    codes, g, h, bins = drawn(1, n=60)
    hist = histogram(codes, np.zeros(60, np.int16), g, h, 1, bins)
    for minimum in (5, 20, 30, 31):
        splits = best_splits(hist, bins, Boosting(l2=0.5, min_rows=minimum, smooth=0.0))
        if splits.column[0] != LEAF:
            assert minimum <= splits.left[0, N] <= 60 - minimum
    assert splits.column[0] == LEAF


def test_rare_categories_go_the_same_way():
    r = np.random.default_rng(0)
    codes = np.concatenate([np.repeat([1, 2, 3], 100), np.arange(4, 40)]).astype(np.uint8)[:, None]
    g, h = gradients(r.normal(size=len(codes)), r.random(len(codes)) < codes[:, 0] / 4, 20)
    bins = Bins((40,), 0)
    hist = histogram(codes, np.zeros(len(g), np.int16), g, h, 1, bins)
    splits = best_splits(hist, bins, Boosting(min_rows=20))
    assert splits.column[0] == 0
    assert len({*splits.sets[0][4:40].tolist(), int(splits.sets[0][0])}) == 1


def test_gradients_lie_on_their_grid_and_in_float32():
    g, h = gradients(np.random.default_rng(0).normal(size=1000) * 9, np.arange(1000) % 2, 20)
    for v in (g, h):
        assert (v.astype(float) * 2**20 == np.rint(v.astype(float) * 2**20)).all()


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_the_best_monotone_split_is_that_of_brute_force(seed, missing):
    """Of two nodes the first has signs; values are kept within bounds, and score what they take off the loss."""
    codes, g, h, bins = drawn(seed, sizes=(6, 9), numeric=2, missing=missing)
    hist = np.repeat(histogram(codes, np.zeros(len(g), np.int16), g, h, 1, bins), 2, axis=0)
    signs, bounds = np.array([[1, -1], [0, 0]]), np.tile([-0.3, 0.2], (2, 1))
    splits = best_splits(hist, bins, OPEN, Monotone(bounds, signs))

    def taken_off(rows):
        own_g, own_h = float(g[rows].astype(float).sum()), float(h[rows].astype(float).sum())
        value = np.clip(-own_g / (own_h + OPEN.l2), -0.3, 0.2)
        return value, -2 * own_g * value - (own_h + OPEN.l2) * value**2

    for q in range(2):
        best = 0.0
        for c, size in enumerate(bins.sizes):
            for t in range(size):
                for on in (False, True):
                    left = (codes[:, c] <= t) & ((codes[:, c] > 0) | on)
                    if 0 < left.sum() < len(g):
                        (a, one), (b, two) = taken_off(left), taken_off(~left)
                        if (b - a) * signs[q, c] >= 0:
                            best = max(best, one + two - taken_off(np.ones(len(g), bool))[1])
        assert splits.gain[q] == pytest.approx(best, abs=1e-9)


def test_leaf_values_keep_their_bounds():
    sums = np.array([[-9.0, 1.0, 5.0], [9.0, 1.0, 5.0]])
    assert leaf_values(sums, OPEN, np.array([[-1.0, 2.0], [-1.0, 2.0]])).tolist() == [2.0, -1.0]


def test_totals_are_the_same_for_every_column():
    codes, g, h, bins = drawn(5)
    hist = histogram(codes, np.zeros(len(g), np.int16), g, h, 1, bins)
    for a, b in zip(bins.starts[:-1], bins.starts[1:], strict=True):
        assert np.array_equal(hist[:, a:b].sum(axis=1), totals(hist, bins))
