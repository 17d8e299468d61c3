"""The rule's convex program: most utility under a limit on the groups' difference in every subgroup.

    max_d  E[d c]   subject to   |r_e(d)| <= tau_e,   r_e(d) = E[d b_k pi_j] / E[b_k pi_j] - E[d b_k pi_l] / E[b_k pi_l]

with one constraint e for a weight function b_k and two compared groups j, other; and low <= E[d] <= high if asked for.
Decisions d(x) in [0, 1] enter linearly, so its dual is convex in one multiplier per constraint:

    min_x  E[eps softplus(score / eps)] + sum_e tau_e |x_e| + ridge |x|^2,   score = c - nu - sum_e x_e u_e,

smoothed by eps, which goes down a path; u_e = b_k (pi_j / N_kj - pi_l / N_kl).  The multiplier nu of the positive
rate is the last coordinate.  ``request`` says what is evaluated next and ``step`` takes the sums (``scores.evaluate``),
wherever the rows lie: a proximal Newton step on the active multipliers, and several step lengths in one request where
the full one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.ambiguity import Ambiguity
from agnosticfair.mathematics.fairness import worst_rate_cuts
from agnosticfair.mathematics.lasso import kinked, lasso_step, residual
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.scores import COEFFICIENT_BITS, Directions, Points

PATH = (0.3, 0.1, 0.03, 0.01, 0.005)
"""Smoothing, in units of utility."""

LOOSE, SHORTER, ARMIJO, MAX_REFUSED = 2e-2, (0.5, 0.25, 0.1, 0.03), 1e-4, 5
"""Levels of the path before the last end at differences within LOOSE of the optimum's.  A refused step is tried again
at SHORTER lengths, in one request; after MAX_REFUSED of these a level ends."""

MAX_ACTIVE, MAX_NUMBERS, NEAR = 450, 115_000, 0.8
"""The Hessian has at most MAX_ACTIVE directions, and fewer where a reply would have more than MAX_NUMBERS, so that a
message stays under a megabyte; they are the support and what is at least NEAR times the limit."""

FIRST_DAMPING, MIN_DAMPING, WARM = 1e-3, 1e-4, 3
"""Of the model's diagonal at its largest.  A program that begins where another ended has the last WARM levels."""


@dataclass(frozen=True)
class Mixtures:
    """Reweightings sum alpha_k b_k with 0 <= alpha <= bound and mean one (``ambiguity``), overall aside.  tau: the
    limit of each.  floor: the least share of people that each group keeps."""

    tau: float
    bound: float | None = None
    floor: float = 0.0


@dataclass(frozen=True)
class RateLimits:
    """What the rule has to keep.

    Parameters
    ----------
    tau : (K,) array
        The limit of each weight function; inf for none.
    pairs : tuple of (int, int)
        The compared groups, each pair once.
    ridge : float
        Weight of the squared multipliers: an adversary who spreads over subgroups.
    positive_rate : (float, float) or None
        Bounds of the share of positive decisions.
    min_people : float
        Expected people of both groups under which a weight function is not compared.
    tolerance : float
        Differences end within it of what is optimal.
    path : tuple of float
        Values of eps.
    max_rounds : int
    mixtures : Mixtures or None
        RateLimits on every mixture of the weight functions, too.
    """

    tau: np.ndarray
    pairs: tuple[tuple[int, int], ...]
    ridge: float = 0.0
    positive_rate: tuple[float, float] | None = None
    min_people: float = 1.0
    tolerance: float = 5e-4
    path: tuple[float, ...] = PATH
    max_rounds: int = 60
    mixtures: Mixtures | None = None


