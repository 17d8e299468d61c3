"""A limit on decisions: what is chosen, what is claimed, and what stands in the way."""

import json
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest
from helpers import client_rows, dealt, small_table, streamed, write

from agnosticfair.auditing import limit as limits
from agnosticfair.auditing.audit import counting
from agnosticfair.auditing.limit import (
    Candidate,
    answered,
    fit_within,
    limit_record,
    next_tau,
    split_halves,
)
from agnosticfair.auditing.proof import sealed, verify
from agnosticfair.data import files
from agnosticfair.data.files import Roles
from agnosticfair.data.schema import load_schema, under
from agnosticfair.data.table import Column
from agnosticfair.errors import AgnosticFairError, SettingsError
from agnosticfair.federation import fit, in_process
from agnosticfair.model import load_model
from agnosticfair.protocol.engines.relay import Relay


def path(*ends, accuracies=MappingProxyType({})):
    """Candidates by predicted bound and share of positives, and what certificates will say of them."""
    made, truth = [], {}
    for k, (predicted, bound, positive) in enumerate(ends):
        fit = SimpleNamespace(model=k, rounds=5)
        truth[k] = bound
        made.append(Candidate(fit, 0.8 / 4**k, predicted, 0.7 + 0.01 * k, positive))
    request = []

    def certify(model):
        request.append(model)
        subgroup = SimpleNamespace(
            name=f"subgroup {model}", rows=9, high=truth[model], difference=0.01, estimable=True
        )
        right = accuracies.get(model, 0.7 + 0.01 * model)
        one = SimpleNamespace(
            upper=truth[model],
            worst_difference=0.01,
            accuracy=right,
            worst_first=[subgroup],
            confidence=0.95,
        )
        return {"sex": one}

    return made, certify, request


def test_the_last_model_before_the_first_failure_is_chosen():
    made, certify, request = path(
        (0.05, 0.06, 0.2), (0.09, 0.09, 0.2), (0.12, 0.2, 0.2), (0.3, 0.05, 0.2)
    )
    fit, certified_limit = answered(made, 0.1, 0.95, certify)
    assert (fit.model, certified_limit.holds, certified_limit.smallest) == (1, True, 0.09)
    assert request == [0, 1, 2]  # a later one that would pass is not looked at


def test_the_order_is_that_of_the_predictions_and_constants_are_left_out():
    ends = (0.2, 0.12, 0.2), (0.02, 0.01, 0.001), (0.1, 0.08, 0.2)
    made, certify, request = path(*ends, accuracies={0: 0.9})
    fit, _ = answered(made, 0.15, 0.95, certify)
    assert fit.model == 0
    assert request == [2, 0]


def test_where_the_first_fails_its_own_bound_is_all_that_may_be_claimed():
    made, certify, request = path((0.1, 0.25, 0.2), (0.2, 0.12, 0.2), (0.3, 0.05, 0.2))
    fit, certified_limit = answered(made, 0.15, 0.95, certify)
    assert not certified_limit.holds
    assert (fit.model, certified_limit.smallest, request) == (0, 0.25, [0])
    assert certified_limit.violations == (
        "subgroup 0 (9 rows) shows 0.0100, with too few rows to know",
    )
    assert str(certified_limit).startswith(
        "The limit 0.15 cannot be claimed with 95% confidence: the smallest that can is 0.25"
    )


def test_a_limit_that_only_constants_keep_is_not_claimed():
    made, certify, _ = path((0.01, 0.02, 0.001))
    _, certified_limit = answered(made, 0.15, 0.95, certify)
    assert not certified_limit.holds
    assert "decisions are nearly all alike" in str(certified_limit)


def test_what_is_claimed_is_wrong_as_seldom_as_stated_whether_or_not_the_limit_is_kept():
    """Bounds that fail with 20% each, by themselves; models within and beyond the limit, in any order."""
    rng, limit, wrong = np.random.default_rng(0), 0.15, []
    for _ in range(4000):
        truth = rng.choice([0.05, 0.14, 0.16, 0.3], size=3)
        bounds = truth + np.where(rng.random(3) < 0.2, -0.1, 0.001)
        made, certify, _ = path(*((0.1 * k, b, 0.2) for k, b in enumerate(bounds)))
        fit, certified_limit = answered(made, limit, 0.8, certify)
        wrong.append(
            truth[fit.model] > (limit if certified_limit.holds else certified_limit.smallest)
        )
    assert np.mean(wrong) <= 0.2


def test_of_those_that_passed_the_most_accurate_is_chosen():
    ends = (0.05, 0.06, 0.2), (0.09, 0.09, 0.2), (0.12, 0.2, 0.2)
    made, certify, _ = path(*ends, accuracies={0: 0.9, 2: 0.95})
    fit, certified_limit = answered(made, 0.1, 0.95, certify)
    assert (fit.model, certified_limit.smallest) == (0, 0.06)


