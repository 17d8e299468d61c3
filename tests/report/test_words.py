"""The verdict against a limit, who is favoured, and warnings of a model that hardly decides."""

from dataclasses import asdict

import pytest

from agnosticfair.mathematics.metrics import METRICS, PARITY
from agnosticfair.report.words import direction, glance, poor, scope_of, verdict


def study(measured, certified=None, limit=0.1, kind="audit"):
    method = {"name": "m", "difference": measured}
    method["certified"] = certified
    rates = {"F": {"rate": 0.2}, "M": {"rate": 0.5}, "X": {"rate": None}}
    return {
        "methods": [method],
        "kind": kind,
        "limit": limit,
        "metric": asdict(PARITY),
        "rows_are": "test rows",
        "clients": [{"method": "m", "client": "all rows", "groups": rates}],
        "facts": {"base_rate": 0.25, "label_difference": 0.3},
    }


@pytest.mark.parametrize(
    ("given", "state"),
    [
        (study(0.05, 0.09), "kept"),
        (study(0.05, 0.2), "unknown"),
        (study(0.05), "unknown"),
        (study(0.11, 0.2), "broken"),
        (study(0.11), "broken"),
        (study(0.11, 0.12, limit=0.2), "kept"),
    ],
)
def test_the_verdict_is_about_the_limit(given, state):
    found, text = verdict(given)
    assert found == state
    assert f"{given['limit']:g}" in text


def test_a_subgroup_over_the_limit_breaks_it():
    given = study(0.03)
    assert verdict(given)[0] == "unknown"
    given["methods"][0]["subgroups"] = {"estimable": [{"difference": 0.16, "name": "job = cook"}]}
    assert verdict(given)[0] == "broken"
    assert "0.1600 where job = cook" in verdict(given)[1]


@pytest.mark.parametrize(("low", "state"), [(0.02, "unknown"), (0.11, "broken")])
def test_a_certified_difference_over_the_limit_may_be_chance(low, state):
    given = study(0.03, 0.3)
    given["methods"][0]["subgroups"] = named(difference=0.16, low=low)
    found, text = verdict(given)
    assert found == state
    assert "0.1600" in text
    assert ("chance" in text) == (state == "unknown")


def test_other_rates_have_a_ratio_and_no_four_fifths_rule():
    given = study(0.05, 0.09) | {"metric": asdict(METRICS["equal_opportunity"])}
    given["methods"][0]["subgroups"] = named(ratio=0.7, ratio_low=0.6)
    tiles = {label: (value, about) for label, value, about in glance(given).tiles}
    assert "Four-fifths rule" not in tiles
    value, about = tiles["Ratio"]
    assert (value, "0.7000" in about, "at least 0.6000" in about) == ("0.7000", True, True)


def test_there_is_no_verdict_without_a_difference():
    assert verdict(study(None)) == ("", "")


def test_who_is_favoured():
    said = direction(study(0.3))
    assert "Favoured: M (0.5000 decided positively) over F (0.2000)" in said
    assert "0.2500" in said
    assert "0.3000" in said


def test_a_model_that_hardly_decides_is_told():
    assert poor(0.8, 0.75, 0.3) == []
    (worse,) = poor(0.7, 0.75, 0.3)
    assert "less often" in worse
    (constant,) = poor(0.75, 0.75, 0.001)
    assert "99.9%" in constant
    assert "negatively" in constant
    assert "positively" in poor(0.75, 0.75, 1.0)[0]


def test_the_first_screen_warns_of_a_model_that_hardly_decides():
    given = study(0.0, 0.01)
    given["methods"][0]["warnings"] = poor(0.75, 0.75, 0.001)
    shown = glance(given)
    assert shown.state == "kept"
    assert "nearly everybody (99.9%) negatively" in shown.answer


def test_what_surely_breaks_a_limit_is_named_before_what_was_measured_higher():
    given = study(0.03, 0.3) | {"rows": 1000}
    sure = named(name="job = nurse", difference=0.2, low=0.12)["estimable"]
    given["methods"][0]["subgroups"] = named(difference=0.3, low=0.01) | {
        "estimable": [*named(difference=0.3, low=0.01)["estimable"], *sure]
    }
    state, text = verdict(given)
    assert (state, "job = nurse" in text, "0.1200" in text) == ("broken", True, True)
    given["methods"][0]["subgroups"]["estimable"].pop()
    state, text = verdict(given)
    assert (state, "About 2,200 rows" in text) == ("unknown", True)  # (0.29 / 0.2)^2 as many


