"""The solver of linear models whose limit holds for what is decided, not for a surrogate of it.

    min_w  Phi(w)   subject to   <C, psi_hat(w)> <= tau

for every cut C of the fairness adversary's set. psi_hat counts decisions and is a step function of w. The gradient of a
mean of steps is the density of scores at the threshold, and a sigmoid of temperature T estimates it with bandwidth T:
so T is a share of the standard deviation of the *present* scores, the cuts' values are those of the decisions, and
their gradients the sigmoid's. Otherwise model and merit are those of ``exact``. A fit begins at the optimum without a
limit, aims at a share of the present difference at a time, and no step moves scores by more than a share of their
deviation: further away the gradients say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from agnosticfair.mathematics.ambiguity import Outcome
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.mathematics.quadratic import minimise
from agnosticfair.methods import Fairness, Method
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import Request, Sums, Trials
from agnosticfair.server import adversaries, exact
from agnosticfair.server.plan import Beginning, Plan, Start

NEAR = 1e-2  # the limit is looked at once the loss promises less
SETTLED = 1e-4  # converged: a step from decisions within the limit promises less,
PATIENCE = 6  # or so many rounds bettered the best of them by less
MAX_REFUSED = 2  # refused steps that end the descent

WORTH = 2e-3  # by what a loss has to fall to be news among trials
STRICTER = 4.0  # how much more each round of trials weighs a violation, where none keeps the limit
RETREAT = 7  # rounds of these after which thresholds move towards a constant decision

WORSE = 5.0  # by what a refused step raises the damping
BETTER = 0.2  # by what a good one lowers it

MIN_DAMPING = 1e-5
MAX_NU = 64.0  # the largest weight of a violation
MAX_BYTES = 900_000
"""Of a reply with trials' decisions: with names and a signature it is under a megabyte."""
MAX_TRIALS = 96  # of a reply

FIRST_DAMPING = 1e-2
TOLERATED = 1.5e-3
"""Decisions are steps, and rows lie on the threshold: a limit kept to this is kept."""

ALONG = (0.3, 0.6, 1.0)
"""How far along each proposed step trials lie."""

JITTER = (0.01, 0.02, 0.04, 0.07, 0.11)
"""By which shares of their deviation scores are moved at random."""

SCALES = (1.0, 0.5, 0.25)
RETREATS = (0.15, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0)
"""Shares of the scores' deviation by which thresholds are moved where no decisions within the limit are known."""

TRIALS = tuple(product((0.2, 1.0, 5.0, 25.0), (0.0, 0.2, 0.4, 0.8)))
"""Steps are proposed with these times the damping, and aim at this share of tau under it."""

COOL = 0.6  # the share of the difference that a round aims at
FAR = 0.5  # the share of their deviation by which a round moves scores at most


@dataclass(frozen=True)
class LimitedState:
    """All of the solver between two rounds.

    game: both adversaries' sets and what is compared.  second_moments: X'X / n, (D, D), in which steps are measured.
    limited: whether the limit is looked at yet.  promised: by the step to w.  best: the answered w of least merit
    whose decisions keep the limit; ``since``: the rounds it stands.  trials: the weights (T, D) that the next
    request is about; tries: how many such rounds there were.  constant: the intercept of the best constant answer,
    where it is known.
    """

    game: adversaries.Game
    w: np.ndarray
    alpha: np.ndarray
    round: int = 0
    second_moments: np.ndarray | None = None
    limited: bool = False
    here: adversaries.Point | None = None
    step: adversaries.SolvedStep | None = None
    promised: float = 0.0
    best: adversaries.Point | None = None
    since: int = 0
    refused: int = 0
    damping: float = FIRST_DAMPING
    nu: float = 2.0
    trials: np.ndarray | None = None
    tries: int = 0
    constant: float | None = None
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

    def keeps(self, point: adversaries.Point) -> bool:
        """Whether the decisions there keep the limit."""
        return self.limited and self.over(point.worst) <= 0

    def merit(self, loss: float, worst: float) -> float:
        """What is minimised: the loss, and what a violation weighs."""
        return loss + (self.nu * self.over(worst) if self.limited else 0.0)


def deviation(second_moments: np.ndarray | None, w: np.ndarray) -> float:
    """The standard deviation of the scores x.w, from X'X / n, whose last column has the means."""
    if second_moments is None:
        return 0.0
    return float(np.sqrt(max(w @ second_moments @ w - (second_moments[-1] @ w) ** 2, 0.0)))


