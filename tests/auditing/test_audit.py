"""The certificate against what reweightings really show, and every way to ask for one."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from helpers import dealt, small_table
from hypothesis import given, settings
from hypothesis import strategies as st

import agnosticfair
from agnosticfair import audit, audit_clients
from agnosticfair.auditing import proof
from agnosticfair.auditing.certificate import Certificate
from agnosticfair.client.answers import tally
from agnosticfair.data.encoding import FEATURE_BITS, encode
from agnosticfair.data.storage import read_decided
from agnosticfair.data.table import Column
from agnosticfair.errors import AgnosticFairError, FederationError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.mathematics import scoring
from agnosticfair.mathematics.ambiguity import Outcome
from agnosticfair.mathematics.basis import by_client, constant, gaussian, gaussian_kernel
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.report import certificate as report
from agnosticfair.report.figures import png

few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)
BASIS = gaussian(8, 0.4, "rows")  # as the pooled audit draws them
PLAIN = {"basis": BASIS, "subgroups": (), "held_out": False}
ROUND = {"subgroups": (), "held_out": False}


def over_kernels(*rows, **send):
    """What an audit says of reweightings by kernels."""
    return audit(*rows, **ROUND | send).kernels


def problem(seed, n=150, groups=2):
    """Rows, labels, groups and decisions, all of which depend on each other."""
    rng = np.random.default_rng(seed)
    X, s = rng.random((n, 3)), rng.integers(0, groups, n)
    X = on_grid((X - X.min(axis=0)) / np.ptp(X, axis=0), FEATURE_BITS)  # as kernels see them
    s[:groups] = range(groups)
    score = X @ rng.normal(size=3) + 0.4 * s * rng.normal() + 0.3 * rng.normal(size=n)
    y = (score + 0.5 * rng.normal(size=n) > np.median(score)).astype(int)
    return X, y, s, (score > np.quantile(score, rng.uniform(0.3, 0.7))).astype(int)


def weights(made, X, alpha):
    return gaussian_kernel(X, made.centres, made.basis.sigma) @ alpha


def deployments(made, X, seed):
    """theta of random alphas in A: vertices, mixtures of them, and each kernel by itself."""
    K = gaussian_kernel(X, made.centres, made.basis.sigma)
    psi, n, rng = K.sum(axis=0), len(X), np.random.default_rng(seed)
    alphas = [np.eye(len(psi))[m] * n / psi[m] for m in range(len(psi)) if n / psi[m] <= made.bound]
    for _ in range(20):
        alpha, left = np.zeros(len(psi)), float(n)
        for m in rng.permutation(len(psi)):
            alpha[m] = min(made.bound, left / psi[m])
            left -= alpha[m] * psi[m]
        alphas.append(alpha)
    alphas += list(rng.dirichlet(np.full(len(alphas), 0.3), size=30) @ np.array(alphas))
    return [K @ alpha for alpha in alphas]


def gap(metric, y, d, s, w, floor):
    """The metric's difference under w among the groups that keep the floor; -inf without two."""
    found = [-math.inf]
    for labels in METRICS[metric].labels:
        w_y = w * np.isin(y, labels)
        mass = np.bincount(s, weights=w_y, minlength=s.max() + 1) / w.sum()
        if metric == "bounded_group_loss":
            wrong = scoring.positive_rates(y != d, s, w, s.max() + 1)
            return max(wrong[mass >= floor], default=-math.inf)
        rates = scoring.positive_rates(d, s, w_y, s.max() + 1)[mass >= floor]
        found += [np.ptp(rates)] if len(rates) > 1 else []
    return max(found)


# --- the certificate is a bound, and it is attained ---


@few
@given(
    seeds, st.sampled_from([3.0, 6.0, 40.0]), st.sampled_from(sorted(METRICS)), st.integers(2, 4)
)
def test_no_deployment_in_the_set_shows_more(seed, bound, metric, groups):
    X, y, s, d = problem(seed, groups=groups)
    made = over_kernels(d, X, y, sensitive_features=s, bound=bound, metric=metric, **PLAIN)
    assert made.outcome is Outcome.OPTIMAL
    for theta in deployments(made, X, seed):
        assert gap(metric, y, d, s, theta, 0.05) <= made.worst_difference + 1e-9
        assert scoring.accuracy(y, d, theta) >= made.worst_accuracy - 1e-9


