"""The exact solver for linear models: a trust-region quadratic program whose cuts are found on the server.

    min_w  Phi(w) = (1 - share) L(w) + share max_{alpha in A_L} L(w, alpha) + ridge |w|^2 / 2
    subject to  <C, psi_g(w)> <= tau  for every cut C of the fairness adversary's set

Once per round the clients send value and slope of every coefficient of alpha at one trial w (see
``client.sums``). The server then knows a model of *every* alpha at once:
psi(w + p) = psi + J p. It steps to the p that minimises the model plus a curvature of the
Lagrangian, adding the reweighings that are worst at w + p until none is left, and lets a merit
function, Phi + nu * violation, decide whether the step is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np

from agnosticfair.errors import DataError, SettingsError, SolverError
from agnosticfair.mathematics.ambiguity import (
    Ambiguity,
    Outcome,
    check,
    worst_difference,
    worst_linear,
    worst_ratio,
)
from agnosticfair.mathematics.fairness import (
    Comparisons,
    Extremes,
    kernel_cuts,
    shrunk,
    under_floor,
    uniform_cuts,
    worst_covariance_cuts,
    worst_rate_cuts,
)
from agnosticfair.mathematics.quadratic import minimise
from agnosticfair.methods import Fairness, Method
from agnosticfair.protocol.messages import Reply
from agnosticfair.protocol.questions import Sums
from agnosticfair.server.plan import Beginning, Plan, Start, fairness_of

MOST_PASSES = 12
"""Times the server looks for new cuts at one model before it takes the step it has."""

FEASIBLE, STILL = 1e-5, 1e-6
"""Converged: the worst difference is within tau + FEASIBLE, the model promises less than
``tolerance`` of merit, and its step is under STILL of the weights, or what it promises no longer
halves from round to round (a flat, curved valley)."""


WARM = 1e-4
"""Damping of a fit that begins where another ended."""


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
class Step:
    """A solved model: the step, what it promises, and the multipliers of its cuts."""

    p: np.ndarray
    merit: float
    violation: float
    multiplier: float
    alpha: np.ndarray
    C: np.ndarray
    alphas: np.ndarray
    cuts: np.ndarray


@dataclass(frozen=True)
class State:
    """All of the solver between two rounds."""

    method: Method
    n: float
    s_bar: float
    clients: tuple[str, ...]
    compared: Comparisons
    w: np.ndarray
    alpha: np.ndarray
    C: np.ndarray
    round: int = 0
    here: Point | None = None
    step: Step | None = None
    damping: float = 1e-3
    precision: float = 1e-3
    nu: float = 2.0
    outcome: str = "running"
    under_floor: tuple[str, ...] = ()
    nominal: tuple[tuple[int, int | None], ...] = ()
    history: tuple[dict, ...] = field(default_factory=tuple)


TYPES = (State, Point, Step)


def start_of(state: State) -> Start | None:
    """The start that an ended fit is good for. Cuts of the uniform weights are left out: every round has
    them anyway, in the scale of its own tau."""
    if state.step is None:
        return None
    cuts = state.step.cuts
    cuts = cuts[~(cuts[:, :, -1] != 0).any(axis=1)]
    return Start(state.w, state.alpha, state.C, state.step.alphas, cuts, state.nu)


def warm(state: State, start: Start) -> State:
    """The state before the first round, begun where another fit ended."""
    if (start.w.shape, start.alpha.shape, start.C.shape) != (
        state.w.shape,
        state.alpha.shape,
        state.C.shape,
    ):
        raise SettingsError(
            "the fit to begin from had other features, kernels or groups: begin anew"
        )
    step = Step(
        np.zeros_like(start.w), 0.0, 0.0, 0.0, start.alpha, start.C, start.alphas, start.cuts
    )
    w, alpha, C = start.w, start.alpha, start.C
    return replace(state, w=w, alpha=alpha, C=C, step=step, nu=start.nu, damping=WARM)


def suits(method: Method) -> bool:
    """Linear models."""
    return method.network is None


def before(plan: Plan) -> None:
    """Nothing is asked before the first round."""


def question(state: State) -> Sums:
    """What the next round asks of every client."""
    C = state.C if state.here is None else for_clients(state.C, state, state.here.sums)
    measured = fairness_of(state.method).measured
    return Sums(measured, state.method.share, state.w, state.alpha, C)


def for_clients(C: np.ndarray, state: State, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """C, (.., G, F + 1), for the clients' kernels, which are not drawn together by ``trust``."""
    trust = fairness_of(state.method).trust
    if trust == 0:
        return C
    p = sums["psi_theta"][:, :-1].sum(axis=0) / state.n
    own = [(1 - trust) * C[..., :-1], C[..., -1:] + trust * (C[..., :-1] @ p)[..., None]]
    return np.concatenate(own, axis=-1)


