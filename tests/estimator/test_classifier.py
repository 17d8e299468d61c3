"""The scikit-learn front: its manners, and that it is the same fit as over tables."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers import adult_split, dealt, small_table
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from agnosticfair import AgnosticFairClassifier, Certificate, Rule
from agnosticfair.data.encoding import encode
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, ModelError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.mathematics import scoring
from agnosticfair.mathematics.basis import gaussian
from agnosticfair.mathematics.subgroups import subgroup_name
from agnosticfair.methods import METHODS, method
from agnosticfair.model import load_model

FEW = gaussian(12, 0.8)
SMALL = method("agnosticfair", kernels=12, bound=8.0)
ROWS = method(SMALL, centres="rows")
"""Centres that do not hang on how columns are encoded, or on how often a row is there."""


LEFT_OUT = {
    "check_array_api_input": "runs only where SCIPY_ARRAY_API is set: we hand out numpy arrays"
}
COARSE = {
    "check_sample_weight_equivalence_on_dense_data": "asks for 1e-7 of the decisions; the worst case of "
    "a loss has kinks, and the solver stops within 1e-6 of its optimum"
}


@pytest.mark.parametrize(
    "estimator",
    [
        AgnosticFairClassifier(),
        *(
            pytest.param(AgnosticFairClassifier(chosen), marks=pytest.mark.slow)
            for chosen in ("fl", "afl", method("agnosticfair-a", kernels=12, bound=50.0))
        ),
    ],
    ids=lambda e: getattr(e.method, "name", e.method),
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.filterwarnings("ignore:no group is protected")  # scikit-learn's checks know of none
def test_scikit_learns_own_checks(estimator):
    done = check_estimator(estimator, on_skip=None, on_fail=None)
    left = {c["check_name"]: (c["status"], c["exception"]) for c in done if c["status"] != "passed"}
    coarse = COARSE if getattr(estimator.method, "name", "") == "agnosticfair-a" else {}
    assert {*left} <= {*LEFT_OUT, *coarse}, left


def test_without_groups_the_default_protects_nobody_and_says_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = X[:, 0] > rng.normal(size=200)
    with pytest.warns(UserWarning, match="group is protected"):
        fitted = AgnosticFairClassifier().fit(X, y)
    plain = AgnosticFairClassifier("fl").fit(X, y)
    assert np.array_equal(fitted.coef_, plain.coef_)
    for request in (
        {"tau": 0.1},
        {"limit": 0.1},
        {"metric": "equal_opportunity"},
        {"basis": "gaussian"},
    ):
        with pytest.raises(DataError, match="sensitive_features is missing"):
            AgnosticFairClassifier(**request).fit(X, y)


@pytest.fixture(scope="module")
def rows():
    """X, y, s of a small problem, with what a table makes of it."""
    table = small_table(400, 1)
    model = fit({"a": table}, "fl").model
    s = table.sensitive_features["sex"]
    proxy = s.codes + np.random.default_rng(0).normal(size=len(table))
    y = np.where(table.labels("yes") + proxy > 0.8, "yes", "no")
    return np.column_stack([encode(model.encoding, table), proxy]), y, s.values()


def test_it_is_the_same_fit_as_over_tables():
    table = small_table(400, 1)
    tables = dealt(table, 3)
    bare = fit(tables, ROWS, seed=3)
    X = np.vstack([encode(bare.model.encoding, t) for t in tables.values()])
    y = np.concatenate([t.target.values() for t in tables.values()])
    s = np.concatenate([t.sensitive_features["sex"].values() for t in tables.values()])
    owners = np.repeat([*tables], [len(t) for t in tables.values()])
    ours = AgnosticFairClassifier(ROWS, random_state=3)
    ours.fit(X, y, sensitive_features=s, clients=owners)
    np.testing.assert_allclose(ours.coef_[0], bare.model.w[:-1], atol=1e-6)
    np.testing.assert_allclose(ours.intercept_[0], bare.model.w[-1], atol=1e-6)
    assert ours.n_iter_ == bare.rounds


def ordered(X):
    """Columns whose names sort as they stand, for a file's columns are sorted by name."""
    return pd.DataFrame(X, columns=[f"x{j:03}" for j in range(X.shape[1])])


