"""The solver of linear models whose limit holds for what is decided, not for a surrogate of it.

    min_w  Phi(w) + price sum_m (|r_m(w)| - tau / 2)_+^2   subject to   <C, psi_hat(w)> <= tau

for every cut C of the fairness adversary's set. psi_hat counts decisions and is a step function of w. The slope of a
mean of steps is the density of scores at the threshold, and a sigmoid of temperature T estimates it with bandwidth T:
so T is a share of the standard deviation of the *present* scores, the cuts' values are those of the decisions, and
their slopes the sigmoid's. Otherwise model and merit are those of ``exact``. A fit begins at the optimum without a
limit, aims at a share of the present difference at a time, and no step moves scores by more than a share of their
deviation: further away the slopes say nothing. ``r_m`` is the difference in a named part, half of it the sigmoid's and
half the decisions': an adversary who spreads over parts at a quadratic price weighs each by
2 price (|r_m| - tau / 2)_+.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from agnosticfair.errors import SolverError
from agnosticfair.mathematics.ambiguity import Outcome
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.mathematics.notions import NOTIONS
from agnosticfair.mathematics.quadratic import minimise
from agnosticfair.methods import Fairness, Method
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import PartSums, Question, Sums
from agnosticfair.server import adversaries, exact
from agnosticfair.server.plan import Beginning, Plan, Start

TOLERATED = 1e-3
"""Decisions are steps, and rows lie on the threshold: a limit kept to this is kept."""

COOL, FAR = 0.6, 0.5
"""A round aims at this share of the difference, and moves scores by at most this share of their deviation."""

NEAR, SETTLED, PATIENCE, MOST_REFUSED = 1e-2, 1e-4, 6, 2
"""The limit is looked at once the loss promises less than NEAR. A fit has converged when a step from decisions
within the limit promises less than SETTLED, or when PATIENCE rounds bettered the best of them by less."""

WHOLE, USUAL_TAU, STEEP = 20.0, 0.05, 1.5
"""What an adversary who spreads charges for the squared difference among everybody, from 0 on. All prices are those
at USUAL_TAU, and grow as tau falls, by the power STEEP: one number goes from lax to strict."""

DECIDED = 0.5
"""The share of decisions, not of the sigmoid, in what is charged for. Where few features make few different scores, a
warm sigmoid sees no difference that decisions have; decisions alone hold for these rows and less for others."""

FIRST_DAMPING = 1e-2
LEAST_DAMPING, MOST_NU, MOST_BYTES, MOST_CUTS = 1e-5, 64.0, 900_000, 300
"""MOST_BYTES of slopes are asked for in a round, which bounds the working set; and MOST_CUTS go into a model."""


@dataclass(frozen=True)
class State:
    """All of the solver between two rounds.

    game: both adversaries' sets and what is compared.  metric: X'X / n, (D, D), in which steps are measured.
    limited: whether the limit is looked at yet.  frozen: the temperature from then on, where
    differences are charged for.  promised: by the step to w.  best: the answered w of least merit
    whose decisions keep the limit; ``since``: the rounds it stands.  slopes: the parts whose slopes are asked for,
    None for all.
    """

    game: adversaries.State
    w: np.ndarray
    alpha: np.ndarray
    round: int = 0
    metric: np.ndarray | None = None
    limited: bool = False
    frozen: float | None = None
    here: adversaries.Point | None = None
    step: adversaries.Step | None = None
    promised: float = 0.0
    best: adversaries.Point | None = None
    since: int = 0
    refused: int = 0
    damping: float = FIRST_DAMPING
    nu: float = 2.0
    slopes: np.ndarray | None = None
    outcome: str = "running"
    history: tuple[dict, ...] = field(default_factory=tuple)

    @property
    def under_floor(self) -> tuple[str, ...]:
        return self.game.under_floor

    @property
    def fairness(self) -> Fairness:
        assert self.game.method.fairness is not None
        return self.game.method.fairness

    def over(self, worst: float) -> float:
        """How far a difference is over the limit, as the merit counts it."""
        return max(worst - self.fairness.tau - TOLERATED, 0.0)

    def merit(self, point: adversaries.Point) -> float:
        return point.loss + (self.nu * self.over(point.worst) if self.limited else 0.0)


TYPES = (State,)


def suits(method: Method) -> bool:
    """Linear models with a limit on decisions, or on any notion over named parts."""
    fairness = method.fairness
    if method.network is not None or fairness is None:
        return False
    return fairness.measured.kind == "sigmoid" or fairness.basis.kind == "named"


def before(plan: Plan) -> Broadcast | None:
    """Nothing is asked before the first round."""


def init(plan: Plan, beginning: Beginning) -> State:
    """Before the first round, w = 0; or at the weights with which another fit ended."""
    game, start = adversaries.game(plan), beginning.start
    slopes = None if plan.task.named is None else np.zeros(0, int)
    state = State(game, game.w, game.alpha, slopes=slopes)
    if start is None or start.metric is None or state.fairness.spread is not None:
        return state
    warm = exact.warm(game, start)
    return replace(state, game=warm, w=warm.w, alpha=warm.alpha, metric=start.metric, limited=True)


def start_of(state: State) -> Start | None:
    """The weights that an ended fit is good for, and the metric of its features."""
    ended = replace(state.game, step=state.step, w=state.w, alpha=state.alpha, nu=state.nu)
    start = exact.start_of(ended)
    return None if start is None else replace(start, metric=state.metric)


def deviation(metric: np.ndarray | None, w: np.ndarray) -> float:
    """The standard deviation of the scores x.w, from X'X / n, whose last column has the means."""
    if metric is None:
        return 0.0
    return float(np.sqrt(max(w @ metric @ w - (metric[-1] @ w) ** 2, 0.0)))


