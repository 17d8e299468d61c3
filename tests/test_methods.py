"""Methods refuse what makes no sense."""

import pytest

from agnosticfair.errors import SettingsError
from agnosticfair.methods import Fairness, Method, method


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bound": 3.0}, "no meaning"),
        ({"max_rounds": 0}, "max_rounds is 0"),
        ({"ridge": -1.0}, "ridge is -1.0"),
        ({"tau": 0.1}, "no fairness constraint"),
        ({"colour": 1}, "colour"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, said):
    with pytest.raises(SettingsError, match=said):
        method("fl", **changes)


def test_an_unknown_method_is_refused_with_the_known_ones():
    with pytest.raises(SettingsError, match=r"unknown.*'fair'"):
        method("fair")


def test_bound_reaches_both_adversaries():
    changed = method("agnosticfair", bound=3.0)
    assert changed.bound == changed.fairness.bound == 3.0
    with pytest.raises(SettingsError, match=r"bound is 0\.0"):
        method("agnosticfair", bound=0.0)


def test_tau_must_be_positive():
    with pytest.raises(SettingsError, match="tau is 0"):
        Method("m", fairness=Fairness(tau=0))
