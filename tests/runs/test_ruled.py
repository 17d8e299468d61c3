"""What is shown of a rule: where it acted, calibration, curves, importances, and what it knows of groups."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair.runs.ruled import COLUMNS, MAX_SUBGROUPS, about

CLIENTS = dealt(small_table(600, 1), 2)
TABLES = [*CLIENTS.values()]


def fitted(**changes):
    return fit(CLIENTS, method("rule", tau=0.02, min_people=5, **changes))


@pytest.fixture(scope="module")
def additive():
    return fitted(learner="additive")


def test_a_method_without_a_rule_has_nothing_to_show():
    assert about(fit(CLIENTS, "fairfl")) is None


def test_it_is_json_and_names_what_costs_most(additive):
    content = json.loads(json.dumps(about(additive, TABLES)))
    assert content["learner"] == "additive"
    assert len(content["multipliers"]) <= MAX_SUBGROUPS
    assert content["limited"] == len(additive.multipliers)
    assert content["statements"] == [*additive.statements]
    count, off = content["calibrated"]
    assert count == len(additive.calibration) >= off
    worst = [abs(entry["z"]) for entry in content["calibration"]]
    assert worst == sorted(worst, reverse=True)


def test_curves_are_what_the_columns_add_to_the_log_odds(additive):
    told, model = about(additive), additive.model
    assert 0 < len(told["curves"]) <= COLUMNS
    (name, curve), *_ = told["curves"].items()
    rows = TABLES[0].take(np.zeros(2, int))
    low, high = curve["x"][0], curve["x"][-1] * (1 - 1e-9)
    rows = replace(rows, numeric={**rows.numeric, name: np.array([low, high])})
    p = model.probabilities(rows)
    odds = np.log(p / (1 - p))
    y = curve["y"]["label"]
    assert odds[1] - odds[0] == pytest.approx(y[-1] - y[0], abs=1e-3)


def test_trees_have_gains_importances_and_dependences():
    told = about(fitted(learner="trees"), TABLES)
    assert sum(told["gains"]["label"].values()) == pytest.approx(1.0, abs=1e-6)
    assert {*told["importances"]} == {*TABLES[0].numeric, *TABLES[0].categorical}
    for curve in told["dependences"].values():
        assert len(curve["x"]) == len(curve["y"]["label"])
        assert all(0 <= y <= 1 for own in curve["y"].values() for y in own)


def test_it_says_what_the_rule_knows_of_groups(additive):
    assert "never the feature itself" in about(additive)["proxy"]
    assert "proxy is treated" in about(additive)["proxy"]
    aware = fitted(learner="linear", aware=True)
    assert "decides by 'sex' itself (aware)" in about(aware)["proxy"]
    plain = fit(CLIENTS, method("fl", learner="linear"))
    assert "compares no groups" in about(plain)["proxy"]
