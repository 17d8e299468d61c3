"""Deployments: which there are, and that every measure on them is what it says."""

import numpy as np
import pytest
from helpers import small_table
from hypothesis import given
from hypothesis import strategies as st

from agnosticfair.data.census import encoding_of, take_census
from agnosticfair.data.datasets import dataset
from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.splits import shift
from agnosticfair.data.table import Column, Table
from agnosticfair.experiments.deployments import (
    KINDS,
    LEAST_ROWS,
    LEAST_SHARE,
    TILTS,
    deployments,
    measure,
    summarise,
)
from agnosticfair.mathematics import metrics


@pytest.fixture(scope="module")
def test_rows(adult):
    return shift(adult, dataset("adult"), 2, 0).test


@pytest.fixture(scope="module")
def found(test_rows):
    return deployments(test_rows, encoding_of(take_census(test_rows, who="test")), 0, "sex")


def test_adult_has_about_sixty_of_all_kinds(found):
    assert 60 <= len(found) <= 66
    assert {d.kind for d in found} == {*KINDS}
    assert found[0].name == "test set"
    assert (found[0].weights == 1).all()
    assert sum(d.kind == "kernel tilt" for d in found) == TILTS
    assert len({d.name for d in found}) == len(found)
    assert "education = Prof-school" in {d.name for d in found}  # a column that is no feature


def test_sub_populations_are_large_enough_and_have_both_groups(found, test_rows):
    s = test_rows.column("sex").codes
    for place in found:
        if place.kind in KINDS[1:3]:
            rows = place.weights > 0
            assert {*np.unique(place.weights)} <= {0.0, 1.0}
            assert rows.sum() >= LEAST_ROWS
            assert LEAST_SHARE <= s[rows].mean() <= 1 - LEAST_SHARE


def test_a_sub_population_is_the_rows_of_its_value(found, test_rows):
    place = next(d for d in found if d.name == "occupation = Sales")
    assert (place.weights == (test_rows.column("occupation").values() == "Sales")).all()


def test_age_quartiles_part_the_test_set(found):
    quartiles = [d.weights for d in found if d.kind == "age quartile"]
    assert len(quartiles) == 4
    assert (sum(quartiles) == 1).all()


def test_a_tilt_weighs_its_own_row_most(found):
    for place in found[-TILTS:]:
        row = int(place.name.removeprefix("tilt to row "))
        assert place.weights[row] == pytest.approx(1.0)
        assert place.weights.max() <= 1.0
        assert place.weights.min() >= 0.0


def test_a_tilt_is_a_gaussian_in_the_encoded_space(found, test_rows):
    X = encode(encoding_of(take_census(test_rows, who="test")), test_rows)
    row = int(found[-1].name.removeprefix("tilt to row "))
    expected = np.exp(-((X - X[row]) ** 2).sum(axis=1) / 2)
    np.testing.assert_allclose(found[-1].weights, expected, atol=1e-10)


def test_the_seed_draws_the_tilts_and_nothing_else(found, test_rows):
    other = deployments(test_rows, encoding_of(take_census(test_rows, who="test")), 1, "sex")
    names = [[d.name for d in those] for those in (found, other)]
    assert names[0][:-TILTS] == names[1][:-TILTS]
    assert names[0][-TILTS:] != names[1][-TILTS:]


def one_sided(n=2000):
    """job 'a' has too few of one group, 'b' has enough, 'c' too few rows."""
    job = np.repeat([0, 1, 2], [900, n - 900 - 399, 399])
    s = np.arange(n) % 2
    s[:900] = np.arange(900) < 40  # under 5%
    return Table(
        {"x": np.linspace(0, 1, n)},
        {"job": Column(job, ("a", "b", "c"))},
        Column(np.arange(n) % 2, ("no", "yes")),
        {"sex": Column(s, ("F", "M"))},
    )


def test_what_is_small_or_of_one_group_is_left_out_and_age_is_not_needed():
    table = one_sided()
    places = deployments(table, encoding_of(take_census(table, who="test")), 0, "sex", tilts=3)
    assert [d.name for d in places[:-3]] == ["test set", "job = b"]


def test_few_rows_leave_the_test_set_and_a_tilt_for_each():
    table = small_table(12)
    places = deployments(table, encoding_of(take_census(table, who="test")), 0, "sex")
    assert [d.kind for d in places] == ["test set"] + ["kernel tilt"] * 12


def test_a_tilt_that_loses_a_group_is_noticed():
    table = Table(
        {"x": np.array([0.0, 1000.0])},
        {},
        Column(np.array([0, 1]), ("no", "yes")),
        {"sex": Column(np.array([0, 1]), ("F", "M"))},
    )
    far = Encoding((("x", 0.0, 1.0),), (), scale=False)
    with pytest.raises(AssertionError, match="lost a group"):
        deployments(table, far, 0, "sex")


rows = st.integers(10, 60).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, 2**32 - 1), st.floats(0.01, 5.0))
)


@given(rows)
def test_measures_of_a_certain_decision_are_the_metrics(drawn):
    n, seed, scale = drawn
    rng = np.random.default_rng(seed)
    y, y_hat, s = rng.integers(0, 2, (3, n))
    s[:2] = (0, 1)
    w = scale * rng.uniform(0.1, 1.0, n)
    assert measure(y, y_hat.astype(float), s, w) == pytest.approx(
        {
            "risk_difference": metrics.risk_difference(y_hat, s, w),
            "accuracy": metrics.accuracy(y, y_hat, w),
            "balanced_accuracy": metrics.balanced_accuracy(y, y_hat, w),
            "positive_rate": metrics.positive_rate(y_hat, w),
        }
    )


def test_measures_of_a_drawn_decision_are_its_expectations():
    rng = np.random.default_rng(0)
    y, s = rng.integers(0, 2, (2, 300))
    p = rng.uniform(size=300)
    draws = [measure(y, (rng.uniform(size=300) < p).astype(float), s) for _ in range(4000)]
    for name in ("accuracy", "balanced_accuracy", "positive_rate"):
        mean = np.mean([draw[name] for draw in draws])
        assert measure(y, p, s)[name] == pytest.approx(mean, abs=3e-3)


def test_a_summary_names_the_worst_deployment():
    spread = (0.1, 0.5, 0.2, 0.0)
    entries = [
        {
            "name": f"d{k}",
            "risk_difference": rd,
            "accuracy": 0.9 - rd,
            "balanced_accuracy": 0.5 + rd,
            "positive_rate": rd / 2,
        }
        for k, rd in enumerate(spread)
    ]
    assert summarise(entries) == pytest.approx(
        {
            "mean_risk_difference": 0.2,
            "p90_risk_difference": 0.41,
            "max_risk_difference": 0.5,
            "worst": "d1",
            "mean_accuracy": 0.7,
            "min_accuracy": 0.4,
            "mean_balanced_accuracy": 0.7,
            "mean_positive_rate": 0.1,
        }
    )
