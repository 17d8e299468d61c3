"""The rule's convex program: most utility under a limit on the groups' difference in every subgroup.

    max_d  E[d c]   subject to   |r_e(d)| <= tau_e,   r_e(d) = E[d b_k pi_j] / E[b_k pi_j] - E[d b_k pi_l] / E[b_k pi_l]

with one constraint e for a weight function b_k and two compared groups j, other; and low <= E[d] <= high if asked for.
Decisions d(x) in [0, 1] enter linearly, so its dual is convex in one multiplier per constraint:

    min_x  E[eps softplus(score / eps)] + sum_e tau_e |x_e|,   score = c - nu - sum_e x_e u_e,

smoothed by eps, which goes down a path; u_e = b_k (pi_j / N_kj - pi_l / N_kl).  Differences within the limits may be
charged, sum_e r_e^2 / (2 C_e): then tau_e |x_e| becomes Huber's penalty, C_e x_e^2 / 2 near 0 and of gradient tau_e
beyond.  The multiplier nu of the positive rate is the last coordinate.  ``request`` says what is evaluated next and
``step`` takes the sums (``scores.evaluate``), wherever the rows lie: a proximal Newton step on the active multipliers,
and several step lengths in one request where the full one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.ambiguity import Ambiguity, check
from agnosticfair.mathematics.fairness import shrunk, worst_pair, worst_rate_cuts
from agnosticfair.mathematics.lasso import huber_step, kinked, residual
from agnosticfair.mathematics.multipliers import (
    At,
    Coordinates,
    Mixtures,
    RateLimits,
    coordinates,
    objective,
    unsettled,
)
from agnosticfair.mathematics.scores import Points

LOOSE, SHORTER, ARMIJO, MAX_REFUSED = 2e-2, (0.5, 0.25, 0.1, 0.03), 1e-4, 5
"""Levels of the path before the last end at differences within LOOSE of the optimum's.  A refused step is tried again
at SHORTER lengths, in one request; after MAX_REFUSED of these a level ends."""

MAX_ACTIVE, MAX_NUMBERS, NEAR, BESIDE = 450, 115_000, 0.9, (50, 0.2)
"""The Hessian has at most MAX_ACTIVE directions, and fewer where a reply would have more than MAX_NUMBERS, so that a
message stays under a megabyte; they are the support and what is at least NEAR times the limit, of which no more than
BESIDE, a number and a share of the support."""

MAX_LOOKS, CANDIDATES, MIN_PENALTY = 1, 12, 1e-3
"""Requests for hard decisions around the optimum, where rows tie at the threshold, and how many decisions each has;
and what exceeding a limit costs at least, beside its multiplier."""

COARSE, FURTHER = 0.02, 6
"""Smoothing and rounds of a program that says what other limits would cost."""

FIRST_DAMPING, MIN_DAMPING, WARM = 1e-3, 1e-4, 3
"""Of the model's diagonal at its largest.  A program that begins where another ended has the last WARM levels."""


@dataclass(frozen=True)
class StepModel:
    """The Hessian on some coordinates, (a,) and (a, a), and the most that its diagonal can be, (E + 1,)."""

    on: np.ndarray
    H: np.ndarray
    diagonal: np.ndarray


def model_of(at: Coordinates, on: np.ndarray, eps: float, n: float, sums: Mapping) -> StepModel:
    """What a reply says of the Hessian at its first point."""
    H = np.zeros((len(on), len(on)))
    H[np.triu_indices(len(on))] = sums["hessian"]
    H += np.triu(H, 1).T
    traced = at.scales(on)
    factor, E = 1.0 / (4 * eps * n), len(at.k)
    diagonal = np.full(at.size, 1.0 / (4 * eps))
    diagonal[:E] *= 1.0 / at.mass[at.k, at.j] + 1.0 / at.mass[at.k, at.other]
    R = at.rates
    diagonal[E:R] *= 2.0 / at.scales(np.arange(E, R))
    if at.worst is not None:
        diagonal[R:-1] *= (at.worst.share * max(at.worst.error_costs)) ** 2 / at.members
    # the rows drawn for the Hessian stand for all, whose curvature is known
    stands = float(sums["curvature"]) / max(float(sums["drawn"]), 1e-9)
    return StepModel(on, H * (stands * factor) / traced[:, None] / traced, diagonal)