def temperature(state: State) -> float:
    """T at the trial w: a share of the scores' deviation there. Where differences are charged for it stays what it
    was without a limit, so that one smooth problem is solved."""
    if state.frozen is not None:
        return state.frozen
    return state.fairness.surrogate.temperature * deviation(state.metric, state.w) or 1.0


def question(state: State) -> Question:
    """What the next round asks of every client."""
    game, here, measured = state.game, state.here, state.fairness.measured
    C = game.C if here is None else adversaries.for_clients(game.C, game, here.sums)
    if measured.kind == "sigmoid":
        measured = Surrogate("sigmoid", temperature(state))
    asked = Sums(measured, game.method.share, state.w, state.alpha, C)
    return (
        asked
        if state.slopes is None
        else PartSums(**vars(asked), slopes=state.slopes.astype(float))
    )


def received(state: State, reply: Reply) -> dict[str, np.ndarray]:
    """The sums, with slopes for all parts (0 where none were asked for), once more as ``J_hat`` for decisions.

    What is decided does not change with the scale of w, as g(x.w / T(w)) does not with T a share of the scores'
    deviation: so each slope J loses (J.w) grad T / T.
    """
    sums = dict(adversaries.drawn_together(state.game, reply.sums))
    if state.slopes is not None:
        G, F = sums["psi_g"].shape
        own = np.append(state.slopes, F - 1)
        J = np.zeros((G, F, len(state.w)))
        J[:, own] = sums["J_g"]
        sums["J_g"] = J
    std = deviation(state.metric, state.w)
    sums["J_hat"] = sums["J_g"]
    if state.fairness.measured.kind == "sigmoid" and std > 0:
        assert state.metric is not None
        means = state.metric[-1]
        away = (state.metric @ state.w - means * (means @ state.w)) / std**2
        sums["J_hat"] = sums["J_g"] - (sums["J_g"] @ state.w)[..., None] * away
    return sums


