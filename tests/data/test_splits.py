"""Rows dealt at random."""

import numpy as np
import pytest
from helpers import small_table
from hypothesis import given, settings
from hypothesis import strategies as st

from agnosticfair import iid
from agnosticfair.data.datasets import client_names
from agnosticfair.errors import SettingsError


@given(n=st.integers(50, 300), p=st.integers(1, 12), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_every_row_lands_in_exactly_one_place(n, p, seed):
    rows, again = small_table(n), iid(small_table(n), p, seed)
    done = iid(rows, p, seed)
    ages = np.concatenate([t.numeric["age"] for t in (*done.train.values(), done.test)])
    assert sorted(ages) == sorted(rows.numeric["age"])
    assert [*done.train] == [*client_names(p)] == sorted(done.train)
    sizes = [len(t) for t in done.train.values()]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == round(0.8 * n)
    assert done.test_piece.shape == (len(done.test),)
    np.testing.assert_array_equal(done.test.numeric["age"], again.test.numeric["age"])


@pytest.mark.parametrize(("clients", "named"), [(241, "241"), (0, "0 clients"), (-1, "-1")])
def test_clients_that_cannot_be_are_refused(clients, named):
    with pytest.raises(SettingsError, match=named):
        iid(small_table(300), clients)
