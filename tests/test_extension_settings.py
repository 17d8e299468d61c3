"""The recipes of CONTRIBUTING, followed from outside the package: what is registered is known everywhere."""

import json
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest
from helpers import client_rows, dealt, small_table, write

from agnosticfair import AgnosticFairClassifier, Metric, audit, fit, method, register_metric
from agnosticfair.mathematics import scoring
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.settings import (
    POSITIVE,
    SETTINGS,
    Reach,
    Setting,
    from_config,
    register_setting,
    to_config,
)


@pytest.fixture
def metric(monkeypatch):
    """Predictive equality: equal false positive rates."""
    monkeypatch.setitem(METRICS, "predictive_equality", None)  # as it was after the test
    return register_metric(
        Metric("predictive_equality", ((0,),), "difference of false positives")
    ).name


def test_a_metric_from_outside_is_trained_measured_and_certified(metric):
    table = small_table(600)
    table.numeric["age"][:] += 0.8 * table.sensitive_features["sex"].codes
    plain, fair = (
        fit(dealt(table, 2), certificate, positive="yes")
        for certificate in ("fl", method("fairfl", metric=metric, tau=0.01))
    )
    y, s = table.labels("yes"), table.sensitive_features["sex"].codes

    def gap(fitted):
        p = fitted.model.predict(table)
        rates = scoring.positive_rates(p, s, 1.0 - y)
        assert scoring.gap(metric, y, p, s) == pytest.approx(np.ptp(rates))
        return np.ptp(rates)

    assert fair.converged
    assert gap(fair) < 0.05 < gap(plain)
    groups = table.sensitive_features["sex"].values()
    request = {"metric": metric, "held_out": False}
    certificate = audit(fair.model, table, sensitive_features=groups, **request)
    assert certificate.difference == pytest.approx(gap(fair))
    assert certificate.worst_difference >= certificate.difference - 1e-9
    assert "false positives up" in str(certificate)


@pytest.fixture
def setting():
    setting = register_setting(Setting("decay", Reach.METHOD, "Weight decay.", POSITIVE, "ridge"))
    yield setting.name
    del SETTINGS[setting.name]


def test_a_setting_from_outside_reaches_the_method_and_a_deployed_app(setting):
    assert method("fl", decay=0.25) == method("fl", ridge=0.25)
    config = to_config({"decay": 0.25})
    assert config["decay"] == 0.25
    assert method("fl", **from_config(json.loads(json.dumps(config)))).ridge == 0.25


OUTSIDE = """
from agnosticfair.settings import POSITIVE, Reach, Setting, register_setting
register_setting(Setting("decay", Reach.METHOD, "Weight decay.", POSITIVE, "ridge"))
from agnosticfair import method
assert method("fl", decay=0.25).ridge == 0.25
from agnosticfair.cli import main
main(["fit", "rows.csv", "--target", "income", "--sensitive-features", "sex", "--method", "fl", "--decay", "0.25"])
"""


@pytest.mark.slow
def test_a_setting_from_outside_is_an_option(tmp_path):
    write(tmp_path / "rows.csv", client_rows(0))
    ran = subprocess.run(
        [sys.executable, "-c", OUTSIDE], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    from agnosticfair import load_model

    assert load_model(tmp_path / "model.safetensors").method["ridge"] == 0.25


def test_every_setting_is_an_option_and_a_key():
    """A line in the table is enough, and nothing has a list of its own."""
    import typer

    from agnosticfair.cli import app

    options = {s.name for s in SETTINGS.values() if s.option is not None}
    assert len(AgnosticFairClassifier().get_params(deep=False)) <= 15
    assert {s.key for s in SETTINGS.values() if s.name in options} == {
        *to_config(dict.fromkeys(options))
    }
    commands = typer.main.get_command(app).commands
    deploy = commands["deploy"].commands["init"]
    for command in (commands["fit"], commands["tune"], commands["explain-messages"], deploy):
        assert options <= {option.name for option in command.params}
    chosen_method = asdict(method("agnosticfair", network="mlp"))
    for one in SETTINGS.values():
        subgroups = {
            Reach.METHOD: [chosen_method],
            Reach.FAIRNESS: [chosen_method["fairness"]],
            Reach.SURROGATE: [chosen_method["fairness"]["surrogate"]],
            Reach.ADVERSARY: [chosen_method, chosen_method["fairness"]],
            Reach.KERNELS: [chosen_method["basis"], chosen_method["fairness"]["basis"]],
            Reach.SUBGROUPS: [chosen_method["fairness"]["basis"]],
            Reach.RULE: [asdict(method("rule"))["rule"]],
        }[one.reach]
        assert all((one.field or one.name) in subgroup for subgroup in subgroups), one.name
