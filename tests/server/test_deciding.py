"""Later rules of the solver: when gradients are asked for, when a refused step is the last, when thresholds retreat."""

from dataclasses import replace

import numpy as np
from helpers import dealt, small_table

from agnosticfair.data.summary import merge
from agnosticfair.federation import FitArguments, begun, coordinator_for, fit, in_process, planned
from agnosticfair.methods import method
from agnosticfair.protocol.faults import policy
from agnosticfair.server import deciding, solvers

ROWS = small_table(600, 1)


def states(method):
    """Every state of a fit, with the question that led to it; the first led to by none."""
    coordinator = coordinator_for(in_process(dealt(ROWS, 2)), policy("stop"), None, False, None)
    request = FitArguments(method, "sex", "yes")
    statistics = coordinator.send("statistics", None, lambda answer, key: answer)
    state = begun(coordinator, request, planned(coordinator, request, merge(statistics)))
    yield None, state.inner
    while not state.done:
        payload = solvers.request(state)
        state = solvers.step(state, coordinator.total(payload))
        yield payload.request, state.inner


def limited_state(method):
    """The first state in which the limit is looked at."""
    return next(state for _, state in states(method) if state.limited)


def modelled(state):
    """The model at a state and its step."""
    model = deciding.model_at(state, state.here)
    return model, deciding.solved(state, model)[0]


def test_after_some_refused_steps_one_is_kept_to_look_elsewhere():
    state = replace(limited_state(method("fairfl", tau=0.05)), promised=1.0)
    worse = replace(state.here, w=state.here.w + 1, loss=state.here.loss + 1)
    for refused in range(deciding.MAX_REFUSED):
        state, kept = deciding.judged(state, worse)
        assert not kept
        assert state.refused == refused + 1
    state, kept = deciding.judged(state, worse)
    assert kept
    assert (state.refused, state.damping) == (0, 0.1)
    assert state.here is worse


def test_thresholds_retreat_only_where_no_decisions_kept_the_limit_for_long():
    state = limited_state(method("fairfl", tau=0.001))
    model, found = modelled(state)
    std = deciding.deviation(state.second_moments, state.here.w)
    back = deciding.retreats(state.here.w, std, state.constant)

    def retreats(tries, best):
        made = deciding.candidates(replace(state, tries=tries, best=best), model, found)
        return (made[:, None] == back).all(axis=2).any(axis=0).all()

    assert retreats(deciding.RETREAT, None)
    assert not retreats(deciding.RETREAT - 1, None)
    assert not retreats(deciding.RETREAT, state.here)


def test_a_fit_that_needs_trials_is_the_same_for_any_split_and_keeps_its_limit(monkeypatch):
    rows, request = small_table(500, 3), []
    told = deciding.after_trials
    monkeypatch.setattr(deciding, "after_trials", lambda *given: request.append(1) or told(*given))
    chosen_method = method("agnosticfair", kernels=12, tau=0.02, max_rounds=60)
    one, many = (fit(dealt(rows, k), chosen_method, positive="yes") for k in (1, 4))
    assert request
    np.testing.assert_array_equal(one.model.w, many.model.w)
    assert one.converged
    assert one.trained_difference <= 0.02 + 0.002
