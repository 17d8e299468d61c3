"""The exact solver for linear models: a trust-region quadratic program whose cuts are found on the server.

    min_w  Phi(w) = (1 - share) L(w) + share max_{alpha in A_L} L(w, alpha) + ridge |w|^2 / 2
    subject to  <C, psi_g(w)> <= tau  for every cut C of the fairness adversary's set

Once per round the clients send value and gradient of every coefficient of alpha at one trial w (see
``client.sums``). The server then knows a model of *every* alpha at once:
psi(w + p) = psi + J p. It steps to the p that minimises the model plus a curvature of the
Lagrangian, adding the reweightings that are worst at w + p until none is left, and lets a merit
function, Phi + nu * violation, decide whether the step is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.mathematics.ambiguity import Outcome
from agnosticfair.mathematics.quadratic import Solution, minimise
from agnosticfair.methods import Method
from agnosticfair.protocol.messages import Reply
from agnosticfair.protocol.requests import Sums
from agnosticfair.server.adversaries import (
    Game,
    Point,
    SolvedStep,
    begun,
    cuts_at,
    drawn_together,
    evaluate,
    for_clients,
    game,
    loss_of,
    positive_in,
    ridge_of,
)
from agnosticfair.server.adversaries import worst_cases as worst_cases
from agnosticfair.server.plan import Beginning, Binding, Plan, Start, fairness_of

MAX_PASSES = 12
"""Times the server looks for new cuts at one model before it takes the step it has."""

FEASIBLE = 1e-5
"""Converged: the worst difference is within tau + FEASIBLE, the model promises less than ``tolerance`` of merit, and
its step is under STILL of the weights, or what it promises no longer halves from round to round (a flat, curved
valley)."""

STILL = 1e-6


COARSE = 1e-3
"""A fit of at least this tolerance, a point on the way along tau, ends before its weights are still, and may be off by
ten times FEASIBLE."""

WARM = 1e-4
"""Damping of a fit that begins where another ended."""


def start_of(state: Game) -> Start | None:
    """The start that an ended fit is good for. Cuts of the uniform weights are left out: every round has
    them anyway, in the scale of its own tau."""
    if state.step is None:
        return None
    cuts = state.step.cuts
    cuts = cuts[~(cuts[:, :, -1] != 0).any(axis=1)]
    return Start(state.w, Binding(state.alpha, state.C, state.step.alphas, cuts, state.nu))


def warm(state: Game, start: Start) -> Game:
    """The state before the first round, begun where another fit ended."""
    binding = start.binding
    kernels = binding is None or (binding.alpha.shape, binding.C.shape) == (
        state.alpha.shape,
        state.C.shape,
    )
    if start.w.shape != state.w.shape or not kernels:
        raise SettingsError(
            "the fit to begin from had other features, kernels or groups: begin anew"
        )
    state = replace(state, w=start.w, damping=WARM)
    if binding is None:
        return state
    still, alpha, C = np.zeros_like(start.w), binding.alpha, binding.C
    step = SolvedStep(still, 0.0, 0.0, alpha, C, binding.alphas, binding.cuts)
    return replace(state, alpha=alpha, C=C, step=step, nu=binding.nu)


def suits(method: Method) -> bool:
    return method.network is None


def before(plan: Plan) -> None:
    """Nothing is asked before the first round."""


def request(state: Game) -> Sums:
    C = state.C if state.here is None else for_clients(state.C, state, state.here.sums)
    measured = fairness_of(state.method).measured
    return Sums(measured, state.method.share, state.w, state.alpha, C)


def hessian_of(state: Game, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """The Lagrangian's Hessian, made positive definite, plus damping."""
    H = sums["H"] / state.n + np.diag(ridge_of(state))
    values, vectors = np.linalg.eigh((H + H.T) / 2)
    floor = max(1e-3 * state.method.ridge, 1e-9)
    return (vectors * (np.maximum(values, floor) + state.damping)) @ vectors.T


