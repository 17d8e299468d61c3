"""The two adversaries: what they may reweight, and the worst that they can do to a w that clients answered for.

    Phi(w) = (1 - share) L(w) + share max_{alpha in A_L} L(w, alpha) + ridge |w|^2 / 2
    subject to  <C, psi_g(w)> <= tau  for every cut C of the fairness adversary's set

Every solver that plays them (``exact``, ``deciding``, ``saddle``) goes by these functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np

from agnosticfair.errors import DataError, SettingsError
from agnosticfair.mathematics.ambiguity import Ambiguity, check, worst_linear
from agnosticfair.mathematics.fairness import (
    Comparisons,
    kernel_cuts,
    shrunk,
    under_floor,
    uniform_cuts,
    worst_pair,
    worst_rate_cuts,
)
from agnosticfair.methods import Fairness, Method
from agnosticfair.server.plan import Plan, fairness_of


@dataclass(frozen=True)
class Point:
    """A w that the clients have answered for: their sums, and what follows from them."""

    w: np.ndarray
    sums: Mapping[str, np.ndarray]
    loss: float
    worst: float
    alpha: np.ndarray
    cuts: np.ndarray

    def merit(self, nu: float, tau: float) -> float:
        return self.loss + nu * max(self.worst - tau, 0.0)


@dataclass(frozen=True)
class SolvedStep:
    """A solved model: the step, what it promises, and the multipliers of its cuts."""

    p: np.ndarray
    merit: float
    multiplier: float
    alpha: np.ndarray
    C: np.ndarray
    alphas: np.ndarray
    cuts: np.ndarray


@dataclass(frozen=True)
class Game:
    """All of the solver between two rounds."""

    method: Method
    n: float
    clients: tuple[str, ...]
    compared: Comparisons
    w: np.ndarray
    alpha: np.ndarray
    C: np.ndarray
    round: int = 0
    here: Point | None = None
    step: SolvedStep | None = None
    damping: float = 1e-3
    precision: float = 1e-3
    nu: float = 2.0
    outcome: str = "running"
    under_floor: tuple[str, ...] = ()
    nominal: tuple[tuple[int, int | None], ...] = ()
    history: tuple[dict, ...] = field(default_factory=tuple)


def game(plan: Plan) -> Game:
    """Sets and metric, w = 0, uniform weights (over all kernels), no fairness cut."""
    M, F = plan.kernels
    w, alpha = np.zeros(plan.features + 1), np.full(M, 1.0 / M)
    C = np.zeros((plan.task.strata, F + 1))
    return Game(plan.method, plan.n, plan.clients, plan.compared, w, alpha, C)


def for_clients(C: np.ndarray, state: Game, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """C, (.., G, F + 1), for the clients' kernels, which are not drawn together by ``trust``."""
    trust = fairness_of(state.method).trust
    if trust == 0:
        return C
    p = sums["psi_theta"][:, :-1].sum(axis=0) / state.n
    blocks = [(1 - trust) * C[..., :-1], C[..., -1:] + trust * (C[..., :-1] @ p)[..., None]]
    return np.concatenate(blocks, axis=-1)


