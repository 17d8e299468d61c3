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
from itertools import pairwise
from math import inf, nan

import numpy as np

from agnosticfair.errors import SettingsError, existing
from agnosticfair.mathematics.ambiguity import Ambiguity, check
from agnosticfair.mathematics.fairness import shrunk, worst_pair, worst_rate_cuts
from agnosticfair.mathematics.multipliers import (
    At,
    Coordinates,
    Mixtures,
    RateLimits,
    coordinates,
    objective,
    unsettled,
)
from agnosticfair.mathematics.quadratic import huber_step, kinked, residual
from agnosticfair.mathematics.scores import Points

LOOSE = 2e-2  # levels of the path before the last end at differences so near to the optimum's,
ENOUGH = 3e-4  # or where a step promises less
SHORTER = (0.5, 0.25, 0.1, 0.03)  # lengths at which a refused step is tried again, in one request
ARMIJO = 1e-4  # the share of what a step promises that it must keep
MAX_REFUSED = 5  # refused steps that end a level

MAX_ACTIVE = 450  # directions of the Hessian: the support, and what is nearly at its limit
MAX_NUMBERS = 115_000
"""Of a reply, which stays under a megabyte: fewer directions, where it would have more."""
NEAR = 0.9  # the share of its limit from which on a difference is nearly at it
BESIDE = (50, 0.2)  # how many of these at most: a number, and a share of the support

GIVEN = 60
"""Weights that an adversary of utility gives to in a step, and as many that she takes from."""

MAX_LOOKS = 1  # requests for hard decisions around the optimum, where rows tie at the threshold
CANDIDATES = 12  # decisions of each
MIN_PENALTY = 1e-3  # what exceeding a limit costs at least, beside its multiplier

COARSE = 0.02  # the smoothing of a program that says what other limits would cost
FURTHER = 6  # its rounds

FIRST_DAMPING = 1e-3  # of the model's diagonal at its largest
MIN_DAMPING = 1e-4
WARM = 3  # levels of a program that begins where another ended


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
    at = existing(state.at)
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
    at, here = existing(state.at), existing(state.here)
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
    moving = (x != 0) | np.isfinite(at.curvature)
    near[moving] += 1e6
    left = residual(g, x, at.up, at.down, at.curvature)
    if (moving | (left > 0)).sum() > max_active(at.mass.size):
        near += 1e6 + 1e9 * np.minimum(left, 1.0)
    if (
        at.worst is not None
    ):  # an adversary takes from weights that gain her little, and gives to the largest losses
        gain, alpha = g[at.rates : -1], x[at.rates : -1]
        weights = np.full(len(alpha), 0.0)
        weights[np.argsort(alpha * (gain.min() - gain), kind="stable")[:GIVEN]] = np.inf
        weights[np.argsort(gain, kind="stable")[:GIVEN]] = np.inf
        near[at.rates : -1] = weights
    near[-1] = np.inf if np.isfinite(at.up[-1]) else 0.0
    support, (few, share) = int((near >= 1e6).sum()), BESIDE
    room = min(max_active(at.mass.size), support + few + int(share * support))
    order = np.argsort(-near, kind="stable")[:room]
    return at.ordered(np.sort(order[near[order] > NEAR]))


def _advanced(state: State) -> State:
    """A point is accepted: the next step, the next eps, or the last look."""
    at, limits, here, model = (
        existing(state.at),
        state.limits,
        existing(state.here),
        existing(state.model),
    )
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
    lower = not last and (left <= loose or (limits.mixtures is None and promised > -ENOUGH))
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
    mixtures = state.limits.mixtures
    if mixtures is None:
        return 0.0
    mixing = _mixing(existing(state.at), mixtures, here, state.members / state.n, state.limits)
    worst = worst_pair(*mixing, mixtures.floor)
    return 0.0 if worst is None else worst.worst.value


def _joined(state: State, more: np.ndarray) -> State:
    """Mixtures join the coordinates, and the present point is evaluated once more."""
    at, here, mixtures = existing(state.at), existing(state.here), existing(state.limits.mixtures)
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
    at, here, model = existing(state.at), existing(state.here), existing(state.model)
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
    at, limits, here, model = (
        existing(state.at),
        state.limits,
        existing(state.here),
        existing(state.model),
    )
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
    at, limits = existing(state.at), state.limits
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
    at, here, model, limits = (
        existing(state.at),
        existing(state.here),
        existing(state.model),
        state.limits,
    )
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
    at, here = existing(state.at), existing(state.here)
    over = np.maximum(np.abs(hard.differences) - at.up[: at.rates], 0.0)
    outside = max(hard.positive - at.up[-1], -hard.positive - at.down[-1], 0.0)
    penalties = 2 * np.abs(here.x) + MIN_PENALTY
    lost = at.charged(hard.differences) - hard.utility
    return float(lost + penalties[: at.rates] @ over + (1.0 + penalties[-1]) * outside)


