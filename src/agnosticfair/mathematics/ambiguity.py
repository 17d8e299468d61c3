"""The set A = {0 <= alpha <= bound, psi_theta . alpha = n} and what is worst over it.

Inside, everything is said in shares of the mass: u = p * alpha with p = psi_theta / n, so that
A becomes {0 <= u <= h, sum(u) = 1} with h = min(p * bound, 1): no infinity, numbers of order one,
and a coefficient vector c of alpha becomes c / p, an average over rows.  The worst u of a linear
form is a fractional knapsack, and all the rest is built from knapsacks.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agnosticfair.errors import SettingsError

Array = np.ndarray[Any, Any]

COARSE = 1e-3  # how far a search inside a training loop looks for the best of several maxima
TOP = 24  # kernels that usually suffice to hold all the mass
SLACK = 1e-12  # rounding that does not empty a set
MASSLESS = 1e-290  # a kernel below this reaches no row
ROUNDING = 1e-10  # by which a floor may be missed, relatively


class Outcome(enum.StrEnum):
    """How a computation ended; anything but OPTIMAL is a value to be counted and shown."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    FAILED = "failed"


@dataclass(frozen=True)
class Ambiguity:
    """A = {0 <= alpha <= bound, psi_theta . alpha = n}: reweighings whose mean weight is one.

    psi_theta: (M,), sum_i K(x_i) over the n rows, non-negative.  bound: None is no bound.
    """

    psi_theta: Array
    n: float
    bound: float | None = None


@dataclass(frozen=True)
class Worst:
    """A worst case over A: no alpha shows more than `value`, and this alpha shows at least
    `value - tolerance`.  Where there is no alpha, value, alpha and tolerance are nan.
    """

    value: float
    alpha: Array
    outcome: Outcome
    tolerance: float


def _nothing(A: Ambiguity, outcome: Outcome) -> Worst:
    return Worst(np.nan, np.full(len(A.psi_theta), np.nan), outcome, np.nan)


def _shares(A: Ambiguity) -> tuple[Array, Array]:
    """(scale, h): alpha = scale * u with 0 <= u <= h.

    A kernel without mass reaches no row, and so has no coefficient in any sum over rows:
    it gets scale = h = 0 and stays at alpha = 0.
    """
    p = np.asarray(A.psi_theta, float) / A.n
    live = p > MASSLESS
    scale = np.divide(1.0, p, out=np.zeros_like(p), where=live)
    bound = np.inf if A.bound is None else float(A.bound)
    h = np.multiply(p, bound, out=np.zeros_like(p), where=live)
    return scale, np.minimum(h, 1.0)


def _knapsack(c: Array, h: Array) -> Array:
    """argmax c . u over {0 <= u <= h, sum(u) = 1}: fill the largest c first. c: (..., M).

    Where many are asked for at once, the TOP largest of each are enough if they have the room.
    """
    if c.ndim > 1 and c.shape[-1] > 2 * TOP:
        flat = c.reshape(-1, c.shape[-1])
        rows = np.arange(len(flat))[:, None]
        order = np.argpartition(flat, -TOP, axis=1)[:, -TOP:]
        order = order[rows, np.argsort(-flat[rows, order], axis=1, kind="stable")]
        room = h[order]
        filled = np.cumsum(room, axis=1)
        if (filled[:, -1] >= 1.0).all():
            u = np.zeros_like(flat)
            u[rows, order] = np.clip(1.0 - filled + room, 0.0, room)
            return u.reshape(c.shape)
    order = np.argsort(-c, axis=-1, kind="stable")
    room = h[order]
    before = np.cumsum(room, axis=-1) - room
    u = np.empty_like(room)
    np.put_along_axis(u, order, np.clip(1.0 - before, 0.0, room), axis=-1)
    return u


def _repair(u: Array, h: Array) -> Array:
    """u brought back into {0 <= u <= h, sum(u) = 1} where rounding led out of it. u: (..., M)."""
    u = np.clip(u, 0.0, h)
    gap = 1.0 - u.sum(axis=-1, keepdims=True)
    room = np.where(gap > 0, h - u, u)
    return np.clip(u + gap * room / np.maximum(room.sum(axis=-1, keepdims=True), SLACK), 0.0, h)


