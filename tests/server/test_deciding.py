"""Later rules of the solver: when slopes are asked for, when a refused step is the last, when thresholds retreat."""

from dataclasses import replace

import numpy as np
from helpers import dealt, small_table

from agnosticfair.data.census import merge
from agnosticfair.federation import FitRequest, _begun, _plan, asking, fit, in_process
from agnosticfair.methods import method
from agnosticfair.protocol.faults import policy
from agnosticfair.server import deciding, solvers, trying

ROWS = small_table(600, 1)


def states(recipe):
    """Every state of a fit, with the question that led to it; the first led to by none."""
    asker = asking(in_process(dealt(ROWS, 2)), policy("stop"), None, False, None)
    request = FitRequest(recipe, "sex", "yes", 0, True, None, None, None)
    census = asker.ask("census", None, lambda answer, key: answer)
    state = _begun(asker, request, _plan(asker, request, merge(census)))
    yield None, state.inner
    while not state.done:
        asked = solvers.question(state)
        state = solvers.step(state, asker.total(asked))
        yield asked.asked, state.inner


def limited_state(recipe):
    """The first state in which the limit is looked at."""
    return next(state for _, state in states(recipe) if state.limited)


def modelled(state):
    """The model at a state and its step."""
    model = deciding.model_at(state, state.here)
    return model, deciding.solved(state, model)[0]


def test_after_some_refused_steps_one_is_kept_to_look_elsewhere():
    state = replace(limited_state(method("fairfl", tau=0.05)), promised=1.0)
    worse = replace(state.here, w=state.here.w + 1, loss=state.here.loss + 1)
    for refused in range(deciding.MOST_REFUSED):
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
    std = deciding.deviation(state.metric, state.here.w)
    back = trying.retreats(state.here.w, std, state.constant)

    def retreats(tries, best):
        made = deciding.candidates(replace(state, tries=tries, best=best), model, found)
        return (made[:, None] == back).all(axis=2).any(axis=0).all()

    assert retreats(deciding.RETREAT, None)
    assert not retreats(deciding.RETREAT - 1, None)
    assert not retreats(deciding.RETREAT, state.here)


def test_a_fit_that_needs_trials_is_the_same_for_any_split_and_keeps_its_limit(monkeypatch):
    rows, asked = small_table(500, 3), []
    told = deciding.tried
    monkeypatch.setattr(deciding, "tried", lambda *given: asked.append(1) or told(*given))
    recipe = method("agnosticfair", kernels=12, tau=0.02, max_rounds=60)
    one, many = (fit(dealt(rows, k), recipe, positive="yes") for k in (1, 4))
    assert asked
    np.testing.assert_array_equal(one.model.w, many.model.w)
    assert one.converged
    assert one.trained_difference <= 0.02 + 0.002