def solve(at: Coordinates, here: At, model: StepModel, damping: float) -> tuple[np.ndarray, float]:
    """The step of the model from here, and what it promises (negative)."""
    x, g = here.x, here.gradient
    which, a = model.on, len(model.on)
    H, diagonal = model.H.copy(), np.diag(model.H) + damping * model.diagonal[which]
    diagonal += 1e-9 + 1e-4 * np.trace(model.H) / max(a, 1)
    np.fill_diagonal(H, diagonal)
    p = np.zeros(at.size)
    of_worst = (which >= at.rates) & (which < at.size - 1)
    penalty = at.up[which], at.down[which], at.curvature[which]
    p[which] = huber_step(H, g[which], x[which], *penalty, of_worst) - x[which]
    return p, certified_limit(at, here, p)


def certified_limit(at: Coordinates, here: At, p: np.ndarray) -> float:
    """First-order change of the objective along p."""
    return float(here.gradient @ p + at.penalty(here.x + p) - at.penalty(here.x))


@dataclass(frozen=True)
class State:
    """The program between two replies.

    stage: 'start', 'newton' (one point and its Hessian), 'search' (shorter steps), 'look' (hard decisions), 'done'.
    level: of the path.  trial: the multipliers of the points that are evaluated, (T, E + 1), on: the Hessian's
    coordinates.  base: what the objective must fall from; None where eps has changed.  learner_point, hard: the
    learner's own rule and this one, as they decide.  bound: the lowest seen on the utility of any rule.
    """

    limits: RateLimits
    n: float
    groups: int
    stage: str = "start"
    round: int = 0
    level: int = 0
    at: Coordinates | None = None
    trial: np.ndarray = field(default_factory=lambda: np.zeros((1, 0)))
    on: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    base: At | None = None
    here: At | None = None
    model: StepModel | None = None
    promised: float = 0.0
    damping: float = FIRST_DAMPING
    refused: int = 0
    learner_point: At | None = None
    hard: At | None = None
    bound: float = np.inf
    looks: int = 0
    totals: np.ndarray = field(default_factory=lambda: np.zeros(3))
    members: np.ndarray = field(default_factory=lambda: np.zeros(0))
    start: np.ndarray | None = None

    @property
    def eps(self) -> float:
        return self.limits.path[self.level]


def init(limits: RateLimits, n: float, groups: int, start: np.ndarray | None = None) -> State:
    """Before the first request.  groups: P.  start: multipliers with which a similar program ended."""
    if limits.positive_rate is not None:
        low, high = limits.positive_rate
        if not 0 <= low <= high <= 1:
            raise SettingsError(
                f"positive_rate ({low:g}, {high:g}) leaves no rule: give a low and a high share, "
                "0 <= low <= high <= 1"
            )
    return State(limits, n, groups, start=start)


def request(state: State) -> Points:
    """What the next reply evaluates."""
    if state.at is None:
        A = np.zeros((2, len(state.limits.tau), state.groups))
        of_all = np.zeros((2, len(state.limits.tau)))
        of_all[:, -1] = 1.0
        W = None if state.limits.worst is None else of_all
        return Points(A, np.zeros(2), np.array([0.0, state.eps]), masses=True, W=W)
    at, eps = state.at, 0.0 if state.stage == "look" else state.eps
    A = np.array([at.coefficients(x) for x in state.trial])
    directions = None if state.stage == "look" else at.directions(state.on)
    W = None if at.worst is None else np.array([at.weights(x) for x in state.trial], float)
    return Points(A, state.trial[:, -1].copy(), np.full(len(A), eps), directions, W=W)


def step(state: State, sums: Mapping[str, np.ndarray]) -> State:
    """One round: from the sums over all rows to the next request, or the end."""
    state = replace(state, round=state.round + 1)
    if state.stage == "start":
        return _started(state, sums)
    if state.stage == "look":
        return _looked(state, sums)
    at = state.at
    assert at is not None
    points = [objective(at, state.n, x, state.eps, sums, t) for t, x in enumerate(state.trial)]
    best = int(np.argmin([point.value for point in points]))
    there, base = points[best], state.base
    if base is None or there.value <= base.value + ARMIJO * _length(state, best) * state.promised:
        model = model_of(at, state.on, state.eps, state.n, sums)
        easier = 0.3 if state.stage == "newton" else 3.0
        damping = max(MIN_DAMPING, state.damping * easier)
        state = replace(state, here=there, model=model, damping=damping, refused=0)
        return _advanced(state) if not best else _again(state)
    return _refused(state)