@few
@given(
    seeds,
    st.sampled_from([3.0, 40.0, math.inf]),
    st.sampled_from(sorted(METRICS)),
    st.integers(2, 4),
)
def test_the_bounds_are_attained_by_their_alphas(seed, bound, metric, groups):
    X, y, s, d = problem(seed, groups=groups)
    made = over_kernels(d, X, y, sensitive_features=s, bound=bound, metric=metric, **PLAIN)
    for alpha in (made.alpha, made.alpha_accuracy):
        assert alpha.min() >= 0
        assert alpha.max() <= made.bound * (1 + 1e-9)
        assert weights(made, X, alpha).mean() == pytest.approx(1)
    theta = weights(made, X, made.alpha)
    shows = gap(metric, y, d, s, theta, 0.05 * (1 - 1e-9))
    assert -1e-9 <= made.worst_difference - shows <= made.tolerance + 1e-9
    assert made.tolerance <= 1e-4 + 1e-12
    theta = weights(made, X, made.alpha_accuracy)
    assert scoring.accuracy(y, d, theta) == pytest.approx(made.worst_accuracy, abs=1e-9)


@few
@given(seeds, st.integers(2, 4))
def test_measured_values_are_those_of_metrics(seed, groups):
    X, y, s, d = problem(seed, groups=groups)
    certificate = audit(d, X, y, sensitive_features=s, **PLAIN)
    assert certificate.difference == pytest.approx(scoring.risk_difference(d, s), abs=1e-12)
    assert certificate.accuracy == pytest.approx(scoring.accuracy(y, d), abs=1e-12)
    opportunity = audit(d, X, y, sensitive_features=s, metric="equal_opportunity", **PLAIN)
    rates = scoring.positive_rates(d, s, y)
    expected = np.nanmax(rates) - np.nanmin(rates)  # a group may have no row with this label
    assert opportunity.difference == pytest.approx(expected, abs=1e-12)
    rates = [rate.rate for rate in certificate.subgroups[0].rates]
    np.testing.assert_allclose(rates, scoring.positive_rates(d, s))


def test_uniform_weights_leave_what_is_measured():
    X, y, s, d = problem(1)
    assert audit(d, X, y, sensitive_features=s, basis=constant()).kernels is None
    ones = over_kernels(d, X, y, sensitive_features=s, basis=lambda rows: np.ones((len(rows), 1)))
    assert ones.worst_difference == pytest.approx(scoring.risk_difference(d, s), abs=1e-4)
    assert ones.worst_accuracy == pytest.approx(scoring.accuracy(y, d))


# --- what must not matter, and what must ---


@few
@given(seeds)
def test_neither_row_order_nor_names_matter(seed):
    X, y, s, d = problem(seed)
    made = over_kernels(d, X, y, sensitive_features=s, **PLAIN)
    order = np.random.default_rng(seed).permutation(len(X))
    other = over_kernels(
        np.where(d, "yes", "no")[order],
        X[order],
        np.where(y, "yes", "no")[order],
        sensitive_features=np.array(["north", "south"])[s][order],
        **PLAIN,
    )
    for name in ("worst_difference", "worst_accuracy"):
        assert getattr(made, name) == pytest.approx(getattr(other, name), abs=1e-9)
    np.testing.assert_array_equal(made.centres, other.centres)
    assert [{"0": "north", "1": "south"}[name] for name in made.pair] == [*other.pair]


def test_the_units_of_the_columns_do_not_matter():
    X, y, s, d = problem(9)
    one, two = (
        over_kernels(d, Z, y, sensitive_features=s, basis=gaussian())
        for Z in (X, X * [8.0, 64.0, 0.5])
    )
    assert one.worst_difference == two.worst_difference


@few
@given(seeds)
@pytest.mark.slow
def test_a_larger_set_is_worse(seed):
    X, y, s, d = problem(seed)
    send = {"sensitive_features": s, **PLAIN}
    by_bound = [over_kernels(d, X, y, bound=b, **send) for b in (3.0, 6.0, 20.0, math.inf)]
    by_floor = [over_kernels(d, X, y, floor=floor, **send) for floor in (0.3, 0.1, 0.01)]
    for chain in (by_bound, by_floor):
        for less, more in pairwise(chain):
            assert less.worst_difference <= more.worst_difference + 1e-4
            assert less.worst_accuracy >= more.worst_accuracy - 1e-12