def solve_model(state: Game, here: Point) -> SolvedStep:
    """The step from ``here`` that is best for the linearised problem, with all its worst cuts."""
    sums, tau, D = here.sums, fairness_of(state.method).tau, len(here.w)
    H, ridge = hessian_of(state, sums), ridge_of(state)
    old = state.step
    alphas = here.alpha[None] if old is None else np.vstack([old.alphas, here.alpha])
    cuts = here.cuts if old is None else np.concatenate([old.cuts, here.cuts])
    q = np.concatenate([ridge * here.w, [1.0, state.nu]])
    P = np.zeros((D + 2, D + 2))
    P[:D, :D] = H
    for left in reversed(range(MAX_PASSES)):
        G, h = rows_of(state, here, alphas, cuts, (sums["psi_g"], sums["J_g"], tau))
        solution = minimise(P, q, G, h)
        if solution.outcome is not Outcome.OPTIMAL or not left:
            break
        p, t, xi = solution.x[:D], solution.x[D], max(solution.x[D + 1], 0.0)
        psi_g = sums["psi_g"] + sums["J_g"] @ p
        new_cuts = cuts_at(state, psi_g, sums)
        values = np.einsum("kgm,gm->k", new_cuts, psi_g)
        fresh = new_cuts[values > tau + xi + max(0.3 * state.precision, 1e-7)]
        loss, alpha = loss_of(state, sums, p)
        enough = loss <= t + 1e-3 * state.precision + 1e-9
        if enough and not len(fresh):
            break
        cuts = np.concatenate([cuts, fresh])
        if not enough:
            alphas = np.vstack([alphas, alpha])
    x = solution.x
    merit = promised_merit(state, here, P[:D, :D], x) + state.nu * max(x[D + 1], 0.0)
    return solved_step(state, x[:D], float(merit), solution, alphas, cuts)


def rows_of(
    state: Game,
    here: Point,
    alphas: np.ndarray,
    cuts: np.ndarray,
    limited: tuple[np.ndarray, np.ndarray, float],
) -> tuple[np.ndarray, np.ndarray]:
    """G and h of the quadratic program in (p, t, xi): loss cuts, fairness cuts, xi >= 0.

    limited: psi, (G, M), that the cuts hold for, its gradients (G, M, D), and what a cut may be at most.
    """
    sums, D, k, m, share = here.sums, len(here.w), len(alphas), len(cuts), state.method.share
    psi, J, maximum = limited
    G, h = np.zeros((k + m + 1, D + 2)), np.zeros(k + m + 1)
    G[:k, :D] = ((1 - share) * sums["J_1"] + share * alphas @ sums["J_L"]) / state.n
    G[:k, D] = -1.0
    h[:k] = -((1 - share) * sums["loss"] + share * alphas @ sums["psi_L"]) / state.n
    G[k:-1, :D] = np.einsum("kgm,gmd->kd", cuts, J)
    G[k:-1, D + 1] = -1.0
    h[k:-1] = maximum - np.einsum("kgm,gm->k", cuts, psi)
    G[-1, D + 1] = -1.0
    return G, h


def promised_merit(state: Game, here: Point, H: np.ndarray, x: np.ndarray) -> float:
    """The model's loss at the solution x = (p, t, xi) of a quadratic program, with its ridge and curvature."""
    D, ridge = len(here.w), ridge_of(state)
    p = x[:D]
    return float(x[D] + ridge @ (here.w * here.w) / 2 + (ridge * here.w) @ p + p @ H @ p / 2)


def solved_step(
    state: Game,
    p: np.ndarray,
    merit: float,
    solution: Solution,
    alphas: np.ndarray,
    cuts: np.ndarray,
) -> SolvedStep:
    """What a solved quadratic program says, with the cuts that hold it, and no others."""
    k = len(alphas)
    of_loss, of_fair = solution.multipliers[:k], solution.multipliers[k : k + len(cuts)]
    return SolvedStep(
        p,
        merit,
        float(of_fair.sum()),
        of_loss @ alphas / max(of_loss.sum(), 1e-12),
        np.einsum("k,kgm->gm", of_fair, cuts) * state.n,
        alphas[of_loss > 1e-7],
        cuts[of_fair > 1e-7],
    )


