"""The solver of linear models whose limit holds for what is decided, not for a surrogate of it.

    min_w  Phi(w)   subject to   <C, psi_hat(w)> <= tau

for every cut C of the fairness adversary's set. psi_hat counts decisions and is a step function of w. The slope of a
mean of steps is the density of scores at the threshold, and a sigmoid of temperature T estimates it with bandwidth T:
so T is a share of the standard deviation of the *present* scores, the cuts' values are those of the decisions, and
their slopes the sigmoid's. Otherwise model and merit are those of ``exact``. A fit begins at the optimum without a
limit, aims at a share of the present difference at a time, and no step moves scores by more than a share of their
deviation: further away the slopes say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.mathematics.quadratic import minimise
from agnosticfair.methods import Method
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import Question, Sums, Trials
from agnosticfair.server import adversaries, exact, trying
from agnosticfair.server.limited import (
    FIRST_DAMPING,
    LimitedState,
    cuts_at,
    deviation,
    evaluate,
)
from agnosticfair.server.limited import worst_cases as worst_cases
from agnosticfair.server.plan import Beginning, Plan, Start
from agnosticfair.server.stepping import QuadraticModel, model_at, program, solved

NEAR, SETTLED, PATIENCE, MOST_REFUSED = 1e-2, 1e-4, 6, 2
"""The limit is looked at once the loss promises less than NEAR. A fit has
converged when a step from decisions within the limit promises less than SETTLED, or when PATIENCE rounds bettered the
best of them by less."""

WORTH, RETREAT, STRICTER = 2e-3, 7, 4.0
"""Among trials a loss has to fall by WORTH to be news; where none keeps the limit, each round of them weighs a
violation STRICTER times more, and after RETREAT rounds thresholds move towards one answer for everybody."""

WORSE, BETTER = 5.0, 0.2
"""By how much a refused step raises the damping and a good one lowers it."""

LEAST_DAMPING, MOST_NU, MOST_BYTES, MOST_TRIALS = 1e-5, 64.0, 900_000, 96
"""A reply with trials' decisions has at most MOST_BYTES of numbers: with names and a signature it stays under a
megabyte."""

TYPES = (LimitedState,)


def suits(method: Method) -> bool:
    """Linear models with a limit on decisions."""
    return method.network is None and of_decisions(method)


def before(plan: Plan) -> Broadcast | None:
    """Nothing is asked before the first round."""


def init(plan: Plan, beginning: Beginning) -> LimitedState:
    """Before the first round, w = 0; or at the weights with which another fit ended."""
    game, start = adversaries.game(plan), beginning.start
    state = LimitedState(game, game.w, game.alpha)
    if start is None or start.metric is None:
        return state
    warm = exact.warm(game, start)
    return replace(state, game=warm, w=warm.w, alpha=warm.alpha, metric=start.metric, limited=True)


def start_of(state: LimitedState) -> Start | None:
    """The weights that an ended fit is good for, and what says how far they are from others."""
    ended = replace(state.game, step=state.step, w=state.w, alpha=state.alpha, nu=state.nu)
    start = exact.start_of(ended)
    return None if start is None else replace(start, metric=state.metric)


def temperature(state: LimitedState) -> float:
    """T at the trial w: a share of the scores' deviation there."""
    return state.fairness.surrogate.temperature * deviation(state.metric, state.w) or 1.0


def question(state: LimitedState) -> Question:
    """What the next round asks of every client."""
    if state.trials is not None:
        return Trials(state.trials)
    game, here = state.game, state.here
    C = game.C if here is None else adversaries.for_clients(game.C, game, here.sums)
    measured = Surrogate("sigmoid", temperature(state))
    return Sums(measured, game.method.share, state.w, state.alpha, C)


def received(state: LimitedState, reply: Reply) -> dict[str, np.ndarray]:
    """The sums, with slopes once more as ``J_hat`` for decisions.

    What is decided does not change with the scale of w, as g(x.w / T(w)) does not with T a share of the scores'
    deviation: so each slope J loses (J.w) grad T / T.
    """
    sums = dict(adversaries.drawn_together(state.game, reply.sums))
    std = deviation(state.metric, state.w)
    sums["J_hat"] = sums["J_g"]
    if std > 0:
        assert state.metric is not None
        means = state.metric[-1]
        away = (state.metric @ state.w - means * (means @ state.w)) / std**2
        sums["J_hat"] = sums["J_g"] - (sums["J_g"] @ state.w)[..., None] * away
    return sums