@cache
def fitted(groups=2):
    table = small_table(240, groups=groups)
    return table, fit(dealt(table, 2), "fl").model


@pytest.mark.parametrize("clients", [1, 3, 7])
@pytest.mark.parametrize("metric", sorted(METRICS))
def test_over_clients_it_is_the_pooled_certificate(clients, metric):
    table, model = fitted(3)
    send = {"basis": BASIS, "bound": 8.0, "metric": metric, "held_out": False}
    one = audit(model, table, sensitive_features="sex", **send)
    other = audit_clients(model, dealt(table, clients), **send)
    assert one.to_json()["subgroups"][0] == other.to_json()["subgroups"][0]
    pooled, subgroups = one.kernels, other.kernels
    for name in ("worst_difference", "worst_accuracy"):
        assert getattr(subgroups, name) == pytest.approx(getattr(pooled, name), abs=1e-9)
    for alpha in ("alpha", "alpha_accuracy", "centres"):
        np.testing.assert_allclose(getattr(subgroups, alpha), getattr(pooled, alpha), atol=1e-9)
    assert (subgroups.pair, subgroups.basis) == (pooled.pair, pooled.basis)


def test_given_centres_serve_pooled_rows_and_clients():
    table, model = fitted()
    centres = encode(model.encoding, table)[:12]
    send = {"centres": centres, "bound": 20.0, "basis": gaussian(5, 0.5), **ROUND}
    pooled = over_kernels(model, table, sensitive_features="sex", **send)
    subgroups = audit_clients(model, dealt(table, 4), **send).kernels
    assert pooled.basis.kernels == subgroups.basis.kernels == 12
    assert subgroups.worst_difference == pytest.approx(pooled.worst_difference, abs=1e-9)
    X = 7 * problem(0)[0] - 3  # centres are in the units of X, which the kernels see scaled
    send = {"sensitive_features": X[:, 1] > 0, "basis": gaussian()}
    first = over_kernels(X[:, 0] > 0, X, **send)
    again = [first, over_kernels(X[:, 0] > 0, X, centres=first.centres, **send)]
    assert again[0].worst_difference == pytest.approx(again[1].worst_difference, abs=1e-9)


def test_mixtures_of_clients_are_no_better_than_the_worst_client():
    table, model = fitted()
    subgroups = dealt(table, 4, seed=5)
    certificate = audit_clients(model, subgroups, basis=by_client(), bound=math.inf, held_out=False)
    local = [
        scoring.risk_difference(model.predict(t), t.column("sex").aligned(("g0", "g1")))
        for t in subgroups.values()
    ]
    assert certificate.kernels.worst_difference >= max(local) - 1e-9
    right = [scoring.accuracy(t.labels("yes"), model.predict(t)) for t in subgroups.values()]
    assert certificate.kernels.worst_accuracy == pytest.approx(min(right))
    assert "mixtures of" in str(certificate)


# --- groups, rows, features ---


def test_a_group_that_never_has_the_floor_is_named_and_left_out():
    X, y, s, d = problem(3, n=400)
    s[:4], d[:4] = 2, 1
    certificate = audit(d, X, y, sensitive_features=s, **PLAIN)
    assert certificate.kernels.under_floor == ("2",)
    assert "'2'" in str(certificate)
    assert "2" not in certificate.kernels.pair
    assert certificate.subgroups[0].rates[2].rows == 4
    low = over_kernels(d, X, y, sensitive_features=s, **(PLAIN | {"floor": 0.001}))
    assert low.under_floor == ()
    assert low.worst_difference > certificate.kernels.worst_difference


# --- who may be audited ---


