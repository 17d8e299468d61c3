"""The solver of linear models: a trust-region quadratic program whose cuts are found on the server.

    min_w  Phi(w) = (1 - share) L(w) + share max_{alpha in A_L} L(w, alpha) + ridge |w|^2 / 2
    subject to  <C, psi(w)> <= tau  for every cut C of the fairness adversary's set

Once per round the clients send value and gradient of every coefficient of alpha at one trial w (see ``client.sums``).
The server then knows a model of *every* alpha at once: psi(w + p) = psi + J p. It steps to the p that minimises the
model plus a curvature of the Lagrangian, adding the reweightings that are worst at w + p until none is left, and lets a
merit function, Phi + nu * violation, decide whether the step is kept.

A limit on losses is on psi_g, which is smooth. One on rates is on psi_hat, which counts *decisions*, a step function of
w. The gradient of a mean of steps is the density of scores at the threshold, and a sigmoid of temperature T estimates
it with bandwidth T: so T is a share of the standard deviation of the *present* scores, the cuts' values are those of
the decisions, and their gradients the sigmoid's. Such a fit begins at the optimum without a limit, aims at a share of
the present difference at a time, and no step moves scores by more than a share of their deviation: further away the
gradients say nothing. From the first step on that decisions refuse, every other round asks for values alone, of many
trial weights (``candidates``), and goes on from the best of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from agnosticfair.errors import SettingsError, SolverError, existing
from agnosticfair.mathematics.ambiguity import Outcome
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.mathematics.quadratic import Solution, minimise
from agnosticfair.methods import Method
from agnosticfair.protocol.messages import Reply
from agnosticfair.protocol.requests import Request, Sums, Trials
from agnosticfair.server import adversaries
from agnosticfair.server.adversaries import Game, Point
from agnosticfair.server.plan import Beginning, Plan, Start

MAX_PASSES = 12  # times the server looks for new cuts at one model before it takes the step it has

FEASIBLE = 1e-5  # a limit on losses kept to this is kept
TOLERATED = 1.5e-3  # one on decisions, which are steps, and rows lie on the threshold

STILL = 1e-6  # the share of the weights under which a step is none

NEAR = 1e-2  # a limit on decisions is looked at once the loss promises less
SETTLED = 1e-4  # converged: a step from decisions within the limit promises less,
PATIENCE = 6  # or so many rounds bettered the best of them by less
MAX_REFUSED = 2  # refused steps after which a smaller one tells nothing new, and the next is kept
COOL = 0.6  # the share of the difference that a round aims at
FAR = 0.5  # the share of their deviation by which a round moves scores at most

MIN_DAMPING = 1e-5
FIRST_DAMPING = 1e-2
MAX_NU = 64.0  # the largest weight of a violation

SMOOTH = (6.0, 2.0, 0.15, 0.8, 0.0)
"""What the damping is multiplied with after a step that was refused, one that kept less than 0.3 of its promise, and
one that kept more than the share that follows; the least damping."""
UNLIMITED = (5.0, 0.2, 0.2, 0.3, FIRST_DAMPING)  # of decisions before their limit is looked at
LIMITED = (5.0, 3.0, 0.2, 0.7, MIN_DAMPING)  # and after

WORTH = 2e-3  # by what a loss has to fall to be news among trials
STRICTER = 4.0  # how much more each round of trials weighs a violation, where none keeps the limit
RETREAT = 7  # rounds of these after which thresholds move towards a constant decision
MAX_BYTES = 900_000
"""Of a reply with trials' decisions: with names and a signature it is under a megabyte."""
MAX_TRIALS = 96  # of a reply

ALONG = (0.3, 0.6, 1.0)
"""How far along each proposed step trials lie."""

JITTER = (0.01, 0.02, 0.04, 0.07, 0.11)
"""By which shares of their deviation scores are moved at random."""

SCALES = (1.0, 0.5, 0.25)
RETREATS = (0.15, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0)
"""Shares of the scores' deviation by which thresholds are moved where no decisions within the limit are known."""