def decided(state: State, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """The sums that the limit is on: of decisions, or of the loss where that is bounded."""
    return sums["psi_hat" if state.fairness.measured.kind == "sigmoid" else "psi_g"]


def differences(state: State, psi: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Of every pair compared, in every kernel, (pairs, F + 1): -inf where a group is absent or under the floor.

    psi, theta: (G, F + 1), by cell.
    """
    parts, floor = state.game.compared.parts, state.fairness.floor
    mass = parts @ theta
    enough = mass >= np.maximum(floor * theta.sum(axis=0), 1e-9)
    rates = parts @ psi / np.where(enough, mass, 1.0)
    none = np.zeros((1, rates.shape[1]))
    rates, enough = np.vstack([rates, none]), np.vstack([enough, none == 0])
    j, k = _ends(state)
    return np.where(enough[j] & enough[k], rates[j] - rates[k], -np.inf)


def _ends(state: State) -> tuple[np.ndarray, np.ndarray]:
    """The pairs compared, as two arrays; a rate alone is compared with the last row, zero."""
    pairs = state.game.compared.pairs
    P = len(state.game.compared.parts)
    found = np.array([(j, P if k is None else k) for j, k in pairs], int).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def dense_cuts(state: State, chosen: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Cuts (k, G, F + 1) of the chosen (pair, kernel), (k, 2)."""
    parts, (j, k) = state.game.compared.parts, _ends(state)
    mass = parts @ theta
    cuts = np.zeros((len(chosen), *theta.shape))
    for row, (pair, m) in enumerate(chosen):
        cuts[row, :, m] = parts[j[pair]] / mass[j[pair], m]
        if k[pair] < len(parts):
            cuts[row, :, m] -= parts[k[pair]] / mass[k[pair], m]
    return cuts


def limited_columns(state: State, F: int) -> np.ndarray:
    """The kernels, of F + 1, in which the limit holds one by one: all parts and everybody; everybody alone under an
    adversary who spreads."""
    fairness = state.fairness
    if fairness.basis.kind != "named":
        return np.arange(F)
    return np.array([F]) if fairness.spread is not None else np.arange(F + 1)


def cuts_at(
    state: State, psi: np.ndarray, sums: Mapping[str, np.ndarray], least: float
) -> np.ndarray:
    """Cuts (k, G, F + 1) of the fairness adversary that exceed ``least`` at psi, the worst ones first."""
    fairness, theta = state.fairness, sums["psi_theta"]
    mixed = not fairness.each and fairness.spread is None and fairness.basis.kind != "constant"
    by_client = fairness.basis.kind == "by_client"
    if mixed or by_client or np.isfinite(fairness.nominal):
        cuts = adversaries.cuts_at(state.game, psi, sums)
        values = np.einsum("kgm,gm->k", cuts, psi)
    else:
        columns = limited_columns(state, theta.shape[1] - 1)
        found = differences(state, psi, theta)[:, columns]
        chosen = np.argwhere(found > least)
        order = np.argsort(-found[found > least], kind="stable")[:MOST_CUTS]
        chosen = chosen[order]
        chosen[:, 1] = columns[chosen[:, 1]]
        return dense_cuts(state, chosen, theta)
    return cuts[values > least]


def charges(state: State, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The price of every part and, last, of everybody; and the difference from which on it is charged."""
    fairness = state.fairness
    tau, price = fairness.tau, fairness.spread or 0.0
    if NOTIONS[fairness.notion].bounds:  # a group's loss is no difference: charged over its limit
        return np.append(np.full(columns - 1, price), WHOLE), np.full(columns, tau)
    strict = (USUAL_TAU / tau) ** STEEP
    prices = np.append(np.full(columns - 1, price), WHOLE)
    return strict * prices, np.append(np.full(columns - 1, tau / 2), 0.0)


def charged(state: State, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """The sums (G, F + 1) whose differences are charged for."""
    return (1 - DECIDED) * sums["psi_g"] + DECIDED * decided(state, sums)


def penalty(
    state: State, sums: Mapping[str, np.ndarray]
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """What the adversary who spreads charges: value, gradient (D,), Gauss-Newton curvature (D, D) and the weights
    it puts on cells and parts (G, F + 1)."""
    D, theta = len(state.w), sums["psi_theta"]
    weights = np.zeros_like(theta)
    if state.fairness.spread is None or not state.limited:
        return 0.0, np.zeros(D), np.zeros((D, D)), weights
    prices, begin = charges(state, theta.shape[1])
    excess = np.maximum(differences(state, charged(state, sums), theta) - begin, 0.0)
    parts, (j, k) = state.game.compared.parts, _ends(state)
    mass = np.vstack([parts @ theta, np.ones(theta.shape[1])])
    of_parts = np.einsum("pg,gmd->pmd", parts, sums["J_g"])
    slopes = np.concatenate([of_parts, np.zeros((1, *of_parts.shape[1:]))])
    a, m = np.nonzero(excess)
    J = slopes[j[a], m] / mass[j[a], m, None] - slopes[k[a], m] / mass[k[a], m, None]
    own = 2 * prices[m] * excess[a, m]
    by_cell = np.vstack([parts, np.zeros(parts.shape[1])])
    shares = by_cell[j[a]] / mass[j[a], m, None] - by_cell[k[a]] / mass[k[a], m, None]
    np.add.at(weights.T, m, own[:, None] * shares)
    value = float((prices * excess**2).sum())
    return value, own @ J, (J * (2 * prices[m])[:, None]).T @ J, weights


def evaluate(state: State, sums: Mapping[str, np.ndarray]) -> adversaries.Point:
    """Loss with what the adversary charges, and the worst difference of decisions, over the whole of all sets."""
    game, w = state.game, state.w
    loss, alpha = adversaries.loss_of(game, sums)
    psi = decided(state, sums)
    tau = state.fairness.tau
    cuts = cuts_at(state, psi, sums, 0.25 * tau) if state.limited else np.zeros((0, *psi.shape))
    worst = float(np.einsum("kgm,gm->k", cuts, psi).max(initial=0.0))
    loss += float(adversaries.ridge_of(game) @ (w * w)) / 2 + penalty(state, sums)[0]
    return adversaries.Point(w, sums, loss, worst, alpha, cuts)


@dataclass(frozen=True)
class Model:
    """The quadratic model around an answered w: curvature P and slope q of what is not a cut of the loss."""

    here: adversaries.Point
    H: np.ndarray
    q: np.ndarray
    aim: float
    weights: np.ndarray


def model_at(state: State, here: adversaries.Point) -> Model:
    """Curvature of the Lagrangian, made positive semidefinite, and what the adversary charges."""
    game = state.game
    ridge = adversaries.ridge_of(game)
    _, slope, curve, weights = penalty(state, here.sums)
    H = here.sums["H"] / game.n + np.diag(ridge) + curve
    values, vectors = np.linalg.eigh((H + H.T) / 2)
    H = (vectors * np.maximum(values, 1e-8)) @ vectors.T
    aim = max(state.fairness.tau, COOL * here.worst)
    return Model(here, H, ridge * here.w + slope, aim, weights)


def solved(state: State, model: Model) -> tuple[adversaries.Step, float]:
    """The best step that moves no scores too far, with all its worst cuts, and its damping."""
    here, damping, old = model.here, state.damping, state.step
    alphas, cuts = here.alpha[None], here.cuts
    if old is not None and state.limited:
        alphas = np.vstack([old.alphas, alphas]) if state.game.method.q == 0 else alphas
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
    state: State, model: Model, damping: float, alphas: np.ndarray, cuts: np.ndarray
) -> tuple[adversaries.Step, np.ndarray, np.ndarray]:
    """A quadratic program in (p, t, xi), solved again until no worse cut is left at its own w + p."""
    here, game = model.here, state.game
    sums, D = here.sums, len(here.w)
    assert state.metric is not None
    P = np.zeros((D + 2, D + 2))
    P[:D, :D] = model.H + damping * (state.metric + 1e-6 * np.eye(D))
    q = np.concatenate([model.q, [1.0, state.nu]])
    psi = decided(state, sums)
    for left in reversed(range(exact.MOST_PASSES)):
        rows = _rows(state, model, alphas, cuts)
        solution = minimise(P, q, *rows)
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
    base = here.loss - _loss_at(state, here)
    merit = (
        t
        + base
        + model.q @ p
        + p @ P[:D, :D] @ p / 2
        + state.nu * state.over(model.aim + xi) * state.limited
    )
    C = np.einsum("k,kgm->gm", of_fair, cuts) + model.weights
    step = adversaries.Step(
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


def _loss_at(state: State, here: adversaries.Point) -> float:
    return adversaries.loss_of(state.game, here.sums)[0]


def _rows(
    state: State, model: Model, alphas: np.ndarray, cuts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """G and h of the program: loss cuts, fairness cuts, xi >= 0."""
    game, sums = state.game, model.here.sums
    D, k, m, share = len(state.w), len(alphas), len(cuts), game.method.share
    G, h = np.zeros((k + m + 1, D + 2)), np.zeros(k + m + 1)
    G[:k, :D] = ((1 - share) * sums["J_1"] + share * alphas @ sums["J_L"]) / game.n
    G[:k, D] = -1.0
    h[:k] = -((1 - share) * sums["loss"] + share * alphas @ sums["psi_L"]) / game.n
    if game.method.q > 0:
        h[:k] = -_loss_at(state, model.here)
    G[k:-1, :D] = np.einsum("kgm,gmd->kd", cuts, sums["J_hat"])
    G[k:-1, D + 1] = -1.0
    h[k:-1] = model.aim - np.einsum("kgm,gm->k", cuts, decided(state, sums))
    G[-1, D + 1] = -1.0
    return G, h


def working_set(state: State, here: adversaries.Point, p: np.ndarray) -> np.ndarray | None:
    """The named parts whose slopes the next question asks for: the worst ones at w + p, as far as is known."""
    if state.slopes is None:
        return None
    sums, fairness, D = here.sums, state.fairness, len(state.w)
    G = len(sums["psi_g"])
    spreads = fairness.spread is not None
    psi = charged(state, sums) if spreads else decided(state, sums)
    slope = sums["J_g" if spreads else "J_hat"]
    now, then = (
        differences(state, v, sums["psi_theta"])[:, :-1].max(axis=0) for v in (psi, psi + slope @ p)
    )
    worst = np.maximum(now, then)
    most = max(1, MOST_BYTES // (8 * G * D))
    order = np.argsort(-worst, kind="stable")[:most]
    mixed = not fairness.each  # which part of a mixture will matter is not known
    begin = charges(state, len(worst) + 1)[1][0] if spreads else fairness.tau
    return np.sort(order if mixed else order[worst[order] > 0.9 * begin])


def begun(state: State, sums: Mapping[str, np.ndarray]) -> State:
    """What the first reply settles; at w = 0 every row's curvature is 1/4, so that H is X'X / 4."""
    state = replace(state, game=adversaries.begun(state.game, sums))
    if state.metric is None:
        state = replace(state, metric=4 * sums["H"] / state.game.n)
    return state


def step(state: State, reply: Reply) -> State:
    """One round: judge the trial w the clients answered for, then propose the next."""
    if state.here is None:
        state = begun(state, reply.sums)
    sums = received(state, reply)
    there = evaluate(state, sums)
    if not np.isfinite(there.loss):
        raise SolverError(
            f"the fit diverged in round {reply.round}: the loss is {there.loss}; scale the features or raise ridge"
        )
    state, kept = judged(replace(state, round=reply.round), there)
    here = state.here
    assert here is not None
    model = model_at(state, here)
    found, damping = solved(state, model)
    promised = state.merit(here) - found.merit
    if not state.limited and promised < NEAR and deviation(state.metric, here.w) > 0:
        frozen = (
            temperature(replace(state, w=here.w)) if state.fairness.spread is not None else None
        )
        state = replace(state, limited=True, frozen=frozen)
        here = evaluate(replace(state, w=here.w), here.sums)
        state = replace(state, here=here)
        model = model_at(state, here)
        found, damping = solved(state, model)
        promised = state.merit(here) - found.merit
    return proposed(replace(state, damping=damping), there, kept, found, promised, model.aim)


def judged(state: State, there: adversaries.Point) -> tuple[State, bool]:
    """Whether the trial w is kept, how far the next step may go, and the best decisions within the limit so far."""
    kept, damping, here, refused = True, state.damping, state.here, 0
    if here is not None:
        ratio = (state.merit(here) - state.merit(there)) / max(state.promised, 1e-12)
        kept = ratio > 0.05 or state.promised < 1e-9
        if state.limited:
            damping *= 5.0 if not kept else 3.0 if ratio < 0.3 else 1.0 if ratio < 0.7 else 0.2
        else:  # a loss with an adversary of its own has kinks
            damping = 5.0 * damping if not kept else max(FIRST_DAMPING, 0.2 * damping)
        refused = 0 if kept else state.refused + 1
        if (
            refused > MOST_REFUSED
        ):  # among steps a smaller step tells nothing new: look around elsewhere
            kept, damping, refused = True, 0.1, 0
    here = there if kept or here is None else here
    best, since = state.best, state.since + 1
    if (
        state.limited
        and state.over(here.worst) <= 0
        and (best is None or here.loss < best.loss - SETTLED)
    ):
        best, since = here, 0
    damping = max(damping, LEAST_DAMPING)
    return replace(state, here=here, damping=damping, best=best, since=since, refused=refused), kept


def proposed(
    state: State,
    there: adversaries.Point,
    kept: bool,
    found: adversaries.Step,
    promised: float,
    aim: float,
) -> State:
    """The next trial w, or the end."""
    game, here, best = state.game, state.here, state.best
    assert here is not None
    tolerance = max(SETTLED, game.method.tolerance)
    within = state.limited and state.over(here.worst) <= 0 and aim <= state.fairness.tau
    outcome = "rounds" if state.round >= game.method.max_rounds else "running"
    if (
        within and found.multiplier < 1e-9 and state.fairness.spread is None
    ):  # nothing binds: a smooth optimum
        within = np.abs(found.p).max() < exact.STILL * (1 + np.abs(here.w).max())
    if (within and promised < tolerance) or (best is not None and state.since >= PATIENCE):
        outcome = "converged"
    if outcome != "running" and best is not None and (not within or best.loss < here.loss):
        here = best
    said = there if outcome == "running" else here  # the last entry is of what the fit ends with
    entry = {
        "round": state.round,
        "kept": kept,
        "loss": said.loss,
        "worst": said.worst,
        "decrement": promised,
        "step": float(np.abs(found.p).max()),
        "cuts": len(found.cuts),
        "multiplier": found.multiplier,
        "damping": state.damping,
        "nu": state.nu,
        "accuracy": float(said.sums["correct"]) / game.n,
    }
    precision = float(np.clip(0.3 * promised, 3e-5, 1e-3))
    return replace(
        state,
        game=replace(game, C=found.C, precision=precision),
        here=here,
        w=here.w if outcome != "running" else here.w + found.p,
        alpha=found.alpha,
        step=found,
        promised=promised,
        nu=min(state.nu * (2.0 if kept and found.multiplier > 0.8 * state.nu else 1.0), MOST_NU),
        slopes=working_set(state, here, found.p),
        outcome=outcome,
        history=(*state.history, entry),
    )


def by_part(state: State) -> np.ndarray:
    """The largest difference of what is decided in every named part, (M,); -inf where nothing can be compared."""
    assert state.here is not None
    sums = state.here.sums
    return differences(state, decided(state, sums), sums["psi_theta"])[:, :-1].max(axis=0)


def worst_cases(state: State) -> tuple[float, float]:
    """The worst difference over the set, of the surrogate and of what is decided."""
    if state.here is None:
        return float("nan"), float("nan")
    sums, fairness = state.here.sums, state.fairness
    if fairness.basis.kind == "named" and fairness.each:
        every = (
            differences(state, psi, sums["psi_theta"])
            for psi in (sums["psi_g"], decided(state, sums))
        )
        surrogate, decisions = (float(found.max(initial=0.0)) for found in every)
        return surrogate, decisions
    game = replace(state.game, here=state.here)
    cuts = cuts_at(state, sums["psi_g"], sums, -np.inf)
    return float(
        np.einsum("kgm,gm->k", cuts, sums["psi_g"]).max(initial=0.0)
    ), adversaries.worst_decisions(game)
