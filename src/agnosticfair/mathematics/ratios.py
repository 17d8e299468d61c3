"""The worst ratio over A, and the worst difference of two ratios: rates of groups, exactly or with a proven gap.

All in shares of the mass and built from knapsacks, as in ``ambiguity``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.ambiguity import (
    SLACK,
    Ambiguity,
    Array,
    Outcome,
    Worst,
    knapsack,
    nothing,
    repair,
    shares,
)

COARSE = 1e-3  # how far a search inside a training loop looks for the best of several maxima
ROUNDING = 1e-10  # by which a floor may be missed, relatively


def _dot(x: Array, y: Array) -> Array:
    return np.einsum("km,km->k", x, y)


def _climb(
    c: Array,
    x: Array,
    target: Array,
    pair: tuple[Array, Array],
    best: Callable[[Array], Array],
    tolerance: float,
) -> tuple[Array, Array, tuple[Array, Array]]:
    """max c . u with x . u = target over a convex set, row by row, by climbing its upper hull.

    The set is seen as points (x . u, c . u) of the plane.  A pair of them lies left and right of
    the target; `best(c - nu x)`, nu the gradient of their chord, is the point farthest above the
    chord and replaces one of them.  The mixture of the pair at the target is always in the set.
    c, x, u: (k, M), target: (k,).  Returns u, the multiplier nu: (k,) and the last pair.
    """
    left, right = pair
    xl, xr, cl, cr = _dot(x, left) - target, _dot(x, right) - target, _dot(c, left), _dot(c, right)
    for _ in range(100):
        wide = xr - xl > SLACK
        width = np.where(wide, xr - xl, 1.0)
        nu = np.where(wide, cr - cl, 0.0) / width
        fraction = np.clip(np.where(wide, -xl, cr > cl) / width, 0.0, 1.0)
        u = best(c - nu[:, None] * x)
        xu, cu = _dot(x, u) - target, _dot(c, u)
        chord = fraction * (cr - nu * xr) + (1 - fraction) * (cl - nu * xl)
        above = cu - nu * xu > chord + tolerance
        if not above.any():
            break
        less, more = above & (xu < 0), above & (xu >= 0)
        left, right = np.where(less[:, None], u, left), np.where(more[:, None], u, right)
        xl, cl = np.where(less, xu, xl), np.where(less, cu, cl)
        xr, cr = np.where(more, xu, xr), np.where(more, cu, cr)
    return fraction[:, None] * right + (1 - fraction)[:, None] * left, nu, (left, right)


def _level(c: Array, x: Array, target: float, left: Array, h: Array) -> tuple[float, Array]:
    """max c . u with x . u = target, a bound on it and the u; x . left <= target. c, x: (M,)."""
    pair, best = (left[None], knapsack(x, h)[None]), partial(knapsack, h=h)
    u, nu, _ = _climb(c[None], x[None], np.array([target]), pair, best, SLACK)
    d = c - nu[0] * x
    return float(nu[0] * target + d @ knapsack(d, h)), repair(u[0], h)


def _largest_ratio(a: Array, b: Array, h: Array, floor: float) -> tuple[float, Array]:
    """max (a . u) / (b . u) with b . u >= floor, and its u: Dinkelbach's v <- ratio at
    argmax (a - v b) . u.  A ratio has no local maxima: if that u breaks the floor, the best one
    above the floor lies on it, and there the ratio is a linear form.
    """
    v, u, following = -np.inf, h, knapsack(a, h)
    if not b @ following > 0:
        following = knapsack(b, h)
    for _ in range(100):
        top, mass = a @ following, b @ following
        if not mass > 0 or top / mass <= v:
            u = following if not mass > 0 and top > 0 else u
            break
        v, u, following = top / mass, following, knapsack(a - top / mass * b, h)
    if b @ u >= floor:
        return float(v), u
    bound, u = _level(a, b, floor, u, h)
    return bound / floor, u


def worst_ratio(A: Ambiguity, a: ArrayLike, b: ArrayLike, floor: float) -> Worst:
    """max (a . alpha) / (b . alpha) over A with b . alpha >= floor * n, exactly.

    a, b: (M,), b non-negative.

    >>> A = Ambiguity(np.array([1.0, 1.0]), 2)
    >>> worst_ratio(A, [0.2, 0.1], [0.8, 0.2], floor=0.35).alpha.round(6)
    array([0.5, 1.5])
    """
    scale, h = shares(A)
    a, b = np.asarray(a, float) * scale / A.n, np.asarray(b, float) * scale / A.n
    if h.sum() < 1.0 - SLACK or b @ knapsack(b, h) < floor - SLACK:
        return nothing(A, Outcome.INFEASIBLE)
    _ratio_exists(max(floor, float(b @ knapsack(-b, h))))
    bound, u = _largest_ratio(a, b, h, floor)
    shown = float(a @ u / (b @ u))
    value = max(bound, shown)
    return Worst(value, u * scale, Outcome.OPTIMAL, value - shown)


def _ratio_exists(minimum: float) -> None:
    if not minimum > 0:
        raise SettingsError(
            f"floor {minimum:g} lets a group lose all its mass, and then it has no rate: "
            f"set it above 0"
        )


@dataclass(frozen=True)
class _Pair:
    """Two groups in shares of the mass.  t_j = b[j] . u is a group's mass, lam = t1 / t0.

    a, b: (2, M).  lowest, highest: (2,), between which t_j lies, floors included.  ends: (2, M), the u
    with the smallest and the largest lam.  complete: t0 + t1 = 1 for every u.
    """

    a: Array
    b: Array
    h: Array
    lowest: Array
    highest: Array
    ends: Array
    complete: bool


def _pair(A: Ambiguity, a: ArrayLike, b: ArrayLike, floor: float) -> _Pair | None:
    """The pair of groups with sums a[j], b[j]: (M,); None where A has no room for both floors."""
    scale, h = shares(A)
    a, b = np.asarray(a, float) * scale / A.n, np.asarray(b, float) * scale / A.n
    highest, lowest = _dot(b, knapsack(b, h)), _dot(b, knapsack(-b, h))
    if h.sum() < 1.0 - SLACK or (highest < floor - SLACK).any():
        return None
    _ratio_exists(max(floor, float(lowest.min())))
    ends = []
    for up, down in ((0, 1), (1, 0)):
        u = _largest_ratio(b[up], b[down], h, floor)[1]
        if b[up] @ u < floor:  # again no local maxima: the other floor holds with equality
            u = _level(-b[down], b[up], floor, u, h)[1]
        ends.append(u)
    if (np.array(ends) @ b.T < floor * (1 - ROUNDING)).any():
        return None
    complete = bool(np.all(np.abs(b.sum(axis=0) - 1.0) < 1e-10, where=h > 0))
    return _Pair(a, b, h, np.maximum(lowest, floor), highest, np.array(ends), complete)


def _at_shares(P: _Pair, share: Array, tolerance: float) -> tuple[Array, Array, Array]:
    """For each share t1 / (t0 + t1): the u with the largest difference of ratios, and multipliers.

    At a fixed lam = t1 / t0 the difference is c . u / t1 with c = a[1] - lam a[0], over the u with
    x . u = 0 for x = b[1] - lam b[0] and t1 >= tau.  In a complete pair lam fixes t1, so this is
    linear; in another it is linear, with t1 = tau, over u scaled down (Charnes-Cooper): over the
    hull of the u and zero.  Returns u: (k, M) and v, nu: (k,), for which `_ceiling` is small.
    """
    lam = (share / (1 - share))[:, None]
    c, x = P.a[1] - lam * P.a[0], P.b[1] - lam * P.b[0]
    pair = (np.broadcast_to(P.ends[0], c.shape), np.broadcast_to(P.ends[1], c.shape))
    zero = np.zeros(len(share))

    def balanced(d: Array) -> tuple[Array, Array]:
        nonlocal pair  # a pair serves every d, and the last one is near
        u, nu, pair = _climb(d, x, zero, pair, partial(knapsack, h=P.h), tolerance)
        return u, nu

    def balanced_or_zero(d: Array) -> Array:
        u = balanced(d)[0]
        return np.where(_dot(d, u)[:, None] > 0, u, 0.0)

    if P.complete:
        u, nu = balanced(c)
        v = _dot(c, u) / (u @ P.b[1])
        return u, v, nu - v / (1 + lam[:, 0])
    left, right = _dot(x, pair[0]), _dot(x, pair[1])
    fraction = np.where(right > left, -left, 0.0) / np.where(right > left, right - left, 1.0)
    some = pair[0] + fraction[:, None] * (pair[1] - pair[0])  # keeps the floors, as both ends do
    tau = np.maximum(P.lowest[1], lam[:, 0] * P.lowest[0])
    b1 = np.broadcast_to(P.b[1], c.shape)
    u, v, _ = _climb(c, b1, tau, (np.zeros_like(c), some), balanced_or_zero, tolerance)
    return u / u.sum(axis=1, keepdims=True), v, balanced(c - v[:, None] * b1)[1]


def _ceiling(P: _Pair, low: Array, high: Array) -> Array:
    """No u with a share between those of low and high shows more than this: (k,).

    low, high: (3, k), a share and its multipliers v and nu.  Whatever these are, the difference is
    v + d . u / t1 with d = a[1] - lam a[0] - v b[1] - nu (b[1] - lam b[0]).  Take v and nu linear
    in lam between the two shares: then all is largest at one of them, a knapsack, but the term
    nu lam t0 / t1, which bulges above its chord where nu falls.  As well the difference is
    v + (d / lam) . u / t0: the same in 1 / lam, groups exchanged, -(v + nu) for nu.  Where the
    best multipliers are smooth, the ceiling is too high by the square of the width only.
    """
    share, v, nu = np.stack([low, high], axis=1)
    lam = share / (1 - share)
    x = P.b[1] - lam[..., None] * P.b[0]
    d = P.a[1] - lam[..., None] * P.a[0] - v[..., None] * P.b[1] - nu[..., None] * x
    kappa = np.sum(d * knapsack(d, P.h), axis=-1)
    lowest, highest = P.lowest[:, None], P.highest[:, None]
    if P.complete:
        lowest, highest = np.stack([1 - high[0], low[0]]), np.stack([1 - low[0], high[0]])

    def over(j: int, kappa: Array, lam: Array, nu: Array) -> Array:
        bulge = np.maximum((nu[0] - nu[1]) * (lam[1] - lam[0]), 0.0) / (4 * lam.min(axis=0))
        return (v + kappa / np.where(kappa > 0, lowest[j], highest[j])).max(axis=0) + bulge

    return np.minimum(over(1, kappa, lam, nu), over(0, kappa / lam, 1 / lam, -v - nu))


def _differences(P: _Pair, u: Array) -> Array:
    """a[1].u / b[1].u - a[0].u / b[0].u for each row of u; -inf where a floor is broken."""
    t = u @ P.b.T
    fine = np.all(t >= P.lowest * (1 - ROUNDING), axis=1, keepdims=True)
    rates = u @ P.a.T / np.where(fine, t, 1.0)
    return np.where(fine[:, 0], rates[:, 1] - rates[:, 0], -np.inf)


def _search(
    P: _Pair, tolerance: float, target: float = -np.inf
) -> tuple[Array, Array, float, Array]:
    """Branch and bound over the share: every u met, values, a ceiling, and the edges that it stands on, (3, E);
    below target it rests."""
    t = P.ends @ P.b.T
    first, last = t[:, 1] / t.sum(axis=1)
    u, values = P.ends, _differences(P, P.ends)

    def at(share: Array) -> Array:
        nonlocal u, values
        more, v, nu = _at_shares(P, share, tolerance * 1e-2)
        more = repair(more, P.h)
        u, values = np.concatenate([u, more]), np.concatenate([values, _differences(P, more)])
        return np.stack([share, v, nu])

    dense = (1 - np.cos(np.linspace(0, np.pi, 19))) / 2  # at the ends, where multipliers are steep
    edges = at(first + (last - first) * dense)
    low, high, bound, ceiling = edges[:, :-1], edges[:, 1:], np.full(18, np.inf), -np.inf
    for _ in range(60):
        bound = np.fmin(bound, _ceiling(P, low, high))
        open_ = bound > max(values.max() + tolerance, target)
        ceiling = max(ceiling, bound[~open_].max(initial=-np.inf))
        low, high, bound = low[:, open_], high[:, open_], np.tile(bound[open_], 2)
        if not 0 < low.shape[1] < 2000:
            break
        middle = at((low[0] + high[0]) / 2)
        edges = np.hstack([edges, middle])
        low, high = np.hstack([low, middle]), np.hstack([middle, high])
    ceiling = float(max(ceiling, values.max(), bound.max(initial=-np.inf)))
    return u, values, ceiling, edges[:, np.argsort(edges[0], kind="stable")]


def proved(A: Ambiguity, a: ArrayLike, b: ArrayLike, floor: float, edges: ArrayLike) -> float:
    """What edges prove that no alpha of `worst_difference` exceeds: weak duality, without a search; nan without alpha.

    edges: (E, 3), shares t1 / (t0 + t1) with multipliers v and nu, ascending.  Whatever the multipliers, the ceiling
    between two edges holds (`_ceiling`); so only the shares must reach over all that there are.

    >>> A = Ambiguity(np.array([1.0, 1.0]), 2, bound=1.5)
    >>> a, b = [[0.2, 0.1], [0.1, 0.4]], [[0.5, 0.5], [0.5, 0.5]]
    >>> made = worst_difference(A, a, b, floor=0.1)
    >>> proved(A, a, b, 0.1, made.edges) <= made.value + 1e-9
    True
    """
    P, edges = _pair(A, a, b, floor), np.asarray(edges, float).reshape(-1, 3).T
    if P is None:
        return np.nan
    t = P.ends @ P.b.T
    first, last = t[:, 1] / t.sum(axis=1)
    share = edges[0]
    if not np.isfinite(edges).all() or len(share) < 2 or (np.diff(share) < 0).any():
        raise ValueError("edges are to be finite, two or more, and ascending")
    if share[0] > first + SLACK or share[-1] < last - SLACK or share[0] <= 0 or share[-1] >= 1:
        raise ValueError("edges leave out shares that there are")
    return float(_ceiling(P, edges[:, :-1], edges[:, 1:]).max())


def _climbed(P: _Pair, u: Array, tolerance: float) -> Array:
    """The best u at shares ever nearer to that of a good u: a local maximum of the difference."""
    ends = P.ends @ P.b.T
    first, last = np.sort(ends[:, 1] / ends.sum(axis=1))
    t, width, candidates = P.b @ u, (last - first) / 24, []
    for _ in range(5):
        shares = np.clip(t[1] / t.sum() + width * np.linspace(-1, 1, 5), first, last)
        candidates.append(repair(_at_shares(P, shares, tolerance * 1e-2)[0], P.h))
        t, width = P.b @ candidates[-1][_differences(P, candidates[-1]).argmax()], width / 4
    return np.concatenate(candidates)


def worst_difference(
    A: Ambiguity, a: ArrayLike, b: ArrayLike, floor: float, tolerance: float = 1e-4
) -> Worst:
    """max (a[1].alpha)/(b[1].alpha) - (a[0].alpha)/(b[0].alpha) over A, b[j].alpha >= floor * n.

    a, b: (2, M), b non-negative.  Not concave, but a linear program at each fixed ratio of the two
    group masses: branch and bound over that one number, down to the tolerance.  FAILED: that was
    not reached; the value is an upper bound all the same, to the tolerance the result states.

    >>> A = Ambiguity(np.array([1.0, 1.0]), 2, bound=1.5)
    >>> a, b = [[0.2, 0.1], [0.1, 0.4]], [[0.5, 0.5], [0.5, 0.5]]
    >>> worst_difference(A, a, b, floor=0.1).alpha.round(6)
    array([0.5, 1.5])
    """
    P = _pair(A, a, b, floor)
    if P is None:
        return nothing(A, Outcome.INFEASIBLE)
    u, values, value, edges = _search(P, tolerance)
    gap = float(value - values.max())
    outcome = Outcome.OPTIMAL if gap <= tolerance else Outcome.FAILED
    return Worst(value, u[values.argmax()] * shares(A)[0], outcome, gap, edges.T)


def worst_differences(
    A: Ambiguity,
    a: ArrayLike,
    b: ArrayLike,
    floor: float,
    tolerance: float = 1e-3,
    target: float = -np.inf,
) -> tuple[Array, Array]:
    """The alphas that a coarse `worst_difference` meets, best first: (k, M), and values: (k,).

    The best is within COARSE of the maximum and, to about the tolerance, a local one; or the maximum
    is below the target.  The others are the best at other ratios of the group masses.  k = 0 where
    there is no alpha.

    >>> A = Ambiguity(np.array([1.0, 1.0]), 2, bound=1.5)
    >>> a, b = [[0.2, 0.1], [0.1, 0.4]], [[0.5, 0.5], [0.5, 0.5]]
    >>> float(worst_differences(A, a, b, floor=0.1)[1][0].round(6))
    0.4
    """
    P = _pair(A, a, b, floor)
    scale, h = shares(A)
    if P is None:
        return np.zeros((0, len(h))), np.zeros(0)
    u, values, *_ = _search(P, max(tolerance, COARSE), target)
    if tolerance < COARSE and values.max() > target - COARSE:
        more = _climbed(P, u[values.argmax()], tolerance)
        u, values = np.concatenate([u, more]), np.concatenate([values, _differences(P, more)])
    order = np.argsort(-values, kind="stable")[: np.isfinite(values).sum()]
    return u[order] * scale, values[order]