def loss_of(
    state: Game, sums: Mapping[str, np.ndarray], p: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Phi without its ridge, at w or, linearised, at w + p; and the weights its gradient puts on kernels.

    Phi = (1 - share) mean loss + share max_alpha L(w, alpha).
    """
    mean, psi_L, share = sums["loss"], sums["psi_L"], state.method.share
    if p is not None:
        mean, psi_L = mean + sums["J_1"] @ p, psi_L + sums["J_L"] @ p
    worst = worst_linear(Ambiguity(sums["psi_theta_L"], state.n, state.method.bound), psi_L)
    return float((1 - share) * mean + share * worst.value) / state.n, worst.alpha


def cuts_at(state: Game, psi_g: np.ndarray, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """The worst cuts (k, G, M) of the fairness adversary for given psi_g."""
    fairness, members = state.method.fairness, state.compared.members
    if fairness is None:
        return np.zeros((0, *psi_g.shape))
    psi_theta = members @ sums["psi_theta"]
    if fairness.each:
        empty = np.argwhere(psi_theta <= 0)
        if len(empty):
            raise DataError(
                f"client {state.clients[empty[0][1]]!r} lacks one of the sensitive groups; method "
                f"{state.method.name!r} compares the groups at every client: leave that client out or "
                "take another method"
            )
    cuts = np.zeros((0, *psi_theta.shape))
    if isfinite(fairness.nominal):
        cuts = uniform_cuts(psi_theta, state.nominal) * (fairness.tau / fairness.nominal)
    total = sums["psi_theta"].sum(axis=0)
    cuts = np.concatenate([_worst_cuts(state, fairness, members @ psi_g, psi_theta, total), cuts])
    return np.einsum("pg,kpm->kgm", members, cuts)


def _worst_cuts(
    state: Game, fairness: Fairness, psi_g: np.ndarray, psi_theta: np.ndarray, total: np.ndarray
) -> np.ndarray:
    """The cuts of the adversary's own kernels; the last column, uniform weights, is not one of them.

    psi_g, psi_theta: (P, M + 1), of the compared groups.  total: (M + 1,), of all rows.
    """
    kernels_g, kernels_theta = psi_g[:, :-1], psi_theta[:, :-1]
    A, pairs = Ambiguity(total[:-1], state.n, fairness.bound), state.compared.pairs
    if fairness.each or kernels_theta.shape[1] == 1:
        cuts = kernel_cuts(kernels_theta, pairs)
    else:
        cuts = worst_rate_cuts(
            A, kernels_g, kernels_theta, pairs, fairness.floor, state.precision, fairness.tau
        )
    return np.concatenate([cuts, np.zeros((*cuts.shape[:2], 1))], axis=2)


def begun(state: Game, sums: Mapping[str, np.ndarray]) -> Game:
    """What the first reply settles: the rows' weight in all, and which groups are under the floor.

    Raises, with what to change, where one of the two adversaries' sets is empty or nothing is left to
    be compared. Groups under the floor are named in the result; where uniform weights have a limit of
    their own, that one holds for them, too.
    """
    masses, fairness = sums["psi_theta"], state.method.fairness
    state = replace(state, n=float(masses[:, -1].sum()), nominal=state.compared.pairs)
    check(Ambiguity(sums["psi_theta_L"], state.n, state.method.bound))
    if fairness is None or fairness.each:
        return state
    A = Ambiguity(masses[:, :-1].sum(axis=0), state.n, fairness.bound)
    masses_by, names = state.compared.members @ masses[:, :-1], state.compared.names
    check(A)
    small = under_floor(A, masses_by, fairness.floor)
    compared = state.compared.without(small)
    if not compared.pairs:
        check(A, masses_by, fairness.floor, names)
        raise SettingsError(f"floor {fairness.floor:g} leaves no two groups to compare: lower it")
    return replace(state, compared=compared, under_floor=tuple(names[j] for j in small))


def drawn_together(state: Game, sums: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """The sums of the fairness adversary's kernels, drawn towards uniform weights by ``trust``."""
    trust = fairness_of(state.method).trust
    if trust == 0:
        return sums
    p = sums["psi_theta"][:, :-1].sum(axis=0) / state.n
    names = [name for name in ("psi_g", "psi_theta", "psi_hat", "J_g") if name in sums]
    return {**sums, **{name: shrunk(sums[name], p, trust) for name in names}}


def ridge_of(state: Game) -> np.ndarray:
    ridge = np.full(len(state.w), state.method.ridge)
    ridge[-1] = 0.0
    return ridge


def evaluate(state: Game, w: np.ndarray, sums: Mapping[str, np.ndarray]) -> Point:
    """Loss and worst difference at w, exactly, over the whole of both sets."""
    loss, alpha = loss_of(state, sums)
    cuts = cuts_at(state, sums["psi_g"], sums)
    values = np.einsum("kgm,gm->k", cuts, sums["psi_g"])
    worst = float(values.max(initial=0.0))
    # At w = 0 every alpha shows no difference, and which one is worst is rounding: no cut is kept.
    cuts = cuts[values > 0.25 * fairness_of(state.method).tau]
    return Point(w, sums, loss + float(ridge_of(state) @ (w * w)) / 2, worst, alpha, cuts)


def worst_decisions(state: Game) -> float:
    """The metric's largest difference of true rates (of true decisions, not of the surrogate) over the
    fairness adversary's set: a certificate on the training rows and this basis; under uniform weights
    where there is no adversary.  Where nothing is compared, a group's highest share of wrong decisions."""
    if state.here is None or not len(state.compared.members):
        return float("nan")
    members, sums, fairness = state.compared.members, state.here.sums, state.method.fairness
    psi, theta = members @ sums["psi_hat"], members @ sums["psi_theta"]
    if fairness is None or fairness.each or fairness.basis.kind == "constant":
        there = theta[:, -1] > 0
        rates = psi[:, -1] / np.where(there, theta[:, -1], 1.0)
        pairs = [(j, k) for j, k in state.compared.pairs if there[j] and (k is None or there[k])]
        gaps = (float(rates[j] - (0.0 if k is None else rates[k])) for j, k in pairs)
        return max(gaps, default=0.0)
    A = Ambiguity(sums["psi_theta"].sum(axis=0)[:-1], state.n, fairness.bound)
    worst = worst_pair(A, psi[:, :-1], theta[:, :-1], state.compared.pairs, fairness.floor)
    return 0.0 if worst is None else max(worst.worst.value, 0.0)


def positive_in(sums: Mapping[str, np.ndarray], state: Game) -> dict[str, float]:
    """The share of positive decisions, for a round's record; nothing where decisions are not what was counted."""
    if fairness_of(state.method).measured.kind == "loss":
        return {}
    return {"positive": float(sums["psi_hat"][:, -1].sum()) / state.n}


def worst_cases(state: Game) -> tuple[float, float]:
    """The worst difference over the set, of the surrogate and of the true decisions."""
    if state.here is None:
        return float("nan"), float("nan")
    return state.here.worst, worst_decisions(state)
