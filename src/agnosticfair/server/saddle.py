"""The saddle-point solver, for any network: clients train on weighted rows, the server plays the adversaries.

    min_w  Phi(w) = (1 - share) L(w) + share max_{alpha in A_L} L(w, alpha) + ridge |w|^2 / 2
    subject to  <C, psi(w)> <= tau  for every cut C of the fairness adversary's set

as in the exact solver, whose sets, metrics and cuts these are. psi is of the decisions; the gradient
is the surrogate's. The server keeps a pool of cuts, worst ones of past rounds, each with a multiplier. In a round it

  * averages what the clients moved, w <- w + sum_k n_k (w_k - w) / n;
  * adds the cuts that are worst at w, by the exact oracle, to the pool;
  * raises the multipliers mu of broken cuts by a proximal step of the dual,
    mu <- argmax_{mu' >= 0} rho (v - tau).mu' - |mu' - mu|_Q^2 / 2,  v_p = <C_p, psi>,
    with Q_pq the inner product of the weights that two cuts give to the rows: cuts that are nearly the
    same share one multiplier instead of doubling it. Clients get a longer step, rho + LEAD: the
    multipliers lead where the constraint is on the move, which damps the play (an augmented Lagrangian);
  * moves alpha up the gradient of L and projects it to A_L.

The rate stays until the merit Phi + NU violation has not improved by ``tolerance`` for PATIENCE
rounds, or until SETTLING of the rounds are left; then it falls to LAST of itself over as many. The
steps of the multipliers grow as the rate falls, for a round's answer to them is the product of the two. A
network's play need not come to rest: the iterate of lowest merit is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from agnosticfair.errors import SettingsError, SolverError, existing
from agnosticfair.mathematics.ambiguity import Ambiguity
from agnosticfair.mathematics.quadratic import minimise
from agnosticfair.methods import Fairness, Method, Network
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import Moments, Trained, TrainNetwork
from agnosticfair.server import adversaries
from agnosticfair.server.plan import Beginning, Plan, Start

RHO = 2.0  # steps of the multipliers
LEAD = 4.0  # of what clients get beyond them
ASCENT = 2.0  # of the loss adversary

NU = 2.0
"""What a violation of one costs in the merit."""

PATIENCE = 30  # rounds without a better merit after which the rate falls
SETTLING = 0.75  # the share of the rounds after which it falls at the latest
LAST = 1 / 32  # the share of itself that it falls to
MEMORY = 0.9
"""Of the squared gradients, by which steps are scaled; larger ones count at once."""

BROKEN = 2e-3
"""By which tau may be missed by a fit that has converged."""


@dataclass(frozen=True)
class SaddleState:
    """All of the solver between two rounds. game: sets and metric as the exact solver has them.  w: what the clients
    are asked for next.  decay: (P,), ridge where it holds.  gram: of the kernels.  pool: (k, G, F + 1) cuts with
    multipliers mu, idle for so many rounds.  before: the last round's start, and the mean gradient there.  here: the
    best iterate so far, of least ``merit``.  improved, mark: the round that last improved the merit by tolerance, and
    to what."""

    game: adversaries.Game
    network: Network
    seed: int
    w: np.ndarray
    decay: np.ndarray
    gram: np.ndarray
    alpha: np.ndarray
    C: np.ndarray
    squares: np.ndarray
    pool: np.ndarray
    mu: np.ndarray
    idle: np.ndarray
    before: Trained | None = None
    here: adversaries.Point | None = None
    round: int = 0
    merit: float = np.inf
    mark: float = np.inf
    improved: int = 1
    settling: int | None = None
    outcome: str = "running"
    history: tuple[dict, ...] = field(default_factory=tuple)

    @property
    def method(self) -> Method:
        return self.game.method

    @property
    def under_floor(self) -> tuple[str, ...]:
        return self.game.under_floor

    @property
    def fairness(self) -> Fairness:
        return self.game.fairness


def suits(method: Method) -> bool:
    return method.network is not None


def before(plan: Plan) -> Broadcast:
    """Inputs are scaled by their moments; a network that cannot be built is refused first."""
    _initial(plan, 0)
    return Broadcast(0, plan.task, Moments())


def _initial(plan: Plan, seed: int) -> tuple[np.ndarray, np.ndarray]:
    from agnosticfair.networks import initial

    network = plan.method.network or Network()
    return initial(network.name, network.hidden, plan.features, seed)


def init(plan: Plan, beginning: Beginning) -> SaddleState:
    """Before the first round: weights as drawn, inputs centred and scaled, unit where they are constant, no cut yet."""
    if beginning.start is not None:
        raise SettingsError("a network begins at weights drawn by its seed: leave out start")
    moments, (w, pulled) = existing(beginning.answer).sums, _initial(plan, beginning.seed)
    x = moments["x"] / moments["mass"]
    deviation = np.sqrt(np.maximum(moments["x_squares"] / moments["mass"] - x * x, 0.0))
    w = np.concatenate([x, np.where(deviation > 1e-6, deviation, 1.0), w[2 * len(x) :]])
    (M, F), none = plan.kernels, np.zeros(0)
    C = np.zeros((plan.task.strata, F + 1))
    return SaddleState(
        adversaries.game(plan),
        plan.method.network or Network(),
        beginning.seed,
        w,
        decay=plan.method.ridge * pulled,
        gram=moments["gram"],
        alpha=np.full(M, 1.0 / M),
        C=C,
        squares=np.zeros_like(w),
        pool=np.zeros((0, *C.shape)),
        mu=none,
        idle=none,
    )


def worst_cases(state: SaddleState) -> tuple[float, float]:
    """Of the best iterate."""
    return adversaries.worst_cases(state.game, state.here)


def start_of(state: SaddleState) -> Start | None:
    """None: a network begins at weights drawn by its seed."""
    return None


def rate(state: SaddleState) -> float:
    """The rate of the next round's steps; 0 in the first, which only measures."""
    if state.round == 0:
        return 0.0
    if state.settling is None:
        return state.network.rate
    progress = (state.round - state.settling) / _settling_rounds(state)
    return state.network.rate * max(LAST, 1.0 - progress)