def test_a_model_a_classifier_a_function_and_plain_predictions_agree():
    import pandas as pd
    from sklearn.linear_model import LogisticRegression

    X, y, s, _ = problem(4)
    X = pd.DataFrame(X, columns=["a", "b", "c"]).assign(flag=X[:, 0] > 0.5)
    names = np.where(y, "rich", "poor")
    classifier = LogisticRegression().fit(X, names)
    p = classifier.predict_proba(X)[:, 1]
    send = {"sensitive_features": pd.Series(s).map({0: "F", 1: "M"}), "basis": gaussian(), **ROUND}
    made = [
        audit(classifier, X, names, **send),
        audit(lambda rows: classifier.predict_proba(rows)[:, 1], X, names, **send),
        audit(classifier.predict(X), X.to_numpy(float), pd.Series(names), **send),
        audit((p > 0.5).astype(int), X, pd.Categorical(names), **send),
        audit(p.astype(object), X, y + 1, **send),
        audit(np.where(p > 0.5, 2, 1), X, y + 1.0, **send),
        audit(p > 0.5, X, y.astype(bool), **send),
        audit(1 - p, X, names, positive="poor", **send),
        audit(p - 0.2 * (p > 0.2), X, names, threshold=0.3, **send),
    ]
    for other in made[1:]:
        one, two = made[0].kernels, other.kernels
        assert two.worst_difference == pytest.approx(one.worst_difference, abs=1e-4)
        assert two.worst_accuracy == pytest.approx(one.worst_accuracy)
    silent = audit(classifier, X, **send)
    assert math.isnan(silent.accuracy)
    worst = made[0].kernels.worst_difference
    assert silent.kernels.worst_difference == pytest.approx(worst, abs=1e-9)
    assert silent.to_json()["kernels"]["worst_accuracy"] is None
    assert "accuracy" not in str(silent)


def test_a_table_is_encoded_by_itself_where_no_model_says_how():
    table, model = fitted()
    send = {"sensitive_features": "sex", "basis": gaussian()}
    by_model = over_kernels(model, table, **send)
    by_itself = over_kernels(model.predict(table), table, **send)
    named = over_kernels(model.predict(table), table, table.labels("yes"), **send)
    assert by_itself.worst_accuracy == by_model.worst_accuracy == named.worst_accuracy
    made = over_kernels(model, replace(table, target=None), **send)
    assert made.worst_difference == pytest.approx(by_model.worst_difference, abs=1e-9)
    assert math.isnan(made.worst_accuracy)


# --- sums ---


def test_a_tally_adds_up():
    rng = np.random.default_rng(0)
    x, strata = rng.random((9000, 2)), rng.integers(0, 5, 9000)

    def send(rows):
        return tally(x[rows].__getitem__, lambda x: x * x, strata[rows], 5)

    whole, first, rest = (send(rows) for rows in (slice(None), slice(5000), slice(5000, None)))
    np.testing.assert_allclose(whole, first + rest)
    K = np.hstack([x * x, np.ones((9000, 1))])
    np.testing.assert_allclose(whole[3], K[strata == 3].sum(axis=0))


def test_the_seed_draws_centres():
    X, y, s, d = problem(8)
    send = {"sensitive_features": s, "basis": BASIS}
    one, again, other = (over_kernels(d, X, y, seed=seed, **send) for seed in (0, 0, 1))
    assert np.array_equal(one.centres, again.centres)
    assert not np.array_equal(one.centres, other.centres)


def test_kernels_above_one_are_bounded_on_the_rows_alone():
    X, y, s, d = problem(8)
    certificate = audit(d, X, y, sensitive_features=s, basis=lambda rows: 3 * rows, bound=math.inf)
    assert math.isnan(certificate.kernels.upper)
    assert math.isfinite(certificate.upper)
    assert "exceeds 1" in str(certificate)


# --- how it is told ---


