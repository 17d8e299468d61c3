"""What a fit says of itself: a limit that is exceeded, and what one costs."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair import audit
from agnosticfair.data.table import Column
from agnosticfair.errors import SettingsError
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair.tuning import Frontier


def test_a_limit_that_is_exceeded_says_so_with_the_subgroup():
    made = replace(
        fit(dealt(small_table(60, 1), 2), "fl"),
        trained_difference=0.3,
        trained_subgroups=(("job = a_b", 0.3), ("overall", 0.1)),
    )
    assert made.exceeds is None, "no limit"
    bound = replace(made, method=method("fairfl", tau=0.1))
    assert (
        bound.exceeds
        == "Decisions on the training rows differ by up to 0.3000 (job = a_b), above tau 0.1."
    )
    assert replace(bound, trained_difference=0.1005).exceeds is None, "decisions are steps"
    assert replace(bound, trained_difference=np.nan).exceeds is None
    assert (
        "kept by a nearly constant decision"
        in replace(bound, trained_difference=0.1, nearly_constant=True).collapsed
    )
    both = replace(bound, nearly_constant=True).collapsed
    assert "exceeded all the same" in both
    assert "kept" not in both


def test_a_rule_says_in_people_by_how_much_whole_decisions_exceed_tau():
    fitted = fit(dealt(small_table(400, 1), 2), method("rule", learner="linear", tau=0.05))
    over = replace(fitted, trained_difference=0.09, trained_subgroups=(("job = a_b", 0.09),))

    def said(**changes):
        return replace(over, history=({**fitted.history[-1], **changes},)).exceeds

    assert replace(fitted, trained_difference=0.0505).exceeds is None
    assert said(people=1.4, smoothed_excess=1e-4).startswith(
        "By the estimates decisions differ by up to 0.0900 (job = a_b) where tau is 0.05: at most 1.4 expected people"
    )
    assert said(smoothed_excess=1e-4).endswith("near the threshold they keep tau to 0.001.")
    assert "more rounds may lower it" in said(smoothed_excess=0.01)


def test_a_rule_says_where_it_had_to_act():
    fitted = fit(dealt(small_table(400, 1), 2), method("rule", learner="linear", tau=0.02))
    error_costs = [entry.shadow_price for entry in fitted.multipliers]
    assert error_costs
    assert error_costs == sorted(error_costs, reverse=True)
    first = fitted.multipliers[0]
    assert {first.lowered, first.raised} == {"sex=F", "sex=M"} or first.lowered != first.raised
    A = fitted.model.rule.coefficients
    assert first.lowered_shift in (A / 2).ravel()
    assert fit(dealt(small_table(60, 1), 2), "fl").multipliers == ()


@pytest.fixture(scope="module")
def rules():
    """A rule with a limit that binds, and one without."""
    table = small_table(600, 1)
    table.numeric["age"][:] += 1.5 * table.sensitive_features["sex"].codes
    chosen_method = method("rule", learner="additive", min_people=5.0)
    return [fit(dealt(table, 2), method(chosen_method, tau=tau)) for tau in (0.02, 1.0)]


def test_a_rule_says_its_learner_its_price_and_how_near_to_the_best_it_is(rules):
    strict, free = rules
    learner, right, price, best = strict.statements
    assert learner.startswith("Learner additive: mean log loss 1.")
    assert right.startswith("Right, estimated: the rule on ")
    assert price.startswith("The limit 0.02 leaves ")
    assert "; 95% would be left at a tau of at most " in price
    assert (", 80% at " in price) == (strict.optimum.retained < 0.8)
    assert "and keeps the limits is right more often than this one by more than 0." in best
    said = strict.optimum
    assert said.constant <= said.utility <= said.learner_utility
    assert said.retained < 0.95
    assert free.optimum.unchanged
    assert "The rule is the learner's own decisions" in free.statements[2]
    assert free.statements[-1].endswith("its decisions exceed no limit, by the same estimates.")
    several = replace(strict, held_out={"additive": 0.6, "trees": 0.5}, learner="trees")
    assert several.statements[0] == (
        "Learner trees was taken by mean log loss on rows out of fold: additive 0.6000, trees 0.5000."
    )
    costed = replace(strict, method=method(strict.method, costs=(1, 5)))
    assert costed.statements[1].startswith("Utility, estimated: the rule ")
    assert "has more utility than this one" in costed.statements[-1]
    assert strict.costs is None
    assert fit(dealt(small_table(60, 1), 2), "fl").statements == ()


def test_a_rule_of_nearly_one_answer_says_what_it_costs_and_which_tau_would_do(rules):
    strict, free = rules
    told = replace(strict, nearly_constant=True).collapsed
    assert told.startswith("tau 0.02 is kept by a nearly constant decision. The limit 0.02")
    assert "95% would be left at a tau of at most" in told
    assert "learner's own decisions" in replace(free, nearly_constant=True).collapsed


def test_a_frame_without_pandas_is_a_sentence(monkeypatch):
    certificate = audit(
        np.arange(40) % 2, np.eye(40), np.arange(40) % 2, sensitive_features=[0, 1] * 20
    )
    path = Frontier((), 0, "demographic_parity", 2, {}, float)
    monkeypatch.setitem(sys.modules, "pandas", None)
    for made in (certificate, path):
        with pytest.raises(SettingsError, match=r"'pandas': pip install 'agnosticfair\[audit\]'"):
            made.to_frame()


def test_a_limit_that_costs_accuracy_says_so():
    fitted = fit(dealt(small_table(400, 1), 2), "fl")
    assert fitted.costs is None, "no limit"
    strict = replace(
        fitted, method=method("fairfl"), history=({"accuracy": 0.9}, {"accuracy": 0.8})
    )
    assert "90.0% of the training rows, the model is on 80.0%; tune shows" in strict.costs
    subgroups = replace(strict, method=method("agnosticfair"))
    assert "80.0%; a limit overall alone (fairfl) costs less" in subgroups.costs
    little = replace(strict, history=({"accuracy": 0.9}, {"accuracy": 0.895}))
    assert little.costs is None


def test_subgroups_that_lack_a_group_are_told():
    rows = small_table(400, 5)
    s = rows.sensitive_features["sex"].codes
    job = Column.of(np.where(s == 0, "only one sex", "both"))
    kept = {"not_compared": ("job = only one sex",)}
    fitted = fit({"one": replace(rows, categorical={"job": job})}, method("rule", learner="linear"))
    assert fitted.uncompared is None, "no subgroup is agreed on in which a group is absent"
    assert replace(fitted, **kept).uncompared == (
        "Not compared, for a group is absent there or below its floor: 'job = only one sex'."
    )
