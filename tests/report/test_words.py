"""The verdict against a limit, who is favoured, and warnings of a model that hardly decides."""

from dataclasses import asdict

import pytest

from agnosticfair.mathematics.notions import PARITY
from agnosticfair.report.facts import poor
from agnosticfair.report.words import direction, verdict


def study(measured, certified=None, limit=0.1, kind="audit"):
    method = {"name": "m", "seeds": 1, "difference": {"mean": measured}}
    method["certified"] = None if certified is None else {"mean": certified}
    rates = {"F": {"rate": 0.2}, "M": {"rate": 0.5}, "X": {"rate": None}}
    return {
        "methods": [method],
        "kind": kind,
        "limit": limit,
        "notion": asdict(PARITY),
        "rows_are": "test rows",
        "clients": [{"method": "m", "client": "all rows", "groups": rates}],
        "facts": {"base_rate": 0.25, "label_difference": 0.3},
    }


@pytest.mark.parametrize(
    ("given", "state"),
    [
        (study(0.05, 0.09), "keeps"),
        (study(0.05, 0.2), "not known"),
        (study(0.05), "not known"),
        (study(0.11, 0.2), "does not keep"),
        (study(0.11), "does not keep"),
        (study(0.11, 0.12, limit=0.2), "keeps"),
    ],
)
def test_the_verdict_is_about_the_limit(given, state):
    found = verdict(given)
    assert found["state"] == state
    assert f"{given['limit']:g}" in found["text"]


def test_a_part_over_the_limit_breaks_it():
    given = study(0.03)
    assert verdict(given)["state"] == "not known"
    given["methods"][0]["parts"] = {"estimable": [{"difference": 0.16, "name": "job = cook"}]}
    assert verdict(given)["state"] == "does not keep"
    assert "0.160 where job = cook, measured" in verdict(given)["text"]


def test_there_is_no_verdict_before_the_end():
    assert verdict(study(0.05, kind="running")) == {}
    assert verdict(study(None)) == {}


def test_who_is_favoured():
    said = direction(study(0.3))
    assert "Favoured: M (0.500 decided positively) over F (0.200)" in said
    assert "0.250" in said
    assert "0.300" in said


def test_a_model_that_hardly_decides_is_told():
    assert poor(0.8, 0.75, 0.3) == []
    (worse,) = poor(0.7, 0.75, 0.3)
    assert "less often" in worse
    (constant,) = poor(0.75, 0.75, 0.001)
    assert "99.9%" in constant
    assert "negatively" in constant
    assert "positively" in poor(0.75, 0.75, 1.0)[0]