def _candidates(state: State, hard: At) -> np.ndarray:
    """Multipliers around hard decisions: along the step that their own differences ask for, and at random."""
    at, model = existing(state.at), existing(state.model)
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


SHARES = (0.95, 0.8)
"""Of the utility gained over one answer: below these the price of the limit is stated."""


@dataclass(frozen=True)
class Optimum:
    """How good the rule is, in units of mean utility.

    constant: of the better of two constant answers
    bound: no rule that keeps the limits has more
    gap: no rule that differs nowhere more than this one, or than the limits, has more than ``utility + gap``, less
        what differences within the limits are charged
    spend: what those of this rule are charged
    excess, smoothed_excess: by how much the rule, and its smoothed form, are above a limit at most; negative below
        all
    people: that, times the expected people of the smaller group: few where the excess is one row's
    unchanged: the learner's own decisions keep all limits, and are the rule
    max_scale: limits so many times as large would bind nothing
    gradient: how fast ``bound`` grows with limits scaled by a number, at 1
    further: utilities of rules with limits so many times as large
    """

    utility: float
    learner_utility: float
    constant: float
    bound: float
    gap: float
    spend: float
    excess: float
    smoothed_excess: float
    people: float
    positive: float
    unchanged: bool
    max_scale: float
    gradient: float
    further: tuple[tuple[float, float], ...] = ()

    @property
    def retained(self) -> float:
        """The share of the learner's gain over one answer that is left; nan where it has none."""
        gained = self.learner_utility - self.constant
        return (self.utility - self.constant) / gained if gained > 1e-9 else nan


def optimum(state: State) -> Optimum:
    """The statement of a program that is done, or on its way; raises where its limits leave no rule."""
    at, learner_point = existing(state.at), existing(state.learner_point)
    hard = state.hard or learner_point
    x, r = hard.x, hard.differences
    R, reached = at.rates, np.full(at.size, nan)
    reached[:R] = np.abs(r)
    up, down = (np.fmax(limit, reached) for limit in (at.up, at.down))
    up[-1], down[-1] = max(at.up[-1], hard.positive), max(at.down[-1], -hard.positive)
    bound = min(state.bound, dual_bound(at, hard))
    if bound < lowest(state) - 1e-9:
        raise SettingsError("no rule keeps all limits at once: raise tau, or widen positive_rate")
    unchanged = bool((x == at.zero()).all())
    spend = 0.0 if unchanged else at.charged(r)
    finite = at.up[:R] > 0
    scales = np.abs(at.differences(learner_point.decided))[finite] / at.up[:R][finite]
    smoothed = hard if state.hard is None or state.here is None else state.here
    return Optimum(
        utility=hard.utility,
        learner_utility=learner_point.utility,
        constant=constant(state),
        bound=bound,
        gap=max(hard.smooth + kinked(x, up, down, at.curvature) + spend - hard.utility, 0.0),
        spend=spend,
        excess=excess(state, hard),
        smoothed_excess=excess(state, smoothed),
        people=people(state, hard),
        positive=hard.positive,
        unchanged=unchanged,
        max_scale=float(scales.max(initial=0.0)) if finite.all() else inf,
        gradient=float(np.abs(x[:R]) @ at.up[:R]),
    )


def constant(state: State) -> float:
    at = existing(state.at)
    if at.worst is None:
        return max(0.0, float(state.totals[0]))
    answers = [at.worst.losses(d * at.worths, at.worths) for d in (0.0, 1.0)]
    share = at.worst.share
    return max(-(1 - share) * float(v[-1]) - share * float(v.max()) for v in answers)


def lowest(state: State) -> float:
    """No decisions have less utility."""
    worst = state.limits.worst
    return float(state.totals[2]) if worst is None else -max(worst.error_costs)


def excess(state: State, point: At) -> float:
    """The largest difference above its limit, or share of positive decisions outside its bounds."""
    at = existing(state.at)
    over = np.append(
        np.abs(point.differences) - at.up[: at.rates],
        [point.positive - at.up[-1], -point.positive - at.down[-1]],
    )
    mixtures = state.limits.mixtures
    if mixtures is not None:
        over = np.append(over, worst_mixture(state, point) - mixtures.tau)
    return float(over.max())