def check(
    A: Ambiguity, b: ArrayLike | None = None, floor: float = 0.0, names: Sequence[str] | None = None
) -> Ambiguity:
    """A itself if it is a set one can work with, else a SettingsError that says what to change.

    b: (G, M), mass of each group, each to keep `floor * n`.  names: (G,), for the sentence.

    >>> check(Ambiguity(np.array([1.0, 1.0]), 10, bound=2.0))
    Traceback (most recent call last):
    agnosticfair.errors.SettingsError: bound 2 is too small: even with every kernel at it the \
mean weight is 0.4; raise it to at least 5 or use a wider kernel
    """
    psi, bound = np.asarray(A.psi_theta, float), A.bound
    if not (np.isfinite(psi).all() and (psi >= 0).all() and A.n > 0):
        raise SettingsError("kernels must be non-negative numbers over at least one row: check K")
    mean = psi.sum() / A.n
    if mean <= MASSLESS:
        raise SettingsError("no kernel reaches any row: use a wider kernel or other centres")
    if bound is not None and not bound * mean >= 1.0 - SLACK:
        raise SettingsError(
            f"bound {bound:g} is too small: even with every kernel at it the mean weight is "
            f"{bound * mean:.3g}; raise it to at least {_rounded(1 / mean, np.ceil):g} "
            f"or use a wider kernel"
        )
    if b is not None:
        _check_groups(A, np.atleast_2d(np.asarray(b, float)), floor, names)
    return A


def _rounded(x: float, towards: Callable[[float], float]) -> float:
    """x to three figures, upwards (np.ceil) or downwards (np.floor)."""
    unit = 10.0 ** (np.floor(np.log10(x)) - 2)
    return float(towards(round(x / unit, 9)) * unit)


def _check_groups(A: Ambiguity, b: Array, floor: float, names: Sequence[str] | None) -> None:
    if not 0 <= floor <= 1:
        raise SettingsError(f"floor {floor:g} is not a share of the mass: set it between 0 and 1")
    for name, mass in zip(range(len(b)) if names is None else names, b, strict=True):
        most = worst_linear(A, mass).value / A.n
        if not most > 0:
            raise SettingsError(
                f"group {name!r} has no mass: no kernel reaches a row of it; "
                f"check the sensitive column or use a wider kernel"
            )
        if most < floor - SLACK:
            raise SettingsError(
                f"floor {floor:g} is too high for group {name!r}: it never has more than "
                f"{most:.3g} of the mass; lower it to at most {_rounded(most, np.floor):g}"
            )
    together = worst_linear_subject_to(A, 0 * b[0], A_ub=-b, b_ub=np.full(len(b), -floor * A.n))
    if together.outcome is not Outcome.OPTIMAL:
        raise SettingsError(
            f"floor {floor:g} cannot hold for all {len(b)} groups at once; "
            f"lower it below {1 / len(b):.3g} or further"
        )


def worst_linear(A: Ambiguity, c: ArrayLike) -> Worst:
    """max c . alpha over A, exactly: a fractional knapsack, kernels in order of c / psi_theta.

    c: (M,).  Ties, up to a rounding that sums over the same rows in another order make, go to the
    first kernel, so that the answer does not hang on that order.

    >>> worst_linear(Ambiguity(np.array([2.0, 2.0]), 2, bound=0.8), [1.0, 3.0]).alpha
    array([0.2, 0.8])
    """
    scale, h = _shares(A)
    if h.sum() < 1.0 - SLACK:
        return _nothing(A, Outcome.INFEASIBLE)
    c = np.asarray(c, float)
    ratios = c * scale
    unit = float(SLACK * np.abs(ratios[h > 0]).max(initial=0.0))
    alpha = _knapsack(np.round(ratios / unit) if unit > 0 else ratios, h) * scale
    return Worst(float(c @ alpha) + unit, alpha, Outcome.OPTIMAL, unit)