TRIALS = tuple(product((0.2, 1.0, 5.0, 25.0), (0.0, 0.2, 0.4, 0.8)))
"""Steps are proposed with these times the damping, and aim at this share of tau under it."""


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
class ExactState:
    """All of the solver between two rounds.

    second_moments: X'X / n, (D, D), in which decisions' steps are measured.  limited: whether the limit is looked at
    yet.  promised: by the step to w.  best: of the answered w whose decisions keep the limit the one of least loss;
    ``since``: the rounds it stands.  trials: the weights (T, D) that the next request is about; tries: how many such
    rounds there were.  constant: the intercept of the best constant answer, where it is known.
    """

    game: Game
    w: np.ndarray
    alpha: np.ndarray
    C: np.ndarray
    limited: bool
    damping: float
    second_moments: np.ndarray
    round: int = 0
    here: Point | None = None
    step: SolvedStep | None = None
    promised: float = np.inf
    best: Point | None = None
    since: int = 0
    refused: int = 0
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
    def decides(self) -> bool:
        """Whether the limit is on decisions."""
        return _decides(self.game.method)

    def over(self, worst: float) -> float:
        """How far a difference is over the limit, as the merit counts it."""
        slack = TOLERATED if self.decides else FEASIBLE
        return max(worst - self.game.fairness.tau - slack, 0.0) if self.limited else 0.0

    def keeps(self, point: Point) -> bool:
        """Whether the limit is looked at, and kept there."""
        return self.limited and not self.over(point.worst)

    def merit(self, loss: float, worst: float) -> float:
        """What is minimised: the loss, and what a violation weighs."""
        return loss + self.nu * self.over(worst)


def _decides(method: Method) -> bool:
    return method.fairness is not None and method.fairness.measured.kind == "sigmoid"


def suits(method: Method) -> bool:
    return method.network is None


def before(plan: Plan) -> None:
    """Nothing is asked before the first round."""


def init(plan: Plan, beginning: Beginning) -> ExactState:
    """Before the first round: w = 0, uniform weights, no cut; or where another fit ended."""
    (M, F), D, start = plan.kernels, plan.features + 1, beginning.start
    decides = _decides(plan.method)
    state = ExactState(
        adversaries.game(plan),
        w=np.zeros(D),
        alpha=np.full(M, 1.0 / M),
        C=np.zeros((plan.task.strata, F + 1)),
        limited=not decides,
        damping=FIRST_DAMPING if decides else 1e-3,
        second_moments=np.zeros((D, D)),
    )
    if start is None:
        return state
    ended = {name: getattr(start, name) for name in ("w", "alpha", "C", "second_moments")}
    if any(np.shape(ended[name]) != getattr(state, name).shape for name in ended):
        raise SettingsError(
            "the fit to begin from had other features, kernels or groups: begin anew"
        )
    return replace(state, **ended, limited=True)


def start_of(state: ExactState) -> Start | None:
    """The weights that an ended fit is good for, what held them, and what says how far they are from others."""
    return Start(state.w, state.alpha, state.C, state.second_moments)


def worst_cases(state: ExactState) -> tuple[float, float]:
    """The worst difference over the set, of what is limited and of decisions."""
    return adversaries.worst_cases(state.game, state.here)


def deviation(second_moments: np.ndarray, w: np.ndarray) -> float:
    """The standard deviation of the scores x.w, from X'X / n, whose last column has the means."""
    return float(np.sqrt(max(w @ second_moments @ w - (second_moments[-1] @ w) ** 2, 0.0)))


def request(state: ExactState) -> Request:
    if state.trials is not None:
        return Trials(state.trials)
    game, here, fairness = state.game, state.here, state.game.fairness
    C = state.C if here is None else adversaries.for_clients(state.C, game, here.sums)
    surrogate = fairness.measured
    if state.decides:
        T = fairness.surrogate.temperature * deviation(state.second_moments, state.w)
        surrogate = Surrogate("sigmoid", T or 1.0)
    return Sums(surrogate, game.method.share, state.w, state.alpha, C)