@dataclass(frozen=True)
class Coordinates:
    """The multipliers.  k, j, other: weight function and groups, (E,).  up, down: slopes of the penalty, (E + 1,), the
    last of the positive rate.  mass: (K, P), E[b_k pi_p].  mixed: (m, K, P), differences of rates that mix weight
    functions, whose multipliers come after the E others."""

    k: np.ndarray
    j: np.ndarray
    other: np.ndarray
    up: np.ndarray
    down: np.ndarray
    mass: np.ndarray
    mixed: np.ndarray

    @property
    def size(self) -> int:
        """How many there are, with the positive rate's."""
        return len(self.up)

    def coefficients(self, x: np.ndarray) -> np.ndarray:
        """A, (K, P), of these multipliers, on its grid."""
        A, E = np.zeros(self.mass.shape), len(self.k)
        np.add.at(A, (self.k, self.j), x[:E] / self.mass[self.k, self.j])
        np.add.at(A, (self.k, self.other), -x[:E] / self.mass[self.k, self.other])
        A += np.einsum("m,mkp->kp", x[E:-1], self.mixed)
        return on_grid(A, COEFFICIENT_BITS)

    def differences(self, decided: np.ndarray) -> np.ndarray:
        """r of every coordinate but the last, (E + m,).  decided: (P, K), E[d b_k pi_p]."""
        rates = decided.T / np.where(self.mass > 0, self.mass, 1.0)
        each = rates[self.k, self.j] - rates[self.k, self.other]
        return np.append(each, np.einsum("mkp,pk->m", self.mixed, decided))

    def scales(self, which: np.ndarray) -> np.ndarray:
        """By what the Hessian's directions are divided, so that none exceeds 1."""
        E = len(self.k)
        found = np.ones(self.size)
        found[:E] = np.minimum(self.mass[self.k, self.j], self.mass[self.k, self.other])
        found[E:-1] = 1.0 / np.abs(self.mixed).max(axis=(1, 2), initial=1e-300)
        return found[which]

    def directions(self, which: np.ndarray) -> Directions:
        """The Hessian's directions of these coordinates, scaled; mixed ones last, as their numbers are."""
        E, last = len(self.k), self.size - 1
        each, rate = which[which < E], which[which == last]
        scale, ones = self.scales(each), np.ones(len(rate))
        none = np.full(len(rate), -1)
        overall = np.full(len(rate), len(self.mass) - 1)
        mixed = which[(which >= E) & (which < last)]
        return Directions(
            np.append(self.k[each], overall),
            np.append(self.j[each], none),
            np.append(self.other[each], none),
            np.append(scale / self.mass[self.k[each], self.j[each]], ones),
            np.append(scale / self.mass[self.k[each], self.other[each]], 0 * ones),
            self.mixed[mixed - E] * self.scales(mixed)[:, None, None],
        )

    def ordered(self, which: np.ndarray) -> np.ndarray:
        """Coordinates as ``directions`` has them."""
        E, last = len(self.k), self.size - 1
        is_mixed = (which >= E) & (which < last)
        return np.concatenate([which[which < E], which[which == last], which[is_mixed]])


def coordinates(mass: np.ndarray, n: float, limits: RateLimits) -> Coordinates:
    """The multipliers of all comparisons with enough people.  mass: (K, P), sums."""
    pairs = np.array(limits.pairs, int).reshape(-1, 2)
    k, at = (v.ravel() for v in np.indices((len(mass), len(pairs))))
    j, other = pairs[at].T
    least = np.minimum(mass[k, j], mass[k, other])
    on = (least >= max(limits.min_people, 1e-9)) & np.isfinite(limits.tau[k])
    k, j, other = k[on], j[on], other[on]
    low, high = limits.positive_rate or (-np.inf, np.inf)
    up, down = np.append(limits.tau[k], high), np.append(limits.tau[k], -low)
    return Coordinates(k, j, other, up, down, mass / n, np.zeros((0, *mass.shape)))


@dataclass(frozen=True)
class At:
    """The objective at x: value, gradient of the smooth part, and the sums it was made from, as means."""

    x: np.ndarray
    eps: float
    value: float
    gradient: np.ndarray
    differences: np.ndarray
    decided: np.ndarray
    utility: float
    positive: float
    right: float
    smooth: float


def objective(
    at: Coordinates, limits: RateLimits, n: float, x: np.ndarray, eps: float, sums: Mapping, t: int
) -> At:
    """The t-th point of a reply."""
    decided, positive = sums["decided"][t] / n, float(sums["positives"][t]) / n
    r = at.differences(decided)
    smooth = float(sums["value"][t]) / n
    own = x[:-1]
    value = smooth + kinked(x, at.up, at.down) + limits.ridge * float(own @ own)
    gradient = np.append(-r + 2 * limits.ridge * own, -positive)
    return At(
        x,
        eps,
        value,
        gradient,
        r,
        decided,
        float(sums["utility"][t]) / n,
        positive,
        float(sums["right"][t]) / n,
        smooth,
    )


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
    diagonal[E:-1] *= 2.0 / at.scales(np.arange(E, at.size - 1))
    # the rows drawn for the Hessian stand for all, whose curvature is known
    stands = float(sums["curvature"]) / max(float(sums["drawn"]), 1e-9)
    return StepModel(on, H * (stands * factor) / traced[:, None] / traced, diagonal)


def solve(
    at: Coordinates, limits: RateLimits, here: At, model: StepModel, damping: float
) -> tuple[np.ndarray, float]:
    """The step of the model from here, and what it promises (negative)."""
    x, g = here.x, here.gradient
    which, a = model.on, len(model.on)
    H, own = model.H.copy(), np.diag(model.H) + damping * model.diagonal[which]
    own += 1e-9 + 1e-4 * np.trace(model.H) / max(a, 1) + 2 * limits.ridge * (which < at.size - 1)
    np.fill_diagonal(H, own)
    p = np.zeros(at.size)
    p[which] = lasso_step(H, g[which], x[which], at.up[which], at.down[which]) - x[which]
    return p, promise(at, here, p)


def promise(at: Coordinates, here: At, p: np.ndarray) -> float:
    """First-order change of the objective along p."""
    x = here.x
    return float(here.gradient @ p + kinked(x + p, at.up, at.down) - kinked(x, at.up, at.down))


