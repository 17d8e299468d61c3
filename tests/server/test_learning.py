"""The additive learner is the logistic regression of its features, over any clients, masked, streamed and resumed."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table, streamed
from sklearn.linear_model import LogisticRegression

from agnosticfair.data import files
from agnosticfair.data.encoding import encode
from agnosticfair.data.summary import summary_statistics
from agnosticfair.data.table import Column
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.learners.estimates import Estimates, heads
from agnosticfair.methods import Fairness, Method, Rule, method
from agnosticfair.protocol import requests
from agnosticfair.server import learning
from agnosticfair.server.plan import heads_of, plan

ROWS = small_table(1500, 5)
PLAIN = Method("plain", rule=Rule("additive"))


@pytest.mark.parametrize("learner", ["additive", "linear"])
def test_it_is_scikit_learn_s_logistic_regression(learner):
    fitted_here = fit(dealt(ROWS, 3), Method("plain", rule=Rule(learner)), positive="yes")
    assert (fitted_here.outcome, fitted_here.learner) == ("converged", learner)
    X = encode(fitted_here.model.encoding, ROWS)
    fitted = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(X, ROWS.labels("yes"))
    probability = fitted_here.model.probabilities(ROWS)
    np.testing.assert_allclose(probability, fitted.predict_proba(X)[:, 1], atol=2e-3)
    assert fitted_here.rounds <= 10


def test_fold_models_are_logistic_regressions_of_other_folds():
    from agnosticfair.data.rows import folds_by_features
    from agnosticfair.learners.estimates import out_of_fold

    made = fitted_estimates()
    estimates, encoding = made
    fold = folds_by_features(ROWS, 5)
    X, y = encode(encoding, ROWS), ROWS.labels("yes")
    predictions = out_of_fold(estimates, encoding, ROWS)
    for f in range(5):
        fitted = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(
            X[fold != f], y[fold != f]
        )
        true = fitted.predict_proba(X[fold == f])[:, 1]
        np.testing.assert_allclose(predictions[0, fold == f], true, atol=5e-3)


def fitted_estimates() -> tuple[Estimates, object]:
    """What the last round of a fit knows, folds included."""
    from agnosticfair.federation import FitArguments, _until_answered, coordinator_for, in_process
    from agnosticfair.protocol.faults import policy

    coordinator = coordinator_for(in_process({"a": ROWS}), policy("stop"), None, False, None)
    state = _until_answered(coordinator, FitArguments(PLAIN, positive="yes"), None)
    return state.plan.task.estimates, state.plan.task.encoding


@pytest.mark.parametrize("clients", [2, 10])
def test_the_same_bits_over_any_clients(clients):
    one = fit({"a": ROWS}, PLAIN, positive="yes").model
    assert fit(dealt(ROWS, clients), PLAIN, positive="yes").model.digest == one.digest


def test_the_same_bits_masked_and_streamed(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "STREAMED", 0)
    one = fit({"a": ROWS}, PLAIN, positive="yes").model
    assert fit(dealt(ROWS, 3), PLAIN, positive="yes", secure=True).model.digest == one.digest
    assert fit(streamed(dealt(ROWS, 2), tmp_path), PLAIN, positive="yes").model.digest == one.digest


def test_rows_that_are_there_twice_weigh_two():
    twice = ROWS.take(np.repeat(np.arange(len(ROWS)), 2))
    weighed = replace(ROWS, weights=np.full(len(ROWS), 2.0))
    one, two = (fit({"a": t}, PLAIN, positive="yes").model for t in (twice, weighed))
    np.testing.assert_allclose(one.probabilities(ROWS), two.probabilities(ROWS), atol=1e-5)


def test_few_distinct_rows_are_judged_by_the_one_model():
    coarse = replace(ROWS, numeric={})
    fitted = fit({"a": replace(coarse, categorical={"job": ROWS.categorical["job"]})}, PLAIN)
    assert fitted.converged
    rates = [ROWS.labels("yes")[ROWS.categorical["job"].codes == k].mean() for k in range(3)]
    for k, rate in enumerate(rates):
        own = fitted.model.probabilities(coarse)[ROWS.categorical["job"].codes == k]
        np.testing.assert_allclose(own, rate, atol=0.01)


def test_a_given_probability_is_taken_as_it_is():
    p = np.random.default_rng(0).random(len(ROWS))
    table = replace(ROWS, numeric={**ROWS.numeric, "score": p})
    fitted = fit(dealt(table, 2), Method("plain", rule=Rule(probability="score")), positive="yes")
    assert (fitted.learner, fitted.rounds) == ("given", 0)
    np.testing.assert_allclose(fitted.model.probabilities(table), p, atol=1e-6)
    bad = replace(table, numeric={**table.numeric, "score": 2 * p})
    with pytest.raises(SettingsError, match="0 to 1"):
        fit({"a": bad}, Method("plain", rule=Rule(probability="score")), positive="yes")
    with pytest.raises(SettingsError, match=r"'nothing'.*numbers"):
        fit({"a": table}, Method("plain", rule=Rule(probability="nothing")), positive="yes")


def test_one_group_is_a_sentence():
    alone = Column(np.zeros(len(ROWS), np.int32), ("g0",))
    table = replace(ROWS, sensitive_features={"sex": alone})
    with pytest.raises((SettingsError, DataError), match="group"):
        fit({"a": table}, "rule", positive="yes")


def test_costs_move_the_decision_and_not_the_probability():
    cheap = Method("plain", rule=Rule("additive", costs=(1.0, 9.0)))
    one, two = (fit({"a": ROWS}, m, positive="yes").model for m in (PLAIN, cheap))
    p = one.probabilities(ROWS)
    np.testing.assert_array_equal(p, two.probabilities(ROWS))
    np.testing.assert_array_equal(one.predict(ROWS), p > 0.5)
    np.testing.assert_array_equal(two.predict(ROWS), p > 0.1)


def test_a_separable_label_does_not_diverge():
    y = (ROWS.numeric["age"] > 0).astype(np.int32)
    table = replace(ROWS, target=Column(y, ("no", "yes")))
    fitted = fit({"a": table}, PLAIN, positive="yes")
    assert fitted.converged
    assert np.mean(fitted.model.predict(table) == y) > 0.9


def test_calibration_is_observed_less_expected():
    fitted = fit({"a": ROWS}, PLAIN, positive="yes")
    (only,) = fitted.calibration
    assert (only.subgroup, only.head) == ("overall", "label")
    assert abs(only.z) < 1


def test_heads_follow_the_fairness_metric():
    statistics = summary_statistics(ROWS, "rows")
    odds = Method("m", fairness=Fairness(metric="equalized_odds"), rule=Rule())
    names = [h.name for h in heads_of(plan(odds, statistics, ("a",), positive="yes"))]
    assert names == ["label", "group:g1|0", "group:g1|1"]
    bounded = Method("m", fairness=Fairness(0.5, metric="bounded_group_loss"), rule=Rule())
    with pytest.raises(SettingsError, match="take 'fairfl'"):
        heads_of(plan(bounded, statistics, ("a",), positive="yes"))


def test_a_learner_that_is_not_there_is_a_sentence():
    with pytest.raises(SettingsError, match="unknown learner 'forest'"):
        Rule("forest")


def test_the_hessian_is_sent_only_while_it_helps():
    fitted = fit({"a": ROWS}, PLAIN, positive="yes")
    small = [entry["decrement"] < learning.REFRESH for entry in fitted.history]
    assert small[-1]
    assert fitted.bytes_per_round < 8 * 6 * (fitted.model.encoding.width + 1) * 2 + 1000


def test_wide_rows_send_a_diagonal_and_learn_the_same(monkeypatch):
    full = fit({"a": ROWS}, PLAIN, positive="yes")
    monkeypatch.setattr(requests, "MAX_NUMBERS", 10)
    one = fit({"a": ROWS}, PLAIN, positive="yes")
    split = fit(dealt(ROWS, 3), PLAIN, positive="yes")
    np.testing.assert_array_equal(
        one.model.estimates.arrays["w"], split.model.estimates.arrays["w"]
    )
    assert one.bytes_per_round < 8 * 12 * 2 * (one.model.encoding.width + 2)
    (loss,), (other,) = full.held_out.values(), one.held_out.values()
    assert abs(loss - other) < 2e-3


def test_a_sensitive_feature_of_many_values_is_refused_by_a_sentence_about_bins():
    ages = [str(age) for age in range(17, 91)]
    column = Column.of((ages * 21)[: len(ROWS)])
    for chosen_method in (PLAIN, method("fairfl")):
        with pytest.raises(DataError, match=r"'age'.*74 groups"):
            fit(
                {"a": replace(ROWS, sensitive_features={"age": column})},
                chosen_method,
                positive="yes",
            )
    with pytest.raises(SettingsError, match=r"100 groups.*cut"):
        heads([("a", ages[:10]), ("b", ages[:10])], intersections=True)
    assert len(heads([("a", ages[:10]), ("b", ages[:10])])) == 21