@pytest.mark.slow
def test_a_data_set_through_the_estimator_is_the_same_through_tables(adult):
    split = adult_split(adult)
    # rows as centres, which do not depend on the scale
    chosen_method = method("agnosticfair", tau=0.11, centres="rows")
    bare = fit(split.train, chosen_method, sensitive_features="sex", positive=">50K")
    tables = split.train.values()
    X = ordered(np.vstack([encode(bare.model.encoding, t) for t in tables]))
    y = np.concatenate([t.labels(">50K") for t in tables])
    s = np.concatenate([t.column("sex").values() for t in tables])
    owners = np.repeat([*split.train], [len(t) for t in tables])
    ours = AgnosticFairClassifier(chosen_method)
    ours.fit(X, y, sensitive_features=s, clients=owners)
    here, there = (
        ours.decision_function(ordered(encode(bare.model.encoding, split.test))),
        split.test,
    )
    np.testing.assert_allclose(here, bare.model.decision(there), atol=1e-6)


def test_units_of_the_columns_do_not_matter(rows):
    X, y, s = rows
    one = AgnosticFairClassifier(SMALL).fit(X, y, sensitive_features=s)
    # powers of two, so that scaling back gives the same bits and so the same centres
    two = AgnosticFairClassifier(SMALL).fit(X * 1024.0, y, sensitive_features=s)
    np.testing.assert_allclose(one.coef_, two.coef_ * 1024.0, rtol=1e-6)
    plain = AgnosticFairClassifier(method("fl", ridge=0.0), scale=False).fit(X * 4.0, y)
    np.testing.assert_array_equal(
        plain.predict(X * 4.0), AgnosticFairClassifier(method("fl", ridge=0.0)).fit(X, y).predict(X)
    )


def test_weights_are_repeated_rows(rows):
    X, y, s = rows
    times = np.arange(len(X)) % 3
    weighted = AgnosticFairClassifier(ROWS, tau=0.1)
    weighted.fit(X, y, sensitive_features=s, sample_weight=times)
    again = np.repeat(np.arange(len(X)), times)
    repeated = AgnosticFairClassifier(ROWS, tau=0.1)
    repeated.fit(X[again], y[again], sensitive_features=s[again])
    np.testing.assert_array_equal(weighted.coef_, repeated.coef_)
    with pytest.raises(SettingsError, match=r"'fedavg'.*sample_weight"):
        AgnosticFairClassifier("fedavg").fit(X, y, sensitive_features=s, sample_weight=times / 2)


def test_the_constraint_holds_and_is_certified(rows):
    X, y, s = rows
    fair = AgnosticFairClassifier(SMALL, tau=0.05).fit(X, y, sensitive_features=s)
    free = AgnosticFairClassifier("fl").fit(X, y, sensitive_features=s)
    assert fair.converged_
    assert fair.history_[-1]["worst"] <= 0.05 + 0.002
    assert isinstance(fair.certificate_, Certificate)
    same = free.audit(X, y, sensitive_features=s, basis=FEW, bound=8.0, centres=fair.fit_.centres)
    assert fair.certificate_.worst_difference < same.worst_difference / 2
    measured = scoring.risk_difference(fair.predict(X) == "yes", (s == "g1").astype(int))
    assert fair.certificate_.difference == pytest.approx(measured)


def test_a_saved_model_carries_no_rows(rows):
    X, y, s = rows
    fair = AgnosticFairClassifier("fairfl").fit(X, y, sensitive_features=s)
    again = pickle.loads(pickle.dumps(fair))
    np.testing.assert_array_equal(again.predict(X), fair.predict(X))
    with pytest.raises(AttributeError, match="call audit"):
        _ = again.certificate_
    assert again.audit(X, y, sensitive_features=s).n == len(X)


@pytest.mark.parametrize("kind", ["numpy", "pandas", "polars"])
def test_arrays_and_frames_give_the_same_model(rows, kind):
    X, y, s = rows
    plain = AgnosticFairClassifier("fairfl").fit(X, y, sensitive_features=s)
    names = [f"c{j}" for j in range(X.shape[1])]
    if kind == "pandas":
        frames = pytest.importorskip("pandas")
        X, y, s = frames.DataFrame(X, columns=names), frames.Series(y), frames.Series(s, name="sex")
    elif kind == "polars":
        frames = pytest.importorskip("polars")
        X, y, s = frames.DataFrame(X, schema=names), frames.Series(y), frames.Series("sex", s)
    fair = AgnosticFairClassifier("fairfl").fit(X, y, sensitive_features=s)
    np.testing.assert_array_equal(fair.coef_, plain.coef_)
    assert {*fair.predict(X)} == {"no", "yes"}
    if kind != "numpy":
        assert list(fair.feature_names_in_) == names