def test_taus_fall_until_a_bound_is_surely_within_the_limit_then_gaps_near_it_are_halved():
    assert next_tau([], 0.1) == limits.WEAKEST * 0.1
    assert next_tau([], 0.8) == 1.0
    (one, two, three, constant), _, _ = path(
        (0.3, 0, 0.2), (0.12, 0, 0.2), (0.03, 0, 0.2), (0.0, 0, 0.0)
    )
    assert next_tau([one], 0.1) == one.tau / 2
    assert limits.STRICTEST <= next_tau([one, two], 0.1) < two.tau
    assert next_tau([one, two, three], 0.1) == pytest.approx(np.sqrt(two.tau * three.tau))
    # nothing within the limit says anything yet: between it and what is constant
    found = next_tau([one, two, replace(constant, tau=three.tau)], 0.05)
    assert found == pytest.approx(np.sqrt(two.tau * three.tau))


def test_a_search_ends():
    (weak,), _, _ = path((0.5, 0, 0.2))
    assert next_tau([replace(weak, tau=t) for t in (0.2, 0.1)], 0.1) is None  # nothing moves
    assert next_tau([replace(weak, tau=limits.STRICTEST)], 0.1) is None
    assert next_tau([weak] * limits.MAX_FITS, 0.1) is None
    slow = replace(weak, fit=SimpleNamespace(model=0, rounds=500))
    assert next_tau([weak, slow], 0.1) is None


@pytest.fixture
def short(monkeypatch):
    """A search of two fits."""
    monkeypatch.setattr(limits, "MAX_FITS", 2)
    return {"sensitive_features": "sex", "precision": 0.3}


def test_a_small_fit_under_a_limit_keeps_it_or_says_why_not(short):
    table = small_table(2400, 2)
    fit, certified_limit = fit_within(dealt(table, 2), limit=0.6, **short)
    assert certified_limit.holds
    assert certified_limit.certificates["sex"].upper <= 0.6
    assert "95% confidence" in str(certified_limit)
    held = split_halves(dealt(table, 2), 0)[1]
    assert certified_limit.certificates["sex"].n == sum(map(len, held.clients.values()))
    assert fit.model.training is not None
    _, none = fit_within(dealt(table, 2), limit=0.02, **short)
    assert not none.holds
    assert none.smallest > 0.02
    assert none.violations


@pytest.mark.parametrize("kind", ["pooled", "engine", "relay", "secure", "stream"])
def test_a_limit_is_the_same_wherever_rows_lie(kind, short, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "STREAMED", 0)
    table = small_table(1200, 2)
    clients = dealt(table, 3)
    want, promised = fit_within(clients, limit=0.6, **short)
    rows: object = {
        "pooled": lambda: {"all": table},
        "engine": lambda: in_process(clients),
        "relay": lambda: Relay({"region": in_process(clients)}),
        "secure": lambda: clients,
        "stream": lambda: streamed(clients, tmp_path),
    }[kind]()
    how = {"secure": True} if kind == "secure" else {}
    fit, certified_limit = fit_within(rows, limit=0.6, **short, **how)
    assert fit.model.digest == want.model.digest
    assert (fit.model.decision(table) == want.model.decision(table)).all()
    assert (certified_limit.holds, certified_limit.smallest) == (promised.holds, promised.smallest)
    one, two = (p.certificates["sex"].to_json() for p in (certified_limit, promised))
    assert (one["subgroups"], one["sums"]) == (two["subgroups"], two["sums"])


def test_under_masks_every_model_of_a_path_is_counted():
    """Sites answer a request of a round once: another model is another round."""
    rows = dealt(small_table(600), 2)
    made = fit(rows, "fl").model
    others = [made, replace(made, w=-made.w), made]
    plain, masked = (
        counting(made, rows, sensitive_features="sex", secure=secure) for secure in (False, True)
    )
    for other in others:
        assert (plain(other).counts == masked(other).counts).all()


@pytest.mark.parametrize(
    ("send", "sentence"),
    [
        ({"limit": 0}, "number between 0"),
        ({"limit": 0.1, "confidence": 1}, "confidence is 1"),
        ({"limit": 0.1, "precision": -1}, "precision is -1"),
        (
            {"limit": 0.1, "method": "fl"},
            "take 'rule'",
        ),
    ],
)
def test_bad_settings_are_named(send, sentence):
    with pytest.raises(AgnosticFairError) as error:
        fit_within({"a": small_table(200)}, sensitive_features="sex", **send)
    assert sentence in str(error.value)


def test_weighted_rows_have_no_limit():
    table = replace(small_table(600), weights=np.ones(600))
    with pytest.raises(SettingsError, match="rows have weights"):
        fit_within({"a": table}, limit=0.1, sensitive_features="sex")
    with pytest.raises(SettingsError, match="rows have weights"):
        fit_within(in_process({"a": table}), limit=0.1, sensitive_features="sex")