def suits(method: Method) -> bool:
    """Linear models with a limit on decisions, and not on a loss."""
    fairness = method.fairness
    return method.network is None and fairness is not None and fairness.measured.kind == "sigmoid"


def before(plan: Plan) -> Broadcast | None:
    """Nothing is asked before the first round."""


def init(plan: Plan, beginning: Beginning) -> LimitedState:
    """Before the first round, w = 0; or at the weights with which another fit ended."""
    game, start = adversaries.game(plan), beginning.start
    state = LimitedState(game, game.w, game.alpha)
    if start is None or start.second_moments is None:
        return state
    warm = exact.warm(game, start)
    return replace(
        state,
        game=warm,
        w=warm.w,
        alpha=warm.alpha,
        second_moments=start.second_moments,
        limited=True,
    )


def start_of(state: LimitedState) -> Start | None:
    """The weights that an ended fit is good for, and what says how far they are from others."""
    ended = replace(state.game, step=state.step, w=state.w, alpha=state.alpha, nu=state.nu)
    start = exact.start_of(ended)
    return None if start is None else replace(start, second_moments=state.second_moments)


def temperature(state: LimitedState) -> float:
    """T at the trial w: a share of the scores' deviation there."""
    return state.fairness.surrogate.temperature * deviation(state.second_moments, state.w) or 1.0


def request(state: LimitedState) -> Request:
    if state.trials is not None:
        return Trials(state.trials)
    game, here = state.game, state.here
    C = game.C if here is None else adversaries.for_clients(game.C, game, here.sums)
    measured = Surrogate("sigmoid", temperature(state))
    return Sums(measured, game.method.share, state.w, state.alpha, C)


def received(state: LimitedState, reply: Reply) -> dict[str, np.ndarray]:
    """The sums, with gradients once more as ``J_hat`` for decisions.

    What is decided does not change with the scale of w, as g(x.w / T(w)) does not with T a share of the scores'
    deviation: so each gradient J loses (J.w) grad T / T.
    """
    sums = dict(adversaries.drawn_together(state.game, reply.sums))
    std = deviation(state.second_moments, state.w)
    sums["J_hat"] = sums["J_g"]
    if std > 0:
        assert state.second_moments is not None
        means = state.second_moments[-1]
        away = (state.second_moments @ state.w - means * (means @ state.w)) / std**2
        sums["J_hat"] = sums["J_g"] - (sums["J_g"] @ state.w)[..., None] * away
    return sums


def begun(state: LimitedState, sums: Mapping[str, np.ndarray]) -> LimitedState:
    """What the first reply settles; at w = 0 every row's curvature is 1/4, so that H is X'X / 4."""
    state = replace(state, game=adversaries.begun(state.game, sums))
    if state.second_moments is None:
        positive = 0.5 - sums["J_1"][-1] / state.game.n
        constant = float(np.log(positive / (1 - positive))) if 0 < positive < 1 else None
        # categories make X'X singular, and rounding then gives it eigenvalues below 0
        values, vectors = np.linalg.eigh(4 * sums["H"] / state.game.n)
        second_moments = (vectors * np.maximum(values, 0.0)) @ vectors.T
        state = replace(state, second_moments=second_moments, constant=constant)
    return state


def step(state: LimitedState, reply: Reply) -> LimitedState:
    """One round: judge the trial w the clients answered for, then propose the next."""
    if state.trials is not None:
        return after_trials(replace(state, round=reply.round), reply)
    if state.here is None:
        state = begun(state, reply.sums)
    sums = received(state, reply)
    there = evaluate(state, sums)
    exact.check_finite(there.loss, reply.round)
    state, accepted = judged(replace(state, round=reply.round), there)
    here = state.here
    assert here is not None
    model = model_at(state, here)
    solved_step, damping = solved(state, model)
    promised = state.merit(here.loss, here.worst) - solved_step.merit
    if not state.limited and promised < NEAR and deviation(state.second_moments, here.w) > 0:
        state = replace(state, limited=True)
        here = evaluate(replace(state, w=here.w), here.sums)
        state = replace(state, here=here)
        model = model_at(state, here)
        solved_step, damping = solved(state, model)
        promised = state.merit(here.loss, here.worst) - solved_step.merit
    return proposed(replace(state, damping=damping), there, accepted, solved_step, promised, model)


