"""Rows that look alike, added up once: the bits of all rows."""

import numpy as np
import pytest
from helpers import Requests, small_table

from agnosticfair.client import sums as features
from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.client.sums import Distinct
from agnosticfair.data.table import concatenate
from agnosticfair.federation import fit
from agnosticfair.methods import method


def rows(n=240):
    """Few kinds of rows, many of each."""
    few = small_table(60, 1)
    return concatenate([few] * (n // 60))


@pytest.mark.parametrize("step", ["learn", "program"])
@pytest.mark.parametrize("learner", ["linear", "additive"])
def test_sums_over_kinds_have_the_bits_of_sums_over_rows(step, learner, monkeypatch):
    table = rows()
    engine = Requests({"one": table})
    fit(engine, method("rule", learner=learner, min_people=5, tau=0.02), positive="yes")
    for request in engine.request[step]:
        monkeypatch.setattr(features, "MAX_DISTINCT", 0.7)
        few = answer(Client("one", table), step, request)
        monkeypatch.setattr(features, "MAX_DISTINCT", 0.0)
        every = answer(Client("one", table), step, request)
        assert few.sums.keys() == every.sums.keys()
        for name, total in every.sums.items():
            np.testing.assert_array_equal(few.sums[name], total, err_msg=name)


def test_rows_that_differ_or_weigh_are_all_taken():
    different, same = np.arange(9.0), np.zeros(9)
    assert Distinct.of([different], None) == Distinct(None, None)
    weights = np.full(9, 2.0)
    assert Distinct.of([same], weights).weights is weights
    assert Distinct.of([np.zeros(0)], None).first is None


def test_equal_numbers_with_other_bits_are_one_kind():
    found = Distinct.of([np.array([0.0, -0.0, 0.0, 1.0])], None)
    assert sorted(found.weights) == [1, 3]


def test_every_column_tells_kinds_apart():
    one, other = np.repeat([0.0, 1.0], 6), np.tile([0.0, 1.0], 6)
    found = Distinct.of([one, other], None)
    assert sorted(zip(found.take(one), found.take(other), found.weights, strict=True)) == [
        (0, 0, 3), (0, 1, 3), (1, 0, 3), (1, 1, 3)
    ]  # fmt: skip
