"""Importances and partial dependence find the columns that matter, and their direction."""

import numpy as np
import pytest

from agnosticfair.data.table import Column, Table
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair.runs.ruled import gains, partial_dependence, permutation_importances


@pytest.fixture(scope="module")
def rows():
    r = np.random.default_rng(0)
    x, noise, job = r.normal(size=2000), r.normal(size=2000), r.choice(["a", "b", "c"], 2000)
    y = 2 * x + 2.0 * (job == "b") + r.normal(size=2000) > 0
    target = Column.of(np.where(y, "yes", "no"))
    return Table({"x": x, "noise": noise}, {"job": Column.of(job)}, target, {})


@pytest.fixture(scope="module")
def model(rows):
    return fit({"all": rows.take(np.arange(1500))}, method("fl", learner="trees")).model


def test_gain_and_permutation_agree_on_the_order(model, rows):
    test = rows.take(np.arange(1500, 2000))
    gain = gains(model.estimates, model.encoding)
    rises = permutation_importances(model.probabilities, test, test.labels("yes"))
    assert [*gain] == [*rises] == ["x", "job", "noise"]
    assert sum(gain.values()) == pytest.approx(1.0)
    assert abs(rises["noise"]) < 0.02 < rises["job"]


def test_partial_dependence_rises_with_what_raises_the_probability(model, rows):
    values, means = partial_dependence(model.probabilities, rows, "x")
    assert len(values) == 20
    assert means[-1] - means[0] > 0.6
    words, by_word = partial_dependence(model.probabilities, rows, "job")
    assert words[by_word.argmax()] == "b"