def _again(state: State) -> State:
    """The accepted point once more, for its Hessian."""
    at, here = state.at, state.here
    assert at is not None and here is not None  # noqa: PT018
    on = active(at, here.gradient, here.x)
    return replace(state, stage="newton", trial=here.x[None], on=on, base=None)


def _length(state: State, t: int) -> float:
    return SHORTER[t] if state.stage == "search" else 1.0


def _started(state: State, sums: Mapping[str, np.ndarray]) -> State:
    """The coordinates; and the learner's own rule, with which the program ends where it keeps everything."""
    n, limits = state.n, state.limits
    at = coordinates(sums, n, limits)
    zero = at.zero()
    at_learner = objective(at, n, zero, 0.0, sums, 0)
    here = objective(at, n, zero, state.eps, sums, 1)
    state = replace(
        state,
        at=at,
        learner_point=at_learner,
        here=here,
        totals=sums["totals"] / n,
        members=sums["members"],
    )
    if limits.mixtures is not None:
        check(Ambiguity(sums["members"][:-1] / n, 1.0, limits.mixtures.bound))
    keeps = (
        unsettled(replace(at, curvature=np.full(at.size, np.inf)), at_learner) <= limits.tolerance
    )
    if keeps and limits.mixtures is not None:
        keeps = not len(violated(at, limits.mixtures, at_learner, state.members, n, limits))
    if keeps:
        return replace(state, stage="done", hard=at_learner, bound=dual_bound(at, at_learner))
    warm = state.start is not None and len(state.start) == at.size
    x = state.start if state.start is not None and warm else zero
    level = max(0, len(limits.path) - WARM) if warm else 0
    on = active(at, here.gradient, x)
    return replace(state, stage="newton", level=level, trial=x[None], on=on)


def max_active(size: int) -> int:
    """How many directions a reply has room for, beside ``size`` numbers of every point.

    >>> max_active(1_000), max_active(20_000)
    (450, 263)
    """
    room = MAX_NUMBERS - size * len(lengths(size))
    return max(1, min(MAX_ACTIVE, int(np.sqrt(2 * max(room, 1))) - 1))