def loss_of(
    state: State, sums: Mapping[str, np.ndarray], p: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Phi without its ridge, at w or, linearised, at w + p; and the weights its slope puts on kernels.

    Phi = (1 - share) mean loss + share max_alpha L(w, alpha), or with q > 0 the sum of the kernels'
    mean losses to the power q + 1.
    """
    mean, psi_L, share = sums["loss"], sums["psi_L"], state.method.share
    if p is not None:
        mean, psi_L = mean + sums["J_1"] @ p, psi_L + sums["J_L"] @ p
    if state.method.q > 0:
        q, n_k = state.method.q, sums["psi_theta_L"]
        F = np.maximum(psi_L, 0.0) / n_k
        return float(n_k @ F ** (q + 1)) / (q + 1) / state.n, F**q
    worst = worst_linear(Ambiguity(sums["psi_theta_L"], state.n, state.method.bound), psi_L)
    return float((1 - share) * mean + share * worst.value) / state.n, worst.alpha


def cuts_at(state: State, psi_g: np.ndarray, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """The worst cuts (k, G, M) of the fairness adversary for given psi_g."""
    fairness, parts = state.method.fairness, state.compared.parts
    if fairness is None:
        return np.zeros((0, *psi_g.shape))
    psi_theta = parts @ sums["psi_theta"]
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
    cuts = np.concatenate([_worst_cuts(state, fairness, parts @ psi_g, psi_theta, total), cuts])
    return np.einsum("pg,kpm->kgm", parts, cuts)


def _worst_cuts(
    state: State,
    fairness: Fairness,
    psi_g: np.ndarray,
    psi_theta: np.ndarray,
    total: np.ndarray,
) -> np.ndarray:
    """The cuts of the adversary's own kernels; the last column, uniform weights, is not one of them.

    psi_g, psi_theta: (P, M + 1), of the parts.  total: (M + 1,), of all rows.
    """
    kernels_g, kernels_theta = psi_g[:, :-1], psi_theta[:, :-1]
    A, pairs = Ambiguity(total[:-1], state.n, fairness.bound), state.compared.pairs
    if fairness.surrogate.kind == "covariance":
        cuts = worst_covariance_cuts(A, kernels_g, kernels_theta, state.s_bar)
    elif fairness.each or kernels_theta.shape[1] == 1:
        cuts = kernel_cuts(kernels_theta, pairs)
    else:
        cuts = worst_rate_cuts(
            A, kernels_g, kernels_theta, pairs, fairness.floor, state.precision, fairness.tau
        )
    return np.concatenate([cuts, np.zeros((*cuts.shape[:2], 1))], axis=2)


def begun(state: State, sums: Mapping[str, np.ndarray]) -> State:
    """What the first reply settles: the rows' weight in all, and which parts are under the floor.

    Raises, with what to change, where one of the two adversaries' sets is empty or nothing is left to
    be compared. Parts under the floor are named in the result; where uniform weights have a limit of
    their own, that one holds for them, too.
    """
    masses, fairness = sums["psi_theta"], state.method.fairness
    state = replace(state, n=float(masses[:, -1].sum()), nominal=state.compared.pairs)
    check(Ambiguity(sums["psi_theta_L"], state.n, state.method.bound))
    if fairness is None or fairness.each:
        return state
    A = Ambiguity(masses[:, :-1].sum(axis=0), state.n, fairness.bound)
    parts, names = state.compared.parts @ masses[:, :-1], state.compared.names
    check(A)
    small = under_floor(A, parts, fairness.floor)
    compared = state.compared.without(small)
    if not compared.pairs:
        check(A, parts, fairness.floor, names)
        raise SettingsError(f"floor {fairness.floor:g} leaves no two groups to compare: lower it")
    return replace(state, compared=compared, under_floor=tuple(names[j] for j in small))


def drawn_together(state: State, sums: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """The sums of the fairness adversary's kernels, drawn towards uniform weights by ``trust``."""
    trust = fairness_of(state.method).trust
    if trust == 0:
        return sums
    p = sums["psi_theta"][:, :-1].sum(axis=0) / state.n
    names = [name for name in ("psi_g", "psi_theta", "psi_hat", "J_g") if name in sums]
    return {**sums, **{name: shrunk(sums[name], p, trust) for name in names}}


def ridge_of(state: State) -> np.ndarray:
    ridge = np.full(len(state.w), state.method.ridge)
    ridge[-1] = 0.0
    return ridge


def evaluate(state: State, w: np.ndarray, sums: Mapping[str, np.ndarray]) -> Point:
    """Loss and worst difference at w, exactly, over the whole of both sets."""
    loss, alpha = loss_of(state, sums)
    cuts = cuts_at(state, sums["psi_g"], sums)
    values = np.einsum("kgm,gm->k", cuts, sums["psi_g"])
    worst = float(values.max(initial=0.0))
    # At w = 0 every alpha shows no difference, and which one is worst is rounding: no cut is kept.
    cuts = cuts[values > 0.25 * fairness_of(state.method).tau]
    return Point(w, sums, loss + float(ridge_of(state) @ (w * w)) / 2, worst, alpha, cuts)


def curvature(state: State, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """The Lagrangian's Hessian, made positive definite, plus damping."""
    H = sums["H"] / state.n + np.diag(ridge_of(state))
    if state.method.q > 0:
        q, n_k = state.method.q, sums["psi_theta_L"]
        F = np.maximum(sums["psi_L"] / n_k, 1e-12)
        J = sums["J_L"] / n_k[:, None]
        H = H + (J * (q * F ** (q - 1) * n_k / state.n)[:, None]).T @ J
    values, vectors = np.linalg.eigh((H + H.T) / 2)
    least = max(1e-3 * state.method.ridge, 1e-9)
    return (vectors * (np.maximum(values, least) + state.damping)) @ vectors.T


def solve_model(state: State, here: Point) -> Step:
    """The step from ``here`` that is best for the linearised problem, with all its worst cuts."""
    sums, tau, D = here.sums, fairness_of(state.method).tau, len(here.w)
    H, ridge = curvature(state, sums), ridge_of(state)
    old = state.step
    alphas = here.alpha[None]
    if old is not None and state.method.q == 0:
        alphas = np.vstack([old.alphas, alphas])
    cuts = here.cuts if old is None else np.concatenate([old.cuts, here.cuts])
    q = np.concatenate([ridge * here.w, [1.0, state.nu]])
    P = np.zeros((D + 2, D + 2))
    P[:D, :D] = H
    for left in reversed(range(MOST_PASSES)):
        G, h = _rows(state, here, alphas, cuts)
        solution = minimise(P, q, G, h)
        if solution.outcome is not Outcome.OPTIMAL or not left:
            break
        p, t, xi = solution.x[:D], solution.x[D], max(solution.x[D + 1], 0.0)
        psi_g = sums["psi_g"] + sums["J_g"] @ p
        new_cuts = cuts_at(state, psi_g, sums)
        values = np.einsum("kgm,gm->k", new_cuts, psi_g)
        fresh = new_cuts[values > tau + xi + max(0.3 * state.precision, 1e-7)]
        loss, alpha = loss_of(state, sums, p)
        enough = state.method.q > 0 or loss <= t + 1e-3 * state.precision + 1e-9
        if enough and not len(fresh):
            break
        cuts = np.concatenate([cuts, fresh])
        if not enough:
            alphas = np.vstack([alphas, alpha])
    return _step(state, here, P[:D, :D], solution.x, solution.multipliers, alphas, cuts)


def _rows(
    state: State, here: Point, alphas: np.ndarray, cuts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """G and h of the quadratic program in (p, t, xi): loss cuts, fairness cuts, xi >= 0."""
    sums, D, k, m, share = here.sums, len(here.w), len(alphas), len(cuts), state.method.share
    G, h = np.zeros((k + m + 1, D + 2)), np.zeros(k + m + 1)
    G[:k, :D] = ((1 - share) * sums["J_1"] + share * alphas @ sums["J_L"]) / state.n
    G[:k, D] = -1.0
    h[:k] = -((1 - share) * sums["loss"] + share * alphas @ sums["psi_L"]) / state.n
    if state.method.q > 0:
        h[:k] = -(here.loss - ridge_of(state) @ (here.w * here.w) / 2)
    G[k:-1, :D] = np.einsum("kgm,gmd->kd", cuts, sums["J_g"])
    G[k:-1, D + 1] = -1.0
    h[k:-1] = fairness_of(state.method).tau - np.einsum("kgm,gm->k", cuts, sums["psi_g"])
    G[-1, D + 1] = -1.0
    return G, h


def _step(
    state: State,
    here: Point,
    H: np.ndarray,
    x: np.ndarray,
    multipliers: np.ndarray,
    alphas: np.ndarray,
    cuts: np.ndarray,
) -> Step:
    """What a solved quadratic program says, with the cuts that hold it, and no others."""
    D, k = len(here.w), len(alphas)
    of_loss, of_fair = multipliers[:k], multipliers[k : k + len(cuts)]
    p, ridge = x[:D], ridge_of(state)
    merit = (
        x[D]
        + ridge @ (here.w * here.w) / 2
        + (ridge * here.w) @ p
        + p @ H @ p / 2
        + state.nu * max(x[D + 1], 0.0)
    )
    alpha = of_loss @ alphas / max(of_loss.sum(), 1e-12)
    C = np.einsum("k,kgm->gm", of_fair, cuts) * state.n
    keep_a, keep_c = of_loss > 1e-7, of_fair > 1e-7
    return Step(
        p,
        float(merit),
        float(max(x[D + 1], 0.0)),
        float(of_fair.sum()),
        alpha,
        C,
        alphas[keep_a],
        cuts[keep_c],
    )


def worst_decisions(state: State) -> float:
    """The notion's largest difference of true rates (of true decisions, not of the surrogate) over the
    fairness adversary's set: a certificate on the training rows and this basis; under uniform weights
    where there is no adversary.  Where nothing is compared, a part's highest share of wrong decisions."""
    if state.here is None or not len(state.compared.parts):
        return float("nan")
    parts, sums, fairness = state.compared.parts, state.here.sums, state.method.fairness
    psi, theta = parts @ sums["psi_hat"], parts @ sums["psi_theta"]
    if fairness is None or fairness.each or fairness.basis.kind == "constant":
        there = theta[:, -1] > 0
        rates = psi[:, -1] / np.where(there, theta[:, -1], 1.0)
        return max(
            (
                float(rates[j] - (0.0 if k is None else rates[k]))
                for j, k in state.compared.pairs
                if there[j] and (k is None or there[k])
            ),
            default=0.0,
        )
    A = Ambiguity(sums["psi_theta"].sum(axis=0)[:-1], state.n, fairness.bound)
    psi, theta, worst = psi[:, :-1], theta[:, :-1], 0.0
    extremes = Extremes(A, psi, theta, fairness.floor)
    for j, k in state.compared.pairs:
        if k is None:
            found = worst_ratio(A, psi[j], theta[j], fairness.floor)
        elif len(state.compared.pairs) > 2 and extremes.gap(j, k) <= worst:
            continue
        else:
            found = worst_difference(A, psi[[k, j]], theta[[k, j]], fairness.floor)
        if found.outcome is not Outcome.INFEASIBLE:
            worst = float(np.maximum(worst, found.value))  # a nan is no certificate, and stays
    return worst


def worst_cases(state: State) -> tuple[float, float]:
    """The worst difference over the set, of the surrogate and of the true decisions."""
    if state.here is None:
        return float("nan"), float("nan")
    return state.here.worst, worst_decisions(state)


def game(plan: Plan) -> State:
    """Sets and notion, w = 0, uniform weights (over all kernels), no fairness cut."""
    M, F = plan.kernels
    w, alpha = np.zeros(plan.features + 1), np.full(M, 1.0 / M)
    C = np.zeros((plan.task.cells, F + 1))
    return State(plan.method, plan.n, plan.s_bar, plan.clients, plan.compared, w, alpha, C)


def init(plan: Plan, beginning: Beginning) -> State:
    """Before the first round, or where another fit ended."""
    return game(plan) if beginning.start is None else warm(game(plan), beginning.start)


def step(state: State, reply: Reply) -> State:
    """One round: judge the trial w the clients answered for, then propose the next."""
    if state.here is None:
        state = begun(state, reply.sums)
    sums = drawn_together(state, reply.sums)
    there, tau = evaluate(state, state.w, sums), fairness_of(state.method).tau
    if not np.isfinite(there.loss):
        raise SolverError(
            f"the fit diverged in round {reply.round}: the loss is {there.loss}; scale the features or raise ridge"
        )
    kept, damping = True, state.damping
    if state.here is not None and state.step is not None:
        before = state.here.merit(state.nu, tau)
        promised = before - state.step.merit
        ratio = (before - there.merit(state.nu, tau)) / max(promised, 1e-15)
        kept = ratio > 0.05 or promised < 1e-13
        damping = damping * (
            6.0 if not kept else 2.0 if ratio < 0.3 else 0.15 if ratio > 0.8 else 1.0
        )
    here = there if kept or state.here is None else state.here
    state = replace(state, here=here, damping=damping, round=reply.round)
    model = solve_model(state, here)
    decrement = here.merit(state.nu, tau) - model.merit
    entry = {
        "round": reply.round,
        "kept": kept,
        "loss": there.loss,
        "worst": there.worst,
        "decrement": decrement,
        "step": float(np.abs(model.p).max()),
        "cuts": len(model.cuts),
        "multiplier": model.multiplier,
        "damping": damping,
        "nu": state.nu,
        "accuracy": float(sums["correct"]) / state.n,
    }
    last = state.history[-1] if state.history else {"decrement": np.inf, "damping": np.inf}
    slow = decrement > 0.5 * last["decrement"] and damping >= last["damping"]
    still = entry["step"] < STILL * (1 + np.abs(here.w).max())
    slack = FEASIBLE if state.method.polish else 10 * FEASIBLE
    settled = here.worst < tau + slack and decrement < state.method.tolerance
    settled = settled and (still or slow or not state.method.polish)
    outcome = (
        "converged"
        if settled
        else "rounds"
        if reply.round >= state.method.max_rounds
        else "running"
    )
    nu = state.nu * (2.0 if model.multiplier > 0.8 * state.nu else 1.0)
    return replace(
        state,
        w=here.w if outcome != "running" else here.w + model.p,
        alpha=model.alpha,
        C=model.C,
        step=model,
        nu=nu,
        precision=float(np.clip(0.3 * decrement, 1e-6 if state.method.polish else 3e-5, 1e-3)),
        outcome=outcome,
        history=(*state.history, entry),
    )
