"""The set over which a fit is audited is the one that it was held to."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.auditing import proof
from agnosticfair.auditing.audit import audit
from agnosticfair.auditing.fits import agreed_in, certificates, certified_set, kernels_on
from agnosticfair.auditing.proof import verify
from agnosticfair.data.axes import SITE
from agnosticfair.data.table import Column, Table
from agnosticfair.mathematics.basis import by_client, gaussian, subgroups
from agnosticfair.mathematics.subgroups import subgroup_name
from agnosticfair.methods import Fairness, method

RNG = np.random.default_rng(0)
X, S = RNG.uniform(size=(60, 2)), np.repeat([0, 1], 30)
D, Y = (X[:, 0] + 0.3 * S > 0.6).astype(int), (X[:, 1] > 0.5).astype(int)


def worst(**one_request):
    options = {"held_out": False, "subgroups": (), **one_request}
    return audit(D, X, Y, sensitive_features=S, **options).kernels.worst_difference


@pytest.mark.parametrize("name", ["fairfl", "fl", "agnosticfair"])
def test_fit_and_estimator_certify_one_number_whatever_the_method(name):
    from agnosticfair import AgnosticFairClassifier
    from agnosticfair.federation import fit

    rng = np.random.default_rng(0)
    sex, rows = rng.choice(["F", "M"], 2600), np.floor(8 * rng.random((2600, 2))) / 8
    hired = rows[:, 0] + 0.3 * (sex == "M") > rng.random(2600)
    fair = AgnosticFairClassifier(name).fit(rows, hired, sensitive_features=sex)
    table = Table(
        {f"x{j}": rows[:, j] for j in range(2)},
        {},
        Column.of(["1" if yes else "0" for yes in hired]),
        {"sex": Column.of(sex.tolist())},
    )
    whole = fit({"all": table}, name, positive="1")
    made, over = fair.certificate_, certificates(whole, {"all": table})[0]["sex"]
    assert made.to_json()["subgroups"] == over.to_json()["subgroups"]
    assert (made.kernels is None) == (over.kernels is None) == (name != "agnosticfair")
    if made.kernels is not None:
        assert made.kernels.worst_difference == pytest.approx(
            over.kernels.worst_difference, abs=2e-4
        )
    else:
        assert str(made) == str(over)


def test_fit_and_estimator_certify_one_number_over_the_subgroups_of_the_fit():
    from agnosticfair import AgnosticFairClassifier
    from agnosticfair.federation import fit

    rng = np.random.default_rng(0)
    sex, rows = rng.choice(["F", "M"], 600), rng.normal(size=(600, 3))
    rows[:, 0] += sex == "M"
    hired = rows[:, 0] + rows[:, 1] > rng.normal(size=600)
    fair = AgnosticFairClassifier(metric="equal_opportunity", tau=0.1)
    fair.fit(rows, hired, sensitive_features=sex)
    made, agreed = fair.certificate_, agreed_in(fair.fit_)
    names = {"overall", *(subgroup_name(agreed.axes, subgroup) for subgroup in agreed.subgroups)}
    assert {subgroup.name for subgroup in made.subgroups} == names
    numeric = {f"x{j}": rows[:, j] for j in range(3)}
    label = Column.of(["1" if yes else "0" for yes in hired])
    table = Table(numeric, {}, label, {"sex": Column.of(sex.tolist())})
    whole = fit({"all": table}, fair.fit_.method, positive="1")
    over, _ = certificates(whole, {"all": table})
    shown = [
        [(subgroup.name, subgroup.rows, subgroup.difference) for subgroup in c.subgroups]
        for c in (over["sex"], made)
    ]
    assert shown[0] == shown[1]
    assert str(over["sex"]) == str(made)


def test_where_no_subgroup_has_people_enough_overall_is_all_that_is_certified():
    from agnosticfair.federation import fit

    clients = dealt(small_table(300), 2)
    chosen_method = method("rule", min_people=1000.0)
    whole = fit(clients, chosen_method, sensitive_features="sex", positive="yes")
    assert whole.subgroups is None
    made = certificates(whole, clients)[0]["sex"]
    assert [subgroup.name for subgroup in made.subgroups] == ["overall"]
    assert "1 subgroup that was compared" in str(made)


def test_a_subgroup_of_sites_is_left_out_where_rows_do_not_tell_it():
    from agnosticfair.federation import fit

    by_site = method("rule", basis=subgroups((SITE, "job")))
    whole = fit(dealt(small_table(900), 2), by_site, sensitive_features="sex", positive="yes")
    assert SITE in [axis.name for axis in whole.subgroups.agreed[0]]
    every, some = agreed_in(whole), agreed_in(whole, without=SITE)
    names = {subgroup_name(every.axes, subgroup) for subgroup in every.subgroups}
    assert {subgroup_name(some.axes, subgroup) for subgroup in some.subgroups} == {
        n for n in names if SITE not in n
    }
    assert SITE not in [axis.name for axis in some.axes]


def test_beyond_the_rows_the_estimator_certifies_the_same_named_subgroups():
    from agnosticfair import AgnosticFairClassifier

    rng = np.random.default_rng(1)
    frames = []
    for n in (800, 6000):
        sex, rows = rng.choice(["F", "M"], n), rng.normal(size=(n, 2))
        frames.append((rows, rows[:, 0] + (sex == "M") > rng.normal(size=n), sex))
    fair = AgnosticFairClassifier(tau=0.1)
    fair.fit(*frames[0][:2], sensitive_features=frames[0][2])
    rows, hired, sex = frames[1]
    certificate = fair.audit(rows, hired, sensitive_features=sex)
    assert certificate.kernels is None
    assert certificate.mixtures is None
    assert certificate.upper < 1
    assert all(
        subgroup.name.startswith(("overall", "x0", "x1")) for subgroup in certificate.subgroups
    )
    assert verify(proof.sealed(json.loads(json.dumps(certificate.to_json())))) == ()


def test_equal_weights_said_or_not_are_one_set_and_trust_draws_it_together():
    fairness = Fairness(0.05, basis=gaussian(8, 0.5), bound=3.0)
    plain = kernels_on(fairness, X, X[:8])
    assert plain["basis"].basis == fairness.basis
    weighed = kernels_on(fairness, X, X[:8], weights=np.ones(60))
    assert worst(**weighed) == pytest.approx(worst(**plain), abs=1e-3)
    trusted = kernels_on(Fairness(0.05, basis=gaussian(8, 0.5), bound=3.0, trust=0.9), X, X[:8])
    assert worst(**trusted) < worst(**plain) - 0.01


def test_over_kernels_by_client_the_metric_is_still_the_fits():
    fairness = Fairness(0.05, basis=by_client(), metric="equal_opportunity", floor=0.1)
    whole = SimpleNamespace(method=SimpleNamespace(fairness=fairness), centres=None)
    request = certified_set(whole)
    assert (request["metric"], request["floor"]) == ("equal_opportunity", 0.1)
    assert "basis" not in request
    assert kernels_on(fairness, X, None) == {}