def test_a_certificate_is_short_to_read_and_whole_in_json():
    X, y, s, d = problem(5)
    certificate = audit(d, X, y, sensitive_features=s, basis=gaussian(40, 0.5), bound=math.inf)
    text = str(certificate)
    assert "40 gaussian kernels" in text
    assert "guarantee" not in text
    assert len(repr(certificate)) < 1500
    content = json.loads(json.dumps(certificate.to_json(), allow_nan=False))
    kernels = content["kernels"]
    assert kernels["bound"] is None
    assert content["worst_difference"] == certificate.worst_difference
    assert kernels["alpha_accuracy"] == certificate.kernels.alpha_accuracy.tolist()
    assert content["groups"] == ["0", "1"]
    basis = {"kind": "gaussian", "kernels": 40, "sigma": 0.5, "centres": "rows", "split": False}
    assert {key: kernels["basis"][key] for key in basis} == basis
    assert kernels["centres"] is None
    again = Certificate.from_json(content)
    assert again.to_json() == certificate.to_json()
    assert str(again) == str(certificate)
    early = replace(
        certificate, kernels=replace(certificate.kernels, outcome=Outcome.FAILED, tolerance=0.01)
    )
    assert "stopped early" in str(early)
    assert early.warnings[0] in str(early)


def test_the_figure_holds_odd_names_and_few_numbers():
    import pandas as pd

    X, y, s, d = problem(6)
    X = pd.DataFrame(X * 1e5, columns=["pay in $ or $^", "x" * 60, "one=1"])
    for send in ({"y": y, "basis": gaussian()}, {"basis": gaussian(), "held_out": False}, {}):
        certificate = audit(d, X, sensitive_features=s, **send)
        assert png(report.figure(certificate), dpi=50)[:4] == b"\x89PNG"
        lines = {line[0]: line for line in report.grids(certificate)[0].lines}
        assert lines["risk difference"][1] == f"{certificate.worst_difference:.4f}"
        assert ("risk difference, reweighted" in lines) == ("basis" in send)
        assert ("accuracy" in lines) == ("y" in send)


# --- bad input ---

BAD = {
    "predictions has 149 values and X 150 rows": {"given": np.zeros(149)},
    "y has 3 values and X 150 rows: give one value per row": {"y": [0, 1, 0]},
    "1 predictions are outside [0, 1], the first is 1.2": {"given": np.r_[1.2, np.full(149, 0.5)]},
    "first is nan: give 0 and 1": {"given": np.r_[np.nan, np.full(149, 0.5)]},
    "predictions have the value 'maybe', which y has not": {"given": np.array(["maybe"] * 150)},
    "predictions have two columns whose rows do not add up to 1": {"given": np.zeros((150, 2))},
    "predictions has shape (150, 3): give one value per row": {"given": np.zeros((150, 3))},
    "sensitive_features has one group ('F'); fairness needs at least two": {"s": ["F"] * 150},
    "sensitive_features has missing values": {"s": [None, *"MF" * 74, "M"]},
    "y has missing values": {"y": np.r_[np.nan, np.zeros(149)]},
    "the target has 3 labels ('0', '1', '2'): name the positive one": {"y": np.arange(150) % 3},
    "no row has the label 'yes'; name one of '0', '1'": {"positive": "yes"},
    "bound 0.001 is too small: even with every kernel at it the mean weight is": {
        "bound": 0.001,
        "basis": gaussian(20, 0.5),
    },
    "bound 5 is of kernels, and none are asked for": {"bound": 5.0},
    "floor 0.9 cannot hold for all 2 groups at once": {"floor": 0.9, "mixed": True},
    "floor 0.2 is too high for group '1': it never has more than": {
        "floor": 0.2,
        "rare": True,
        "basis": gaussian(20, 1.0),
    },
    "floor is 2; it must be a number from 0 to 1": {"floor": 2},
    "centres have shape (4, 2) where X has 3 columns": {"centres": np.zeros((4, 2))},
    "unknown metric 'equality'; there are: demographic_parity": {"metric": "equality"},
    "metric 'equal_opportunity' compares rows of one label: give y": {
        "metric": "equal_opportunity",
        "y": None,
    },
    "basis 'by_client' needs clients": {"basis": by_client()},
    "basis is 'gaussian'; it must be a Basis, or a function": {"basis": "gaussian"},
    "centres are not numbers": {"centres": "rows"},
    "threshold is 1.5; it must be a number from 0 to 1": {"threshold": 1.5},
    "seed is -1": {"seed": -1},
    "confidence is 95; it must be a number between 0 and 1": {"confidence": 95},
    "X has shape (150,): give rows and columns": {"X": np.zeros(150)},
    "column '1' of X is not numbers: encode it": {"X": np.array([[1.0, "a"]] * 150, object)},
    "column '0' of X has values that are not finite": {"X": np.full((150, 1), np.nan)},
}


