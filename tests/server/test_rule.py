"""From learners to subgroups: who is compared where, by expected people."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.data.axes import edges_of, histogram, round_cuts
from agnosticfair.data.table import Column
from agnosticfair.errors import SettingsError
from agnosticfair.federation import (
    FitArguments,
    coordinator_for,
    fit,
    in_process,
    planned,
    summarised,
)
from agnosticfair.learners.estimates import joint, out_of_fold
from agnosticfair.mathematics.basis import subgroups
from agnosticfair.mathematics.subgroups import members
from agnosticfair.methods import method
from agnosticfair.protocol.faults import policy
from agnosticfair.server import rule, solvers, subgroup_axes
from agnosticfair.server.plan import Beginning

ROWS = small_table(1200, 2)


def learned(method, tables):
    """The state after the learners, and who asks."""
    coordinator = coordinator_for(in_process(tables), policy("stop"), None, False, None)
    request = FitArguments(method, positive="yes")
    state = solvers.init(
        planned(coordinator, request, summarised(coordinator, request)), Beginning()
    )
    while not state.done:
        state = solvers.step(state, coordinator.total(solvers.request(state)))
    return state, coordinator


def with_estimates(state):
    estimates = rule.completed(state.plan, 0, state.solver.estimates_of(state.inner, state.plan))
    return rule.with_estimates(state, estimates).plan


@pytest.mark.parametrize("depth", [2, 3])
def test_subgroups_have_enough_expected_people(depth):
    state, coordinator = learned(
        method("rule", learner="additive", depth=depth, min_people=15.0), dealt(ROWS, 3)
    )
    plan, note = subgroup_axes.with_subgroups(with_estimates(state), coordinator.total)
    assert not note
    P = out_of_fold(plan.task.estimates, plan.task.encoding, ROWS)
    pi = joint(plan.task.estimates.heads, P)
    axes, found_subgroups = plan.task.subgroups.agreed
    from agnosticfair.data.axes import codes_of

    codes = codes_of(ROWS, axes)
    minimum = [pi[:, members(codes, subgroup)].sum(axis=1).min() for subgroup in found_subgroups]
    assert min(minimum) >= 15.0 - 1e-6
    assert max(map(len, found_subgroups)) == depth
    pairs = {subgroup for subgroup in found_subgroups if len(subgroup) == 2}
    sizes = [len(axis.values) for axis in axes]
    for a, b in combinations(range(len(axes)), 2):
        for u, v in np.ndindex(sizes[a], sizes[b]):
            inside = members(codes, ((a, u), (b, v)))
            assert (pi[:, inside].sum(axis=1).min() >= 15.0) == (((a, u), (b, v)) in pairs)


def test_where_no_subgroup_has_enough_people_the_difference_overall_is_limited():
    chosen_method = method("rule", learner="additive", min_people=5000.0, tau=0.05)
    state, coordinator = learned(chosen_method, {"a": ROWS})
    plan, _ = subgroup_axes.with_subgroups(with_estimates(state), coordinator.total)
    assert plan.task.subgroups is None
    fitted = fit({"a": ROWS}, chosen_method)
    assert fitted.uncompared == (
        "No subgroup has 5000 expected people of each group (min_people): the difference overall alone is limited."
    )
    assert fitted.worst_surrogate <= 0.05 + 1e-3


def test_subgroups_named_by_a_column_of_one_value_are_refused():
    same = replace(ROWS, categorical={**ROWS.categorical, "same": Column.of(["a"] * len(ROWS))})
    with pytest.raises(SettingsError, match=r"'same'.*value"):
        fit({"a": same}, method("rule", learner="linear", basis=subgroups(("same",))))


def test_a_third_group_that_is_small_takes_no_subgroup_away():
    rows = small_table(1500, 3, groups=3)
    state, _ = learned(method("rule", learner="additive"), {"a": rows})
    plan = with_estimates(state)
    masses = np.array([[100.0, 100.0], [50.0, 3.0], [1.0, 2.0]])
    np.testing.assert_array_equal(subgroup_axes.comparable(plan, masses), [50.0, 3.0])


def test_a_spike_leaves_bins_for_its_tail():
    values = np.concatenate([np.zeros(9000), np.random.default_rng(0).exponential(1000.0, 1000)])
    low, high = 0.0, float(values.max())
    edges = edges_of(round_cuts(low, high), histogram(values, low, high), 32)
    inside = np.bincount(np.searchsorted(edges, values, "right"))
    assert len(edges) > 20
    assert inside[0] >= 9000
    assert np.median(inside[1:]) < 60


def test_too_many_pairs_leave_single_values_and_the_columns_that_differ_most(monkeypatch):
    rows = small_table(1500, 3)
    chosen_method = method("rule", learner="linear", min_people=5.0)
    state, coordinator = learned(chosen_method, dealt(rows, 3))
    plan = with_estimates(state)
    every, note = subgroup_axes.with_subgroups(plan, coordinator.total)
    assert not note
    axes, pooled = every.task.subgroups.agreed
    maximum = 2 * sum(len(axis.values) for axis in axes[:2]) ** 2
    monkeypatch.setattr(subgroup_axes, "MAX_NUMBERS", max(maximum, 200))
    fewer, note = subgroup_axes.with_subgroups(plan, coordinator.total)
    assert "columns would" in note
    found_subgroups = fewer.task.subgroups.agreed[1]
    singles = [subgroup for subgroup in pooled if len(subgroup) == 1]
    assert [subgroup for subgroup in found_subgroups if len(subgroup) == 1] == singles
    assert {*found_subgroups} < {*pooled}
    assert len(
        {a for subgroup in found_subgroups if len(subgroup) == 2 for a, _ in subgroup}
    ) < len(axes)
    all_differences = subgroup_axes.differences(
        subgroup_axes.with_subgroup_set(plan, axes, singles), coordinator.total
    )
    assert all_differences.shape == (len(singles),)
    assert (all_differences >= 0).all()


def test_a_fit_says_that_its_subgroups_are_fewer(monkeypatch):
    rows = {"a": small_table(900, 3)}
    monkeypatch.setattr(subgroup_axes, "MAX_NUMBERS", 200)
    fitted = fit(rows, method("rule", learner="linear", min_people=5.0), positive="yes")
    assert "single values" in fitted.notes[0]
    assert fitted.converged


def test_single_values_alone_need_no_pairs(monkeypatch):
    state, coordinator = learned(
        method("rule", learner="linear", depth=1, min_people=5.0), {"a": ROWS}
    )
    plan = with_estimates(state)
    monkeypatch.setattr(subgroup_axes, "MAX_NUMBERS", 10)
    few, note = subgroup_axes.with_subgroups(plan, coordinator.total)
    assert not note
    monkeypatch.undo()
    every, _ = subgroup_axes.with_subgroups(plan, coordinator.total)
    assert few.task.subgroups.agreed[1] == every.task.subgroups.agreed[1]