def test_the_estimator_and_the_command_keep_a_limit(tmp_path, monkeypatch, call):
    import json

    from agnosticfair import AgnosticFairClassifier

    rng = np.random.default_rng(0)
    s, noise = rng.integers(0, 2, 1500), rng.normal(size=(1500, 2))
    X = noise + s[:, None] * [0.5, 0.0]
    y = X.sum(axis=1) > rng.normal(size=1500)
    monkeypatch.setattr(limits, "MAX_FITS", 2)
    fair = AgnosticFairClassifier(limit=0.5, precision=0.3).fit(X, y, sensitive_features=s)
    assert fair.certified_limit_.limit == 0.5
    assert fair.predict(X).shape == (1500,)
    with pytest.raises(SettingsError, match="a limit"):
        AgnosticFairClassifier(limit=0.5, tau=0.1).fit(X, y, sensitive_features=s)
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path / "rows.csv", client_rows(0, 900))
    send = ("--target", "income", "--sensitive-features", "sex", "--limit", 0.9, "--precision", 0.4)
    code, out, err = call("fit", file, *send)
    assert code == 0
    assert "limit 0.9" in err
    assert "model-sex-certificate.json" in out
    card = (tmp_path / "model-card.md").read_text()
    assert "limit 0.9" in card
    assert "not certified: risk difference" not in card  # that is of the rows of the fit
    content = json.loads((tmp_path / "model-sex-certificate.json").read_text())
    assert content["limit"] == 0.9
    assert call("verify", "model-sex-certificate.json")[0] == 0
    (tmp_path / "other-sex-certificate.json").write_text("mine")
    code, _, err = call("fit", file, *send, "--out", "other.safetensors")
    assert code == 2
    assert "other-sex-certificate.json" in err
    assert call("fit", file, *send, "--tau", 0.1, "--force")[0] == 2
    code, _, err = call("fit", file, *send, "--checkpoint", "kept", "--force")
    assert code == 2
    assert "leave out --checkpoint" in err


def test_the_command_s_model_under_a_schema_and_a_limit_is_that_of_sites(
    call, tmp_path, monkeypatch
):
    """It was fitted on ranges and bins of half the rows, not on those that were agreed on."""
    monkeypatch.setattr(limits, "MAX_FITS", 1)
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path / "rows.csv", client_rows(0, 900))
    named = ("--target", "income", "--sensitive-features", "sex")
    assert call("schema", file, *named, "--out", "agreed.json")[0] == 0
    limit = {"limit": 0.9, "precision": 0.4}
    more = ("--limit", 0.9, "--precision", 0.4, "--schema", "agreed.json")
    assert call("fit", file, *named, *more)[0] in (0, 3)
    schema = load_schema("agreed.json")
    sites = in_process(
        {"rows": under(schema, files.read_table(file, Roles("income", ("sex",))), "")}
    )
    deployed, _ = fit_within(sites, sensitive_features="sex", schema=schema, **limit)
    assert load_model("model.safetensors").digest == deployed.model.digest


def people(seed, n=600, times=3):
    """People on so many lines each, whose label changes from line to line."""
    table = small_table(n, seed)
    rows = np.repeat(np.arange(n), times)
    who = Column(rows, tuple(f"{seed}-{k}" for k in range(n)))
    label = np.where(
        np.random.default_rng(seed).random(len(rows)) < 0.2, 1, table.target.codes[rows]
    )
    made = table.take(rows)
    return replace(made, other={"who": who}, target=replace(table.target, codes=label))


def test_nobody_is_in_both_halves_and_overall_certifies_once():
    clients = {"a": people(0), "b": people(1)}
    fitting, held, (note,) = limits.dealt_by_cluster(clients, "who", 0, {})
    for key, table in clients.items():
        who = table.other["who"].codes
        assert len(fitting.clients[key]) % 3 == 0  # all lines of a person, or none
        people_left = 600 - len(fitting.clients[key]) // 3
        assert len(held.clients[key]) == people_left
        assert {*np.unique(who, return_counts=True)[1]} == {3}
        assert "who" not in held.clients[key].other
    assert "clusters among" in note
    with pytest.raises(SettingsError, match=r"memory.*'school'"):
        limits.dealt_by_cluster(clients, "school", 0, {})


def test_a_limit_by_cluster_says_so_in_its_certificate(short):
    clients = {"a": people(0, 900), "b": people(1, 900)}
    _, certified_limit = fit_within(clients, limit=0.8, cluster="who", positive="yes", **short)
    (made,) = certified_limit.certificates.values()
    assert made.notes[0].startswith(f"One row of each of {made.n:,} clusters among")
    about = limit_record(certified_limit, made)
    (stated,) = limits.stated_certificates(certified_limit).values()
    assert stated.upper == 0.8 >= made.upper
    assert verify(sealed(json.loads(json.dumps(stated.to_json() | about)))) == ()