def received(state: ExactState, reply: Reply) -> dict[str, np.ndarray]:
    """The sums, with ``psi``, what the limit is on, and its gradients ``J``.

    What is decided does not change with the scale of w, as g(x.w / T(w)) does not with T a share of the scores'
    deviation: so each gradient of decisions loses (J.w) grad T / T.
    """
    sums = adversaries.drawn_together(state.game, reply.sums)
    if not state.decides:
        return {**sums, "psi": sums["psi_g"], "J": sums["J_g"]}
    J, std = sums["J_g"], deviation(state.second_moments, state.w)
    if std > 0:
        means = state.second_moments[-1]
        away = (state.second_moments @ state.w - means * (means @ state.w)) / std**2
        J = J - (J @ state.w)[..., None] * away
    return {**sums, "psi": sums["psi_hat"], "J": J}


def begun(state: ExactState, reply: Reply) -> ExactState:
    """What the first reply settles; at w = 0 every row's curvature is 1/4, so that H is X'X / 4."""
    sums, state = reply.sums, replace(state, game=adversaries.begun(state.game, reply.sums))
    if state.second_moments.any():
        return state
    positive = 0.5 - sums["J_1"][-1] / state.game.n
    constant = float(np.log(positive / (1 - positive))) if 0 < positive < 1 else None
    # categories make X'X singular, and rounding then gives it eigenvalues below 0
    values, vectors = np.linalg.eigh(4 * sums["H"] / state.game.n)
    second_moments = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return replace(state, second_moments=second_moments, constant=constant)


def step(state: ExactState, reply: Reply) -> ExactState:
    """One round: judge the trial w the clients answered for, then propose the next."""
    if state.trials is not None:
        return after_trials(replace(state, round=reply.round, trials=None), state.trials, reply)
    if state.here is None:
        state = begun(state, reply)
    there = evaluate(state, state.w, received(state, reply))
    if not np.isfinite(there.loss):
        raise SolverError(
            f"the fit diverged in round {reply.round}: the loss is {there.loss}; scale the features or raise ridge"
        )
    state, here, accepted = judged(replace(state, round=reply.round), there)
    state, solved_step = solved(replace(state, here=here), here)
    promised = state.merit(here.loss, here.worst) - solved_step.merit
    if not state.limited and promised < NEAR and deviation(state.second_moments, here.w) > 0:
        state = replace(state, limited=True)
        here = evaluate(state, here.w, here.sums)
        state, solved_step = solved(replace(state, here=here), here)
        promised = state.merit(here.loss, here.worst) - solved_step.merit
    return proposed(state, there, accepted, solved_step, promised)


def evaluate(state: ExactState, w: np.ndarray, sums: adversaries.Sums) -> Point:
    """Loss, and the worst difference where the limit is looked at."""
    game, penalty = state.game, float(state.game.ridge @ (w * w)) / 2
    return adversaries.evaluate(game, w, sums, sums["psi"], penalty, state.limited)


def judged(state: ExactState, there: Point) -> tuple[ExactState, Point, bool]:
    """Where the next step begins, and whether that is the trial w: the merit must fall by a part of what the model
    promised, and the damping follows how well it kept its promise. And the best decisions so far."""
    accepted, here, refused, damping = True, state.here, 0, state.damping
    if here is not None and not state.tries:
        before, after = (state.merit(at.loss, at.worst) for at in (here, there))
        ratio = (before - after) / max(state.promised, 1e-15)
        accepted = ratio > 0.05 or state.promised < (1e-9 if state.decides else 1e-13)
        factors = SMOOTH if not state.decides else LIMITED if state.limited else UNLIMITED
        worse, slow, better, well, minimum = factors
        factor = slow if ratio < 0.3 else better if ratio > well else 1.0
        damping = max(damping * (factor if accepted else worse), minimum)
        refused = 0 if accepted else state.refused + 1
        if state.decides and refused > MAX_REFUSED:
            accepted, damping, refused = True, 0.1, 0
    best, since = state.best, state.since + 1
    worth = WORTH if state.tries else SETTLED
    if state.decides and state.keeps(there) and (best is None or there.loss < best.loss - worth):
        best, since = there, 0
    here = there if accepted or here is None else here
    return replace(state, damping=damping, best=best, since=since, refused=refused), here, accepted