def begun(state: LimitedState, sums: Mapping[str, np.ndarray]) -> LimitedState:
    """What the first reply settles; at w = 0 every row's curvature is 1/4, so that H is X'X / 4."""
    state = replace(state, game=adversaries.begun(state.game, sums))
    if state.metric is None:
        positive = 0.5 - sums["J_1"][-1] / state.game.n
        constant = float(np.log(positive / (1 - positive))) if 0 < positive < 1 else None
        # categories make X'X singular, and rounding then gives it eigenvalues below 0
        values, vectors = np.linalg.eigh(4 * sums["H"] / state.game.n)
        metric = (vectors * np.maximum(values, 0.0)) @ vectors.T
        state = replace(state, metric=metric, constant=constant)
    return state


def step(state: LimitedState, reply: Reply) -> LimitedState:
    """One round: judge the trial w the clients answered for, then propose the next."""
    if state.trials is not None:
        return tried(replace(state, round=reply.round), reply)
    if state.here is None:
        state = begun(state, reply.sums)
    sums = received(state, reply)
    there = evaluate(state, sums)
    exact.check_finite(there.loss, reply.round)
    state, kept = judged(replace(state, round=reply.round), there)
    here = state.here
    assert here is not None
    model = model_at(state, here)
    found, damping = solved(state, model)
    promised = state.merit(here.loss, here.worst) - found.merit
    if not state.limited and promised < NEAR and deviation(state.metric, here.w) > 0:
        state = replace(state, limited=True)
        here = evaluate(replace(state, w=here.w), here.sums)
        state = replace(state, here=here)
        model = model_at(state, here)
        found, damping = solved(state, model)
        promised = state.merit(here.loss, here.worst) - found.merit
    return proposed(replace(state, damping=damping), there, kept, found, promised, model)


def judged(state: LimitedState, there: adversaries.Point) -> tuple[LimitedState, bool]:
    """Whether the trial w is kept, how far the next step may go, and the best decisions within the limit so far."""
    kept, damping, here, refused = True, state.damping, state.here, 0
    if here is not None and not state.tries:
        before, after = (state.merit(at.loss, at.worst) for at in (here, there))
        ratio = (before - after) / max(state.promised, 1e-12)
        kept = ratio > 0.05 or state.promised < 1e-9
        if state.limited:
            damping *= WORSE if not kept else 3.0 if ratio < 0.3 else 1.0 if ratio < 0.7 else BETTER
        else:  # a loss with an adversary of its own has kinks
            damping = 5.0 * damping if not kept else max(FIRST_DAMPING, 0.2 * damping)
        refused = 0 if kept else state.refused + 1
        if refused > MOST_REFUSED:
            # among steps a smaller step tells nothing new: look around elsewhere
            kept, damping, refused = True, 0.1, 0
    best, since = state.best, state.since + 1
    worth = WORTH if state.tries else SETTLED
    if state.keeps(there) and (best is None or there.loss < best.loss - worth):
        best, since = there, 0
    here = there if kept or here is None else here
    damping = max(damping, LEAST_DAMPING)
    return replace(state, here=here, damping=damping, best=best, since=since, refused=refused), kept


def tried(state: LimitedState, reply: Reply) -> LimitedState:
    """One round of trials: the best of them is asked for its slopes next, or the fit ends with the best so far."""
    game, here, W = state.game, state.here, state.trials
    assert here is not None
    assert W is not None
    assert state.step is not None
    every = [
        adversaries.drawn_together(game, trying.of_trial(here.sums, reply.sums, t))
        for t in range(len(W))
    ]
    losses = np.array([adversaries.loss_of(game, sums)[0] for sums in every])
    losses += (W * W) @ adversaries.ridge_of(game) / 2
    stricter = 1.0 if state.best is not None else STRICTER ** max(state.tries - 2, 0)
    t, worst = trying.best_of(
        losses,
        np.array([sums["psi_hat"] for sums in every]),
        np.concatenate([here.cuts, state.step.cuts]),
        replace(state, nu=stricter * state.nu).merit,
        lambda t: cuts_at(state, every[t]["psi_hat"], every[t], 0.0),
    )
    gain = state.merit(here.loss, here.worst) - state.merit(losses[t], worst)
    outcome = "rounds" if state.round >= game.method.max_rounds else "running"
    if state.best is not None and state.since + 1 >= PATIENCE:
        outcome = "converged"
    end = here if outcome == "running" else state.best or here
    damping = state.damping * trying.damped(t) * (1.0 if gain > 0 else 3.0)
    entry = said(state, end, gain > 0, state.step, gain)
    entry |= {"step": float(np.abs(W[t] - here.w).max())}
    if outcome == "running":  # what else is known is of another w
        entry = {k: v for k, v in entry.items() if k != "positive"}
        entry |= {"loss": float(losses[t]), "worst": worst}
    return replace(
        state,
        here=end,
        w=W[t] if outcome == "running" else end.w,
        trials=None,
        tries=state.tries + 1,
        since=state.since + 1,
        damping=float(np.clip(damping, 1e-4, 1.0)),
        outcome=outcome,
        history=(*state.history, entry),
    )