def judged(state: LimitedState, there: adversaries.Point) -> tuple[LimitedState, bool]:
    """Whether the trial w is kept, how far the next step may go, and the best decisions within the limit so far."""
    accepted, damping, here, refused = True, state.damping, state.here, 0
    if here is not None and not state.tries:
        before, after = (state.merit(at.loss, at.worst) for at in (here, there))
        ratio = (before - after) / max(state.promised, 1e-12)
        accepted = ratio > 0.05 or state.promised < 1e-9
        if state.limited:
            damping *= _factor(accepted, ratio)
        else:  # a loss with an adversary of its own has kinks
            damping = max(FIRST_DAMPING, damping * BETTER) if accepted else damping * WORSE
        refused = 0 if accepted else state.refused + 1
        if refused > MAX_REFUSED:
            # among steps a smaller step tells nothing new: look around elsewhere
            accepted, damping, refused = True, 0.1, 0
    best, since = state.best, state.since + 1
    worth = WORTH if state.tries else SETTLED
    if state.keeps(there) and (best is None or there.loss < best.loss - worth):
        best, since = there, 0
    here = there if accepted or here is None else here
    damping = max(damping, MIN_DAMPING)
    return replace(
        state, here=here, damping=damping, best=best, since=since, refused=refused
    ), accepted


def _factor(accepted: bool, ratio: float) -> float:
    """What the damping is multiplied with.  ratio: of the merit gained to what was promised."""
    if not accepted:
        return WORSE
    if ratio < 0.3:
        return 3.0
    return 1.0 if ratio < 0.7 else BETTER


def after_trials(state: LimitedState, reply: Reply) -> LimitedState:
    """One round of trials: the best of them is asked for its gradients next, or the fit ends with the best so far."""
    game, here, W = state.game, state.here, state.trials
    assert here is not None
    assert W is not None
    assert state.step is not None
    every = [
        adversaries.drawn_together(game, of_trial(here.sums, reply.sums, t)) for t in range(len(W))
    ]
    losses = np.array([adversaries.loss_of(game, sums)[0] for sums in every])
    losses += (W * W) @ adversaries.ridge_of(game) / 2
    stricter = 1.0 if state.best is not None else STRICTER ** max(state.tries - 2, 0)
    t, worst = best_of(
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
    damping = state.damping * TRIALS[t % len(TRIALS)][0] * (1.0 if gain > 0 else 3.0)
    entry = round_entry(state, end, gain > 0, state.step, gain)
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
    state: LimitedState, model: QuadraticModel, solved_step: adversaries.SolvedStep
) -> np.ndarray:
    """Trials around here: along the steps of several models, beside these, and where nothing else helps retreats."""
    here, second_moments = model.here, state.second_moments
    assert second_moments is not None
    cuts = np.concatenate([solved_step.cuts, here.cuts])
    steps = []
    for times, lower in TRIALS:
        aimed = replace(model, aim=model.aim - lower * state.fairness.tau)
        programs = program(state, aimed, times * state.damping, solved_step.alphas, cuts)
        steps.append(minimise(*programs).x[: len(here.w)])
    std, maximum = deviation(second_moments, here.w), max_trials(state.game)
    along = [share * np.array(steps) for share in ALONG]
    trial_weights = here.w + np.concatenate(along)[:maximum]
    if state.best is None and state.tries >= RETREAT:
        back = retreats(here.w, std, state.constant)[:maximum]
        trial_weights = np.concatenate([trial_weights[: maximum - len(back)], back])
    return beside(trial_weights, second_moments, std, state.round, maximum)


def beside(
    trials: np.ndarray, second_moments: np.ndarray, deviation: float, seed: int, maximum: int
) -> np.ndarray:
    """The trials (T, D) and up to ``maximum`` in all, moved at random: scores by a share of their deviation, in the
    metric X'X / n."""
    D, more = len(second_moments), max(maximum - len(trials), 0)
    root = np.linalg.cholesky(second_moments + 1e-4 * np.eye(D))
    z = np.random.default_rng(seed).standard_normal((more, D))
    size = deviation * np.resize(JITTER, more) / np.sqrt(D)
    bases = trials[np.arange(more) % len(trials)]
    return np.concatenate([trials, bases + size[:, None] * np.linalg.solve(root.T, z.T).T])


def retreats(w: np.ndarray, deviation: float, constant: float | None) -> np.ndarray:
    """Trials (T, D) with the threshold moved towards a constant decision, which keeps every limit; the same
    decisions from smaller scores, which cost less; and that answer itself.

    constant: its intercept, so that thresholds move towards the commoner label; None where that is not known.
    """
    ways = (-1.0, 1.0) if constant is None else (float(np.sign(constant)) or -1.0,)
    shifts = deviation * np.outer(ways, RETREATS).ravel()
    moved = np.tile(w, (len(shifts), 1))
    moved[:, -1] += shifts
    thresholds = [scale * moved for scale in SCALES]
    if constant is not None:
        thresholds.append(np.append(np.zeros(len(w) - 1), constant)[None])
    return np.concatenate(thresholds)


