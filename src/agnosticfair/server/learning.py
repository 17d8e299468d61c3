"""The additive and the linear learner: logistic regressions of all heads, for every fold, in the same messages.

The gradient is exact for each of the (folds + 1) x H models.  One Hessian a head, of all rows, serves every fold's
model (quasi-Newton), and is requested only while the models still move much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agnosticfair.errors import SolverError, existing
from agnosticfair.learners.estimates import Estimates, Head
from agnosticfair.learners.linear import WEIGHT_BITS
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.quadratic import lbfgs_step
from agnosticfair.methods import Method
from agnosticfair.protocol.messages import Reply, exponents
from agnosticfair.protocol.requests import Learn, hessian_numbers
from agnosticfair.server.plan import Beginning, Plan, trained_heads

RIDGE = 1.0
"""Weight of |w|^2 / 2 beside the sum over rows, at least: what a row weighs."""

TOLERANCE = 1e-6
"""Converged: the next step promises less than this of every model's mean log loss."""

REFRESH = 1e-4
"""The Hessian is requested again while a step promises more than this."""

PAIRS = 8  # the last moves that stand for the Hessian, with its diagonal
FIRST_LENGTH = 0.05  # of the first step then
LONGER = 2  # how many times as many rounds there are then
STALLED = 5e-5  # the last PAIRS of rounds take less off the mean loss, or it goes on

MAX_ROUNDS = 30
MAX_SHARE = 0.5  # of the rows that one fold may hold: where few rows differ, folds are given up


@dataclass(frozen=True)
class Learning:
    """Between two rounds.

    bits: (D,), of the grid of weights.  w: (models, H, D), the trial that is requested next.  best, value: the best
    weights, and what they cost, (models, H).  hessian: (H, D, D), of the model of all rows; (H, D), its diagonal,
    where all of it would be too large for a message, and ``fresh`` where it is requested.  gradient: at the best
    weights. moves, turns: (k, models, H, D), with the diagonal alone: the last differences of best weights and of
    their gradients, the latest last.  held_out: mean log loss of rows that a model was not trained on, all heads
    together.
    """

    kind: str
    heads: tuple[Head, ...]
    folds: int
    seed: int
    n: int
    ridge: float
    bits: np.ndarray
    w: np.ndarray
    best: np.ndarray
    value: np.ndarray
    hessian: np.ndarray
    gradient: np.ndarray
    moves: np.ndarray
    turns: np.ndarray
    fresh: bool = True
    held_out: float = float("inf")
    round: int = 0
    outcome: str = "running"
    history: tuple[dict, ...] = ()
    under_floor: tuple[str, ...] = ()

    @property
    def full(self) -> bool:
        """Whether there is all of the Hessian, and not its diagonal alone."""
        return self.hessian.ndim == 3

    @property
    def alpha(self) -> np.ndarray:
        return np.zeros(0)


def begun(plan: Plan, kind: str, heads: tuple[Head, ...], seed: int) -> Learning:
    folds, D = existing(plan.method.rule).folds, plan.features + 1
    w = np.zeros((folds + 1, len(heads), D))
    ridge = max(RIDGE, plan.method.ridge * plan.task.n)
    bits = WEIGHT_BITS + exponents(plan.task.encoding)
    value = np.full(w.shape[:2], np.inf)
    full = hessian_numbers(len(heads), D) > D
    hessian = np.zeros((len(heads), D, D) if full else (len(heads), D))
    none = np.zeros((0, *w.shape))
    learning = Learning(
        kind=kind,
        heads=heads,
        folds=folds,
        seed=seed,
        n=plan.task.n,
        ridge=ridge,
        bits=bits,
        w=w,
        best=w,
        value=value,
        hessian=hessian,
        gradient=w,
        moves=none,
        turns=none,
    )
    return (
        learning if heads else replace(learning, held_out=0.0, outcome="learned")
    )  # all are given


def request(state: Learning) -> Learn:
    return Learn(state.heads, state.folds, state.seed, state.fresh, state.w)


def step(state: Learning, reply: Reply) -> Learning:
    """One round: every model goes on from the better of its last two weights."""
    sums = _checked(reply.sums)
    state = _without_folds(state, sums)
    sums = {k: v if k in OF_HEADS else v[-len(state.w) :] for k, v in sums.items()}
    penalty = _penalty(state)
    value = sums["head_loss"] + ((state.w**2) @ penalty) / 2
    if "head_hessian" in sums:
        hessians = sums["head_hessian"]
        state = replace(
            state, hessian=_square(hessians, state.w.shape[-1]) if state.full else hessians
        )
    better = value <= state.value + 1e-9 * np.abs(value)
    gradient = sums["head_gradient"] + state.w * penalty
    state = _remembered(state, gradient, better)
    step_of = _newton if state.full else _quasi_newton
    move, promised = step_of(state, gradient, sums["head_mass"])
    trial = np.where(better[:, :, None], state.w + move, (state.best + state.w) / 2)
    left = float(np.where(better, promised, np.inf).max())
    held_out = float(sums["held_out"].sum()) / state.n
    entry = {
        "round": reply.round,
        "stage": state.kind,
        "kept": bool(better.all()),
        "loss": float(sums["head_loss"][-1].sum() / state.n),
        "held_out": held_out,
        "decrement": min(left, 1.0),
    }
    done = left < TOLERANCE or _ended(state, entry)
    best = np.where(better[:, :, None], state.w, state.best)
    return replace(
        state,
        w=best if done else on_grid(trial, state.bits),
        best=best,
        value=np.where(better, value, state.value),
        gradient=np.where(better[:, :, None], gradient, state.gradient),
        fresh=left > REFRESH,
        held_out=held_out,
        round=reply.round,
        outcome="learned" if done else "running",
        history=(*state.history, entry),
    )


