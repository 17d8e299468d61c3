"""Deployments: which there are, and that every measure on them is what it says."""

import numpy as np
import pytest
from helpers import small_table
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from agnosticfair.data.encoding import encode
from agnosticfair.data.summary import encoding_of, summary_statistics
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError
from agnosticfair.mathematics import scoring
from agnosticfair_research.datasets import dataset
from agnosticfair_research.deployments import (
    KINDS,
    MAXIMUM,
    MIN_ROWS,
    MIN_SHARE,
    Suite,
    deployments,
    measure_all,
    named_suite,
    natural_subgroups,
)
from agnosticfair_research.splits import shift


def measure(y, p, s, weights=None):
    """What ``measure_all`` must give for one deployment, by the package's scores."""
    right = 1.0 - np.abs(y - p)
    return {
        "risk_difference": scoring.risk_difference(p, s, weights),
        "accuracy": scoring.positive_rate(right, weights),
        "balanced_accuracy": np.nanmean(scoring.positive_rates(right, y.astype(int), weights)),
        "positive_rate": scoring.positive_rate(p, weights),
    }


@pytest.fixture(scope="module")
def split(adult):
    return shift(adult, dataset("adult"), 2, 0)


@pytest.fixture(scope="module")
def test_rows(split):
    return split.test


def suite_of(rows, seed=0, natural=None):
    return deployments(
        rows, encoding_of(summary_statistics(rows, who="test")), seed, "sex", natural
    )


@pytest.fixture(scope="module")
def found(split):
    return suite_of(split.test, 0, natural_subgroups(split, dataset("adult").shift))


def weights_of(found, name):
    return found.weights[[found.names.index(name)]].toarray()[0]


def of_kind(found, kind):
    return [name for name, its in zip(found.names, found.kinds, strict=True) if its == kind]


def test_adult_has_all_kinds(found):
    assert {*found.kinds} == {*KINDS}
    assert list(found.kinds) == sorted(found.kinds, key=KINDS.index)
    assert found.names[0] == "test set"
    assert (weights_of(found, "test set") == 1).all()
    for kind, maximum in MAXIMUM.items():
        assert len(of_kind(found, kind)) == maximum
    assert len({*found.names}) == len(found)
    assert "education = Prof-school" in found.names  # a column that is no feature
    assert "sex = Male" not in found.names
    assert any(name.startswith("age = ") for name in of_kind(found, "single value"))


def test_natural_ones_are_what_the_split_holds_back(found, test_rows):
    assert {"Private", "not Private", "workclass = Local-gov"} <= {*of_kind(found, "natural")}
    private = test_rows.column("workclass").values() == "Private"
    assert (weights_of(found, "not Private") == ~private).all()


def test_every_deployment_is_large_enough_and_has_both_groups(found, test_rows):
    s, W = test_rows.column("sex").codes, found.weights.toarray()
    assert (W.sum(axis=1) ** 2 / (W**2).sum(axis=1) >= MIN_ROWS - 1e-6).all()
    male = W @ s / W.sum(axis=1)
    assert male.min() >= MIN_SHARE
    assert male.max() <= 1 - MIN_SHARE
    for kind in ("single value", "pair", "triple"):
        rows = W[[k for k, its in enumerate(found.kinds) if its == kind]]
        assert {*np.unique(rows)} == {0.0, 1.0}


def test_a_subgroup_is_the_rows_of_its_values(found, test_rows):
    assert (
        weights_of(found, "occupation = Sales")
        == (test_rows.column("occupation").values() == "Sales")
    ).all()
    name = next(n for n in of_kind(found, "triple") if "age" not in n and " = " in n)
    inside = np.ones(len(test_rows), bool)
    for column, value in (term.split(" = ") for term in name.split(" and ")):
        if column not in test_rows.numeric:
            inside &= test_rows.column(column).values() == value
    assert (inside | (weights_of(found, name) == 0)).all()


def test_a_tilt_is_a_gaussian_in_the_encoded_space(found, test_rows):
    X = encode(encoding_of(summary_statistics(test_rows, who="test")), test_rows)
    name = of_kind(found, "kernel tilt")[-1]
    row = int(name.removeprefix("tilt to row "))
    expected = np.exp(-((X - X[row]) ** 2).sum(axis=1) / 2)
    np.testing.assert_allclose(weights_of(found, name), expected, atol=1e-10)


@pytest.mark.slow
def test_the_seed_draws_tilts_mixtures_and_which_of_many(found, test_rows):
    same, other = suite_of(test_rows, 0), suite_of(test_rows, 1)
    assert of_kind(same, "single value") == of_kind(other, "single value")
    for kind in MAXIMUM:
        assert of_kind(found, kind) != of_kind(other, kind) or kind == "mixture"
    assert (weights_of(same, "mixture 1") != weights_of(other, "mixture 1")).any()


def one_sided(n=2000):
    """job 'a' has too few of one group, 'b' has enough, 'c' too few rows."""
    job = np.repeat([0, 1, 2], [900, n - 900 - 399, 399])
    s = np.arange(n) % 2
    s[:900] = np.arange(900) < 40  # under 5%
    return Table(
        {"x": np.zeros(n)},
        {"job": Column(job, ("a", "b", "c"))},
        Column(np.arange(n) % 2, ("no", "yes")),
        {"sex": Column(s, ("F", "M"))},
    )


def test_what_is_small_or_of_one_group_is_left_out():
    names = [n for n in suite_of(one_sided()).names if not n.startswith("tilt")]
    assert names == ["test set", "job = b"]
    assert named_suite(one_sided(), "sex").names == ("all rows", "job = b")


def test_few_rows_leave_nothing():
    with pytest.raises(DataError, match="fewer than 400"):
        suite_of(small_table(12))


def test_errors_are_those_of_resampled_rows(adult):
    """The standard error of every measure, against the spread over samples of the population."""
    rng, n = np.random.default_rng(0), 2000
    y_all, s_all = adult.labels(">50K"), adult.column("sex").codes
    p_all = rng.uniform(size=len(adult)) * (0.3 + 0.4 * s_all)
    draws = []
    for _ in range(300):
        rows = rng.choice(len(adult), n)
        whole = Suite(("all",), ("test set",), csr_array(np.ones((1, n))))
        draws.append(measure_all(whole, y_all[rows], p_all[rows], s_all[rows]))
    for name in ("risk_difference", "accuracy", "balanced_accuracy", "positive_rate"):
        spread = np.std([draw[name][0] for draw in draws])
        mean = np.mean([draw[f"{name}_error"][0] for draw in draws])
        assert mean == pytest.approx(spread, rel=0.15)


def test_all_at_once_is_each_by_itself(found, test_rows):
    y, s = test_rows.labels(">50K"), test_rows.column("sex").codes
    p = np.random.default_rng(0).uniform(size=len(y))
    everywhere = measure_all(found, y, p, s)
    for k in (0, 5, 100, -1):
        one = measure(y, p, s, found.weights[[k]].toarray()[0])
        assert {name: everywhere[name][k] for name in one} == pytest.approx(one)


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
            "risk_difference": scoring.risk_difference(y_hat, s, w),
            "accuracy": scoring.accuracy(y, y_hat, w),
            "balanced_accuracy": scoring.balanced_accuracy(y, y_hat, w),
            "positive_rate": scoring.positive_rate(y_hat, w),
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
