"""What a row is by its content: folds and digests do not know where it lies."""

import numpy as np
from helpers import dealt, small_table

from agnosticfair.auditing.limit import split_halves
from agnosticfair.data.rows import digest_of, folds_of
from agnosticfair.data.table import concatenate


def test_folds_and_digests_know_rows_by_their_content_alone():
    table = small_table(500)
    order = np.random.default_rng(0).permutation(500)
    fold = folds_of(table, 3, seed=4)
    np.testing.assert_array_equal(folds_of(table.take(order), 3, seed=4), fold[order])
    assert np.bincount(fold).min() > 120
    assert (folds_of(table, 3, seed=5) != fold).any()
    assert digest_of([table]) == digest_of([table.take(order[:200]), table.take(order[200:])])
    assert digest_of([table]) != digest_of([table.take(order[:499])])
    twice = concatenate([table.take(np.zeros(300, int))])
    assert 0.35 < folds_of(twice, 2).mean() < 0.65  # equal rows are dealt apart


def test_folds_are_the_same_however_rows_are_spread():
    table = small_table(400)
    one, two = split_halves({"a": table}, 3), split_halves(dealt(table, 3), 3)
    for left, right in zip(one, two, strict=True):
        assert digest_of(left.clients.values()) == digest_of(right.clients.values())