@dataclass(frozen=True)
class State:
    """The program between two replies.

    stage: 'start', 'newton' (one point and its Hessian), 'search' (shorter steps), 'look' (hard decisions), 'done'.
    level: of the path.  trial: the multipliers of the points that are evaluated, (T, E + 1), on: the Hessian's
    coordinates.  base: what the objective must fall from; None where eps has changed.  own, hard: the learner's own
    rule and this one, as they decide.
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
    own: At | None = None
    hard: At | None = None
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
        return Points(A, np.zeros(2), np.array([0.0, state.eps]), masses=True)
    at, eps = state.at, 0.0 if state.stage == "look" else state.eps
    A = np.array([at.coefficients(x) for x in state.trial])
    directions = None if state.stage == "look" else at.directions(state.on)
    return Points(A, state.trial[:, -1].copy(), np.full(len(A), eps), directions)


def step(state: State, sums: Mapping[str, np.ndarray]) -> State:
    """One round: from the sums over all rows to the next request, or the end."""
    state = replace(state, round=state.round + 1)
    if state.stage == "start":
        return _started(state, sums)
    if state.stage == "look":
        return _looked(state, sums)
    at = state.at
    assert at is not None
    points = [
        objective(at, state.limits, state.n, x, state.eps, sums, t)
        for t, x in enumerate(state.trial)
    ]
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
    at = coordinates(sums["mass"].T, n, limits)
    zero = np.zeros(at.size)
    own = objective(at, limits, n, zero, 0.0, sums, 0)
    here = objective(at, limits, n, zero, state.eps, sums, 1)
    state = replace(
        state, at=at, own=own, here=here, totals=sums["totals"] / n, members=sums["members"]
    )
    keeps = residual(own.gradient, zero, at.up, at.down).max() <= limits.tolerance
    if keeps and limits.mixtures is not None:
        keeps = not len(violated(at, limits.mixtures, own, state.members, n, limits))
    if keeps and not limits.ridge:
        return replace(state, stage="done", hard=own)
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
    """The coordinates whose Hessian is worth its bytes: the support, then those nearest to their limit."""
    reach = np.where(g < 0, at.up, at.down)
    near = np.abs(g) / np.maximum(np.abs(reach), 1e-12)
    near[x != 0] += 1e6
    near[-1] = np.inf if np.isfinite(at.up[-1]) else 0.0
    order = np.argsort(-near, kind="stable")[: max_active(at.mass.size)]
    return at.ordered(np.sort(order[near[order] > NEAR]))


def _advanced(state: State) -> State:
    """A point is accepted: the next step, the next eps, or the last look."""
    at, limits, here, model = state.at, state.limits, state.here, state.model
    assert at is not None and here is not None and model is not None  # noqa: PT018
    last = state.level == len(limits.path) - 1
    left = residual(here.gradient, here.x, at.up, at.down).max()
    loose = limits.tolerance if last or limits.mixtures is not None else LOOSE
    spent = state.round >= limits.max_rounds - 1
    if limits.mixtures is not None and left <= loose and not spent:
        more = violated(at, limits.mixtures, here, state.members, state.n, limits)
        if len(more):
            return _joined(state, more)
    if spent or (last and left <= loose):
        return replace(state, stage="look", trial=here.x[None])
    p, promised = solve(at, limits, here, model, state.damping)
    lower = not last and left <= loose
    return _tried(state, p, promised, lower)


def violated(
    at: Coordinates, mixtures: Mixtures, here: At, members: np.ndarray, n: float, limits: RateLimits
) -> np.ndarray:
    """Differences (m, K, P) of the mixtures that exceed their limit, the worst of each pair of groups first."""
    A = Ambiguity(members[:-1] / n, 1.0, mixtures.bound)
    both = [pair for j, other in limits.pairs for pair in ((j, other), (other, j))]
    psi, theta = here.decided[:, :-1], at.mass.T[:, :-1]
    target = mixtures.tau + limits.tolerance
    cuts = worst_rate_cuts(A, psi, theta, both, mixtures.floor, limits.tolerance / 2, target)
    over = np.einsum("cpk,pk->c", cuts, psi) > target
    found = np.zeros((int(over.sum()), *at.mass.shape))
    found[:, :-1] = cuts[over].transpose(0, 2, 1)
    return found


def _joined(state: State, more: np.ndarray) -> State:
    """Mixtures join the coordinates, and the present point is evaluated once more."""
    at, here, mixtures = state.at, state.here, state.limits.mixtures
    assert at is not None and here is not None and mixtures is not None  # noqa: PT018
    limits = np.full(len(more), mixtures.tau)
    up, down = (np.concatenate([v[:-1], limits, v[-1:]]) for v in (at.up, at.down))
    at = replace(at, up=up, down=down, mixed=np.concatenate([at.mixed, more]))
    x = np.concatenate([here.x[:-1], np.zeros(len(more)), here.x[-1:]])
    r = at.differences(here.decided)
    g = np.append(-r + 2 * state.limits.ridge * x[:-1], here.gradient[-1])
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
    p, promised = solve(at, limits, here, model, damping)
    return _tried(replace(state, damping=damping, refused=state.refused + 1), p, promised, False)


def _looked(state: State, sums: Mapping[str, np.ndarray]) -> State:
    at = state.at
    assert at is not None
    hard = objective(at, state.limits, state.n, state.trial[0], 0.0, sums, 0)
    return replace(state, stage="done", hard=hard)
