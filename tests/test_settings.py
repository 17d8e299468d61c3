"""A value of the wrong kind is one sentence: the setting, the value, and what it must be."""

import re
from inspect import getdoc
from pathlib import Path

import numpy as np
import pytest

from agnosticfair import AgnosticFairClassifier
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.basis import gaussian
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.methods import Averaging, Network, method
from agnosticfair.settings import SETTINGS, TAU

X, y, s = np.random.default_rng(0).normal(size=(40, 2)), [0, 1] * 20, [0, 0, 1, 1] * 10
POSITIVE = "it must be a positive number"
SHARE = "it must be a number from 0 to 1"
COUNT = "it must be a whole number, 1 or more"

BOTH = [
    ({"tau": "x"}, f"tau is 'x'; {POSITIVE}"),
    ({"tau": True}, f"tau is True; {POSITIVE}"),
    ({"tau": np.ones(2)}, f"tau is array([1., 1.]); {POSITIVE}"),
    ({"nominal": -1}, f"nominal is -1; {POSITIVE}"),
    ({"bound": float("nan")}, f"bound is nan; {POSITIVE}"),
    ({"floor": 2}, f"floor is 2; {SHARE}"),
    ({"trust": "all"}, f"trust is 'all'; {SHARE}"),
    ({"share": [1]}, f"share is [1]; {SHARE}"),
    ({"ridge": -0.1}, "ridge is -0.1; it must be a number, 0 or more"),
    ({"tolerance": 0}, f"tolerance is 0; {POSITIVE}"),
    ({"kernels": -1}, f"kernels is -1; {COUNT}"),
    ({"kernels": 1.5}, f"kernels is 1.5; {COUNT}"),
    ({"sigma": 0}, f"sigma is 0; {POSITIVE}"),
    ({"sigma": "mean"}, f"sigma is 'mean'; {POSITIVE}"),
    ({"intersections": "no"}, "intersections is 'no'; it must be a bool"),
    ({"metric": ["demographic_parity"]}, "unknown metric ['demographic_parity']; there are: demo"),
    ({"centres": "stars"}, "unknown centres 'stars'; there are: rows"),
]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *BOTH,
        ({"max_rounds": 2.5}, f"max_rounds is 2.5; {COUNT}"),
        ({"ridge": None}, "ridge is None; it must be a number, 0 or more"),
        ({"split": 1}, "split is 1; it must be a bool"),
        ({"centres": np.eye(2)}, "unknown centres array([[1., 0"),
        ({"basis": "gaussian"}, "basis is 'gaussian'; it must be a Basis"),
        ({"temperature": 0}, f"temperature is 0; {POSITIVE}"),
        ({"network": 5}, "network is 5; it must be a Network"),
        ({"averaging": {"steps": 3}}, "averaging is {'steps': 3}; it must be a Averaging"),
        ({"tua": 0.1}, "unknown setting 'tua'; there are: tau"),
    ],
)
def test_a_method_refuses_what_a_setting_cannot_be(changes, said):
    with pytest.raises(SettingsError) as told:
        method("agnosticfair", **changes)
    assert str(told.value).startswith(said)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        *((given, said) for given, said in BOTH if {*given} <= {"tau", "metric"}),
        ({"method": ["fl"]}, "unknown method ['fl']; there are: fl"),
        ({"basis": ["gaussian"]}, "unknown basis ['gaussian']; take constant"),
    ],
)
def test_so_does_the_classifier(settings, said):
    with pytest.raises(SettingsError) as told:
        AgnosticFairClassifier(**settings).fit(X, y, sensitive_features=s)
    assert str(told.value).startswith(said)


@pytest.mark.parametrize(
    ("make", "values", "said"),
    [
        (Network, {"hidden": ("a",)}, "hidden is ('a',); it must be whole numbers, 1 or more"),
        (Network, {"hidden": 32}, "hidden is 32; it must be whole numbers, 1 or more, as a tuple"),
        (Network, {"steps": "many"}, f"steps is 'many'; {COUNT}"),
        (Network, {"batch": 0}, f"batch is 0; {COUNT}"),
        (Network, {"momentum": 1}, "momentum is 1; it must be a number from 0 to below 1"),
        (Network, {"name": None}, "name is None; it must be a str"),
        (Averaging, {"steps": 1.5}, f"steps is 1.5; {COUNT}"),
        (Averaging, {"penalty": "x"}, "penalty is 'x'; it must be a number, 0 or more"),
        (Surrogate, {"kind": "tanh"}, "unknown surrogate 'tanh'; there are: sigmoid"),
        (gaussian, {"kernels": "200"}, f"kernels is '200'; {COUNT}"),
        (lambda tau: method("agnosticfair-printed", tau=tau), {"tau": 0}, f"tau is 0; {POSITIVE}"),
    ],
)
def test_so_do_the_subgroups(make, values, said):
    with pytest.raises(SettingsError) as told:
        make(**values)
    assert str(told.value).startswith(said)


def test_numbers_of_numpy_are_numbers():
    numbers = {"kernels": np.int64(5), "max_rounds": np.int32(9), "bound": np.float32(8)}
    plain = {key: value.item() for key, value in numbers.items()}
    made = [
        AgnosticFairClassifier(method("agnosticfair", **given)).fit(X, y, sensitive_features=s)
        for given in (numbers, plain)
    ]
    np.testing.assert_array_equal(made[0].coef_, made[1].coef_)


def test_the_default_is_one_for_all_commands():
    from inspect import signature

    from agnosticfair.commands import data, deploy, fit
    from agnosticfair.methods import DEFAULT, method

    commands = (fit.fit, fit.tune, data.explain_messages, deploy.init)
    assert {signature(command).parameters["method"].default for command in commands} == {DEFAULT}
    assert method(DEFAULT).name == "rule"
    assert method(DEFAULT, kernels=5).name == "agnosticfair"


def test_tau_is_said_once():
    root = Path(__file__).parents[1]
    pages = [(root / name).read_text() for name in ("README.md", "docs/choosing.md")]
    for text in (*pages, getdoc(AgnosticFairClassifier), SETTINGS["tau"].words):
        assert TAU in re.sub(r"\s+", " ", text)
