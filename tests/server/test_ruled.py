"""A fit with a rule, whole: the same bits everywhere, in every front."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table, streamed

from agnosticfair.auditing.audit import audit_clients
from agnosticfair.data import files
from agnosticfair.errors import DataError
from agnosticfair.estimator.classifier import AgnosticFairClassifier
from agnosticfair.federation import fit, fit_along
from agnosticfair.learners.rule import Rule
from agnosticfair.methods import method
from agnosticfair.model import load_model
from agnosticfair.server import solvers
from agnosticfair.server.solvers import choose

ROWS = small_table(900, 7)
ADDITIVE = method("rule", learner="additive")
RULE = method(ADDITIVE, tau=0.05)
ONE = fit({"a": ROWS}, RULE, positive="yes")


@pytest.mark.parametrize("clients", [2, 10])
def test_the_same_bits_over_any_clients(clients):
    assert fit(dealt(ROWS, clients), RULE, positive="yes").model.digest == ONE.model.digest


def test_the_same_bits_masked_and_streamed(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "STREAMED", 0)
    assert fit(dealt(ROWS, 3), RULE, positive="yes", secure=True).model.digest == ONE.model.digest
    rows = streamed(dealt(ROWS, 2), tmp_path)
    assert fit(rows, RULE, positive="yes").model.digest == ONE.model.digest


def test_its_file_decides_alike(tmp_path):
    ONE.model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.digest == ONE.model.digest
    np.testing.assert_array_equal(again.decision(ROWS), ONE.model.decision(ROWS))


def test_tau_is_kept_by_the_estimates_and_the_fit_says_how_they_fare():
    assert ONE.worst_surrogate <= 0.05 + 1e-3
    assert ONE.learner == "additive"
    assert {entry["stage"] for entry in ONE.history} == {"additive", "program"}
    z = np.array([entry.z for entry in ONE.calibration])
    assert len(z) == 2 * (len(ONE.subgroups.values) + 1)
    assert np.abs(z).max() < 5
    assert np.abs(z[0]) == np.abs(z).max()


@pytest.mark.parametrize("metric", ["equal_opportunity", "equalized_odds"])
def test_metrics_on_labels(metric):
    fitted = fit(dealt(ROWS, 2), method(ADDITIVE, tau=0.05, metric=metric), positive="yes")
    assert fitted.converged
    assert fitted.worst_surrogate <= 0.05 + 1e-3


def test_three_groups():
    rows = small_table(1500, 3, groups=3)
    fitted = fit(dealt(rows, 2), method(ADDITIVE, tau=0.05), positive="yes")
    assert fitted.converged
    assert fitted.model.rule.coefficients.shape[1] == 3


def test_a_path_of_taus_learns_once():
    along = [
        *fit_along({"a": ROWS}, [method(ADDITIVE, tau=t) for t in (0.05, 0.1)], positive="yes")
    ]
    assert along[0].model.decision(ROWS).tobytes() == ONE.model.decision(ROWS).tobytes()
    assert {entry["stage"] for entry in along[1].history} == {"program"}
    own = fit({"a": ROWS}, method(ADDITIVE, tau=0.1), positive="yes").model
    np.testing.assert_array_equal(along[1].model.probabilities(ROWS), own.probabilities(ROWS))
    assert np.mean(along[1].model.predict(ROWS) == own.predict(ROWS)) > 0.97


def test_an_audit_at_clients_counts_the_model_s_decisions():
    certificate = audit_clients(ONE.model, dealt(ROWS, 3), held_out=False)
    right = ONE.model.predict(ROWS) == ROWS.labels("yes")
    assert certificate.accuracy == pytest.approx(right.mean())


def test_aware_needs_the_feature_to_decide():
    made = fit({"a": ROWS}, method(ADDITIVE, tau=0.05, aware=True), positive="yes").model
    assert len(made.predict(ROWS)) == len(ROWS)
    with pytest.raises(DataError, match="model decides"):
        made.predict(replace(ROWS, sensitive_features={}))


def test_the_estimator_fits_the_rule():
    X = np.column_stack([*ROWS.numeric.values()])
    y, s = ROWS.labels("yes"), ROWS.column("sex").values()
    fitted = AgnosticFairClassifier("rule", tau=0.05, rule=Rule("additive")).fit(
        X, y, sensitive_features=s
    )
    p = fitted.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(
        fitted.predict(X), fitted.classes_[(fitted.decision_function(X) > 0) * 1]
    )
    assert np.mean(fitted.predict(X) == y) > 0.6


def test_a_probability_that_is_given_needs_no_learner_for_the_label():
    p = 1 / (1 + np.exp(-ROWS.numeric["age"]))
    table = replace(ROWS, numeric={**ROWS.numeric, "score": p})
    fitted = fit(dealt(table, 2), method("rule", tau=0.05, probability="score"), positive="yes")
    assert fitted.model.estimates.columns == ("score", "")
    np.testing.assert_allclose(fitted.model.probabilities(table), p, atol=1e-6)
    assert fitted.worst_surrogate <= 0.05 + 1e-3


def test_auto_takes_the_learner_that_is_better_on_held_out_rows(monkeypatch):
    few = fit({"a": ROWS}, method("rule", min_people=5.0), positive="yes")
    assert few.learner == "additive"
    assert {*few.held_out} == {"additive"}
    monkeypatch.setattr(solvers, "TREES_FROM", 100)
    fitted = fit({"a": ROWS}, method("rule", tau=0.1), positive="yes")
    assert {*fitted.held_out} == {"additive", "trees"}
    assert fitted.learner == choose(fitted.held_out)
    stages = [entry["stage"] for entry in fitted.history]
    assert (stages[0], stages[-1]) == ("additive", "program")
    assert "trees" in stages
