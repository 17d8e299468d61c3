"""Estimates travel with the task to the last bit, and a row's probabilities hang on nothing but the row."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import small_table

from agnosticfair.data.rows import folds_by_features
from agnosticfair.data.summary import encoding_of, summary_statistics
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.learners.estimates import (
    Estimates,
    heads,
    joint,
    learner_of,
    of_all_rows,
    out_of_fold,
    predict,
    strata,
)
from agnosticfair.mathematics.fairness import comparisons
from agnosticfair.mathematics.metrics import metric_of
from agnosticfair.protocol.messages import Broadcast, pack, unpack
from agnosticfair.protocol.requests import UNCOUNTED, SubgroupCounts

TABLE = small_table(300)
ENCODING = encoding_of(summary_statistics(TABLE, "the rows"), True)
HEADS = heads([(k, c.categories) for k, c in TABLE.sensitive_features.items()])


def estimates(seed=0, folds=3, **changes):
    w = np.random.default_rng(seed).normal(size=(folds + 1, len(HEADS), ENCODING.width + 1))
    return Estimates("linear", HEADS, folds, 0, {"w": w}, **changes)


def test_estimates_travel_with_the_task():
    packed = {"w": estimates().arrays["w"], "small": np.arange(4, dtype=np.uint8)}
    task = replace(UNCOUNTED, n=3, estimates=replace(estimates(), arrays=packed))
    again = unpack(pack(Broadcast(1, task, SubgroupCounts()))).task
    assert again.id == task.id
    assert again.estimates.heads == HEADS
    assert again.estimates.arrays["small"].dtype == np.uint8
    np.testing.assert_array_equal(again.estimates.arrays["w"], packed["w"])


def test_a_row_is_judged_by_a_model_of_other_folds():
    made, fold = estimates(), folds_by_features(TABLE, 3)
    predictions = out_of_fold(made, ENCODING, TABLE)
    for f in range(3):
        rows = np.flatnonzero(fold == f)
        np.testing.assert_array_equal(
            predictions[:, rows], predict(made, ENCODING, f, TABLE)[:, rows]
        )


def test_folds_do_not_hang_on_the_split():
    rows = np.random.default_rng(1).permutation(len(TABLE))[:100]
    np.testing.assert_array_equal(
        folds_by_features(TABLE.take(rows), 5), folds_by_features(TABLE, 5)[rows]
    )


def test_the_model_of_all_rows_stands_alone():
    made = estimates()
    one = of_all_rows(made)
    assert (one.folds, len(one.arrays["w"])) == (0, 1)
    np.testing.assert_array_equal(
        predict(one, ENCODING, 0, TABLE), predict(made, ENCODING, 3, TABLE)
    )


def test_aware_reads_the_feature_itself():
    w = np.zeros((4, 1, ENCODING.width + 1))
    estimates = Estimates("linear", HEADS, 3, 0, {"w": w}, aware=True)
    column, *_ = TABLE.sensitive_features.values()
    predictions = predict(estimates, ENCODING, 0, TABLE)
    np.testing.assert_array_equal(predictions[1], column.values() == HEADS[1].group[0])
    with pytest.raises(DataError, match="model decides"):
        predict(estimates, ENCODING, 0, replace(TABLE, sensitive_features={}))


@pytest.mark.parametrize("bad", [-0.1, 1.5, np.nan])
def test_a_column_of_probabilities_is_checked(bad):
    column = np.full(len(TABLE), 0.5)
    column[7] = bad
    table = replace(TABLE, numeric={**TABLE.numeric, "score": column})
    estimates = Estimates("given", HEADS, 0, 0, columns=("score", "score"))
    with pytest.raises(DataError, match=r"'score'.*row 8"):
        predict(estimates, ENCODING, 0, table)


def test_joint_probabilities_add_up_to_one():
    for groups in (("a", "b"), ("a", "b", "c")):
        for labels in (((0, 1),), ((0,), (1,))):
            own = heads([("s", groups)], labels)
            P = np.random.default_rng(0).random((len(own), 50))
            found = joint(own, P)
            assert len(found) == len(strata(own))
            np.testing.assert_allclose(found.sum(axis=0), 1.0)


@pytest.mark.parametrize("metric", ["demographic_parity", "equal_opportunity", "equalized_odds"])
@pytest.mark.parametrize("intersections", [False, True])
def test_strata_are_what_is_compared(metric, intersections):
    features = [("sex", ("F", "M")), ("race", ("a", "b", "c"))]
    own = strata(heads(features, metric_of(metric).labels, intersections))
    compared = comparisons(features, metric, intersections)
    assert len(own) == len(compared.names)
    for stratum, name in zip(own, compared.names, strict=True):
        assert all(value in name for value in stratum.group)
        assert stratum.label is None or name.endswith(f"with label {stratum.label}")


def test_one_group_and_too_many_together_are_refused():
    with pytest.raises(SettingsError, match=r"'sex'.*group"):
        heads([("sex", ("F",))])
    with pytest.raises(SettingsError, match=r"'age'.*146 groups"):
        heads([("age", [str(k) for k in range(73)]), ("sex", ("F", "M"))], intersections=True)


def test_an_unknown_learner_is_a_sentence():
    with pytest.raises(SettingsError, match="unknown learner 'forest'"):
        learner_of("forest")