def worst_linear_subject_to(
    A: Ambiguity,
    c: ArrayLike,
    *,
    A_ub: ArrayLike | None = None,
    b_ub: ArrayLike | None = None,
    A_eq: ArrayLike | None = None,
    b_eq: ArrayLike | None = None,
) -> Worst:
    """max c . alpha over A with A_ub @ alpha <= b_ub and A_eq @ alpha = b_eq: a linear program.

    c: (M,).  A_ub: (r, M), b_ub: (r,); A_eq: (q, M), b_eq: (q,).  The value is the dual's.

    >>> A = Ambiguity(np.array([1.0, 1.0]), 2)
    >>> worst_linear_subject_to(A, [1.0, 3.0], A_ub=[[0.0, 1.0]], b_ub=[0.5]).alpha
    array([1.5, 0.5])
    """
    from scipy.optimize import linprog  # a client, which solves nothing, starts faster without

    scale, h = _shares(A)
    c = np.asarray(c, float) * scale
    size = float(np.abs(c).max()) or 1.0
    rows_ub, rhs_ub = _rows(A_ub, b_ub, scale)
    rows_eq, rhs_eq = _rows(A_eq, b_eq, scale)
    rows_eq, rhs_eq = np.vstack([rows_eq, h > 0]), np.append(rhs_eq, 1.0)
    lp = linprog(
        -c / size,
        A_ub=rows_ub,
        b_ub=rhs_ub,
        A_eq=rows_eq,
        b_eq=rhs_eq,
        bounds=np.column_stack([np.zeros_like(h), h]),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if lp.status != 0:
        return _nothing(A, Outcome.INFEASIBLE if lp.status == 2 else Outcome.FAILED)
    u = _repair(lp.x, h)
    y_ub, y_eq = np.maximum(-size * lp.ineqlin.marginals, 0.0), -size * lp.eqlin.marginals
    reduced = c - y_ub @ rows_ub - y_eq @ rows_eq
    bound = y_ub @ rhs_ub + y_eq @ rhs_eq + h @ np.maximum(reduced, 0.0)  # weak duality
    shown = float(c @ u)
    value = max(float(bound), shown)
    return Worst(value, u * scale, Outcome.OPTIMAL, value - shown)


def _rows(rows: ArrayLike | None, rhs: ArrayLike | None, scale: Array) -> tuple[Array, Array]:
    """Constraints on alpha as constraints on u, each row of size one."""
    if rows is None or rhs is None:
        return np.zeros((0, len(scale))), np.zeros(0)
    rows = np.atleast_2d(np.asarray(rows, float)) * scale
    size = np.abs(rows).max(axis=1)
    size[size == 0] = 1.0
    return rows / size[:, None], np.atleast_1d(np.asarray(rhs, float)) / size


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
    the target; `best(c - nu x)`, nu the slope of their chord, is the point farthest above the
    chord and replaces one of them.  The mixture of the pair at the target is always in the set.
    c, x, u: (k, M), target: (k,).  Returns u, the multiplier nu: (k,) and the last pair.
    """
    left, right = pair
    xl, xr, cl, cr = _dot(x, left) - target, _dot(x, right) - target, _dot(c, left), _dot(c, right)
    for _ in range(100):
        wide = xr - xl > SLACK
        width = np.where(wide, xr - xl, 1.0)
        nu = np.where(wide, cr - cl, 0.0) / width
        part = np.clip(np.where(wide, -xl, cr > cl) / width, 0.0, 1.0)
        u = best(c - nu[:, None] * x)
        xu, cu = _dot(x, u) - target, _dot(c, u)
        chord = part * (cr - nu * xr) + (1 - part) * (cl - nu * xl)
        above = cu - nu * xu > chord + tolerance
        if not above.any():
            break
        less, more = above & (xu < 0), above & (xu >= 0)
        left, right = np.where(less[:, None], u, left), np.where(more[:, None], u, right)
        xl, cl = np.where(less, xu, xl), np.where(less, cu, cl)
        xr, cr = np.where(more, xu, xr), np.where(more, cu, cr)
    return part[:, None] * right + (1 - part)[:, None] * left, nu, (left, right)


def _level(c: Array, x: Array, target: float, left: Array, h: Array) -> tuple[float, Array]:
    """max c . u with x . u = target, a bound on it and the u; x . left <= target. c, x: (M,)."""
    pair, best = (left[None], _knapsack(x, h)[None]), partial(_knapsack, h=h)
    u, nu, _ = _climb(c[None], x[None], np.array([target]), pair, best, SLACK)
    d = c - nu[0] * x
    return float(nu[0] * target + d @ _knapsack(d, h)), _repair(u[0], h)


def _largest_ratio(a: Array, b: Array, h: Array, floor: float) -> tuple[float, Array]:
    """max (a . u) / (b . u) with b . u >= floor, and its u: Dinkelbach's v <- ratio at
    argmax (a - v b) . u.  A ratio has no local maxima: if that u breaks the floor, the best one
    above the floor lies on it, and there the ratio is a linear form.
    """
    v, u, following = -np.inf, h, _knapsack(a, h)
    if not b @ following > 0:
        following = _knapsack(b, h)
    for _ in range(100):
        top, mass = a @ following, b @ following
        if not mass > 0 or top / mass <= v:
            u = following if not mass > 0 and top > 0 else u
            break
        v, u, following = top / mass, following, _knapsack(a - top / mass * b, h)
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
    scale, h = _shares(A)
    a, b = np.asarray(a, float) * scale / A.n, np.asarray(b, float) * scale / A.n
    if h.sum() < 1.0 - SLACK or b @ _knapsack(b, h) < floor - SLACK:
        return _nothing(A, Outcome.INFEASIBLE)
    _ratio_exists(max(floor, float(b @ _knapsack(-b, h))))
    bound, u = _largest_ratio(a, b, h, floor)
    shown = float(a @ u / (b @ u))
    value = max(bound, shown)
    return Worst(value, u * scale, Outcome.OPTIMAL, value - shown)


def _ratio_exists(least: float) -> None:
    if not least > 0:
        raise SettingsError(
            f"floor {least:g} lets a group lose all its mass, and then it has no rate: "
            f"set it above 0"
        )


@dataclass(frozen=True)
class _Pair:
    """Two groups in shares of the mass.  t_j = b[j] . u is a group's mass, lam = t1 / t0.

    a, b: (2, M).  least, most: (2,), between which t_j lies, floors included.  ends: (2, M), the u
    with the smallest and the largest lam.  complete: t0 + t1 = 1 for every u.
    """

    a: Array
    b: Array
    h: Array
    least: Array
    most: Array
    ends: Array
    complete: bool


def _pair(A: Ambiguity, a: ArrayLike, b: ArrayLike, floor: float) -> _Pair | None:
    """The pair of groups with sums a[j], b[j]: (M,); None where A has no room for both floors."""
    scale, h = _shares(A)
    a, b = np.asarray(a, float) * scale / A.n, np.asarray(b, float) * scale / A.n
    most, least = _dot(b, _knapsack(b, h)), _dot(b, _knapsack(-b, h))
    if h.sum() < 1.0 - SLACK or (most < floor - SLACK).any():
        return None
    _ratio_exists(max(floor, float(least.min())))
    ends = []
    for up, down in ((0, 1), (1, 0)):
        u = _largest_ratio(b[up], b[down], h, floor)[1]
        if b[up] @ u < floor:  # again no local maxima: the other floor holds with equality
            u = _level(-b[down], b[up], floor, u, h)[1]
        ends.append(u)
    if (np.array(ends) @ b.T < floor * (1 - ROUNDING)).any():
        return None
    complete = bool(np.all(np.abs(b.sum(axis=0) - 1.0) < 1e-10, where=h > 0))
    return _Pair(a, b, h, np.maximum(least, floor), most, np.array(ends), complete)


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
        u, nu, pair = _climb(d, x, zero, pair, partial(_knapsack, h=P.h), tolerance)
        return u, nu

    def balanced_or_zero(d: Array) -> Array:
        u = balanced(d)[0]
        return np.where(_dot(d, u)[:, None] > 0, u, 0.0)

    if P.complete:
        u, nu = balanced(c)
        v = _dot(c, u) / (u @ P.b[1])
        return u, v, nu - v / (1 + lam[:, 0])
    left, right = _dot(x, pair[0]), _dot(x, pair[1])
    part = np.where(right > left, -left, 0.0) / np.where(right > left, right - left, 1.0)
    some = pair[0] + part[:, None] * (pair[1] - pair[0])  # keeps the floors, as both ends do
    tau = np.maximum(P.least[1], lam[:, 0] * P.least[0])
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
    kappa = np.sum(d * _knapsack(d, P.h), axis=-1)
    least, most = P.least[:, None], P.most[:, None]
    if P.complete:
        least, most = np.stack([1 - high[0], low[0]]), np.stack([1 - low[0], high[0]])

    def over(j: int, kappa: Array, lam: Array, nu: Array) -> Array:
        bulge = np.maximum((nu[0] - nu[1]) * (lam[1] - lam[0]), 0.0) / (4 * lam.min(axis=0))
        return (v + kappa / np.where(kappa > 0, least[j], most[j])).max(axis=0) + bulge

    return np.minimum(over(1, kappa, lam, nu), over(0, kappa / lam, 1 / lam, -v - nu))


def _differences(P: _Pair, u: Array) -> Array:
    """a[1].u / b[1].u - a[0].u / b[0].u for each row of u; -inf where a floor is broken."""
    t = u @ P.b.T
    fine = np.all(t >= P.least * (1 - ROUNDING), axis=1, keepdims=True)
    rates = u @ P.a.T / np.where(fine, t, 1.0)
    return np.where(fine[:, 0], rates[:, 1] - rates[:, 0], -np.inf)


def _search(P: _Pair, tolerance: float, target: float = -np.inf) -> tuple[Array, Array, float]:
    """Branch and bound over the share: every u met, values, and a ceiling; below target it rests."""
    t = P.ends @ P.b.T
    first, last = t[:, 1] / t.sum(axis=1)
    u, values = P.ends, _differences(P, P.ends)

    def at(share: Array) -> Array:
        nonlocal u, values
        more, v, nu = _at_shares(P, share, tolerance * 1e-2)
        more = _repair(more, P.h)
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
        low, high = np.hstack([low, middle]), np.hstack([middle, high])
    return u, values, float(max(ceiling, values.max(), bound.max(initial=-np.inf)))


def _climbed(P: _Pair, u: Array, tolerance: float) -> Array:
    """The best u at shares ever nearer to that of a good u: a local maximum of the difference."""
    ends = P.ends @ P.b.T
    first, last = np.sort(ends[:, 1] / ends.sum(axis=1))
    t, width, found = P.b @ u, (last - first) / 24, []
    for _ in range(5):
        shares = np.clip(t[1] / t.sum() + width * np.linspace(-1, 1, 5), first, last)
        found.append(_repair(_at_shares(P, shares, tolerance * 1e-2)[0], P.h))
        t, width = P.b @ found[-1][_differences(P, found[-1]).argmax()], width / 4
    return np.concatenate(found)


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
        return _nothing(A, Outcome.INFEASIBLE)
    u, values, value = _search(P, tolerance)
    gap = float(value - values.max())
    outcome = Outcome.OPTIMAL if gap <= tolerance else Outcome.FAILED
    return Worst(value, u[values.argmax()] * _shares(A)[0], outcome, gap)


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
    scale, h = _shares(A)
    if P is None:
        return np.zeros((0, len(h))), np.zeros(0)
    u, values, _ = _search(P, max(tolerance, COARSE), target)
    if tolerance < COARSE and values.max() > target - COARSE:
        more = _climbed(P, u[values.argmax()], tolerance)
        u, values = np.concatenate([u, more]), np.concatenate([values, _differences(P, more)])
    order = np.argsort(-values, kind="stable")[: np.isfinite(values).sum()]
    return u[order] * scale, values[order]
