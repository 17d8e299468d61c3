"""The solver of rules between rounds: limits from the method, records, checkpoints, warm starts, bad settings."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.summary import summary_statistics
from agnosticfair.errors import SettingsError
from agnosticfair.federation import fit
from agnosticfair.learners.estimates import Estimates
from agnosticfair.mathematics.basis import Basis
from agnosticfair.mathematics.program import MAX_NUMBERS, SHARES, lengths, max_active, scale_for
from agnosticfair.methods import method
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.requests import step_of
from agnosticfair.server import checkpoints, program, subgroup_axes
from agnosticfair.server.plan import Beginning, heads_of, plan

TABLE = small_table(800, 4)
CLIENT = Client("one", TABLE)


def planned(**changes):
    """A plan whose estimates are those of a fixed linear model, over subgroups of one and two values."""
    settings = {"tau": 0.05, "min_people": 8, **changes}
    one_plan = plan(
        method("rule", **settings), summary_statistics(TABLE, "one"), ("one",), positive="yes"
    )
    heads, D = heads_of(one_plan), one_plan.features + 1
    w = np.random.default_rng(0).normal(size=(1, len(heads), D)) * 2
    task = replace(one_plan.task, estimates=Estimates("linear", heads, 0, 0, {"w": w}))
    one_plan = replace(one_plan, task=task)
    axes = tuple(subgroup_axes.Axis(name, values) for name, values in [("job", ("a", "b", "c"))])
    return subgroup_axes.with_subgroup_set(one_plan, axes, [((0, v),) for v in range(3)])


def run(made, state=None, rounds=200):
    state = program.init(made, Beginning()) if state is None else state
    while state.outcome == "running" and state.round < rounds:
        request = program.request(state)
        broadcast = Broadcast(state.round + 1, made.task, request)
        state = program.step(state, answer(CLIENT, step_of(request), broadcast))
    return state


def test_the_rule_keeps_its_limits_and_says_how_good_it_is():
    one_plan = planned()
    state = run(one_plan)
    assert state.outcome == "converged"
    optimum, last = program.optimum_of(state), state.history[-1]
    assert optimum.smoothed_excess <= 1e-3
    assert optimum.gap >= 0
    assert optimum.constant <= optimum.utility <= optimum.learner_utility
    assert last["bound"] == optimum.bound
    assert last["retained"] == optimum.retained
    smoothed, hard = program.worst_cases(state)
    assert smoothed <= 0.05 + 1e-3
    assert hard == last["worst"]
    worst = program.by_subgroup(state)
    assert worst.shape == (3,)
    assert worst.max() == pytest.approx(hard)
    shown, left_out = subgroup_axes.ranked(one_plan, state)
    assert shown[0][1] == pytest.approx(worst.max())
    assert not left_out
    A, shift = program.coefficients_of(state)
    assert A.shape == (4, 2)
    assert shift == 0.0
    assert "No rule" in program.statements(state)[0]


def test_a_checkpoint_goes_on_to_the_same_bits():
    one_plan = planned()
    whole, half = run(one_plan), run(one_plan, rounds=7)
    arrays = {}
    frozen = checkpoints.freeze(half, arrays)
    again = run(one_plan, checkpoints.thaw(frozen, arrays))
    assert again.history == whole.history
    np.testing.assert_array_equal(*(program.coefficients_of(s)[0] for s in (again, whole)))


def test_what_larger_limits_would_leave_is_solved_for():
    state = run(planned(tau=0.005, overall=0.005))
    optimum = program.optimum_of(state)
    assert optimum.retained < 0.8
    assert len(optimum.further) == 2
    assert state.round <= program.MAX_ROUNDS
    assert state.history[-1]["further"] == optimum.further
    assert state.history[-1]["multipliers"] == (state.inner.hard.x != 0).sum()
    for share in SHARES:
        _, maximum = scale_for(share, optimum)
        then = program.optimum_of(run(planned(tau=0.005 * maximum, overall=0.005 * maximum)))
        assert share - 0.02 <= then.retained <= share + 0.05
        alone = scale_for(share, replace(optimum, further=()))[1]
        assert maximum < alone


def test_a_similar_program_begins_where_another_ended():
    first = run(planned())
    start = program.start_of(first)
    one_plan = planned(tau=0.055)
    warm = run(one_plan, program.init(one_plan, Beginning(start=start)))
    assert warm.round < run(one_plan).round
    assert warm.history[-1]["bound"] == pytest.approx(run(one_plan).history[-1]["bound"], abs=1e-4)


def test_the_learners_own_rule_ends_after_one_round():
    state = run(planned(tau=0.9, overall=0.9))
    assert state.round == 1
    assert state.history[-1]["unchanged"]
    assert not program.coefficients_of(state)[0].any()
    assert state.outcome == "converged"


def test_too_few_rounds_are_said():
    state = run(planned(max_rounds=4, tau=0.01))
    assert state.outcome == "rounds"
    assert state.round == 4


def test_costs_and_rates_are_limits_of_the_same_program():
    balanced = run(planned(costs="balanced"))
    assert balanced.error_costs == pytest.approx(
        (2 * TABLE.labels("yes").mean(), 2 - 2 * TABLE.labels("yes").mean())
    )
    few = run(planned(positive_rate=(0.0, 0.1)))
    assert few.history[-1]["positive"] <= 0.12
    assert program.coefficients_of(few)[1] > 0


def test_an_agnostic_rule_raises_the_worst_subgroup():
    mean, worst = (run(planned(tau=0.9, overall=0.9, agnostic=a)) for a in (False, True))
    assert worst.outcome == "converged"
    W = program.weights_of(worst)
    assert W.shape == (4,)
    assert W @ worst.inner.members / 800 == pytest.approx(1.0)
    assert program.weights_of(mean) is None
    last = worst.history[-1]
    assert last["mean_loss"] <= last["worst_loss"]
    assert last["learner_utility"] - 1e-4 <= last["utility"] <= last["bound"] + last["gap"]
    frozen = checkpoints.freeze(worst, arrays := {})
    assert checkpoints.thaw(frozen, arrays).history == worst.history


def test_what_a_rule_cannot_limit_is_refused():
    with pytest.raises(SettingsError, match="bounded_group_loss"):
        program.limits_of(planned_bounds())
    one_plan = planned()
    basis = Basis("function", 3)
    kernels = replace(one_plan, task=replace(one_plan.task, subgroups=None, fair_basis=basis))
    with pytest.raises(SettingsError, match="no function"):
        program.limits_of(kernels)
    with pytest.raises(SettingsError, match="could be worst"):
        fit(dealt(TABLE, 2), method("fl", learner="linear", agnostic=True), positive="yes")
    with pytest.raises(SettingsError, match="positive_rate"):
        fit(dealt(TABLE, 2), method("rule", positive_rate=(0.6, 0.4)), positive="yes")


def planned_bounds():
    one_plan = planned()
    fairness = replace(one_plan.method.fairness, metric="bounded_group_loss")
    return replace(one_plan, method=replace(one_plan.method, fairness=fairness))


def test_groups_with_too_few_people_are_compared_with_none():
    state = run(planned(min_people=790))
    assert state.under_floor == ("g0", "g1")
    assert np.isneginf(program.by_subgroup(state)).all()


@pytest.mark.parametrize("size", [1, 1_000, 3_400, 20_000, 60_000])
def test_a_reply_stays_under_a_megabyte(size):
    a = max_active(size)
    assert 8 * (a * (a + 1) // 2 + size * len(lengths(size))) <= 8 * MAX_NUMBERS < 1_000_000