def solved(state: ExactState, here: Point) -> tuple[ExactState, SolvedStep]:
    """The best step, with all its worst cuts; its damping is raised until decisions' scores move no further than
    their gradients tell."""
    old, M = state.step, state.second_moments
    alphas, cuts = here.alpha[None], here.cuts
    if old is not None and state.limited:
        several = alphas.shape[1] > 1 or not state.decides
        alphas = np.vstack([old.alphas, alphas]) if several else alphas
        cuts = np.concatenate([old.cuts, cuts])
    room = FAR * deviation(M, here.w) if state.decides and state.limited else np.inf
    while True:
        P = curvature(state, here)
        solved_step, alphas, cuts = _passes(state, here, P, alphas, cuts)
        far = float(np.sqrt(max(solved_step.p @ M @ solved_step.p, 0.0))) / (room or np.inf)
        if far <= 1.0 or state.damping > 1e6:
            return state, solved_step
        state = replace(state, damping=state.damping * max(2.0, 2 * far))


def curvature(state: ExactState, here: Point, times: float = 1.0) -> np.ndarray:
    """The Lagrangian's Hessian, made positive definite, with so many times the damping; decisions are damped in their
    scores."""
    H = here.sums["H"] / state.game.n + np.diag(state.game.ridge)
    H, D, damping = (H + H.T) / 2, len(here.w), times * state.damping
    if state.decides:
        try:
            np.linalg.cholesky(H - 1e-8 * np.eye(D))
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh(H)
            H = (vectors * np.maximum(values, 1e-8)) @ vectors.T
        return H + damping * (state.second_moments + 1e-6 * np.eye(D))
    values, vectors = np.linalg.eigh(H)
    minimum = max(1e-3 * state.game.method.ridge, 1e-9)
    return (vectors * (np.maximum(values, minimum) + damping)) @ vectors.T


def aim_of(state: ExactState, here: Point) -> float:
    """The difference that a step from here aims at."""
    tau = state.game.fairness.tau
    return max(tau, COOL * here.worst) if state.decides else tau


def _passes(
    state: ExactState, here: Point, P: np.ndarray, alphas: np.ndarray, cuts: np.ndarray
) -> tuple[SolvedStep, np.ndarray, np.ndarray]:
    """A quadratic program in (p, t, xi), solved again until no worse cut is left at its own w + p."""
    game, sums, D, aim = state.game, here.sums, len(here.w), aim_of(state, here)
    for left in reversed(range(MAX_PASSES)):
        # of one loss, the rows that are active where no cut binds
        guess = np.array([True, *[False] * len(cuts), True]) if len(alphas) == 1 else None
        solution = minimise(*_program(state, here, P, alphas, cuts, aim), guess)
        p, t, xi = solution.x[:D], solution.x[D], max(solution.x[D + 1], 0.0)
        if solution.outcome is not Outcome.OPTIMAL or not left:
            break
        fresh = cuts[:0]
        if state.limited:
            over = aim + xi + 0.3 * game.precision
            fresh = adversaries.cuts_at(game, sums["psi"] + sums["J"] @ p, sums, over)
        loss, alpha = adversaries.loss_of(game, sums, p)
        enough = loss <= t + 1e-3 * game.precision + 1e-9
        if enough and not len(fresh):
            break
        cuts = np.concatenate([cuts, fresh])
        alphas = alphas if enough else np.vstack([alphas, alpha])
    merit = t + game.ridge @ (here.w * here.w) / 2 + (game.ridge * here.w) @ p + p @ P @ p / 2
    merit += state.nu * state.over(aim + xi)
    return _solved_step(game, p, float(merit), solution, alphas, cuts), alphas, cuts