def _checked(sums: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    if not np.isfinite(sums["head_loss"]).all():
        raise SolverError("the learner diverged: scale the features")
    return sums


def _ended(state: Learning, entry: Mapping[str, Any]) -> bool:
    """Whether this is the last round; with a diagonal, whether the last ones have improved the loss by little."""
    if state.full:
        return bool(entry["round"] >= MAX_ROUNDS)
    losses = [known["loss"] for known in (*state.history, entry)]
    stalled = len(losses) > PAIRS and min(losses[:-PAIRS]) - min(losses) < STALLED
    return bool(stalled or entry["round"] >= LONGER * MAX_ROUNDS)


OF_HEADS = {"held_out", "head_hessian"}


def _without_folds(state: Learning, sums: Any) -> Learning:
    """The state with the model of all rows alone, where a fold holds most of the rows."""
    mass = sums["head_mass"]
    if not state.folds or (mass[:-1] >= (1 - MAX_SHARE) * mass[-1]).all():
        return state
    last = {k: getattr(state, k)[-1:] for k in ("w", "best", "value", "gradient")}
    pairs = {k: getattr(state, k)[:, -1:] for k in ("moves", "turns")}
    return replace(state, folds=0, **last, **pairs)


def _penalty(state: Learning) -> np.ndarray:
    """The ridge of every weight, (D,): none on the intercept, and in the units of a scaled feature."""
    scaled_ridge = state.ridge * np.ldexp(1.0, 2 * (state.bits - WEIGHT_BITS))
    scaled_ridge[-1] = 1e-6 * state.ridge
    return scaled_ridge


def _square(lower: np.ndarray, D: int) -> np.ndarray:
    """Symmetric matrices from their lower triangles, (H, D, D)."""
    matrices, (i, j) = np.zeros((len(lower), D, D)), np.tril_indices(D)
    matrices[:, i, j] = lower
    matrices[:, j, i] = lower
    return matrices


def _newton(
    state: Learning, gradient: np.ndarray, mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The step of every model, and what it promises of its mean loss: the Hessian is of all rows, in the share that a
    model has of them."""
    from scipy.linalg import cho_factor, cho_solve

    move, promised = np.empty_like(gradient), np.empty(gradient.shape[:2])
    penalty = np.diag(_penalty(state))
    for h in range(gradient.shape[1]):
        factor = cho_factor(state.hessian[h] + penalty)
        share = np.maximum(mass[:, h], 1.0) / max(mass[-1, h], 1.0)
        move[:, h] = -cho_solve(factor, gradient[:, h].T).T / share[:, None]
        promised[:, h] = -np.einsum("fd,fd->f", move[:, h], gradient[:, h]) / 2
    return move, promised / np.maximum(mass, 1.0)


def _remembered(state: Learning, gradient: np.ndarray, better: np.ndarray) -> Learning:
    """The state with how far every model's best weights and their gradient have moved; 0 where they have not."""
    if state.full or not state.round:
        return state
    on = better[:, :, None]
    move, turn = (state.w - state.best) * on, (gradient - state.gradient) * on
    moves, turns = (
        np.concatenate([history, new[None]])[-PAIRS:]
        for history, new in ((state.moves, move), (state.turns, turn))
    )
    return replace(state, moves=moves, turns=turns)


def _quasi_newton(
    state: Learning, gradient: np.ndarray, mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The step of every model by the diagonal and the last moves (L-BFGS), and what it promises of its mean loss."""
    share = np.maximum(mass, 1.0) / np.maximum(mass[-1], 1.0)
    diagonal = share[:, :, None] * state.hessian + _penalty(state)
    p = -lbfgs_step(gradient, diagonal, state.moves, state.turns, FIRST_LENGTH)
    promised = np.einsum("fhd,fhd->fh", p, gradient) / 2
    return -p, promised / np.maximum(mass, 1.0)


def estimates_of(state: Learning, plan: Plan) -> Estimates:
    return Estimates(state.kind, state.heads, state.folds, state.seed, {"w": state.w})


def init(plan: Plan, beginning: Beginning) -> Learning:
    """Before the first round, of the heads that the plan trains."""
    return begun(plan, kind_of(plan.method), trained_heads(plan), beginning.seed)


def kind_of(method: Method) -> str:
    return "linear" if existing(method.rule).learner == "linear" else "additive"