@pytest.mark.parametrize("sentence", BAD)
def test_bad_input_is_answered_with_value_and_remedy(sentence):
    X, y, s, d = problem(7)
    change = dict(BAD[sentence])
    if change.pop("rare", False):
        s[:] = np.arange(150) < 3
    if change.pop("mixed", False):
        s[:] = X[:, 0] > 0.5
        change["basis"] = gaussian(20, 0.02)
        change["bound"] = math.inf
    send = {"sensitive_features": change.pop("s", s)} | change
    args = [send.pop("given", d), send.pop("X", X), send.pop("y", y)]
    with pytest.raises(AgnosticFairError) as error:
        audit(*args, **send)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_tables_and_clients_are_answered_too():
    table, model = fitted()
    with pytest.raises(AgnosticFairError, match="model reads"):
        audit(model, np.zeros((3, 2)), sensitive_features=[0, 1, 0])
    other = replace(table, target=Column(table.target.codes, ("0", "1")))
    with pytest.raises(AgnosticFairError, match=r"'0'.*'1'"):
        audit(model, other, sensitive_features="sex")
    with pytest.raises(AgnosticFairError, match="unknown to"):
        audit_clients(model, {"one": other})
    with pytest.raises(SettingsError, match=r"shape.*5 columns"):
        audit_clients(model, {"one": table}, centres=np.zeros(4))
    strange = replace(table, categorical={"job": Column.of(["z"] * len(table))})
    with pytest.raises(FederationError, match=r"'one'.*'z'"):
        audit_clients(model, {"one": strange})
    with pytest.raises(AgnosticFairError, match=r"categorical.*'race'"):
        audit(model, table, sensitive_features="race")


def test_a_group_no_kernel_reaches_has_no_mass():
    X = np.r_[np.zeros((50, 1)), np.full((50, 1), 1e3)]
    send = {"basis": gaussian(1, 1e-3), "centres": [[0.0]], "bound": math.inf}
    with pytest.raises(SettingsError, match=r"'far'.*reaches"):
        audit(X[:, 0] > 5, X, sensitive_features=["far" if x > 5 else "near" for x in X], **send)