def _settling_rounds(state: SaddleState) -> int:
    return max(1, int(SETTLING * state.method.max_rounds))


def request(state: SaddleState) -> TrainNetwork:
    network = state.network
    # a weight whose gradients were tiny so far must not leap
    floor = 1e-2 * np.sqrt(state.squares.mean()) if state.round else 1.0
    return TrainNetwork(
        surrogate=state.fairness.measured,
        share=state.method.share,
        seed=state.seed,
        rate=rate(state),
        steps=network.steps,
        batch=network.batch,
        momentum=network.momentum,
        device=network.device,
        w=state.w,
        alpha=state.alpha,
        C=state.C,
        ridge=state.decay,
        scale=1.0 / (np.sqrt(state.squares) + floor + 1e-12),
        before=state.before,
    )


def constrained(state: SaddleState, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """psi, (G, F + 1): of what the constraint is about, decisions or losses."""
    return sums["psi_g" if state.fairness.measured.kind == "loss" else "psi_hat"]


def evaluate(state: SaddleState, sums: Mapping[str, np.ndarray]) -> adversaries.Point:
    """Phi and the worst difference at w over the whole of both sets, to the oracle's precision, with the
    worst cuts. A nominal cut counts in units of tau, as all do."""
    penalty = float(state.decay @ (state.w * state.w)) / 2
    return adversaries.evaluate(state.game, state.w, sums, constrained(state, sums), penalty)


def ascended(A: Ambiguity, alpha: np.ndarray, psi_L: np.ndarray, step: float) -> np.ndarray:
    """alpha + step psi_L / psi_theta, projected to A in the norm of psi_theta.

    >>> A = Ambiguity(np.array([1.0, 1.0]), 2.0, 1.5)
    >>> ascended(A, np.ones(2), np.array([0.0, 0.8]), 1.0).round(6)
    array([0.6, 1.4])
    """
    live = A.psi_theta > 0
    mean = np.divide(psi_L, A.psi_theta, out=np.zeros_like(psi_L), where=live)
    target, bound = alpha + step * mean, np.inf if A.bound is None else A.bound
    low, high = target.min() - A.n / A.psi_theta[live].min() - 1.0, target.max()
    for _ in range(200):
        nu = (low + high) / 2
        if np.clip(target - nu, 0.0, bound) @ A.psi_theta > A.n:
            low = nu
        else:
            high = nu
    return np.where(live, np.clip(target - high, 0.0, bound), 0.0)


def pooled(state: SaddleState, cuts: np.ndarray) -> SaddleState:
    """The pool with those of the cuts that it does not have."""
    size = np.abs(cuts).max(axis=(1, 2), initial=1e-300)
    new = [
        k
        for k, C in enumerate(cuts)
        if not len(state.pool) or np.abs(state.pool - C).max(axis=(1, 2)).min() > 1e-9 * size[k]
    ]
    none = np.zeros(len(new))
    return replace(
        state,
        pool=np.concatenate([state.pool, cuts[new]]),
        mu=np.concatenate([state.mu, none]),
        idle=np.concatenate([state.idle, none]),
    )


def multipliers(state: SaddleState, Q: np.ndarray, gap: np.ndarray, step: float) -> np.ndarray:
    """argmax_{mu' >= 0} step gap.mu' - |mu' - mu|_Q^2 / 2."""
    k = len(gap)
    if not k:
        return np.zeros(0)
    minimum = 1e-6 * np.trace(Q) / k
    solution = minimise(
        Q + minimum * np.eye(k), -(step * gap + Q @ state.mu), -np.eye(k), np.zeros(k)
    )
    return np.where(solution.x > 1e-4, solution.x, 0.0)


def products(pool: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Q / n: what a cut weighs the rows by is n K C[s]; Q is the mean over rows of the product of two.

    pool: (k, G, F + 1).  gram: (G, blocks, M + 1, M + 1), F = blocks M.
    """
    shape = (len(pool), *gram.shape[:3])
    cuts = np.broadcast_to(pool[:, :, None, -1:], shape).copy()
    cuts[..., :-1] = pool[..., :-1].reshape(*shape[:-1], shape[-1] - 1)
    return np.einsum("kgbm,gbml,qgbl->kq", cuts, gram, cuts, optimize=True)


def with_multipliers(state: SaddleState, sums: Mapping[str, np.ndarray]) -> SaddleState:
    """New multipliers, and with them C, the cuts' weighted sum, for the clients."""
    pool, game, k = state.pool, state.game, len(state.pool)
    gap = adversaries.values(pool, constrained(state, sums)) - state.fairness.tau
    client_cuts = adversaries.for_clients(pool, game, sums)
    Q = game.n * products(client_cuts, state.gram)
    gain = state.network.rate / (rate(state) or state.network.rate)
    lead, mu = (multipliers(state, Q, gap, gain * step) for step in (RHO + LEAD, RHO))
    idle = np.where((lead > 0) | (mu > 0), 0, state.idle + 1)
    C = np.einsum("k,kgm->gm", lead, client_cuts) if k else np.zeros_like(state.C)
    C = game.n * C
    keep = idle < 2
    return replace(state, pool=pool[keep], mu=mu[keep], idle=idle[keep], C=C)


def step(state: SaddleState, reply: Reply) -> SaddleState:
    """One round: judge w, move the adversaries, and w by what the clients moved."""
    sums = reply.sums
    if not state.round:
        state = replace(state, game=adversaries.begun(state.game, sums))
    sums = adversaries.drawn_together(state.game, sums)
    here = evaluate(state, sums)
    if not np.isfinite(here.loss) or not np.isfinite(sums["moved"]).all():
        raise SolverError(
            f"the fit diverged in round {reply.round}: the loss is {here.loss}; lower the network's rate, "
            f"which is {state.network.rate:g}"
        )
    merit, used = here.loss + NU * max(here.worst - state.fairness.tau, 0.0), rate(state)
    state = _judged(replace(state, round=reply.round), here, merit)
    gradient, squares = (sums[name] / sums["mass"] for name in ("gradient", "squares"))
    keep = MEMORY if reply.round > 1 else 0.0
    gradient_norm = float(np.linalg.norm(gradient + state.decay * state.w))
    entry = {"round": reply.round, "loss": here.loss, "worst": here.worst, "merit": merit}
    entry |= {
        "gradient": gradient_norm,
        "cuts": len(state.pool),
        "multiplier": float(state.mu.sum()),
    }
    entry |= {"rate": used, "accuracy": float(sums["correct"]) / state.game.n}
    entry |= adversaries.positive_in(state.game, sums)
    A = Ambiguity(sums["psi_theta_L"], state.game.n, state.method.bound)
    alpha = ascended(A, state.alpha, sums["psi_L"], ASCENT)
    new_cuts = here.cuts if reply.round > 1 else here.cuts[:0]
    moved = replace(
        state,
        w=state.w + sums["moved"] / sums["mass"],
        alpha=alpha,
        squares=np.maximum(squares, keep * state.squares + (1 - keep) * squares),
        before=Trained(state.w, state.alpha, state.C, gradient),
        history=(*state.history, entry),
    )
    return _ended(with_multipliers(pooled(moved, new_cuts), sums))


def _judged(state: SaddleState, here: adversaries.Point, merit: float) -> SaddleState:
    """Keep the best iterate, and begin to settle where none was better for long."""
    if merit < state.merit:
        state = replace(state, here=here)
    if merit < state.mark - state.method.tolerance:
        state = replace(state, improved=state.round, mark=merit)
    state = replace(state, merit=min(merit, state.merit))
    stale = state.round - state.improved >= PATIENCE
    last = state.round >= state.method.max_rounds - _settling_rounds(state)
    if state.settling is None and (stale or last):
        state = replace(state, settling=state.round)
    return state


def _ended(state: SaddleState) -> SaddleState:
    """Whether the rounds are over; if so, with the best iterate."""
    begun = state.settling
    over = begun is not None and state.round - begun >= _settling_rounds(state)
    if not over and state.round < state.method.max_rounds:
        return state
    best = existing(state.here)
    recent = np.array([[entry["loss"], entry["worst"]] for entry in state.history[-5:]])
    still = bool((np.ptp(recent, axis=0) < 10 * state.method.tolerance).all())
    # a network that hardly moves is still, too
    watched = state.round > PATIENCE and state.improved > 1
    within_tau = best.worst <= state.fairness.tau + BROKEN
    outcome = "converged" if over and still and watched and within_tau else "rounds"
    # the last entry is of what the fit ends with
    entry = {**state.history[-1], "loss": best.loss, "worst": best.worst, "merit": state.merit}
    entry["accuracy"] = float(best.sums["correct"]) / state.game.n
    entry |= adversaries.positive_in(state.game, best.sums)
    return replace(state, w=best.w, outcome=outcome, history=(*state.history[:-1], entry))
