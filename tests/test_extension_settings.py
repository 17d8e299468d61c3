"""The recipes of CONTRIBUTING, followed from outside the package: what is registered is known everywhere."""

import json
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest
from helpers import client_rows, dealt, small_table, write

from agnosticfair import AgnosticFairClassifier, Notion, audit, fit, method, register_notion
from agnosticfair.mathematics import metrics
from agnosticfair.mathematics.notions import NOTIONS
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
def notion():
    """Predictive equality: equal false positive rates."""
    made = register_notion(Notion("predictive_equality", ((0,),), "difference of false positives"))
    yield made.name
    del NOTIONS[made.name]


def test_a_notion_from_outside_is_trained_measured_and_certified(notion):
    table = small_table(600)
    table.numeric["age"][:] += 0.8 * table.sensitive_features["sex"].codes
    plain, fair = (
        fit(dealt(table, 2), made, positive="yes")
        for made in ("fl", method("fairfl", notion=notion, tau=0.01))
    )
    y, s = table.labels("yes"), table.sensitive_features["sex"].codes

    def gap(fitted):
        p = fitted.model.predict(table)
        rates = metrics.positive_rates(p, s, 1.0 - y)
        assert metrics.gap(notion, y, p, s) == pytest.approx(np.ptp(rates))
        return np.ptp(rates)

    assert fair.converged
    assert gap(fair) < 0.05 < gap(plain)
    groups = table.sensitive_features["sex"].values()
    asked = {"notion": notion, "held_out": False}
    made = audit(fair.model, table, sensitive_features=groups, **asked)
    assert made.difference == pytest.approx(gap(fair))
    assert made.worst_difference >= made.difference - 1e-9
    assert "difference of false positives up to" in str(made)


@pytest.fixture
def setting():
    made = register_setting(Setting("decay", Reach.METHOD, "Weight decay.", POSITIVE, "ridge"))
    yield made.name
    del SETTINGS[made.name]


def test_a_setting_from_outside_reaches_the_recipe_and_a_deployed_app(setting):
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
    assert {s.key for s in SETTINGS.values() if s.name in options} == {*to_config({})}
    commands = typer.main.get_command(app).commands
    deploy = commands["deploy"].commands["init"]
    for command in (commands["fit"], commands["tune"], commands["explain-messages"], deploy):
        assert options <= {option.name for option in command.params}
    recipe = asdict(method("agnosticfair", network="mlp"))
    for one in SETTINGS.values():
        parts = {
            Reach.METHOD: [recipe],
            Reach.FAIRNESS: [recipe["fairness"]],
            Reach.SURROGATE: [recipe["fairness"]["surrogate"]],
            Reach.ADVERSARY: [recipe, recipe["fairness"]],
            Reach.KERNELS: [recipe["basis"], recipe["fairness"]["basis"]],
            Reach.PARTS: [recipe["fairness"]["basis"]],
            Reach.RULE: [asdict(method("rule"))["rule"]],
        }[one.reach]
        assert all((one.field or one.name) in part for part in parts), one.name