# --- the command ---


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A file of rows with a model's predictions in every form, and the model's file."""
    monkeypatch.chdir(tmp_path)
    table, model = fitted()
    replace(model, training=None).save(
        tmp_path / "model.safetensors"
    )  # nobody knows its rows again
    p = model.probabilities(table)
    columns = {name: values.tolist() for name, values in table.numeric.items()}
    columns |= {"job": table.column("job").values(), "sex": table.column("sex").values()}
    columns |= {"income": table.target.values(), "score": p.tolist()}
    columns |= {"guess": np.where(p > 0.5, "yes", "no"), "odd": ["perhaps"] * len(p)}
    lines = [
        ",".join(columns),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "rows.csv"


ROLES = ("--target", "income", "--sensitive-features", "sex")
BRIEF = (*ROLES, "--kernels", 20, "--bound", 20)


def test_the_command_writes_what_the_library_finds(call, rows):
    code, out, err = call("audit", rows, *BRIEF, "--model", "model.safetensors", "--out", "one")
    assert (code, err) == (0, "")
    content = json.loads((rows.parent / "one" / "certificate.json").read_text())
    table, model = fitted()
    alone = replace(model, training=None)
    certificate = audit(alone, table, sensitive_features="sex", basis=gaussian(20), bound=20)
    assert content | json.loads(json.dumps(certificate.to_json())) == content
    assert content["data"]["rows"]["rows"] == len(table)
    assert content["command"].startswith("agnosticfair audit ")
    assert str(certificate) in " ".join(out.split())
    assert f"{certificate.difference:.4f}" in out
    assert (rows.parent / "one" / "certificate.png").read_bytes()[:4] == b"\x89PNG"
    assert sorted(p.name for p in (rows.parent / "one").iterdir()) == [
        "audit.html",
        "certificate.json",
        "certificate.png",
    ]
    code, out, _ = call("audit", rows, *BRIEF, "--model", "model.safetensors", "--json")
    same = {"command": content["command"], "digest": content["digest"]}
    assert json.loads(out) | same == content


def test_rows_are_left_beside_a_certificate_only_where_asked_for(call, rows):
    """A certificate is made to travel: features, label and group of every row lay beside it."""
    send = ("audit", rows, *BRIEF, "--model", "model.safetensors", "--out", "one")
    assert "rows.parquet" not in call(*send)[1]
    kept = rows.parent / "one" / "rows.parquet"
    assert not kept.exists()
    code, out, _ = call(*send, "--keep-rows")
    assert code == 0
    assert "rows.parquet" in out  # it holds rows: say so
    assert read_decided(kept).y.shape == (240,)
    assert call("report", "one", "--out", "page.html")[0] == 0
    assert call(*send)[0] == 0
    assert not kept.exists()  # those of an earlier audit are not this certificate's
    assert call("report", "one", "--out", "page.html", "--force")[0] == 0
    assert '"explorer": null' in (rows.parent / "page.html").read_text().replace('":n', '": n')
    content = json.loads((rows.parent / "one" / "certificate.json").read_text())
    assert content["data"] == {"rows": {"rows": 240}}  # no digest that would tell of the last row


def test_the_command_certifies_named_subgroups_and_verify_checks_it(call, rows, tmp_path):
    code, out, _ = call("verify", "--new-key", "issuer.key")
    public = out.split()[-1]
    send = ("--predictions", "score", "--drop", "guess", "--drop", "odd", "--key", "issuer.key")
    subgroups = ("--columns", "job", "--precision", 0.6)
    code, out, err = call("audit", rows, *ROLES, *send, *subgroups)
    assert (code, err) == (0, "")
    assert "job = b" in out
    code, out, err = call("verify", "audit/certificate.json", "--key", public)
    assert (code, err) == (0, "")
    assert out.startswith("It holds: recomputed from 240 rows' sums, over 4 subgroups of up to")
    said = json.loads((tmp_path / "audit" / "certificate.json").read_text())["sentence"]
    assert said in out
    assert "key you named" in out
    code, out, err = call("verify", "audit/certificate.json")
    assert (code, err) == (0, "")
    assert out.startswith("Consistent: ")
    assert "It holds" not in out
    assert "name it by --key" in out
    code, out, err = call("verify", "audit/certificate.json", "--rows", rows)
    assert (code, err) == (0, "")
    assert out.startswith("Reproduced: ")
    assert "240 rows" in out
    lines = rows.read_text().splitlines()
    less = tmp_path / "less.csv"
    less.write_text("\n".join(lines[:-1]) + "\n")
    code, out, err = call("verify", "audit/certificate.json", "--rows", less)
    assert (code, out) == (2, "")
    assert "'less.csv'" in err
    text = (tmp_path / "audit" / "certificate.json").read_text()
    (tmp_path / "audit" / "certificate.json").write_text(text.replace("240", "241"))
    code, out, err = call("verify", "audit/certificate.json")
    assert (code, out) == (2, "")
    assert "something was changed" in err
    assert call("verify")[0] == 2
    assert "is not JSON" in call("verify", rows)[2]


def test_numbers_that_may_be_of_either_label_ask_which():
    rng = np.random.default_rng(0)
    X, sex = rng.uniform(size=(400, 1)), rng.choice(["F", "M"], 400)
    y = np.where(X[:, 0] > 0.5, "hired", "not hired")
    p = np.where(y == "hired", 0.06, 0.94)  # of the last label, as scikit-learn has it
    with pytest.raises(AgnosticFairError, match="by positive"):
        audit(p, X, y, sensitive_features=sex)
    assert audit(1 - p, X, y, sensitive_features=sex, positive="hired").accuracy == 1.0
    both = np.column_stack([1 - p, p])
    assert audit(both, X, y, sensitive_features=sex).accuracy == 1.0
    assert audit(y, X, y, sensitive_features=sex).accuracy == 1.0
    clear = np.where(y == "hired", "yes", "no")
    assert audit(1 - p, X, clear, sensitive_features=sex).accuracy == 1.0


def test_verify_refuses_another_model_and_other_sums_than_the_rows_give(call, rows, tmp_path):
    model = fit({"elsewhere": small_table(240, seed=9)}, "fl", positive="yes").model
    model.save(tmp_path / "model.safetensors")
    replace(model, w=model.w * 0.5).save(tmp_path / "other.safetensors")
    one = ("--model", "model.safetensors")
    assert call("audit", rows, *ROLES, *one, "--precision", 0.6)[0] == 0
    path = tmp_path / "audit" / "certificate.json"
    assert call("verify", path, *one)[0] == 0
    code, out, err = call("verify", path, *one, "--rows", rows)
    assert (code, err) == (0, "")
    assert out.startswith("Reproduced: ")
    assert "of another model" in call("verify", path, "--model", "other.safetensors")[2]
    assert "is none" in call("verify", path, "--model", "classifier.onnx")[2]
    content = json.loads(path.read_text())
    content["sums"]["rows"] = "0" * 64  # no sums show it
    path.write_text(json.dumps(proof.sealed(content)))
    assert call("verify", path)[0] == 0
    code, _, err = call("verify", path, *one, "--rows", rows)
    assert code == 2
    assert "were audited" in err
    content["request"]["charm"] = 1
    path.write_text(json.dumps(proof.sealed(content)))
    assert "no audit" in call("verify", path, *one, "--rows", rows)[2]


def test_the_command_takes_predictions_in_a_column(call, rows):
    found = []
    for column, others in (("score", ("guess", "odd")), ("guess", ("score", "odd"))):
        drop = [word for name in others for word in ("--drop", name)]
        code, out, err = call("audit", rows, *BRIEF, "--predictions", column, *drop, "--json")
        assert (code, err) == (0, "")
        found.append(json.loads(out))
        assert found[-1].pop("method") == column
    assert found[0]["worst_difference"] == found[1]["worst_difference"]
    assert found[0]["groups"] == found[1]["groups"]
    assert found[0]["accuracy"] == pytest.approx(scoring.accuracy(*_answers()))


def _answers():
    table, model = fitted()
    return table.labels("yes"), model.predict(table)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "--predictions"),
        (("--model", "m", "--predictions", "p"), "name either a model"),
        (("--model", "model.safetensors", "--drop", "odd"), "leave out --drop"),
        (("--model", "none.safetensors"), "there is no model file"),
        (
            ("--predictions", "odd"),
            "value 'perhaps'",
        ),
        (("--predictions", "socre"), "did you mean 'score'"),
        (("--predictions", "age", "--drop", "odd"), "predictions are outside [0, 1]"),
        (
            ("--predictions", "score", "--floor", "3"),
            "is 3.0",
        ),
        (("--predictions", "score", "--threshold", "nan"), "threshold is nan"),
        (("--predictions", "score", "--out", "rows.csv/x"), "cannot write to"),
    ],
)
def test_the_command_refuses_in_one_sentence(call, rows, arguments, sentence):
    code, out, err = call("audit", rows, *BRIEF, *arguments)
    assert code == 2
    assert not out or out.startswith("Numeric: ")  # how columns were read is said before the work
    assert sentence in err
    assert err.count("\n") == 1


# --- the package's face, and its size ---


def test_the_package_offers_the_audit_whatever_was_imported_before():
    code = "import agnosticfair.auditing.audit, agnosticfair; agnosticfair.audit; print(agnosticfair.audit)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "function audit" in done.stdout
    with pytest.raises(AttributeError, match="no attribute 'adit'"):
        agnosticfair.adit  # noqa: B018


@pytest.mark.slow
def test_a_million_rows_with_200_kernels_fit_in_two_gibibytes():
    code = """
import resource, numpy as np, agnosticfair
rng = np.random.default_rng(0)
X, s = rng.random((1_000_000, 30)), rng.integers(0, 2, 1_000_000)
y = X[:, 0] + 0.2 * s > 0.5
kernels = agnosticfair.gaussian(200, 1.0)
made = agnosticfair.audit(X[:, 0] > 0.4, X, y, sensitive_features=s, basis=kernels, subgroups=())
assert made.kernels.basis.kernels == 200 and made.kernels.outcome == "optimal"
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kibibytes = int(done.stdout) / (1024 if sys.platform == "darwin" else 1)
    assert kibibytes < 2 * 2**20
