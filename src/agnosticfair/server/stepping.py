"""The step of ``deciding``: a quadratic model of the loss around an answered w, and its program of cuts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agnosticfair.mathematics.ambiguity import Outcome
from agnosticfair.mathematics.quadratic import minimise
from agnosticfair.server import adversaries, exact
from agnosticfair.server.limited import LimitedState, cuts_at, decided, deviation

COOL, FAR = 0.6, 0.5
"""A round aims at this share of the difference, and moves scores by at most this share of their deviation."""


@dataclass(frozen=True)
class QuadraticModel:
    """The quadratic model around an answered w: curvature H, slope q and value of what is not a cut of the loss."""

    here: adversaries.Point
    H: np.ndarray
    q: np.ndarray
    base: float
    aim: float


def model_at(state: LimitedState, here: adversaries.Point) -> QuadraticModel:
    """Curvature of the Lagrangian, made positive semidefinite."""
    game, w = state.game, here.w
    ridge = adversaries.ridge_of(game)
    H = here.sums["H"] / game.n + np.diag(ridge)
    aim = max(state.fairness.tau, COOL * here.worst)
    return QuadraticModel(here, _convex(H), ridge * w, float(ridge @ (w * w)) / 2, aim)


def _convex(H: np.ndarray) -> np.ndarray:
    """H, made symmetric and, where it is not, positive definite."""
    H = (H + H.T) / 2
    try:
        np.linalg.cholesky(H - 1e-8 * np.eye(len(H)))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(H)
        return (vectors * np.maximum(values, 1e-8)) @ vectors.T
    return H


def solved(state: LimitedState, model: QuadraticModel) -> tuple[adversaries.SolvedStep, float]:
    """The best step that moves no scores too far, with all its worst cuts, and its damping."""
    here, damping, old = model.here, state.damping, state.step
    alphas, cuts = here.alpha[None], here.cuts
    if old is not None and state.limited:
        several = state.game.method.q == 0 and alphas.shape[1] > 1
        alphas = np.vstack([old.alphas, alphas]) if several else alphas
        cuts = np.concatenate([old.cuts, cuts])
    assert state.metric is not None
    std = deviation(state.metric, here.w)
    while True:
        step, alphas, cuts = _passes(state, model, damping, alphas, cuts)
        far = float(np.sqrt(step.p @ state.metric @ step.p)) / (FAR * std or np.inf)
        if far <= 1.0 or not state.limited or damping > 1e6:
            return step, damping
        damping *= max(2.0, 2 * far)


def _passes(
    state: LimitedState, model: QuadraticModel, damping: float, alphas: np.ndarray, cuts: np.ndarray
) -> tuple[adversaries.SolvedStep, np.ndarray, np.ndarray]:
    """A quadratic program in (p, t, xi), solved again until no worse cut is left at its own w + p."""
    here, game = model.here, state.game
    sums, D = here.sums, len(here.w)
    assert state.metric is not None
    psi = decided(state, sums)
    for left in reversed(range(exact.MOST_PASSES)):
        P, q, G, h = program(state, model, damping, alphas, cuts)
        solution = minimise(P, q, G, h, _without_cuts(len(alphas), len(cuts)))
        p, t, xi = solution.x[:D], solution.x[D], max(solution.x[D + 1], 0.0)
        if solution.outcome is not Outcome.OPTIMAL or not left:
            break
        moved = psi + sums["J_hat"] @ p
        over = model.aim + xi + max(0.3 * game.precision, 1e-6)
        fresh = cuts_at(state, moved, sums, over) if state.limited else cuts[:0]
        loss, alpha = adversaries.loss_of(game, sums, p)
        enough = game.method.q > 0 or loss <= t + 1e-3 * game.precision + 1e-9
        if enough and not len(fresh):
            break
        cuts = np.concatenate([cuts, fresh])
        alphas = alphas if enough else np.vstack([alphas, alpha])
    of_loss, of_fair = solution.multipliers[: len(alphas)], solution.multipliers[len(alphas) : -1]
    merit = (
        t
        + model.base
        + model.q @ p
        + p @ P[:D, :D] @ p / 2
        + state.nu * state.over(model.aim + xi) * state.limited
    )
    C = np.einsum("k,kgm->gm", of_fair, cuts)
    step = adversaries.SolvedStep(
        p,
        float(merit),
        xi,
        float(of_fair.sum()),
        of_loss @ alphas / max(of_loss.sum(), 1e-12),
        C * game.n,
        alphas[of_loss > 1e-7],
        cuts[of_fair > 1e-7],
    )
    return step, alphas, cuts


def _without_cuts(losses: int, cuts: int) -> np.ndarray | None:
    """The rows that are active where there is one loss and no cut binds."""
    return np.array([True, *[False] * cuts, True]) if losses == 1 else None


def program(
    state: LimitedState, model: QuadraticModel, damping: float, alphas: np.ndarray, cuts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """P, q, G and h of the program."""
    D = len(model.here.w)
    assert state.metric is not None
    P = np.zeros((D + 2, D + 2))
    P[:D, :D] = model.H + damping * (state.metric + 1e-6 * np.eye(D))
    return P, np.concatenate([model.q, [1.0, state.nu]]), *_rows(state, model, alphas, cuts)


def loss_at(state: LimitedState, here: adversaries.Point) -> float:
    return adversaries.loss_of(state.game, here.sums)[0]


def _rows(
    state: LimitedState, model: QuadraticModel, alphas: np.ndarray, cuts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """G and h of the program: loss cuts, fairness cuts, xi >= 0."""
    game, sums = state.game, model.here.sums
    D, k, m, share = len(state.w), len(alphas), len(cuts), game.method.share
    G, h = np.zeros((k + m + 1, D + 2)), np.zeros(k + m + 1)
    G[:k, :D] = ((1 - share) * sums["J_1"] + share * alphas @ sums["J_L"]) / game.n
    G[:k, D] = -1.0
    h[:k] = -((1 - share) * sums["loss"] + share * alphas @ sums["psi_L"]) / game.n
    if game.method.q > 0:
        h[:k] = -loss_at(state, model.here)
    G[k:-1, :D] = np.einsum("kgm,gmd->kd", cuts, sums["J_hat"])
    G[k:-1, D + 1] = -1.0
    h[k:-1] = model.aim - np.einsum("kgm,gm->k", cuts, decided(state, sums))
    G[-1, D + 1] = -1.0
    return G, h
