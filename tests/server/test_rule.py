"""From learners to subgroups: who is compared where, by expected people."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.data.axes import bins_of, histogram
from agnosticfair.data.table import Column
from agnosticfair.errors import SettingsError
from agnosticfair.federation import FitRequest, _census, _plan, asking, fit, in_process
from agnosticfair.learners.estimates import out_of_fold
from agnosticfair.learners.heads import joint
from agnosticfair.mathematics.basis import subpopulations
from agnosticfair.mathematics.parts import members
from agnosticfair.methods import method
from agnosticfair.protocol.faults import policy
from agnosticfair.server import rule, solvers, subgroups
from agnosticfair.server.plan import Beginning

ROWS = small_table(1200, 2)


def learned(recipe, tables):
    """The state after the learners, and who asks."""
    asker = asking(in_process(tables), policy("stop"), None, False, None)
    request = FitRequest(recipe, None, "yes", 0, True, None, None, None)
    state = solvers.init(_plan(asker, request, _census(asker, request)), Beginning())
    while not state.done:
        state = solvers.step(state, asker.total(solvers.question(state)))
    return state, asker


def with_estimates(state):
    estimates = rule.completed(state.plan, 0, state.solver.estimates_of(state.inner, state.plan))
    return rule.with_estimates(state, estimates).plan


@pytest.mark.parametrize("depth", [2, 3])
def test_subgroups_have_enough_expected_people(depth):
    state, asker = learned(
        method("rule", learner="additive", depth=depth, min_people=15.0), dealt(ROWS, 3)
    )
    plan, note = subgroups.with_subgroups(with_estimates(state), asker.total)
    assert not note
    P = out_of_fold(plan.task.estimates, plan.task.encoding, ROWS)
    pi = joint(plan.task.estimates.heads, P)
    axes, parts = plan.task.named.agreed
    from agnosticfair.data.axes import codes_of

    codes = codes_of(ROWS, axes)
    least = [pi[:, members(codes, part)].sum(axis=1).min() for part in parts]
    assert min(least) >= 15.0 - 1e-6
    assert max(map(len, parts)) == depth
    pairs = {part for part in parts if len(part) == 2}
    sizes = [len(axis.values) for axis in axes]
    for a, b in combinations(range(len(axes)), 2):
        for u, v in np.ndindex(sizes[a], sizes[b]):
            inside = members(codes, ((a, u), (b, v)))
            assert (pi[:, inside].sum(axis=1).min() >= 15.0) == (((a, u), (b, v)) in pairs)


def test_where_no_subgroup_has_enough_people_the_difference_overall_is_limited():
    recipe = method("rule", learner="additive", min_people=5000.0, tau=0.05)
    state, asker = learned(recipe, {"a": ROWS})
    plan, _ = subgroups.with_subgroups(with_estimates(state), asker.total)
    assert plan.task.named is None
    made = fit({"a": ROWS}, recipe)
    assert made.uncompared == (
        "No subgroup has 5000 expected people of each group (min_people): the difference overall alone is limited."
    )
    assert made.worst_surrogate <= 0.05 + 1e-3


def test_subgroups_named_by_a_column_of_one_value_are_refused():
    same = replace(ROWS, categorical={**ROWS.categorical, "same": Column.of(["a"] * len(ROWS))})
    with pytest.raises(SettingsError, match="named by 'same', where all rows have one value"):
        fit({"a": same}, method("rule", learner="linear", basis=subpopulations(("same",))))


def test_a_third_group_that_is_small_takes_no_subgroup_away():
    rows = small_table(1500, 3, groups=3)
    state, _ = learned(method("rule", learner="additive"), {"a": rows})
    plan = with_estimates(state)
    masses = np.array([[100.0, 100.0], [50.0, 3.0], [1.0, 2.0]])
    np.testing.assert_array_equal(subgroups.comparable(plan, masses), [50.0, 3.0])


def test_a_spike_leaves_bins_for_its_tail():
    values = np.concatenate([np.zeros(9000), np.random.default_rng(0).exponential(1000.0, 1000)])
    edges = bins_of(histogram(values, 0.0, values.max()), 0.0, values.max(), 32)
    inside = np.bincount(np.searchsorted(edges, values, "right"))
    assert len(edges) > 20
    assert inside[0] >= 9000
    assert np.median(inside[1:]) < 60


def test_too_many_pairs_leave_single_values_and_the_columns_that_differ_most(monkeypatch):
    rows = small_table(1500, 3)
    made = method("rule", learner="linear", min_people=5.0)
    state, asker = learned(made, dealt(rows, 3))
    plan = with_estimates(state)
    every, note = subgroups.with_subgroups(plan, asker.total)
    assert not note
    axes, pooled = every.task.named.agreed
    most = 2 * sum(len(axis.values) for axis in axes[:2]) ** 2
    monkeypatch.setattr(subgroups, "MAX_NUMBERS", max(most, 200))
    fewer, note = subgroups.with_subgroups(plan, asker.total)
    assert "pairs of all columns would be" in note
    parts = fewer.task.named.agreed[1]
    singles = [part for part in pooled if len(part) == 1]
    assert [part for part in parts if len(part) == 1] == singles
    assert {*parts} < {*pooled}
    assert len({a for part in parts if len(part) == 2 for a, _ in part}) < len(axes)
    own = subgroups.differences(subgroups.with_parts(plan, axes, singles), asker.total)
    assert own.shape == (len(singles),)
    assert (own >= 0).all()


def test_a_fit_says_that_its_subgroups_are_fewer(monkeypatch):
    rows = {"a": small_table(900, 3)}
    monkeypatch.setattr(subgroups, "MAX_NUMBERS", 200)
    found = fit(rows, method("rule", learner="linear", min_people=5.0), positive="yes")
    assert "Subgroups are the single values of" in found.notes[0]
    assert found.converged


def test_single_values_alone_need_no_pairs(monkeypatch):
    state, asker = learned(method("rule", learner="linear", depth=1, min_people=5.0), {"a": ROWS})
    plan = with_estimates(state)
    monkeypatch.setattr(subgroups, "MAX_NUMBERS", 10)
    few, note = subgroups.with_subgroups(plan, asker.total)
    assert not note
    monkeypatch.undo()
    every, _ = subgroups.with_subgroups(plan, asker.total)
    assert few.task.named.agreed[1] == every.task.named.agreed[1]