def _program(
    state: ExactState,
    here: Point,
    P: np.ndarray,
    alphas: np.ndarray,
    cuts: np.ndarray,
    aim: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """P, q, G and h of the quadratic program in (p, t, xi): loss cuts, fairness cuts, xi >= 0."""
    game, sums, D, k = state.game, here.sums, len(here.w), len(alphas)
    share, whole = game.method.share, np.zeros((D + 2, D + 2))
    whole[:D, :D] = P
    q = np.concatenate([game.ridge * here.w, [1.0, state.nu]])
    G, h = np.zeros((k + len(cuts) + 1, D + 2)), np.zeros(k + len(cuts) + 1)
    G[:k, :D] = ((1 - share) * sums["J_1"] + share * alphas @ sums["J_L"]) / game.n
    G[:k, D] = -1.0
    h[:k] = -((1 - share) * sums["loss"] + share * alphas @ sums["psi_L"]) / game.n
    G[k:-1, :D] = np.einsum("kgm,gmd->kd", cuts, sums["J"])
    G[k:, D + 1] = -1.0
    h[k:-1] = aim - adversaries.values(cuts, sums["psi"])
    return whole, q, G, h


def _solved_step(
    game: Game,
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
        np.einsum("k,kgm->gm", of_fair, cuts) * game.n,
        alphas[of_loss > 1e-7],
        cuts[of_fair > 1e-7],
    )


def outcome_of(state: ExactState, within: bool, solved_step: SolvedStep, promised: float) -> str:
    """Converged: the limit is kept, the model promises next to nothing, and w is still, or what is promised no longer
    halves from round to round (a flat, curved valley), or it is decisions that hold it; or these get no better."""
    method, here = state.game.method, existing(state.here)
    tolerance = method.tolerance
    still = bool(np.abs(solved_step.p).max() < STILL * (1 + np.abs(here.w).max()))
    if state.decides:
        tolerance = max(SETTLED, tolerance)
        still |= solved_step.multiplier >= 1e-9
    else:
        last = state.history[-1]["damping"] if state.history else np.inf
        still |= promised > 0.5 * state.promised and state.damping >= last
    stands = state.best is not None and state.since >= PATIENCE
    if (within and still and promised < tolerance) or stands:
        return "converged"
    return "rounds" if state.round >= method.max_rounds else "running"


def proposed(
    state: ExactState, there: Point, accepted: bool, solved_step: SolvedStep, promised: float
) -> ExactState:
    """The next trial w, or the end, at the best decisions within the limit where there are any."""
    here, best = existing(state.here), state.best
    within = state.keeps(here) and aim_of(state, here) <= state.game.fairness.tau
    outcome = outcome_of(state, within, solved_step, promised)
    running = outcome == "running"
    if not running and best is not None and (not within or best.loss < here.loss):
        here = best
    # the last entry is of what the fit ends with
    entry = record(state, there if running else here, accepted, solved_step, promised)
    finest = 3e-5 if state.decides else 1e-6
    grows = accepted and solved_step.multiplier > 0.8 * state.nu
    # many trials from the first step on that decisions refuse
    looks = running and state.decides and state.limited and (state.tries > 0 or not accepted)
    return replace(
        state,
        game=replace(state.game, precision=float(np.clip(0.3 * promised, finest, 1e-3))),
        trials=candidates(state, here, solved_step) if looks else None,
        here=here,
        w=here.w + solved_step.p if running else here.w,
        alpha=solved_step.alpha,
        C=solved_step.C,
        step=solved_step,
        promised=promised,
        nu=min(state.nu * (2.0 if grows else 1.0), MAX_NU),
        outcome=outcome,
        history=(*state.history, entry),
    )


def record(
    state: ExactState, of: Point, accepted: bool, solved_step: SolvedStep, promised: float
) -> dict:
    """A round's record."""
    return {
        "round": state.round,
        "kept": bool(accepted),
        "loss": of.loss,
        "worst": of.worst,
        "decrement": promised,
        "step": float(np.abs(solved_step.p).max()),
        "cuts": len(solved_step.cuts),
        "multiplier": solved_step.multiplier,
        "damping": state.damping,
        "nu": state.nu,
        "accuracy": float(of.sums["correct"]) / state.game.n,
        **adversaries.positive_in(state.game, of.sums),
    }


def candidates(state: ExactState, here: Point, solved_step: SolvedStep) -> np.ndarray:
    """Trials (T, D) around here, as many as a reply has room for: along the steps of several models, and, where nothing
    else helps, retreats; the rest beside these, with scores moved at random by a share of their deviation."""
    M, D, aim = state.second_moments, len(here.w), aim_of(state, here)
    maximum = MAX_BYTES // (8 * (state.C.size + len(state.alpha) + 1))
    maximum = max(1, min(MAX_TRIALS, maximum))
    cuts, steps = np.concatenate([solved_step.cuts, here.cuts]), []
    for times, lower in TRIALS:
        aimed = aim - lower * state.game.fairness.tau
        P = curvature(state, here, times)
        steps.append(minimise(*_program(state, here, P, solved_step.alphas, cuts, aimed)).x[:D])
    along = [share * np.array(steps) for share in ALONG]
    trials, std = here.w + np.concatenate(along)[:maximum], deviation(M, here.w)
    if state.best is None and state.tries >= RETREAT:
        back = retreats(here.w, std, state.constant)[:maximum]
        trials = np.concatenate([trials[: maximum - len(back)], back])
    more = max(maximum - len(trials), 0)
    root = np.linalg.cholesky(M + 1e-4 * np.eye(D))
    z = np.random.default_rng(state.round).standard_normal((more, D))
    size = std * np.resize(JITTER, more) / np.sqrt(D)
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


def after_trials(state: ExactState, W: np.ndarray, reply: Reply) -> ExactState:
    """One round of trials: the best of them is asked for its gradients next, or the fit ends with the best so far."""
    game, here, solved_step = state.game, existing(state.here), state.step
    assert solved_step is not None
    masses = {name: here.sums[name] for name in ("psi_theta", "psi_theta_L")}
    every = [
        adversaries.drawn_together(game, masses | {k: v[t] for k, v in reply.sums.items()}) | masses
        for t in range(len(W))
    ]
    losses = np.array([adversaries.loss_of(game, sums)[0] for sums in every])
    losses += (W * W) @ game.ridge / 2
    stricter = 1.0 if state.best is not None else STRICTER ** max(state.tries - 2, 0)
    t, worst = best_of(
        losses,
        np.array([sums["psi_hat"] for sums in every]),
        np.concatenate([here.cuts, solved_step.cuts]),
        replace(state, nu=stricter * state.nu).merit,
        lambda t: adversaries.cuts_at(game, every[t]["psi_hat"], every[t], 0.0),
    )
    gain = state.merit(here.loss, here.worst) - state.merit(losses[t], worst)
    outcome = "rounds" if state.round >= game.method.max_rounds else "running"
    if state.best is not None and state.since + 1 >= PATIENCE:
        outcome = "converged"
    end = here if outcome == "running" else state.best or here
    damping = state.damping * TRIALS[t % len(TRIALS)][0] * (1.0 if gain > 0 else 3.0)
    entry = record(state, end, gain > 0, solved_step, gain)
    entry |= {"step": float(np.abs(W[t] - here.w).max())}
    if outcome == "running":  # what else is known is of another w
        entry = {k: v for k, v in entry.items() if k != "positive"}
        entry |= {"loss": float(losses[t]), "worst": worst}
    return replace(
        state,
        here=end,
        w=W[t] if outcome == "running" else end.w,
        tries=state.tries + 1,
        since=state.since + 1,
        damping=float(np.clip(damping, 1e-4, 1.0)),
        outcome=outcome,
        history=(*state.history, entry),
    )


def best_of(
    losses: np.ndarray,
    psi: np.ndarray,
    cuts: np.ndarray,
    merit: Callable[[float, float], float],
    search: Callable[[int], np.ndarray],
) -> tuple[int, float]:
    """The trial of least merit, a function of loss and worst difference, and the worst difference of its decisions.

    losses, psi: of every trial, (T,) and (T, G, F + 1).  cuts: known ones, (k, G, F + 1): what they show bounds each
    trial's merit from below.  search: from a trial to its worst cuts; they bound the others, too, so that few are
    searched.
    """

    def shown(cuts: np.ndarray) -> np.ndarray:
        return np.einsum("kgm,tgm->tk", cuts, psi).max(axis=1, initial=0.0)

    worst = shown(cuts)
    searched: set[int] = set()
    while True:
        t = int(np.argmin([merit(*pair) for pair in zip(losses, worst, strict=True)]))
        if t in searched:
            return t, float(worst[t])
        searched.add(t)
        worst = np.maximum(worst, shown(search(t)))