@pytest.mark.slow
def test_pipeline_grid_search_and_cross_validation_route_groups_and_clients(rows):
    X, y, s = rows
    owners = np.arange(len(X)) % 2
    with config_context(enable_metadata_routing=True):
        fair = AgnosticFairClassifier("fairfl").set_fit_request(
            sensitive_features=True, clients=True
        )
        pipe = make_pipeline(StandardScaler(), fair)
        groups = {"sensitive_features": s, "clients": owners}
        scaled = StandardScaler().fit_transform(X)
        plain = clone(fair).fit(scaled, y, sensitive_features=s)
        np.testing.assert_array_equal(pipe.fit(X, y, **groups).predict(X), plain.predict(scaled))
        grid = {"agnosticfairclassifier__tau": [0.02, 0.2]}
        search = GridSearchCV(pipe, grid, cv=2).fit(X, y, **groups)
        assert search.best_params_["agnosticfairclassifier__tau"] in (0.02, 0.2)
        assert cross_val_score(pipe, X, y, cv=3, params=groups).shape == (3,)
    assert GridSearchCV(fair, {"tau": [0.02, 0.2]}, cv=2).fit(X, y, sensitive_features=s)


def test_text_columns_go_through_a_column_transformer(rows):
    pd = pytest.importorskip("pandas")
    X, y, s = rows
    frame = pd.DataFrame({"age": X[:, 0], "job": np.where(X[:, 1] > 0.5, "a", "b")})
    with pytest.raises(DataError, match="a OneHotEncoder"):
        AgnosticFairClassifier("fairfl").fit(frame.to_numpy(), y, sensitive_features=s)
    AgnosticFairClassifier("fairfl").fit(frame, y, sensitive_features=s)  # a frame's are encoded
    columns = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    pipe = make_pipeline(columns, AgnosticFairClassifier("fairfl"))
    pipe.fit(frame, y, agnosticfairclassifier__sensitive_features=s)
    assert accuracy_score(y, pipe.predict(frame)) == pipe.score(frame, y)


def test_a_clone_has_the_same_settings_and_nothing_else(rows):
    X, y, s = rows
    fair = AgnosticFairClassifier("fairfl", tau=0.1, basis=None).fit(X, y, sensitive_features=s)
    copy = clone(fair)
    assert copy.get_params() == fair.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(X)


def test_a_client_may_lack_a_class_or_a_group(rows):
    X, y, s = rows
    owners = np.where(s == "g0", "left", np.where(y == "yes", "middle", "right"))
    fair = AgnosticFairClassifier(SMALL).fit(X, y, sensitive_features=s, clients=owners)
    one = AgnosticFairClassifier(SMALL).fit(X, y, sensitive_features=s)
    np.testing.assert_allclose(fair.coef_, one.coef_, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sensitive_features": None}, "sensitive_features.*per"),
        ({"sensitive_features": ["a", "b"]}, "2 values.*400 rows"),
        ({"sensitive_features": ["a"] * 400}, r"'a'.*fairness"),
        ({"sensitive_features": [None, "a"] * 200}, "sensitive_features.*missing"),
        ({"sensitive_features": [np.nan, 1.0] * 200}, "sensitive_features.*missing"),
        ({"clients": ["a"]}, "clients.*1 values"),
        ({"sample_weight": [-1.0] * 200 + [1.0] * 200}, "sample_weight.*negative"),
        ({"y": [0, 1, 2, 3] * 100}, "binary classification"),
        ({"y": [0] * 400}, "one class"),
    ],
)
def test_bad_input_is_named_with_its_remedy(rows, changed, said):
    X, y, s = rows
    with pytest.raises(DataError, match=said):
        AgnosticFairClassifier("fairfl").fit(
            X, changed.pop("y", y), **{"sensitive_features": s, **changed}
        )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"metric": "luck"}, "unknown metric 'luck'"),
        ({"metric": "bounded_group_loss"}, "largest mean log"),
        ({"basis": "spline"}, "unknown basis 'spline'"),
        ({"method": "fl", "tau": 0.1}, "no fairness constraint"),
        ({"method": "fairfl", "rule": Rule()}, "'fairfl'.*rule"),
        ({"rule": "trees"}, "rule is 'trees'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(rows, settings, said):
    X, y, s = rows
    with pytest.raises(SettingsError, match=said):
        AgnosticFairClassifier(**settings).fit(X, y, sensitive_features=s)


def test_verbose_prints_every_round(rows, capsys):
    X, y, s = rows
    fair = AgnosticFairClassifier("fairfl", verbose=1).fit(X, y, sensitive_features=s)
    assert len(capsys.readouterr().out.splitlines()) == fair.n_iter_


def test_a_fit_that_did_not_converge_or_says_one_thing_to_overall_warns(rows):
    X, y, _ = rows
    with pytest.warns(ConvergenceWarning, match=r"max_rounds.*far"):
        AgnosticFairClassifier(method("fl", max_rounds=1)).fit(X, y)
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 600)
    shown = group[:, None] + 0.01 * rng.normal(size=(600, 1))
    label = rng.uniform(size=600) < 0.1 + 0.8 * group
    with pytest.warns(UserWarning, match="tau 0.01.*nearly"):
        AgnosticFairClassifier(tau=0.01).fit(shown, label, sensitive_features=group)


