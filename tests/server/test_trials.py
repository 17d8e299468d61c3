"""A limit on decisions: refused steps, many trial weights in one round, the best of them by brute force, retreats, and
the same fit for any split."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, request_of, small_table

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.summary import merge
from agnosticfair.errors import SettingsError
from agnosticfair.federation import FitArguments, begun, coordinator_for, fit, in_process, planned
from agnosticfair.mathematics.basis import gaussian
from agnosticfair.methods import method
from agnosticfair.protocol.faults import policy
from agnosticfair.protocol.requests import Trials
from agnosticfair.server import exact, solvers

ROWS = small_table(600, 1)
METHOD = replace(method("agnosticfair", kernels=6, sigma=0.9), basis=gaussian(4, 0.9))


def test_a_trial_has_the_bits_of_its_own_round():
    rows = replace(small_table(700), weights=np.random.default_rng(1).integers(1, 4, 700) / 2)
    client = Client("a", rows)
    request = request_of([client], METHOD)
    W = np.random.default_rng(2).normal(size=(5, len(request.request.w)))
    found = answer(client, "trials", replace(request, request=Trials(W))).sums
    assert {k: np.shape(v) for k, v in found.items()} == Trials(W).shapes(request.task)
    for t, w in enumerate(W):
        own = answer(client, "sums", replace(request, request=replace(request.request, w=w))).sums
        for name, value in found.items():
            np.testing.assert_array_equal(value[t], own[name], err_msg=name)


def test_the_best_trial_is_that_of_brute_force_though_few_are_searched():
    rng = np.random.default_rng(0)
    for _ in range(50):
        losses, psi = rng.uniform(size=20), rng.normal(size=(20, 2, 6))
        cuts = rng.normal(size=(40, 2, 6))
        searched = []

        def search(t, psi=psi, cuts=cuts, searched=searched):
            searched.append(t)
            return cuts[[np.argmax(np.einsum("kgm,gm->k", cuts, psi[t]))]]

        def merit(loss, worst):
            return loss + 0.5 * max(worst - 1.0, 0.0)

        worst = np.einsum("kgm,tgm->tk", cuts, psi).max(axis=1, initial=0.0)
        true = np.argmin([merit(*pair) for pair in zip(losses, worst, strict=True)])
        t, found = exact.best_of(losses, psi, cuts[:1], merit, search)
        assert (t, found) == (true, pytest.approx(worst[true]))
        assert len(searched) == len({*searched})


def test_retreats_decide_alike_at_any_scale_and_end_in_one_answer():
    X = np.hstack([np.random.default_rng(0).normal(size=(200, 2)), np.ones((200, 1))])
    made = exact.retreats(np.array([1.0, -2.0, 0.3]), 2.2, -0.5)
    decided = X @ made.T > 0
    moves = len(exact.RETREATS)
    for k in range(1, len(exact.SCALES)):
        np.testing.assert_array_equal(decided[:, :moves], decided[:, k * moves : (k + 1) * moves])
    assert (np.diff(decided[:, :moves].mean(axis=0)) <= 0).all()
    assert not decided[:, -1].any()


def test_a_result_that_is_nearly_constant_says_so_with_the_smallest_tau_that_was_met():
    rows = small_table(500, 3)
    lax, strict = (
        fit({"a": rows}, method("fairfl", tau=tau), positive="yes") for tau in (0.3, 1e-9)
    )
    assert not lax.nearly_constant
    assert lax.collapsed is None
    one = replace(strict, trained_difference=0.0, nearly_constant=True, smallest_tau=0.04321)
    assert "is 0.0432" in one.collapsed
    assert "no other decisions were met" in replace(one, smallest_tau=None).collapsed
    shares = [e for e in lax.history if "positive" in e]
    assert shares[-1]["positive"] == pytest.approx((lax.model.predict(rows) > 0).mean())
    seen = [e["worst"] for e in shares if e["worst"] > 0]
    assert lax.smallest_tau is None or lax.smallest_tau >= min(seen)


def test_labels_without_a_pattern_end_in_one_answer_and_say_so():
    rng = np.random.default_rng(0)
    rows = small_table(600, 3)
    few = replace(rows.target, codes=(rng.uniform(size=600) < 0.15).astype(rows.target.codes.dtype))
    fitted = fit({"a": replace(rows, target=few)}, method("fairfl", tau=0.05), positive="yes")
    assert fitted.nearly_constant
    assert fitted.collapsed.startswith("tau 0.05 was kept by a nearly constant decision")


@pytest.mark.parametrize("tau", [np.inf, -0.1, np.nan, 0.0])
def test_no_limit_or_none_that_can_be_kept_is_refused_in_a_sentence(tau):
    with pytest.raises(SettingsError, match=r"infinity.*'fl'"):
        method("fairfl", tau=tau)


def limited_state(method):
    """The first state in which the limit is looked at."""
    coordinator = coordinator_for(in_process(dealt(ROWS, 2)), policy("stop"), None, False, None)
    request = FitArguments(method, "sex", "yes")
    statistics = coordinator.send("statistics", None, lambda answer, key: answer)
    state = begun(coordinator, request, planned(coordinator, request, merge(statistics)))
    while not state.inner.limited:
        state = solvers.step(state, coordinator.total(solvers.request(state)))
    return state.inner


def test_after_some_refused_steps_one_is_kept_to_look_elsewhere():
    state = replace(limited_state(method("fairfl", tau=0.05)), promised=1.0)
    worse = replace(state.here, w=state.here.w + 1, loss=state.here.loss + 1)
    for refused in range(exact.MAX_REFUSED):
        state, _, kept = exact.judged(state, worse)
        assert not kept
        assert state.refused == refused + 1
    state, here, kept = exact.judged(state, worse)
    assert kept
    assert (state.refused, state.damping) == (0, 0.1)
    assert here is worse


def test_thresholds_retreat_only_where_no_decisions_kept_the_limit_for_long():
    state = limited_state(method("fairfl", tau=0.001))
    state, step = exact.solved(state, state.here)
    std = exact.deviation(state.second_moments, state.here.w)
    back = exact.retreats(state.here.w, std, state.constant)

    def retreats(tries, best):
        made = exact.candidates(replace(state, tries=tries, best=best), state.here, step)
        return (made[:, None] == back).all(axis=2).any(axis=0).all()

    assert retreats(exact.RETREAT, None)
    assert not retreats(exact.RETREAT - 1, None)
    assert not retreats(exact.RETREAT, state.here)


def test_a_fit_that_needs_trials_is_the_same_for_any_split_and_keeps_its_limit(monkeypatch):
    rows, request = small_table(500, 3), []
    told = exact.after_trials
    monkeypatch.setattr(exact, "after_trials", lambda *given: request.append(1) or told(*given))
    chosen_method = method("agnosticfair", kernels=12, tau=0.02, max_rounds=60)
    one, many = (fit(dealt(rows, k), chosen_method, positive="yes") for k in (1, 4))
    assert request
    np.testing.assert_array_equal(one.model.w, many.model.w)
    assert one.converged
    assert one.trained_difference <= 0.02 + 0.002


@pytest.mark.parametrize("trust", [0.0, 0.4])
def test_what_is_said_of_the_best_trial_is_what_its_own_round_says(trust):
    chosen_method = method("agnosticfair", kernels=12, tau=0.02, trust=trust, max_rounds=60)
    history = fit({"a": small_table(500, 3)}, chosen_method, positive="yes").history
    trials = [k for k, entry in enumerate(history[:-1]) if "positive" not in entry]
    assert trials
    for k in trials:
        for what in ("loss", "worst"):
            assert history[k][what] == pytest.approx(history[k + 1][what], abs=1e-3)
