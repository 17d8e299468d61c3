"""Frames as people have them: sensitive columns by name, texts, dates; without routing of metadata."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from agnosticfair import AgnosticFairClassifier, audit, fairness_scorer, method
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.estimator.frames import layout_of, numbers_of
from agnosticfair.mathematics import scoring


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    n = 400
    sex = rng.choice(["F", "M"], n)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "job": rng.choice(["cook", "clerk"], n),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D"),
            "sex": sex,
        }
    )
    frame["pay"] = rng.normal(size=n) + (sex == "M")
    y = np.where(frame["pay"] + (frame["job"] == "cook") + rng.normal(size=n) > 1, "yes", "no")
    return frame, y


FAIR = {"method": "fairfl", "sensitive_columns": ["sex"], "tau": 0.05}


def test_columns_named_once_are_groups_and_never_features(people):
    X, y = people
    named = AgnosticFairClassifier(**FAIR).fit(X, y)
    fitted = AgnosticFairClassifier("fairfl", tau=0.05).fit(
        X.drop(columns="sex"), y, sensitive_features=X["sex"]
    )
    np.testing.assert_array_equal(named.coef_, fitted.coef_)
    assert named.coef_.shape == (1, 5)  # age, two jobs, day, pay
    assert named.n_features_in_ == 5
    swapped = X.assign(sex=np.where(X["sex"] == "F", "M", "F"))
    np.testing.assert_array_equal(named.predict(swapped), named.predict(X))
    assert scoring.risk_difference(named.predict(X) == "yes", X["sex"] == "M") < 0.15
    assert named.certificate_.n == len(X)


@pytest.mark.filterwarnings("ignore:.*nearly one answer")
def test_search_and_validation_need_no_routing(people):
    X, y = people
    found = cross_val_score(AgnosticFairClassifier(**FAIR), X, y, cv=3)
    assert found.mean() > 0.6
    ranked = fairness_scorer("sex", limit=0.15)
    search = GridSearchCV(
        AgnosticFairClassifier(**FAIR), {"tau": [0.02, 0.6]}, scoring=ranked, cv=2
    ).fit(X, y)
    assert search.best_params_["tau"] == 0.02
    piped = make_pipeline("passthrough", AgnosticFairClassifier(**FAIR)).fit(X, y)
    np.testing.assert_array_equal(
        piped.predict(X), search.best_estimator_.set_params(tau=0.05).fit(X, y).predict(X)
    )


def test_a_scorer_ranks_what_keeps_the_limit_above_what_does_not(people):
    X, y = people
    model = make_pipeline("passthrough", AgnosticFairClassifier("fl", sensitive_columns="sex")).fit(
        X, y
    )
    gap = scoring.gap("demographic_parity", y == "yes", model.predict(X) == "yes", X["sex"] == "M")
    assert fairness_scorer("sex")(model, X, y) == pytest.approx(-gap)
    assert fairness_scorer("sex", limit=gap / 2)(model, X, y) == pytest.approx(-gap)
    assert fairness_scorer("sex", limit=1)(model, X, y) == pytest.approx(model.score(X, y))
    with pytest.raises(SettingsError, match="metric"):
        fairness_scorer("sex", metric="fair")


def test_pandas_polars_and_arrays_agree(people):
    X, y = people
    send = {"method": "fairfl", "tau": 0.05}
    one = AgnosticFairClassifier(**send, sensitive_columns="sex").fit(X, y)
    two = AgnosticFairClassifier(**send, sensitive_columns="sex").fit(pl.from_pandas(X), y)
    np.testing.assert_allclose(one.coef_, two.coef_)
    numbers = X[["age", "pay"]].assign(s=(X["sex"] == "M").astype(float))
    three = AgnosticFairClassifier(**send, sensitive_columns=[2]).fit(numbers.to_numpy(), y)
    four = AgnosticFairClassifier(**send, sensitive_columns=["s"]).fit(numbers, y)
    np.testing.assert_array_equal(three.coef_, four.coef_)


def test_texts_and_dates_follow_the_rules_of_files():
    X = pd.DataFrame({"job": ["b", None, " a "], "day": pd.to_datetime(["1970-01-02"] * 3)})
    layout = layout_of(X, None)
    assert layout.names == ("job=?", "job=a", "job=b", "day")
    np.testing.assert_array_equal(numbers_of(layout, X), [[0, 0, 1, 1], [1, 0, 0, 1], [0, 1, 0, 1]])
    assert layout_of(pd.DataFrame({"a": [1.0]}), None) is None


def test_a_category_that_a_fold_lacks_can_be_ignored(people):
    X, y = people
    rare = X.assign(job=np.where(np.arange(len(X)) == 3, "carter", X["job"]))
    send = {**FAIR, "handle_unknown": "ignore"}
    model = AgnosticFairClassifier(**send)
    assert np.isfinite(cross_val_score(model, rare, y, cv=2)).all()
    fitted = AgnosticFairClassifier(**send).fit(X, y)
    jobs = [j for j, name in enumerate(fitted._feature_names()) if name.startswith("job=")]
    known, odd = (
        fitted.decision_function(X[:1]),
        fitted.decision_function(X[:1].assign(job="carter")),
    )
    own = jobs[["clerk", "cook"].index(X["job"][0])]
    np.testing.assert_allclose(known - odd, fitted.coef_[0, own])
    with pytest.raises(SettingsError, match="handle_unknown"):
        AgnosticFairClassifier(**{**FAIR, "handle_unknown": "guess"}).fit(X, y)


def test_subgroups_by_a_column_of_dates_are_named_by_dates(people):
    X, y = people
    model = AgnosticFairClassifier(
        method("rule", depth=1, min_share=0.05), sensitive_columns=["sex"]
    ).fit(X, y)
    subgroups = [name for name, _ in model.trained_subgroups_ if name.startswith("day")]
    assert subgroups, model.trained_subgroups_
    assert all(re.fullmatch(r"day = (before )?2020-\d\d-\d\d( .*)?", name) for name in subgroups)
    certificate = audit(model, X, y, sensitive_features=X["sex"], precision=0.4)
    assert any(re.match("day = before 2020-", name) for name in certificate.to_frame().index)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X.assign(job="carter"), "'carter', unseen in the fit"),
        (lambda X: X.drop(columns="job"), "job"),
        (lambda X: X.assign(day=pd.NaT), "NaN"),
        (lambda X: X.assign(age="old"), "'age' of X should be numbers"),
    ],
)
def test_rows_that_do_not_fit_are_named(people, change, message):
    X, y = people
    model = AgnosticFairClassifier(**FAIR).fit(X, y)
    with pytest.raises(ValueError, match=message):
        model.predict(change(X))


def test_columns_that_make_no_sense_are_refused(people):
    X, y = people
    twice = pd.concat([X, X[["age"]]], axis=1)
    with pytest.raises(DataError, match="2 columns named 'age'"):
        AgnosticFairClassifier(**FAIR).fit(twice, y)
    with pytest.raises(DataError, match="no column 'gender'"):
        AgnosticFairClassifier("fairfl", sensitive_columns="gender").fit(X, y)
    with pytest.raises(DataError, match="name columns of X by sensitive_columns"):
        AgnosticFairClassifier("fairfl").fit(X[["age", "pay"]], y)
    with pytest.raises(SettingsError, match="X has none"):
        AgnosticFairClassifier("fairfl", sensitive_columns="sex").fit([[1.0], [2.0]], [0, 1])
    with pytest.raises(DataError, match="negative"):
        AgnosticFairClassifier(**FAIR).fit(X, y, sample_weight=-np.ones(len(X)))


def test_other_models_are_ranked_too(people):
    X, y = people
    model = LogisticRegression().fit(X[["age", "pay"]], y)

    class Front:
        classes_ = model.classes_

        def predict(self, X):
            return model.predict(X[["age", "pay"]])

    assert fairness_scorer("sex")(Front(), X, y) < 0