@pytest.fixture(scope="module")
def people():
    """A frame with texts, numbers and dates, and its labels."""
    table = small_table(900, 2)
    frame = pd.DataFrame({name: np.round(values, 3) for name, values in table.numeric.items()})
    frame["job"] = table.categorical["job"].values()
    frame["day"] = np.datetime64("2020-01-01") + np.arange(900) % 90
    frame["sex"] = table.sensitive_features["sex"].values()
    return frame, table.target.values()


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("learner", ["additive", "trees", "linear"])
@pytest.mark.filterwarnings("ignore:nearly everybody")
def test_the_estimator_and_the_command_give_the_same_probabilities(
    learner, people, tmp_path, call, monkeypatch
):
    X, y = people
    monkeypatch.chdir(tmp_path)
    X.assign(label=y).to_csv("rows.csv", index=False)
    send = ("--target", "label", "--sensitive-features", "sex", "--learner", learner)
    assert call("fit", "rows.csv", *send, "--tau", 0.15)[0] == 0
    assert call("predict", "model.safetensors", "rows.csv", "--explain")[0] == 0
    told = pd.read_csv("predictions.csv")
    ours = AgnosticFairClassifier(tau=0.15, rule=Rule(learner), sensitive_columns="sex").fit(X, y)
    np.testing.assert_array_equal(ours.predict_proba(X)[:, 1], told["probability"])
    np.testing.assert_allclose(ours.decision_function(X), told["score"], atol=1e-9)
    np.testing.assert_array_equal(ours.predict(X), told["prediction"])
    saved = load_model("model.safetensors")
    assert ours.fit_.model.digest == saved.digest
    assert not hasattr(ours, "coef_")
    assert {name for name, _ in ours.trained_subgroups_} <= {
        subgroup_name(*pair) for pair in _subgroups_of(ours.fit_)
    } | {"overall"}


def _subgroups_of(fitted):
    axes, subgroups = fitted.subgroups.agreed
    return [(axes, subgroup) for subgroup in subgroups]