def best_of(
    losses: np.ndarray,
    psi: np.ndarray,
    cuts: np.ndarray,
    merit: Callable[[float, float], float],
    search: Callable[[int], np.ndarray],
) -> tuple[int, float]:
    """The trial of least merit (of a loss and a worst difference), and the worst difference of its decisions.

    losses, psi: of every trial, (T,) and (T, G, F + 1).  cuts: known ones, (k, G, F + 1), what they show bounds each
    trial's merit from below.  ``search`` goes from a trial to its worst cuts; they bound the other trials, too, so
    that few are searched.
    """
    worst = _shown(cuts, psi)
    searched: set[int] = set()
    while True:
        t = int(np.argmin([merit(*pair) for pair in zip(losses, worst, strict=True)]))
        if t in searched:
            return t, float(worst[t])
        searched.add(t)
        worst = np.maximum(worst, _shown(search(t), psi))


def _shown(cuts: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """The largest value of the cuts in each trial, (T,), at least 0."""
    return np.einsum("kgm,tgm->tk", cuts, psi).max(axis=1, initial=0.0)


def of_trial(
    sums: Mapping[str, np.ndarray], reply: Mapping[str, np.ndarray], t: int
) -> dict[str, np.ndarray]:
    """What is known of one trial: its loss and decisions, with the masses, which no w changes."""
    masses = {name: sums[name] for name in ("psi_theta", "psi_theta_L")}
    return {**masses, **{name: value[t] for name, value in reply.items()}}


def max_trials(game: adversaries.Game) -> int:
    return max(1, min(MAX_TRIALS, MAX_BYTES // (8 * (game.C.size + len(game.alpha) + 1))))


def round_entry(
    state: LimitedState,
    of: adversaries.Point,
    accepted: bool,
    solved_step: adversaries.SolvedStep,
    promised: float,
) -> dict:
    game = replace(state.game, round=state.round, damping=state.damping, nu=state.nu)
    return exact.record(game, of, accepted, solved_step, promised)


def proposed(
    state: LimitedState,
    there: adversaries.Point,
    accepted: bool,
    solved_step: adversaries.SolvedStep,
    promised: float,
    model: QuadraticModel,
) -> LimitedState:
    game, here, best = state.game, state.here, state.best
    assert here is not None
    tolerance = max(SETTLED, game.method.tolerance)
    within = state.keeps(here) and model.aim <= state.fairness.tau
    outcome = "rounds" if state.round >= game.method.max_rounds else "running"
    still = promised < tolerance
    if solved_step.multiplier < 1e-9:  # nothing binds: a smooth optimum
        still &= bool(np.abs(solved_step.p).max() < exact.STILL * (1 + np.abs(here.w).max()))
    if (within and still) or (best is not None and state.since >= PATIENCE):
        outcome = "converged"
    if outcome != "running" and best is not None and (not within or best.loss < here.loss):
        here = best
    # the last entry is of what the fit ends with
    entry = round_entry(
        state, there if outcome == "running" else here, accepted, solved_step, promised
    )
    precision = float(np.clip(0.3 * promised, 3e-5, 1e-3))
    # many trials from the first step on that decisions refuse
    looks = outcome == "running" and state.limited and (state.tries > 0 or not accepted)
    return replace(
        state,
        trials=candidates(state, model, solved_step) if looks else None,
        game=replace(game, C=solved_step.C, precision=precision),
        here=here,
        w=here.w if outcome != "running" else here.w + solved_step.p,
        alpha=solved_step.alpha,
        step=solved_step,
        promised=promised,
        nu=min(
            state.nu * (2.0 if accepted and solved_step.multiplier > 0.8 * state.nu else 1.0),
            MAX_NU,
        ),
        outcome=outcome,
        history=(*state.history, entry),
    )


def cuts_at(
    state: LimitedState, psi: np.ndarray, sums: Mapping[str, np.ndarray], minimum: float
) -> np.ndarray:
    """Cuts (k, G, F + 1) of the fairness adversary that exceed ``minimum`` at psi."""
    cuts = adversaries.cuts_at(state.game, psi, sums)
    return cuts[np.einsum("kgm,gm->k", cuts, psi) > minimum]


def evaluate(state: LimitedState, sums: Mapping[str, np.ndarray]) -> adversaries.Point:
    """Loss, and the worst difference of decisions, over the whole of all sets."""
    game, w = state.game, state.w
    loss, alpha = adversaries.loss_of(game, sums)
    psi = sums["psi_hat"]
    tau = state.fairness.tau
    cuts = cuts_at(state, psi, sums, 0.25 * tau) if state.limited else np.zeros((0, *psi.shape))
    worst = float(np.einsum("kgm,gm->k", cuts, psi).max(initial=0.0))
    loss += float(adversaries.ridge_of(game) @ (w * w)) / 2
    return adversaries.Point(w, sums, loss, worst, alpha, cuts)


def worst_cases(state: LimitedState) -> tuple[float, float]:
    """The worst difference over the set, of the surrogate and of what is decided."""
    if state.here is None:
        return float("nan"), float("nan")
    sums = state.here.sums
    game = replace(state.game, here=state.here)
    cuts = cuts_at(state, sums["psi_g"], sums, -np.inf)
    return float(
        np.einsum("kgm,gm->k", cuts, sums["psi_g"]).max(initial=0.0)
    ), adversaries.worst_decisions(game)


@dataclass(frozen=True)
class QuadraticModel:
    """The quadratic model around an answered w: its curvature, and the difference that a step aims at."""

    here: adversaries.Point
    H: np.ndarray
    aim: float


def model_at(state: LimitedState, here: adversaries.Point) -> QuadraticModel:
    """Curvature of the Lagrangian, made positive semidefinite."""
    H = here.sums["H"] / state.game.n + np.diag(adversaries.ridge_of(state.game))
    return QuadraticModel(here, _convex(H), max(state.fairness.tau, COOL * here.worst))


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
        alphas = np.vstack([old.alphas, alphas]) if alphas.shape[1] > 1 else alphas
        cuts = np.concatenate([old.cuts, cuts])
    assert state.second_moments is not None
    std = deviation(state.second_moments, here.w)
    while True:
        step, alphas, cuts = _passes(state, model, damping, alphas, cuts)
        far = float(np.sqrt(step.p @ state.second_moments @ step.p)) / (FAR * std or np.inf)
        if far <= 1.0 or not state.limited or damping > 1e6:
            return step, damping
        damping *= max(2.0, 2 * far)


def _passes(
    state: LimitedState, model: QuadraticModel, damping: float, alphas: np.ndarray, cuts: np.ndarray
) -> tuple[adversaries.SolvedStep, np.ndarray, np.ndarray]:
    """A quadratic program in (p, t, xi), solved again until no worse cut is left at its own w + p."""
    here, game = model.here, state.game
    sums, D = here.sums, len(here.w)
    assert state.second_moments is not None
    psi = sums["psi_hat"]
    for left in reversed(range(exact.MAX_PASSES)):
        P, q, G, h = program(state, model, damping, alphas, cuts)
        solution = minimise(P, q, G, h, _without_cuts(len(alphas), len(cuts)))
        p, t, xi = solution.x[:D], solution.x[D], max(solution.x[D + 1], 0.0)
        if solution.outcome is not Outcome.OPTIMAL or not left:
            break
        moved = psi + sums["J_hat"] @ p
        over = model.aim + xi + max(0.3 * game.precision, 1e-6)
        fresh = cuts_at(state, moved, sums, over) if state.limited else cuts[:0]
        loss, alpha = adversaries.loss_of(game, sums, p)
        enough = loss <= t + 1e-3 * game.precision + 1e-9
        if enough and not len(fresh):
            break
        cuts = np.concatenate([cuts, fresh])
        alphas = alphas if enough else np.vstack([alphas, alpha])
    merit = exact.promised_merit(game, here, P[:D, :D], solution.x)
    merit += state.nu * state.over(model.aim + xi) * state.limited
    step = exact.solved_step(game, p, float(merit), solution, alphas, cuts)
    return step, alphas, cuts


def _without_cuts(losses: int, cuts: int) -> np.ndarray | None:
    """The rows that are active where there is one loss and no cut binds."""
    return np.array([True, *[False] * cuts, True]) if losses == 1 else None


def program(
    state: LimitedState, model: QuadraticModel, damping: float, alphas: np.ndarray, cuts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    D = len(model.here.w)
    assert state.second_moments is not None
    P = np.zeros((D + 2, D + 2))
    P[:D, :D] = model.H + damping * (state.second_moments + 1e-6 * np.eye(D))
    here = model.here
    limited = here.sums["psi_hat"], here.sums["J_hat"], model.aim
    q = np.concatenate([adversaries.ridge_of(state.game) * here.w, [1.0, state.nu]])
    return P, q, *exact.rows_of(state.game, here, alphas, cuts, limited)