def test_a_limit_is_broken_by_a_subgroup_of_few_rows_that_surely_breaks_it():
    few = {"name": "job = nurse", "rows": 90, "difference": 0.4, "low": 0.12, "high": 0.7}
    given = study(0.03, 0.09)
    given["methods"][0]["subgroups"] = named() | {"few": [few], "surest": few}
    state, text = verdict(given)
    assert (state, "at least 0.1200" in text) == ("broken", True)
    given["methods"][0]["subgroups"] |= {"surest": few | {"low": 0.0}, "counts": [1, 3]}
    state, text = verdict(given)
    assert state == "kept"
    assert "too few to know (3 subgroups): risk difference up to 0.4000 where job = nurse" in text


def named(**changes):
    subgroup = {"name": "job = cook", "rows": 90, "difference": 0.05, "low": 0.0, "high": 0.25}
    subgroup |= {"ratio": 0.85, "ratio_low": 0.7, **changes}
    return {
        "estimable": [subgroup],
        "few": [],
        "certified": True,
        "counts": [1, 0],
        "ratio": None,
    } | {"overall": subgroup}


def test_the_first_screen_says_what_was_asked_how_many_rows_would_do_and_the_worst_subgroup():
    given = study(0.05, 0.25, limit=0.15) | {"rows": 1000}
    given["methods"][0] |= {"subgroups": named(), "confidence": 0.95, "accuracy": 0.8}
    shown = glance(given)
    assert shown.state == "unknown"
    assert shown.answer.startswith("Not enough rows")
    assert "About 4,000 rows" in shown.answer  # (0.25 - 0.05)^2 / (0.15 - 0.05)^2 as many
    tiles = {label: (value, about) for label, value, about in shown.tiles}
    assert tiles["Asked"][0] == "≤ 0.15"
    assert tiles["Worst subgroup"] == ("0.0500", "job = cook (90 rows); at most 0.2500")
    assert tiles["Accuracy"][0] == "0.8000"


@pytest.mark.parametrize(
    ("ratio", "low", "said"), [(0.7, 0.6, "not met"), (0.9, 0.7, "unsure"), (0.9, 0.81, "met")]
)
def test_the_first_screen_has_the_four_fifths_rule(ratio, low, said):
    given = study(0.05, 0.09)
    given["methods"][0]["subgroups"] = named(ratio=ratio, ratio_low=low)
    tiles = {label: value for label, value, _ in glance(given).tiles}
    assert tiles["Four-fifths rule"] == said


def test_without_a_limit_the_first_screen_says_so():
    shown = glance(study(0.05, 0.09, limit=None))
    assert (shown.state, shown.sign) == ("", "")
    assert shown.answer.startswith("No limit was asked for")


def test_a_limit_on_overall_is_not_said_to_be_one_on_subgroups():
    given = study(0.03)
    subgroup = {"difference": 0.16, "name": "job = cook", "rows": 9}
    given["methods"][0] |= {"subgroups": named() | {"estimable": [subgroup]}, "scope": "overall"}
    state, text = verdict(given)
    assert (state, "0.1 was asked for overall" in text) == ("broken", True)
    assert "every named subgroup" not in glance(given).tiles[0][2]
    assert scope_of({"basis": {"kind": "gaussian"}}) == "for every reweighting in its set"


def trained(kept=True, over=0, difference=0.113, able=400):
    given = study(0.04) | {"rows_are": "training rows", "rows": 9000}
    counted = named(difference=0.16, low=None, high=None) | {"counts": [able, 3], "over": over}
    counted |= {"certified": False, "needed": [2081, 177006], "precision": 0.1}
    given["methods"][0] |= {
        "subgroups": counted,
        "estimated": {"kept": kept, "difference": difference},
    }
    return given


@pytest.mark.parametrize(
    ("given", "state", "said"),
    [
        (trained(), "kept", "none of 400 subgroups is over it by more than chance"),
        (trained(over=10), "kept", "10 of 400 subgroups are over it"),
        (trained(over=11), "unknown", "but counted, 11 of 400"),
        (trained(kept=False, difference=0.3), "broken", "up to 0.3000, and 0.1 was asked for"),
    ],
)
def test_a_rule_is_asked_for_tau_of_its_estimates_in_training(given, state, said):
    found, text = verdict(given)
    assert (found, said in text) == (state, True)
    if state != "broken":
        assert "at most 0.1 in every named subgroup (0.1130 with decisions rounded" in text
        assert "2,100 rows tells it overall to ±0.1, of 180,000 in half of the subgroups" in text
    assert verdict(given | {"rows_are": "test rows"})[0] == "broken", "counted on other rows"


def test_a_converged_fit_keeps_its_limit_to_rounding():
    given = study(0.1004) | {"rows_are": "training rows"}
    assert verdict(given)[0] == "unknown"
    assert verdict(given | {"rows_are": "test rows"})[0] == "broken"