def test_a_feature_may_be_called_as_the_groups_are(people):
    X, y = people
    both = X[["age", "sex"]].assign(sex=(X["sex"] == "g1").astype(float))
    fitted = AgnosticFairClassifier(rule=Rule("additive")).fit(both, y, sensitive_features=X["sex"])
    assert {name for name, *_ in fitted.fit_.model.encoding.numeric} == {"age", "sex (feature)"}
    assert fitted.predict(both).shape == (900,)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_the_estimator_is_that_of_a_table(name, people):
    X, y = people
    sex = X["sex"].to_numpy()
    X = X[["job", "hours", "age"]]
    numbers = {k: X[k].to_numpy() for k in ("age", "hours")}
    groups = {"sex": Column.of(sex)}
    table = Table(numbers, {"job": Column.of(X["job"])}, Column.of(y), groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = AgnosticFairClassifier(name).fit(X, y, sensitive_features=sex)
    model = fit({"rows": table}, name, positive="yes").model
    np.testing.assert_array_equal(ours.decision_function(X), model.decision(table))
    if model.rule is None:
        numbers = np.column_stack(
            [X["job"] == job for job in sorted({*X["job"]})] + [X["hours"], X["age"]]
        )
        by_hand = numbers @ ours.coef_[0] + ours.intercept_[0]
        np.testing.assert_allclose(by_hand, model.decision(table), atol=1e-4)


def test_a_classifier_of_scikit_learn_is_a_learner(people, tmp_path):
    X, y = people
    send = {"sensitive_columns": "sex", "rule": Rule(LogisticRegression(C=10.0))}
    fitted = AgnosticFairClassifier(**send, tau=0.1).fit(X, y)
    assert fitted.fit_.statements[0].startswith("Learner LogisticRegression: mean log loss")
    assert clone(fitted).get_params()["rule__learner"].C == 10.0
    again = pickle.loads(pickle.dumps(fitted))
    assert again.fit_.model.estimates.kind != fitted.fit_.model.estimates.kind
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    with pytest.raises(ModelError, match="model file holds"):
        fitted.fit_.model.save(tmp_path / "m.safetensors")
    with pytest.raises(SettingsError, match=r"LinearSVC.*predict_proba"):
        AgnosticFairClassifier(rule=Rule(LinearSVC())).fit(X.drop(columns="sex"), y)
    with pytest.warns(UserWarning, match="group is protected"):
        alone = AgnosticFairClassifier(rule=Rule(LogisticRegression())).fit(X[["age", "hours"]], y)
    plain = LogisticRegression().fit(X[["age", "hours"]], y)
    assert np.mean(alone.predict(X[["age", "hours"]]) == plain.predict(X[["age", "hours"]])) > 0.95


def test_costs_rates_and_awareness_of_a_rule(people):
    X, y = people
    send = {"sensitive_columns": "sex", "rule": Rule("additive"), "tau": 0.3}
    few = AgnosticFairClassifier(**send).set_params(rule__positive_rate=(0.1, 0.2)).fit(X, y)
    assert 0.08 <= np.mean(few.predict(X) == "yes") <= 0.22
    many = AgnosticFairClassifier(**{**send, "rule": Rule("additive", costs=(1, 10))}).fit(X, y)
    assert np.mean(many.predict(X) == "yes") > np.mean(few.predict(X) == "yes") + 0.2
    aware = AgnosticFairClassifier(**send).set_params(tau=0.01, rule__aware=True).fit(X, y)
    swapped = X.assign(sex=np.where(X["sex"] == "g0", "g1", "g0"))
    assert (aware.decision_function(X) != aware.decision_function(swapped)).any()
    assert (many.decision_function(X) == many.decision_function(swapped)).all()
    with pytest.raises(DataError, match=r"'sex'.*decides"):
        AgnosticFairClassifier("rule", rule=Rule("additive", aware=True)).fit(
            X.drop(columns="sex"), y, sensitive_features=X["sex"]
        ).predict(X.drop(columns="sex"))


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("name", [*METHODS, "rule additive", "rule trees"])
def test_a_weight_of_two_is_the_row_twice(name):
    rng = np.random.default_rng(0)
    sex, X = rng.choice(["F", "M"], 300), rng.normal(size=(300, 2)).round(2)
    y = X[:, 0] + (sex == "M") + X[:, 1] > rng.normal(size=300)
    weights = 1.0 + (np.arange(300) % 3 == 0)
    rows = np.repeat(np.arange(300), weights.astype(int))
    method_name, _, learner = name.partition(" ")
    how = {"rule": Rule(learner=learner)} if learner else {}
    weighed, twice = (AgnosticFairClassifier(method_name, **how) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weighed.fit(X, y, sensitive_features=sex, sample_weight=weights)
        twice.fit(X[rows], y[rows], sensitive_features=sex[rows])
    np.testing.assert_array_equal(weighed.predict_proba(X), twice.predict_proba(X))
    with pytest.raises(SettingsError, match="holds beyond weighted"):
        AgnosticFairClassifier(limit=0.3).fit(X, y, sensitive_features=sex, sample_weight=weights)