def candidates(
    state: LimitedState, model: QuadraticModel, found: adversaries.SolvedStep
) -> np.ndarray:
    """Trials around here: along the steps of several models, beside these, and where nothing else helps retreats."""
    here, metric = model.here, state.metric
    assert metric is not None
    cuts = np.concatenate([found.cuts, here.cuts])
    steps = []
    for times, lower in trying.ASKED:
        aimed = replace(model, aim=model.aim - lower * state.fairness.tau)
        asked = program(state, aimed, times * state.damping, found.alphas, cuts)
        steps.append(minimise(*asked).x[: len(here.w)])
    std, most = deviation(metric, here.w), most_trials(state.game)
    made = trying.around(here.w, np.array(steps))[:most]
    if state.best is None and state.tries >= RETREAT:
        back = trying.retreats(here.w, std, state.constant)[:most]
        made = np.concatenate([made[: most - len(back)], back])
    return trying.beside(made, metric, std, state.round, most)


def most_trials(game: adversaries.Game) -> int:
    """How many trials a reply has room for."""
    return max(1, min(MOST_TRIALS, MOST_BYTES // (8 * (game.C.size + len(game.alpha) + 1))))


def trials_question(plan: Plan) -> Trials | None:
    """The largest question about trials that a fit may ask; None where it asks for none."""
    if not suits(plan.method):
        return None
    return Trials(np.zeros((most_trials(adversaries.game(plan)), plan.features + 1)))


def of_decisions(method: Method) -> bool:
    """Whether the limit is on decisions, and not on a loss."""
    return method.fairness is not None and method.fairness.measured.kind == "sigmoid"


def tries(state: LimitedState, kept: bool) -> bool:
    """Whether the next round looks at many trials: from the first step that decisions refuse on."""
    return state.limited and (state.tries > 0 or not kept)


def said(
    state: LimitedState,
    of: adversaries.Point,
    kept: bool,
    found: adversaries.SolvedStep,
    promised: float,
) -> dict:
    """A round's record."""
    return {
        "round": state.round,
        "kept": bool(kept),
        "loss": of.loss,
        "worst": of.worst,
        "decrement": promised,
        "step": float(np.abs(found.p).max()),
        "cuts": len(found.cuts),
        "multiplier": found.multiplier,
        "damping": state.damping,
        "nu": state.nu,
        "accuracy": float(of.sums["correct"]) / state.game.n,
        **adversaries.positive_in(of.sums, state.game),
    }


def proposed(
    state: LimitedState,
    there: adversaries.Point,
    kept: bool,
    found: adversaries.SolvedStep,
    promised: float,
    model: QuadraticModel,
) -> LimitedState:
    """The next trial w, or the end."""
    game, here, best = state.game, state.here, state.best
    assert here is not None
    tolerance = max(SETTLED, game.method.tolerance)
    within = state.keeps(here) and model.aim <= state.fairness.tau
    outcome = "rounds" if state.round >= game.method.max_rounds else "running"
    still = promised < tolerance
    if found.multiplier < 1e-9:  # nothing binds: a smooth optimum
        still &= bool(np.abs(found.p).max() < exact.STILL * (1 + np.abs(here.w).max()))
    if (within and still) or (best is not None and state.since >= PATIENCE):
        outcome = "converged"
    if outcome != "running" and best is not None and (not within or best.loss < here.loss):
        here = best
    # the last entry is of what the fit ends with
    entry = said(state, there if outcome == "running" else here, kept, found, promised)
    precision = float(np.clip(0.3 * promised, 3e-5, 1e-3))
    asked = candidates(state, model, found) if outcome == "running" and tries(state, kept) else None
    return replace(
        state,
        trials=asked,
        game=replace(game, C=found.C, precision=precision),
        here=here,
        w=here.w if outcome != "running" else here.w + found.p,
        alpha=found.alpha,
        step=found,
        promised=promised,
        nu=min(state.nu * (2.0 if kept and found.multiplier > 0.8 * state.nu else 1.0), MOST_NU),
        outcome=outcome,
        history=(*state.history, entry),
    )
