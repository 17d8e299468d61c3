"""What a row is by its content: folds, digests and fingerprints do not know where it lies."""

import numpy as np
import pytest
from helpers import dealt, small_table

import agnosticfair
from agnosticfair import audit
from agnosticfair.auditing.limit import dealt_apart
from agnosticfair.data.rows import digest_of, folds_of, known_again
from agnosticfair.data.table import concatenate
from agnosticfair.errors import DataError


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


def test_some_rows_of_the_fit_are_known_again_and_others_are_not(tmp_path):
    table = small_table(4000)
    seen, new = table.take(np.arange(2000)), table.take(np.arange(2000, 4000))
    model = agnosticfair.fit({"a": seen}, "fl").model
    (tmp_path / "model.safetensors").write_bytes(model.to_bytes())
    back = agnosticfair.load_model(tmp_path / "model.safetensors")
    mixed = table.take(np.arange(1000, 3000))  # half of them were seen
    with pytest.raises(DataError, match=r"about [0-9,]+ of these 2,000 are rows that the model"):
        audit(back, mixed, sensitive_features="sex")
    assert audit(back, new, sensitive_features="sex").upper > 0
    assert known_again("", [new]) == known_again("no digest:not base64", [new]) == 0


def test_folds_are_the_same_however_rows_are_spread():
    table = small_table(400)
    one, two = dealt_apart({"a": table}, 3), dealt_apart(dealt(table, 3), 3)
    for left, right in zip(one, two, strict=True):
        assert digest_of(left.clients.values()) == digest_of(right.clients.values())