def lengths(size: int) -> tuple[float, ...]:
    """The shorter steps that one request tries, with ``size`` numbers of every point."""
    return SHORTER[: max(1, min(len(SHORTER), MAX_NUMBERS * 7 // 10 // size))]


def active(at: Coordinates, g: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The coordinates whose Hessian is worth its bytes: the support, then those nearest to their limit; where there is
    no room for all that move, those that are farthest from their optimum."""
    reach = np.where(g < 0, at.up, at.down)
    near = np.abs(g) / np.maximum(np.abs(reach), 1e-12)
    if at.worst is not None:
        losses = g[at.rates : -1]
        near[at.rates : -1] = losses / min(float(losses.min()), -1e-12)
    moving = (x != 0) | np.isfinite(at.curvature)
    near[moving] += 1e6
    left = residual(g, x, at.up, at.down, at.curvature)
    if (moving | (left > 0)).sum() > max_active(at.mass.size):
        near += 1e6 + 1e9 * np.minimum(left, 1.0)
    near[-1] = np.inf if np.isfinite(at.up[-1]) else 0.0
    support, (few, share) = int((near >= 1e6).sum()), BESIDE
    room = min(max_active(at.mass.size), support + few + int(share * support))
    order = np.argsort(-near, kind="stable")[:room]
    return at.ordered(np.sort(order[near[order] > NEAR]))


def _advanced(state: State) -> State:
    """A point is accepted: the next step, the next eps, or the last look."""
    at, limits, here, model = state.at, state.limits, state.here, state.model
    assert at is not None and here is not None and model is not None  # noqa: PT018
    last = state.level == len(limits.path) - 1
    left = unsettled(at, here)
    loose = limits.tolerance if last or limits.mixtures is not None else LOOSE
    spent = state.round >= limits.max_rounds - 1
    if limits.mixtures is not None and left <= loose and not spent:
        more = violated(at, limits.mixtures, here, state.members, state.n, limits)
        if len(more):
            return _joined(state, more)
    if spent or (last and left <= loose):
        return replace(state, stage="look", trial=here.x[None])
    p, promised = solve(at, here, model, state.damping)
    lower = not last and left <= loose
    return _tried(state, p, promised, lower)


def violated(
    at: Coordinates, mixtures: Mixtures, here: At, members: np.ndarray, n: float, limits: RateLimits
) -> np.ndarray:
    """Differences (m, K, P) of the mixtures that exceed their limit, the worst of each pair of groups first."""
    A, psi, theta, both = _mixing(at, mixtures, here, members / n, limits)
    target = mixtures.tau + limits.tolerance
    cuts = worst_rate_cuts(A, psi, theta, both, mixtures.floor, limits.tolerance / 2, target)
    over = np.einsum("cpk,pk->c", cuts, psi) > target
    cuts, p = cuts[over].transpose(0, 2, 1), members[:-1] / n
    overall = mixtures.trust * np.einsum("k,mkp->mp", p, cuts)[:, None]
    return np.concatenate([(1 - mixtures.trust) * cuts, overall], axis=1)


def _mixing(
    at: Coordinates, mixtures: Mixtures, here: At, members: np.ndarray, limits: RateLimits
) -> tuple[Ambiguity, np.ndarray, np.ndarray, list[tuple[int, int]]]:
    """The set of mixtures, what is decided and what there is of each group and weight function, and the pairs."""
    p, trust = members[:-1], mixtures.trust
    both = [pair for j, other in limits.pairs for pair in ((j, other), (other, j))]
    psi, theta = (shrunk(v, p, trust)[:, :-1] for v in (here.decided, at.mass.T))
    return Ambiguity(p, 1.0, mixtures.bound), psi, theta, both


def worst_mixture(state: State, here: At) -> float:
    """The largest difference of rates under any mixture; 0 where mixtures are not limited."""
    at, mixtures = state.at, state.limits.mixtures
    if mixtures is None:
        return 0.0
    assert at is not None
    mixing = _mixing(at, mixtures, here, state.members / state.n, state.limits)
    worst = worst_pair(*mixing, mixtures.floor)
    return 0.0 if worst is None else worst.worst.value


def _joined(state: State, more: np.ndarray) -> State:
    """Mixtures join the coordinates, and the present point is evaluated once more."""
    at, here, mixtures = state.at, state.here, state.limits.mixtures
    assert at is not None and here is not None and mixtures is not None  # noqa: PT018
    limits, R = np.full(len(more), mixtures.tau), at.rates
    up, down = (np.concatenate([v[:R], limits, v[R:]]) for v in (at.up, at.down))
    free = np.insert(at.curvature, R, np.full(len(more), np.inf))
    at = replace(at, up=up, down=down, curvature=free, mixed=np.concatenate([at.mixed, more]))
    x = np.concatenate([here.x[:R], np.zeros(len(more)), here.x[R:]])
    r = at.differences(here.decided)
    g = np.append(-r, here.gradient[R:])
    here = replace(here, x=x, gradient=g, differences=r)
    return _again(replace(state, at=at, here=here))


def _tried(state: State, p: np.ndarray, promised: float, lower: bool) -> State:
    """The full step next.  lower: at the next eps, where the objective has nothing to fall from."""
    at, here, model = state.at, state.here, state.model
    assert at is not None and here is not None and model is not None  # noqa: PT018
    g = here.gradient.copy()
    g[model.on] += model.H @ p[model.on]
    on = active(at, g, here.x + p)
    return replace(
        state,
        stage="newton",
        level=state.level + lower,
        trial=(here.x + p)[None],
        on=on,
        base=None if lower else here,
        promised=promised,
    )


def _refused(state: State) -> State:
    """Shorter steps in one request; then a more careful model; at last the next level."""
    at, limits, here, model = state.at, state.limits, state.here, state.model
    assert at is not None and here is not None and model is not None  # noqa: PT018
    if state.round >= limits.max_rounds - 1:
        return replace(state, stage="look", trial=here.x[None])
    if state.stage == "newton":
        p = state.trial[0] - here.x
        trial = np.array([here.x + a * p for a in lengths(at.mass.size)])
        return replace(state, stage="search", trial=trial)
    if state.refused >= MAX_REFUSED:
        last = state.level == len(limits.path) - 1
        if last:
            return replace(state, stage="look", trial=here.x[None])
        return _tried(replace(state, refused=0), np.zeros(at.size), 0.0, True)
    damping = max(10 * state.damping, 1e-3)
    p, promised = solve(at, here, model, damping)
    return _tried(replace(state, damping=damping, refused=state.refused + 1), p, promised, False)


def _looked(state: State, sums: Mapping[str, np.ndarray]) -> State:
    """Hard decisions: the best of the candidates, and others around it where a limit is exceeded."""
    at, limits = state.at, state.limits
    assert at is not None
    points = [objective(at, state.n, x, 0.0, sums, t) for t, x in enumerate(state.trial)]
    bound = min([state.bound, *(dual_bound(at, point) for point in points)])
    known = points if state.hard is None else [state.hard, *points]
    hard = known[int(np.argmin([merit(state, point) for point in known]))]
    state = replace(state, hard=hard, bound=bound, looks=state.looks + 1)
    over = np.abs(hard.differences) - at.up[: at.rates]
    if (
        over.max(initial=0.0) <= limits.tolerance
        or state.looks > MAX_LOOKS
        or state.round >= limits.max_rounds
    ):
        return replace(state, stage="done")
    return replace(state, trial=_candidates(state, hard))


def rescaled(state: State, scale: float) -> State:
    """A program with limits so many times as large, from where this one ended: some rounds that say what they would
    cost, at a coarser smoothing."""
    at, here, model, limits = state.at, state.here, state.model, state.limits
    assert at is not None and here is not None and model is not None  # noqa: PT018
    factor = np.where(np.arange(at.size) < at.rates, scale, 1.0)
    at = replace(at, up=at.up * factor, down=at.down * factor, curvature=at.curvature * factor**2)
    limits = replace(
        limits,
        tau=limits.tau * scale,
        path=(here.eps, max(COARSE, here.eps)),
        max_rounds=FURTHER,
        tolerance=LOOSE / 4,
    )
    then = State(
        limits,
        state.n,
        state.groups,
        at=at,
        here=here,
        model=model,
        learner_point=state.learner_point,
        totals=state.totals,
        members=state.members,
    )
    return _tried(then, *solve(at, here, model, FIRST_DAMPING), True)


def dual_bound(at: Coordinates, hard: At) -> float:
    """No rule that keeps the limits has more utility: the dual, not smoothed and without a charge, at a point."""
    return hard.smooth + kinked(hard.x, at.up, at.down)


def merit(state: State, hard: At) -> float:
    """Lost utility, what differences are charged, and what they exceed a limit by at more than twice its price."""
    at, here = state.at, state.here
    assert at is not None and here is not None  # noqa: PT018
    over = np.maximum(np.abs(hard.differences) - at.up[: at.rates], 0.0)
    outside = max(hard.positive - at.up[-1], -hard.positive - at.down[-1], 0.0)
    penalties = 2 * np.abs(here.x) + MIN_PENALTY
    lost = at.charged(hard.differences) - hard.utility
    return float(lost + penalties[: at.rates] @ over + (1.0 + penalties[-1]) * outside)


def _candidates(state: State, hard: At) -> np.ndarray:
    """Multipliers around hard decisions: along the step that their own differences ask for, and at random."""
    at, model = state.at, state.model
    assert at is not None and model is not None  # noqa: PT018
    g = np.concatenate([-hard.differences, hard.gradient[at.rates :]])
    p, _ = solve(at, replace(hard, gradient=g), model, FIRST_DAMPING)
    along = [hard.x + 0.5**k * p for k in range(CANDIDATES - 5)]
    rng = np.random.default_rng(state.round)
    beside = [hard.x * (1 + 0.01 * 0.5**k * rng.normal(size=at.size)) for k in range(5)]
    return np.array([at.feasible(x) for x in [*along, *beside][: candidates(at.mass.size)]])


def candidates(size: int) -> int:
    """How many hard decisions one request looks at, with ``size`` numbers of every point.

    >>> candidates(1_000), candidates(20_000)
    (12, 5)
    """
    return max(1, min(CANDIDATES, MAX_NUMBERS // size))
