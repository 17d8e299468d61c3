"""Metrics: one record each, and one gap, against the rates as everybody defines them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agnosticfair.errors import SettingsError
from agnosticfair.mathematics import scoring
from agnosticfair.mathematics.metrics import METRICS, Metric, metric_of


def spread(rates):
    there = rates[np.isfinite(rates)]
    return there.max() - there.min() if len(there) > 1 else np.nan


NAMED = {
    "demographic_parity": lambda y, p, s, w: scoring.risk_difference(p, s, w),
    "equal_opportunity": lambda y, p, s, w: spread(scoring.positive_rates(p, s, w * y)),
    "equalized_odds": lambda y, p, s, w: np.fmax(
        spread(scoring.positive_rates(p, s, w * y)),
        spread(scoring.positive_rates(p, s, w * (1 - y))),
    ),
    "bounded_group_loss": lambda y, p, s, w: np.nanmax(scoring.positive_rates(y != p, s, w)),
}


def by_its_record(metric, y, p, s, w):
    """The rates that a metric's record names, of the rows of each of its tuples of labels."""
    assert not metric.bounds
    rates = [scoring.positive_rates(p, s, w * np.isin(y, labels)) for labels in metric.labels]
    return np.fmax.reduce([spread(values) for values in rates])


@given(st.sampled_from(sorted(METRICS)), st.integers(0, 200), st.integers(2, 4))
def test_the_gap_is_that_of_the_rates(name, seed, groups):
    rng = np.random.default_rng(seed)
    y, p, s = rng.integers(0, 2, 12), rng.integers(0, 2, 12), rng.integers(0, groups, 12)
    w = rng.choice([0.0, 0.5, 2.0], 12) + (np.arange(12) == 0)
    metric, rows = METRICS[name], (y, p, s, w)
    expected = NAMED[name](*rows) if name in NAMED else by_its_record(metric, *rows)
    assert scoring.gap(name, y, p, s, w) == pytest.approx(expected, nan_ok=True)


def test_without_two_groups_there_is_no_difference():
    assert np.isnan(scoring.gap("demographic_parity", [0, 1], [1, 0], [0, 0]))
    assert np.isnan(scoring.gap("bounded_group_loss", [], [], []))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: metric_of("parity"), "unknown metric 'parity'; there are: demographic_parity"),
        (lambda: Metric("x", ((2,),), "words"), "labels is ((2,),); it must be tuples of labels"),
        (lambda: Metric("x", (), "words"), "labels is (); it must be tuples of labels"),
        (lambda: Metric("x", ((0,),), 3), "quantity is 3; it must be a str"),
    ],
)
def test_what_is_no_metric_is_refused(made, said):
    with pytest.raises(SettingsError) as told:
        made()
    assert str(told.value).startswith(said)
