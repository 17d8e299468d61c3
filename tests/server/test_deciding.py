"""Later rules of the solver: when slopes are asked for, when a refused step is the last, when thresholds retreat."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair import load_dataset, shift
from agnosticfair.data.axes import codes_of
from agnosticfair.data.census import merge
from agnosticfair.data.datasets import dataset
from agnosticfair.data.table import concatenate
from agnosticfair.federation import FitRequest, _begun, _plan, asking, fit, in_process
from agnosticfair.mathematics.parts import memberships
from agnosticfair.methods import method
from agnosticfair.protocol.faults import policy
from agnosticfair.server import deciding, solvers, stepping, trying

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
    model = stepping.model_at(state, state.here)
    return model, stepping.solved(state, model)[0]


def test_slopes_of_parts_are_asked_for_soon_before_the_limit_and_not_earlier():
    found = list(states(method("agnosticfair-named", tau=0.05)))
    early = [(q, s) for (_, s), (q, _) in pairwise(found[1:]) if not s.limited]
    assert len(early) >= 2
    for question, before in early:
        assert (len(question.slopes) > 0) == (before.promised < deciding.SOON)
    first = next(k for k, (_, state) in enumerate(found) if state.limited)
    assert len(found[first][0].slopes)  # what is charged for at once has its slopes


def test_a_refused_step_that_promised_little_is_the_last_where_differences_have_a_price():
    state = limited_state(method("agnosticfair-named", tau=0.5))
    assert state.keeps(state.here)
    model, found = modelled(state)

    def outcome(promised, kept=False, **changes):
        own = replace(state, promised=promised, best=None, **changes)
        return deciding.proposed(own, own.here, kept, found, 1.0, model).outcome

    assert outcome(0.9 * deciding.REFUSED) == "converged"
    assert outcome(1.1 * deciding.REFUSED) == "running"
    assert outcome(0.9 * deciding.REFUSED, kept=True) == "running"
    limit = limited_state(method("fairfl", tau=0.5))
    model, found = modelled(limit)
    own = replace(limit, promised=0.9 * deciding.REFUSED, best=None)
    assert deciding.proposed(own, own.here, False, found, 1.0, model).outcome == "running"


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


@pytest.mark.slow
def test_the_frontier_of_adult_rises_with_tau_on_rows_left_out():
    """Cross-fitted on training rows: accuracy, and differences over named parts, rise with tau."""
    train = shift(load_dataset("adult"), dataset("adult"), 2, 0).train
    halves = {key: np.arange(len(rows)) % 2 for key, rows in train.items()}
    every = concatenate([*train.values()])
    s, y = every.sensitive_features["sex"].codes, every.labels(">50K") > 0
    told = []
    for tau in (0.05, 0.1, 0.2):
        decided = {key: np.zeros(len(rows), bool) for key, rows in train.items()}
        for half in (0, 1):
            kept = {key: rows.take(halves[key] != half) for key, rows in train.items()}
            found = fit(kept, method("agnosticfair-named", tau=tau), sensitive_features="sex")
            assert found.converged
            for key, rows in train.items():
                left = halves[key] == half
                decided[key][left] = found.model.decision(rows.take(left)) > 0
        d = np.concatenate([*decided.values()])
        axes, parts = found.named.agreed
        K = memberships(codes_of(every, axes), parts)
        mass = np.stack([K[s == g].sum(axis=0) for g in (0, 1)])
        rates = np.stack([K[s == g].T @ d[s == g] for g in (0, 1)]) / np.maximum(mass, 1)
        r = np.abs(rates[1] - rates[0])[mass.min(axis=0) >= 40]
        told.append(((d == y).mean(), r.mean(), np.quantile(r, 0.9)))
    for less, more in pairwise(told):
        assert all(a < b for a, b in zip(less, more, strict=True))


def test_a_fit_that_needs_trials_is_the_same_for_any_split_and_keeps_its_limit(monkeypatch):
    rows, asked = small_table(500, 3), []
    told = deciding.tried
    monkeypatch.setattr(deciding, "tried", lambda *given: asked.append(1) or told(*given))
    recipe = method("agnosticfair", kernels=12, tau=0.02, max_rounds=60)
    one, many = (fit(dealt(rows, k), recipe, positive="yes") for k in (1, 4))
    assert asked
    np.testing.assert_array_equal(one.model.w, many.model.w)
    assert one.converged
    assert one.worst_difference <= 0.02 + 0.002