def init(plan: Plan, beginning: Beginning) -> Game:
    return game(plan) if beginning.start is None else warm(game(plan), beginning.start)


def check_finite(loss: float, round: int) -> None:
    """Raise for a loss that is no number: nothing after it would be."""
    if not np.isfinite(loss):
        raise SolverError(
            f"the fit diverged in round {round}: the loss is {loss}; scale the features or raise ridge"
        )


def step(state: Game, reply: Reply) -> Game:
    """One round: judge the trial w the clients answered for, then propose the next."""
    if state.here is None:
        state = begun(state, reply.sums)
    sums = drawn_together(state, reply.sums)
    there = evaluate(state, state.w, sums)
    check_finite(there.loss, reply.round)
    state, accepted = judged(replace(state, round=reply.round), there)
    here = state.here
    assert here is not None
    model = solve_model(state, here)
    decrement = here.merit(state.nu, fairness_of(state.method).tau) - model.merit
    return moved(state, here, model, record(state, there, accepted, model, decrement))


def record(
    of: Game, point: Point, accepted: bool, solved_step: SolvedStep, decrement: float
) -> dict:
    return {
        "round": of.round,
        "kept": bool(accepted),
        "loss": point.loss,
        "worst": point.worst,
        "decrement": decrement,
        "step": float(np.abs(solved_step.p).max()),
        "cuts": len(solved_step.cuts),
        "multiplier": solved_step.multiplier,
        "damping": of.damping,
        "nu": of.nu,
        "accuracy": float(point.sums["correct"]) / of.n,
        **positive_in(point.sums, of),
    }


def judged(state: Game, there: Point) -> tuple[Game, bool]:
    """The state at the better of two points, and whether it is the new one: the merit must fall by a part
    of what the model promised, and the damping follows how well it kept its promise."""
    here, tau = state.here, fairness_of(state.method).tau
    if here is None or state.step is None:
        return replace(state, here=there), True
    before = here.merit(state.nu, tau)
    promised = before - state.step.merit
    ratio = (before - there.merit(state.nu, tau)) / max(promised, 1e-15)
    accepted = ratio > 0.05 or promised < 1e-13
    factor = 6.0
    if accepted:
        factor = 2.0 if ratio < 0.3 else 1.0
        factor = 0.15 if ratio > 0.8 else factor
    here = there if accepted else here
    return replace(state, here=here, damping=state.damping * factor), accepted


def settled(state: Game, here: Point, entry: Mapping[str, float]) -> bool:
    """Whether the constraint holds, the model promises next to nothing, and w is still or creeps."""
    method, decrement = state.method, entry["decrement"]
    slack = FEASIBLE if method.tolerance < COARSE else 10 * FEASIBLE
    if not (here.worst < fairness_of(method).tau + slack and decrement < method.tolerance):
        return False
    last = state.history[-1] if state.history else {"decrement": np.inf, "damping": np.inf}
    slow = decrement > 0.5 * last["decrement"] and state.damping >= last["damping"]
    still = entry["step"] < STILL * (1 + np.abs(here.w).max())
    return bool(still or slow or method.tolerance >= COARSE)


def moved(state: Game, here: Point, model: SolvedStep, entry: dict) -> Game:
    """The state with the next w to ask for, or the last one."""
    method, outcome = state.method, "running"
    if settled(state, here, entry):
        outcome = "converged"
    elif state.round >= method.max_rounds:
        outcome = "rounds"
    finest = 1e-6 if method.tolerance < COARSE else 3e-5
    return replace(
        state,
        w=here.w if outcome != "running" else here.w + model.p,
        alpha=model.alpha,
        C=model.C,
        step=model,
        nu=state.nu * (2.0 if model.multiplier > 0.8 * state.nu else 1.0),
        precision=float(np.clip(0.3 * entry["decrement"], finest, 1e-3)),
        outcome=outcome,
        history=(*state.history, entry),
    )
