"""A classifier of scikit-learn as the learner, where rows are in one place."""

import numpy as np
import pytest
from helpers import dealt, small_table
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from agnosticfair.data.encoding import encode
from agnosticfair.data.rows import folds_by_features
from agnosticfair.errors import ModelError, SettingsError
from agnosticfair.federation import fit, in_process
from agnosticfair.learners.estimates import heads, out_of_fold
from agnosticfair.learners.local import trained
from agnosticfair.methods import Method, Rule, method

ROWS = small_table(800, 6)


def test_rows_are_judged_by_clones_that_did_not_see_them():
    encoding = fit({"a": ROWS}, "fl", positive="yes").model.encoding
    own = heads([("sex", ("g0", "g1"))])
    made, held_out = trained(LogisticRegression(), own, 4, 0, encoding, "yes", [ROWS])
    X, y, fold = encode(encoding, ROWS), ROWS.labels("yes"), folds_by_features(ROWS, 4)
    predictions = out_of_fold(made, encoding, ROWS)
    for f in range(4):
        true = LogisticRegression().fit(X[fold != f], y[fold != f])
        p = true.predict_proba(X[fold == f])[:, 1]
        np.testing.assert_allclose(predictions[0, fold == f], p, atol=1e-6)
    assert 0.8 < held_out < 2 * np.log(2)


def test_a_rule_over_a_classifier_keeps_tau_by_its_estimates():
    fitted = fit(
        dealt(ROWS, 2), method("rule", learner=LogisticRegression(), tau=0.1), positive="yes"
    )
    assert fitted.converged
    assert fitted.worst_surrogate <= 0.1 + 1e-3
    assert {*fitted.held_out} == {"LogisticRegression"}
    with pytest.raises(ModelError, match="lives in"):
        fitted.model.to_bytes()


def test_it_is_the_classifier_where_nothing_is_compared():
    fitted = fit({"a": ROWS}, Method("plain", rule=Rule(KNeighborsClassifier())), positive="yes")
    X = encode(fitted.model.encoding, ROWS)
    own = KNeighborsClassifier().fit(X, ROWS.labels("yes")).predict_proba(X)[:, 1]
    np.testing.assert_allclose(fitted.model.probabilities(ROWS), own, atol=1e-6)


def test_a_head_of_one_answer_is_that_answer():
    encoding = fit({"a": ROWS}, "fl", positive="yes").model.encoding
    made, _ = trained(LogisticRegression(), heads([]), 3, 0, encoding, "nobody", [ROWS])
    assert not out_of_fold(made, encoding, ROWS).any()


def test_rows_elsewhere_are_a_sentence():
    chosen_method = method("rule", learner=LogisticRegression())
    with pytest.raises(SettingsError, match="needs the rows"):
        fit(in_process(dealt(ROWS, 2)), chosen_method, positive="yes")
