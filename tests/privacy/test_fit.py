"""Private fits: what they spend, what they are worth, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.auditing.fits import noisy_certificate
from agnosticfair.data.axes import codes_of
from agnosticfair.data.schema import schema_of
from agnosticfair.data.summary import summary_statistics
from agnosticfair.errors import AgnosticFairError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.mathematics.basis import constant
from agnosticfair.mathematics.subgroups import subgroup_name
from agnosticfair.methods import method
from agnosticfair.model import load_model
from agnosticfair.privacy.fit import Budget, fit_private, schema_axes
from agnosticfair.report.card import private_card
from agnosticfair.report.page import card_markdown as markdown

ROWS = small_table(400, 3)


SCHEMA = schema_of(summary_statistics(ROWS, "all"), "y")


@pytest.mark.parametrize(
    ("epsilon", "delta", "said"),
    [
        (0.0, 1e-5, "epsilon is 0"),
        (-1.0, 1e-5, "epsilon is -1"),
        (1.0, 0.0, "delta is 0"),
        (1.0, 0.5, "delta is 0.5"),
    ],
)
def test_a_budget_that_makes_no_sense_is_a_sentence(epsilon, delta, said):
    with pytest.raises(SettingsError, match=said):
        Budget(epsilon, delta)


@pytest.mark.usefixtures("seeded_noise")
def test_a_private_fit_says_what_it_spent_and_a_second_one_is_refused(tmp_path):
    tables, budget = dealt(ROWS, 2), Budget(50.0, ledgers=tmp_path)
    fitted = fit_private(tables, "fairfl", budget=budget, schema=SCHEMA, positive="yes", rounds=3)
    told = fitted.model.privacy
    assert told["epsilon"] == pytest.approx(50.0)
    ((_, _, difference, at_most),) = told["subgroups"]
    assert difference <= at_most
    fitted.model.save(tmp_path / "model.safetensors")
    assert load_model(tmp_path / "model.safetensors").privacy == told
    again = fit_private(tables, "fairfl", budget=budget, schema=SCHEMA, positive="yes", rounds=3)
    np.testing.assert_array_equal(
        again.model.w, fitted.model.w
    )  # the same requests: they cost once
    with pytest.raises(AgnosticFairError, match="is spent"):
        fit_private(
            tables,
            method("fairfl", tau=0.1),
            budget=budget,
            schema=SCHEMA,
            positive="yes",
            rounds=3,
        )


@pytest.mark.usefixtures("seeded_noise")
def test_with_a_large_budget_a_private_fit_is_nearly_the_plain_one():
    rows = small_table(4000, 5)
    schema = schema_of(summary_statistics(rows, "all"), "y")
    chosen_method = method("fairfl", tau=0.02)
    fitted = fit_private(
        dealt(rows, 2), chosen_method, budget=Budget(1e4), schema=schema, positive="yes", rounds=15
    )
    decided, s = fitted.model.predict(rows), rows.sensitive_features["sex"].codes
    assert abs(decided[s == 1].mean() - decided[s == 0].mean()) < 0.05
    plain = fit(dealt(rows, 2), chosen_method, positive="yes").model.predict(rows)
    y = rows.labels("yes")
    assert (decided == y).mean() > (plain == y).mean() - 0.02


def test_a_method_that_noise_leaves_nothing_of_is_refused():
    for name in ("agnosticfair", "agnosticfair-a", "afl", "fedavg"):
        with pytest.raises(SettingsError, match="epsilon take"):
            fit_private(dealt(ROWS, 2), name, budget=Budget(3.0), schema=SCHEMA)
    other = method("rule", learner="linear", positive_rate=(0.1, 0.2), costs="balanced")
    with pytest.raises(SettingsError, match=r"positive_rate.*costs"):
        fit_private(dealt(ROWS, 2), other, budget=Budget(3.0), schema=SCHEMA)
    with pytest.raises(SettingsError, match="no basis"):
        fit_private(
            dealt(ROWS, 2), method("fl", learner="linear"), budget=Budget(3.0), schema=SCHEMA
        )
    weighted = replace(ROWS, weights=np.ones(len(ROWS)))
    with pytest.raises(AgnosticFairError, match="has weighted rows"):
        fit_private(dealt(weighted, 2), "fl", budget=Budget(3.0), schema=SCHEMA, positive="yes")


def by_subgroup(rows, model, axes):
    """The risk difference between the sexes in every single value, by name."""
    decided, group = model.predict(rows), rows.sensitive_features["sex"].codes
    codes, found = codes_of(rows, axes), {}
    for a, axis in enumerate(axes):
        for v, value in enumerate(axis.values):
            inside = codes[:, a] == v
            rates = [decided[inside & (group == j)].mean() for j in (0, 1)]
            found[f"{axis.name} = {value}"] = abs(rates[1] - rates[0])
    return found


@pytest.mark.usefixtures("seeded_noise")
def test_a_private_rule_keeps_its_limits_where_noise_is_small(tmp_path):
    """Overall and in single values, by the estimates of the plain fit; its model file decides the same."""
    rows = small_table(4000, 5)
    edges = {"age": tuple(np.quantile(rows.numeric["age"], (0.3, 0.6)))}
    schema = replace(schema_of(summary_statistics(rows, "all"), "y"), bins=edges)
    chosen_method = method("rule", tau=0.05)
    fitted = fit_private(
        dealt(rows, 2), chosen_method, budget=Budget(1e4), schema=schema, positive="yes"
    )
    one, model = noisy_certificate(fitted), fitted.model
    assert model.privacy["epsilon"] == pytest.approx(1e4)
    assert one.difference <= 0.05 / 2 + 0.02
    axes, subgroups = fitted.subgroups.agreed
    true = by_subgroup(rows, model, axes)
    assert max(true[subgroup_name(axes, subgroup)] for subgroup in subgroups) <= max(
        subgroup.high for subgroup in one.subgroups
    )
    assert one.worst_difference <= 0.05 + 0.03
    y = rows.labels("yes")
    plain = fit(dealt(rows, 2), method("rule", tau=0.05, depth=1, learner="linear"), positive="yes")
    assert (model.predict(rows) == y).mean() > (plain.model.predict(rows) == y).mean() - 0.02
    model.save(tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    assert "epsilon 1e+04" in markdown(private_card(fitted))
    assert "never the feature itself" in markdown(private_card(fitted))


@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_a_private_rule_spends_what_it_may_and_its_bound_holds(epsilon):
    rows = small_table(4000, 5)
    schema = schema_of(summary_statistics(rows, "all"), "y")
    tables, budget = dealt(rows, 2), Budget(epsilon)
    fitted = fit_private(tables, "rule", budget=budget, schema=schema, positive="yes", rounds=4)
    assert fitted.model.privacy["epsilon"] == pytest.approx(epsilon)
    decided, sex = fitted.model.predict(rows), rows.sensitive_features["sex"].codes
    overall = abs(decided[sex == 1].mean() - decided[sex == 0].mean())
    one = noisy_certificate(fitted)
    assert overall <= one.subgroups[0].high
    axes, subgroups = fitted.subgroups.agreed
    true = by_subgroup(rows, fitted.model, axes)
    maximum = max(subgroup.high for subgroup in one.subgroups)
    assert all(true[subgroup_name(axes, p)] <= maximum for p in subgroups)


def test_a_private_rule_of_overall_alone_has_one_multiplier():
    rows = small_table(2000, 5)
    schema = schema_of(summary_statistics(rows, "all"), "y")
    chosen_method = method("rule", tau=0.03, basis=constant())
    fitted = fit_private(
        dealt(rows, 2), chosen_method, budget=Budget(1e4), schema=schema, positive="yes"
    )
    assert fitted.model.rule.coefficients.shape == (1, 2)
    assert fitted.model.privacy["subgroups"][0][2] <= 0.03 + 0.02


def test_a_schema_without_values_names_no_subgroup():
    none = replace(SCHEMA, categorical={}, bins={})
    with pytest.raises(SettingsError, match="no categories"):
        schema_axes(none)
    with pytest.raises(SettingsError, match=r"'age'.*noise"):
        schema_axes(SCHEMA, ("age",))
