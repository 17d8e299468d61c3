"""Metrics against plain loops and, where it has them, against scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agnosticfair.mathematics import scoring


@st.composite
def decisions(draw):
    """y, y_hat, s (three groups, some perhaps absent), weights (some zero, or None)."""
    n = draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weights = rng.gamma(1.0, size=n) * (rng.random(n) < 0.8)
    if not weights.any() or draw(st.booleans()):
        weights = None
    return rng.integers(0, 2, n), rng.integers(0, 2, n), rng.integers(0, 3, n), weights


def loop_rate(y_hat, weights, take):
    """Weighted share of positives among the rows that `take` accepts; nan if there are none."""
    mass = positive = 0.0
    for i in range(len(y_hat)):
        if take(i):
            w = 1.0 if weights is None else weights[i]
            mass += w
            positive += w * y_hat[i]
    return positive / mass if mass > 0 else math.nan


@given(decisions())
def test_rates_per_group_are_what_a_loop_counts(case):
    y, y_hat, s, w = case
    held = np.ones(len(y)) if w is None else w
    for j in range(3):
        for found, take in (
            (scoring.positive_rates(y_hat, s, w, n_groups=3), lambda i: s[i] == j),  # noqa: B023
            (
                scoring.positive_rates(y_hat, s, held * y, n_groups=3),
                lambda i: s[i] == j and y[i] == 1,  # noqa: B023
            ),
            (
                scoring.positive_rates(y_hat, s, held * (1 - y), n_groups=3),
                lambda i: s[i] == j and y[i] == 0,  # noqa: B023
            ),
        ):
            assert found.shape == (3,)
            assert found[j] == pytest.approx(loop_rate(y_hat, w, take), nan_ok=True)


@given(decisions())
def test_totals_are_what_a_loop_counts(case):
    y, y_hat, s, w = case
    assert scoring.positive_rate(y_hat, w) == pytest.approx(loop_rate(y_hat, w, lambda i: True))
    assert scoring.accuracy(y, y_hat, w) == pytest.approx(loop_rate(y == y_hat, w, lambda i: True))
    rates = [loop_rate(y_hat, w, lambda i, j=j: s[i] == j) for j in range(3)]
    rates = [rate for rate in rates if not math.isnan(rate)]
    expected = max(rates) - min(rates) if len(rates) > 1 else math.nan
    assert scoring.risk_difference(y_hat, s, w) == pytest.approx(expected, nan_ok=True)


@given(decisions())
def test_weights_count_rows_and_their_scale_does_not_matter(case):
    y, y_hat, s, w = case
    copies = np.random.default_rng(len(y)).integers(0, 4, len(y))
    many = [np.repeat(v, copies) for v in (y, y_hat, s)]
    if copies.any():
        assert scoring.accuracy(y, y_hat, copies) == pytest.approx(scoring.accuracy(*many[:2]))
        assert scoring.majority_rate(y, copies) == pytest.approx(scoring.majority_rate(many[0]))
        assert scoring.risk_difference(y_hat, s, copies) == pytest.approx(
            scoring.risk_difference(*many[1:]), nan_ok=True
        )
    if w is not None:
        assert scoring.balanced_accuracy(y, y_hat, 7 * w) == pytest.approx(
            scoring.balanced_accuracy(y, y_hat, w)
        )


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@given(decisions())
def test_accuracies_agree_with_scikit_learn(case):
    sklearn = pytest.importorskip("sklearn.metrics")
    y, y_hat, _, w = case
    w = None if w is None else w + 0.1
    assert scoring.accuracy(y, y_hat, w) == pytest.approx(
        sklearn.accuracy_score(y, y_hat, sample_weight=w)
    )
    assert scoring.balanced_accuracy(y, y_hat, w) == pytest.approx(
        sklearn.recall_score(
            y, y_hat, labels=np.unique(y), average="macro", zero_division=0.0, sample_weight=w
        )
    )


def test_risk_difference_of_two_groups_is_the_absolute_difference():
    y_hat, s = np.array([1, 1, 0, 0, 0]), np.array([0, 0, 0, 1, 1])
    assert scoring.risk_difference(y_hat, s) == pytest.approx(2 / 3)
    assert scoring.risk_difference(y_hat, 1 - s) == pytest.approx(2 / 3)


def test_fewer_than_two_groups_have_no_risk_difference():
    assert math.isnan(scoring.risk_difference([1, 0], [1, 1]))
    assert math.isnan(scoring.risk_difference([1, 0], [0, 1], weights=[1.0, 0.0]))
    np.testing.assert_array_equal(
        scoring.positive_rates([1, 0], [1, 1], n_groups=3)[[0, 2]], np.nan
    )


def test_no_weight_gives_nan_and_not_an_error():
    zero = [0.0, 0.0]
    assert math.isnan(scoring.accuracy([1, 0], [1, 0], zero))
    assert math.isnan(scoring.balanced_accuracy([1, 0], [1, 0], zero))
    assert math.isnan(scoring.positive_rate([1, 0], zero))
    assert math.isnan(scoring.majority_rate([1, 0], zero))


def test_booleans_are_decisions_too():
    y_hat, s = np.array([True, False, True]), np.array([0, 1, 1])
    np.testing.assert_array_equal(scoring.positive_rates(y_hat, s), [1.0, 0.5])
    np.testing.assert_array_equal(scoring.positive_rates(y_hat, s, y_hat), [1.0, 1.0])
