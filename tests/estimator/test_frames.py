"""Frames as people have them: sensitive columns by name, texts, dates; without routing of metadata."""

import re
from datetime import date, time, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from agnosticfair import AgnosticFairClassifier, Rule, audit, fairness_scorer, method
from agnosticfair.cli import main
from agnosticfair.data.files import read_rows
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.estimator.frames import layout_of, numbers_of
from agnosticfair.mathematics import scoring
from agnosticfair.model import load_model


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


@pytest.mark.filterwarnings("ignore:.*a nearly constant decision")
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
    assert layout.names(()) == ["job=?", "job=a", "job=b", "day"]
    np.testing.assert_array_equal(numbers_of(layout, X), [[1], [1], [1]])
    assert layout_of(pd.DataFrame({"a": [1.0]}), None) is None


def test_a_category_that_a_fold_lacks_can_be_ignored(people):
    X, y = people
    rare = X.assign(job=np.where(np.arange(len(X)) == 3, "carter", X["job"]))
    send = {**FAIR, "handle_unknown": "ignore"}
    model = AgnosticFairClassifier(**send)
    assert np.isfinite(cross_val_score(model, rare, y, cv=2)).all()
    fitted = AgnosticFairClassifier(**send).fit(X, y)
    odd, commonest = (
        fitted.decision_function(X.assign(job=job)) for job in ("carter", X["job"].mode()[0])
    )
    np.testing.assert_array_equal(odd, commonest)
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
        (lambda X: X.assign(job="carter"), "'carter'.*unseen"),
        (lambda X: X.drop(columns="job"), "job"),
        (lambda X: X.assign(day=pd.NaT), "NaN"),
        (lambda X: X.assign(age="old"), "'age'.*should"),
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
    with pytest.raises(DataError, match=r"2 columns.*'age'"):
        AgnosticFairClassifier(**FAIR).fit(twice, y)
    with pytest.raises(DataError, match="no column 'gender'"):
        AgnosticFairClassifier("fairfl", sensitive_columns="gender").fit(X, y)
    with pytest.raises(DataError, match="sensitive_columns"):
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


def days_of(frame, **how):
    layout = layout_of(frame, None)
    return numbers_of(layout, frame)[:, 0].tolist()


ZONED = pd.Series(pd.to_datetime(["1970-01-02 01:00", "1970-01-03 01:00"])).dt.tz_localize(
    "Europe/Berlin"
)


@pytest.mark.parametrize(
    ("values", "days"),
    [
        (ZONED, [1.0, 2.0]),
        (pd.Series(pd.PeriodIndex(["1970-02", "1970-03"], freq="M")), [31.0, 59.0]),
        (pd.Series([date(1970, 1, 2), date(1970, 1, 4)]), [1.0, 3.0]),
        (pl.Series([date(1970, 1, 2), date(1970, 1, 4)]), [1.0, 3.0]),
        (pd.Series(pd.to_timedelta([36, 48], "h")), [1.5, 2.0]),
        (pl.Series([timedelta(days=1), timedelta(hours=12)]), [1.0, 0.5]),
    ],
)
def test_times_of_every_kind_are_days(values, days):
    frame = type(values).__module__.startswith("pandas") and pd.DataFrame({"day": values})
    frame = pl.DataFrame({"day": values}) if frame is False else frame
    X = frame.assign(text="a") if hasattr(frame, "assign") else frame.with_columns(text=pl.lit("a"))
    assert days_of(X) == days


@pytest.mark.parametrize("odd", [1j, [1, 2], {"a": 1}, (1,), time(12)])
def test_values_that_are_no_numbers_dates_or_texts_are_refused(people, odd):
    X, y = people
    with pytest.raises(DataError, match="'odd'"):
        AgnosticFairClassifier(**FAIR).fit(X.assign(odd=[odd] * len(X)), y)
    with pytest.raises(DataError, match="'odd'"):
        audit(X["pay"] > 0, X.assign(odd=[odd] * len(X)), None, sensitive_features=X["sex"])


@pytest.mark.parametrize(
    "key", [lambda n: np.arange(n), lambda n: [f"p{k}" for k in range(n)]], ids=["numbers", "texts"]
)
def test_an_identifier_is_no_feature_and_a_warning_says_so(people, key):
    X, y = people
    without = AgnosticFairClassifier(**FAIR).fit(X, y)
    with pytest.warns(UserWarning, match="'id'.*identifier"):
        fitted = AgnosticFairClassifier(**FAIR).fit(X.assign(id=key(len(X))), y)
    np.testing.assert_array_equal(fitted.coef_, without.coef_)
    other = X.assign(id=key(len(X))[::-1])
    np.testing.assert_array_equal(fitted.predict(other), without.predict(X))


def test_lazy_frames_and_tables_of_arrow_are_taken(people):
    X, y = people
    X = X.drop(columns="day")
    expected = AgnosticFairClassifier(**FAIR).fit(X, y)
    for odd in (pl.from_pandas(X).lazy(), pa.Table.from_pandas(X)):
        fitted = AgnosticFairClassifier(**FAIR).fit(odd, y)
        np.testing.assert_array_equal(fitted.predict_proba(odd), expected.predict_proba(X))
        assert audit(y == "yes", odd, None, sensitive_features=X["sex"]).n == len(X)


@pytest.mark.parametrize("learner", ["linear", "additive"])
def test_a_frame_gives_the_model_of_its_file(people, tmp_path, learner):
    """The same rows and seed: the estimator's probabilities are those of the command, to the bit."""
    X, y = people
    X = X.assign(member=X["age"] % 3 == 0, note=np.where(X["age"] < 30, None, "old"))
    file = tmp_path / "rows.parquet"
    X.assign(label=y).to_parquet(file)
    main_out = tmp_path / "m.safetensors"
    line = f"fit {file} --target label --sensitive-features sex --tau 0.05 --learner {learner}"
    with pytest.raises(SystemExit) as ended:
        main([*line.split(), "--out", str(main_out)])
    assert ended.value.code == 0
    model = load_model(main_out)
    estimator = AgnosticFairClassifier(
        tau=0.05, rule=Rule(learner=learner), sensitive_columns="sex"
    ).fit(X, y)
    table = read_rows(file, model.encoding, sensitive_features=model.further_columns)
    np.testing.assert_array_equal(estimator.predict_proba(X)[:, 1], model.probabilities(table))
    np.testing.assert_array_equal(estimator.decision_function(X), model.decision(table))