def people(state: State, point: At) -> float:
    """The largest difference above its limit, in expected people of the smaller group; 0 where there is none."""
    at = existing(state.at)
    E = len(at.k)
    over = np.abs(point.differences[:E]) - at.up[:E]
    smaller = np.minimum(at.mass[at.k, at.j], at.mass[at.k, at.other]) * state.n
    return float((over * smaller).max(initial=0.0))


def scale_for(share: float, optimum: Optimum) -> tuple[float, float]:
    """By what the limits would have to be multiplied, at least and at most, for a rule that retains this share.

    The best utility is concave in the scale: the tangent is not exceeded, and chords between solved programs are
    reached, by a rule that is charged only if they are close.

    >>> half = Optimum(0.1, 0.2, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, False, 3.0, 0.2)
    >>> [round(v, 3) for v in scale_for(0.8, half)]
    [1.3, 2.2]
    """
    target = optimum.constant + share * (optimum.learner_utility - optimum.constant)
    known = sorted(
        [(1.0, optimum.utility), *optimum.further, (optimum.max_scale, optimum.learner_utility)]
    )
    upper = known[-1][0]
    for (a, low), (b, high) in pairwise(known):
        if low < target <= high:
            upper = a + (b - a) * (target - low) / (high - low)
            break
    lower = 1 + (target - optimum.bound) / optimum.gradient if optimum.gradient > 0 else 0.0
    return min(max(lower, 0.0), upper), upper


def next_scale(optimum: Optimum) -> float | None:
    """Limits so many times as large are worth a program of their own, to say what they cost; None where there is
    nothing more to say, or where the rule retains the lower share."""
    if not optimum.retained < SHARES[-1] or len(optimum.further) >= len(SHARES):
        return None
    lower, upper = scale_for(SHARES[-1 - len(optimum.further)], optimum)
    if not np.isfinite(upper):
        return None
    return float(np.sqrt(max(lower, 1.0) * upper))


def cost_sentences(optimum: Optimum, tau: float) -> tuple[str, ...]:
    """What the limit tau costs, in sentences; none where the rule retains nearly all.

    >>> cost_sentences(Optimum(0.2, 0.2, 0.0, 0.2, 0.0, 0.0, -0.1, -0.1, 0.0, 0.5, True, 0.5, 0.0), 0.05)
    ("The rule is the learner's own decisions: they differ nowhere by more than the limit.",)
    """
    if optimum.unchanged:
        return (
            "The rule is the learner's own decisions: they differ nowhere by more than the limit.",
        )
    if not optimum.retained < SHARES[0]:
        return ()
    taus = {
        share: _shown(min(tau * scale_for(share, optimum)[1], 1.0))
        for share in SHARES
        if optimum.retained < share
    }
    left = f"{max(optimum.retained, 0.0):.0%} of what the learner gains over a constant decision"
    words = ", ".join(f"{share:.0%} at {at_most}" for share, at_most in taus.items())
    words = words.replace(" at ", " would be left at a tau of at most ", 1)
    return (f"The limit {tau:g} leaves {left}; {words}.",)


def optimality(optimum: Optimum, accuracy: bool = False) -> str:
    """How far the rule is from the best one, in a sentence.  accuracy: both errors cost 1, so that utility counts
    right answers.

    >>> optimality(Optimum(0.2, 0.3, 0.0, 0.2004, 0.0006, 0.0, 0.002, 0.0, 0.4, 0.5, False, 0.5, 0.0))
    'No rule that decides from these estimates and keeps the limits has more utility than this one by more than \
0.0004; its decisions exceed a limit by at most 0.002, and by at most 0.4 expected people.'
    """
    more = max(optimum.bound - optimum.utility, 1e-4)
    better = "is right more often than this one" if accuracy else "has more utility than this one"
    statement = "its decisions exceed no limit, by the same estimates"
    if optimum.excess > 0:
        statement = (
            f"its decisions exceed a limit by at most {optimum.excess:.2g}, and by at most "
            f"{optimum.people:.2g} expected "
            "people"
        )
    first = f"No rule that decides from these estimates and keeps the limits {better} by more than {more:.2g}"
    if optimum.spend:
        first += f" (by more than {max(optimum.gap, 1e-4):.2g} under the same penalty on smaller differences)"
    return f"{first}; {statement}."


def _shown(tau: float) -> str:
    """To two figures, upwards."""
    unit = 10.0 ** (np.floor(np.log10(tau)) - 1)
    return f"{np.ceil(round(tau / unit, 6)) * unit:.3g}"
