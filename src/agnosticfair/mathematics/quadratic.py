"""Small dense quadratic problems: with linear constraints (``minimise``, an interior point polished on its active
set), with a separable penalty (``huber_step``, the subproblem of proximal Newton), and quasi-Newton steps.

The penalty of a coordinate is kinked, up max(x, 0) + down max(-x, 0), or, with a finite ``curvature``, Huber's: its
infimal convolution with curvature x^2 / 2, which is quadratic near 0 and has the same gradients beyond.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agnosticfair.mathematics.ambiguity import Outcome


@dataclass(frozen=True)
class Solution:
    """x, the multipliers of the rows of G (non-negative), and how it ended."""

    x: np.ndarray
    multipliers: np.ndarray
    outcome: Outcome


def minimise(
    P: np.ndarray,
    q: np.ndarray,
    G: np.ndarray,
    h: np.ndarray,
    guess: np.ndarray | None = None,
) -> Solution:
    """min x.P.x / 2 + q.x subject to G x <= h, for P symmetric and positive semidefinite.

    guess: which rows may be active; where that is right, nothing else is looked at.

    >>> minimise(np.eye(1), np.array([-2.0]), np.array([[1.0]]), np.array([1.0])).x.round(9)
    array([1.])
    """
    guessed = None if guess is None else _polish(P, q, G, h, guess)
    if guessed is not None:
        return guessed
    import clarabel
    from scipy import sparse

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    for name in ("tol_gap_abs", "tol_gap_rel", "tol_feas"):
        setattr(settings, name, 1e-10)
    solver = clarabel.DefaultSolver(
        sparse.triu(P, format="csc"),
        q,
        sparse.csc_matrix(G),
        h,
        [clarabel.NonnegativeConeT(len(h))],
        settings,
    )
    result = solver.solve()
    x, z, s = np.array(result.x), np.array(result.z), np.array(result.s)
    if str(result.status).endswith("Infeasible"):
        return Solution(x, z, Outcome.INFEASIBLE)
    polished = _polish(P, q, G, h, z > s)
    if polished is not None:
        return polished
    solved = str(result.status) in ("Solved", "AlmostSolved") and np.isfinite(x).all()
    return Solution(x, np.maximum(z, 0.0), Outcome.OPTIMAL if solved else Outcome.FAILED)


def _polish(
    P: np.ndarray,
    q: np.ndarray,
    G: np.ndarray,
    h: np.ndarray,
    active: np.ndarray,
) -> Solution | None:
    """The exact solution on a guessed active set, or None where the guess does not hold."""
    k, D = int(active.sum()), len(q)
    kkt = np.zeros((D + k, D + k))
    kkt[:D, :D] = P
    kkt[:D, D:], kkt[D:, :D] = G[active].T, G[active]
    right = np.concatenate([-q, h[active]])
    solution = np.linalg.lstsq(kkt, right, rcond=1e-14)[0]
    x, multipliers = solution[:D], np.zeros(len(h))
    multipliers[active] = solution[D:]
    scale = 1.0 + np.abs(right).max()
    residual = np.abs(kkt @ solution - right).max()
    if residual > 1e-9 * scale or multipliers.min(initial=0.0) < -1e-9 or (G @ x - h).max() > 1e-9:
        return None
    return Solution(x, np.maximum(multipliers, 0.0), Outcome.OPTIMAL)


MAX_PIECES = 20  # guesses of ``huber_step``
MIN_LENGTH = 1e-3  # of a step between them
MAX_SWEEPS = 60  # of ``lasso_step``; each costs one product with H,
MAX_SIGNS = 2000  # and one solve on the support
MAX_MULTIPLIERS = 40  # of ``lasso_on_simplex``
TOLERANCE = 1e-7  # of an optimum, in gradients


def kinked(
    x: np.ndarray, up: np.ndarray, down: np.ndarray, curvature: np.ndarray | None = None
) -> float:
    """The penalty; an infinite gradient holds x at 0.  curvature: infinite, as without, for a kink.

    >>> kinked(np.array([2.0, -1.0, 0.0]), np.full(3, 0.5), np.array([0.5, 0.25, np.inf]))
    1.25
    >>> kinked(np.array([2.0, 0.1]), np.full(2, 0.5), np.full(2, 0.5), np.array([1.0, 1.0]))
    0.88
    """
    on = x != 0
    gradient, size = np.where(x > 0, up, down)[on], np.abs(x[on])
    if curvature is None:
        return float(gradient @ size)
    inside = np.minimum(gradient / curvature[on], size)
    bent = np.where(inside > 0, inside, 1.0) * np.where(inside > 0, curvature[on], 0.0)
    return float(gradient @ (size - inside) + bent @ inside / 2)


def proximal(z: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """argmin_x (x - z)^2 / 2 + up max(x, 0) + down max(-x, 0), coordinate by coordinate.

    >>> proximal(np.array([2.0, -2.0, 0.3]), np.full(3, 0.5), np.full(3, 1.0))
    array([ 1.5, -1. ,  0. ])
    """
    above, below = z - up, z + down
    return np.where(above > 0, above, np.where(below < 0, below, 0.0))


def residual(
    g: np.ndarray,
    x: np.ndarray,
    up: np.ndarray,
    down: np.ndarray,
    curvature: np.ndarray | None = None,
) -> np.ndarray:
    """How far -g is from the penalty's subgradients at x, coordinate by coordinate; 0 at the optimum.

    >>> residual(np.array([-0.7, -0.2]), np.array([0.0, 1.0]), np.full(2, 0.5), np.full(2, 0.5)).round(3)
    array([0.2, 0.3])
    """
    at_zero = np.maximum(np.maximum(-g - up, g - down), 0.0)
    left = np.where(x > 0, np.abs(g + up), np.where(x < 0, np.abs(g - down), at_zero))
    if curvature is not None:
        bent = np.isfinite(curvature)
        gradient = np.clip(curvature[bent] * x[bent], -down[bent], up[bent])
        left[bent] = np.abs(g[bent] + gradient)
    return left


def huber_step(
    H: np.ndarray,
    g: np.ndarray,
    x0: np.ndarray,
    up: np.ndarray,
    down: np.ndarray,
    curvature: np.ndarray,
    inside: np.ndarray,
) -> np.ndarray:
    """argmin_x g.(x - x0) + (x - x0).H.(x - x0) / 2 + the penalty.  inside: of ``lasso_on_simplex``; none may be true.

    Where no coordinate is kinked, by Newton's steps for the pieces of the penalty on which they lie.  Else
    x = kinked + quadratic; for given kinked coordinates the quadratic ones are a linear solve, and what is left is a
    ``lasso_step`` in the first, with the parallel sum of H and the curvatures.

    >>> step = huber_step(np.eye(2), np.array([-2.0, -0.2]), *np.array([[0.0] * 2, [0.5] * 2, [0.5] * 2, [1.0] * 2]),
    ...     np.zeros(2, bool))
    >>> step.round(6)
    array([1.5, 0.1])
    """
    bent = np.flatnonzero(np.isfinite(curvature))
    by_pieces = _by_pieces(H, g, x0, up, down, curvature) if len(bent) == len(g) else None
    if by_pieces is not None:
        return by_pieces
    rows = H[bent]
    solved = np.linalg.solve(rows[:, bent] + np.diag(curvature[bent]), np.c_[rows, g[bent]])
    left = H - rows.T @ solved[:, :-1]
    args = (left + left.T) / 2, g - rows.T @ solved[:, -1], x0, up, down
    x = lasso_on_simplex(*args, inside) if inside.any() else lasso_step(*args)
    moved = solved[:, :-1] @ (x - x0) + solved[:, -1]
    x[bent] -= moved
    return x


def _by_pieces(
    H: np.ndarray,
    g: np.ndarray,
    x0: np.ndarray,
    up: np.ndarray,
    down: np.ndarray,
    curvature: np.ndarray,
) -> np.ndarray | None:
    """The optimum of a penalty without kinks: exact once every coordinate is on the piece that was guessed for it; None
    where that is not found."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    def value(x: np.ndarray) -> float:
        p = x - x0
        return float(g @ p + p @ H @ p / 2) + kinked(x, up, down, curvature)

    x, pieces = x0, _pieces(x0, up, down, curvature)
    for _ in range(MAX_PIECES):
        block, pull = H.copy(), np.choose(pieces + 1, [-down, curvature * x0, up])
        block[np.diag_indices(len(g))] += np.where(pieces, 0.0, curvature)
        try:
            there = x0 - cho_solve(cho_factor(block, True, True, False), g + pull)
        except LinAlgError:
            return None
        guessed, pieces = pieces, _pieces(there, up, down, curvature)
        if (pieces == guessed).all():
            return there
        before, t = value(x), 1.0
        while value(x + t * (there - x)) > before and t > MIN_LENGTH:
            t /= 2
        x = x + t * (there - x)
        pieces = _pieces(x, up, down, curvature)
    return None


def _pieces(x: np.ndarray, up: np.ndarray, down: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """1 where the penalty is linear and rises, -1 where it falls, 0 where it is quadratic."""
    gradient = curvature * x
    return (gradient > up).astype(int) - (gradient < -down)


def lasso_step(
    H: np.ndarray,
    g: np.ndarray,
    x0: np.ndarray,
    up: np.ndarray,
    down: np.ndarray,
    first: np.ndarray | None = None,
) -> np.ndarray:
    """argmin_x g.(x - x0) + (x - x0).H.(x - x0) / 2 + sum up max(x, 0) + down max(-x, 0).

    H: (a, a), positive definite.  first: where it is looked for first, x0 unless given.  A proximal step finds the
    support and its signs; the exact solution for these follows, or the best point of the way to it at which a sign
    changes.  All in whole arrays.  What a near-singular H leaves is settled sign by sign (``_by_signs``), which ends
    at the optimum.

    >>> lasso_step(np.eye(2), np.array([-2.0, 0.2]), np.zeros(2), np.full(2, 0.5), np.full(2, 0.5))
    array([1.5, 0. ])
    """
    if not len(g):
        return x0.copy()
    majorant = np.abs(H).sum(axis=1)
    u, v = up / majorant, down / majorant
    x = x0.copy() if first is None else first.copy()
    product = H @ (x - x0)
    for _ in range(MAX_SWEEPS):
        q = g + product
        if residual(q, x, up, down).max() <= TOLERANCE:
            return x
        x = proximal(x - q / majorant, u, v)
        if len(on := np.flatnonzero(x)):
            q = g[on] + H[on] @ (x - x0)
            new = _towards(H[np.ix_(on, on)], q, x[on], np.sign(x[on]), up[on], down[on])
            x[on] = x[on] if new is None else new
        product = H @ (x - x0)
    return _by_signs(H, g, x0, x, up, down)


def _by_signs(
    H: np.ndarray,
    g: np.ndarray,
    x0: np.ndarray,
    x: np.ndarray,
    up: np.ndarray,
    down: np.ndarray,
) -> np.ndarray:
    """The optimum from x on, by feature-sign search (Lee et al., 2007): the exact solution for the signs at hand, the
    best point of the way to it, and where the support is settled one coordinate more.  Each set of signs is met once,
    so that it ends."""
    x, signs = x.copy(), np.sign(x)
    for _ in range(MAX_SIGNS):
        q = g + H @ (x - x0)
        on = np.flatnonzero(signs)
        gradient = np.where(signs > 0, up, -down)[on]
        if not len(on) or np.abs(q[on] + gradient).max() <= TOLERANCE:
            left = residual(q, x, up, down)
            left[on] = 0.0
            worst = int(np.argmax(left))
            if left[worst] <= TOLERANCE:
                break
            signs[worst] = 1.0 if -q[worst] - up[worst] > q[worst] - down[worst] else -1.0
            continue
        new = _towards(H[np.ix_(on, on)], q[on], x[on], signs[on], up[on], down[on])
        if new is None:  # rounding is all that is left
            break
        x[on] = new
        signs = np.sign(x)
    return x


def _towards(
    block: np.ndarray,
    q: np.ndarray,
    x: np.ndarray,
    signs: np.ndarray,
    up: np.ndarray,
    down: np.ndarray,
) -> np.ndarray | None:
    """The best of the points between x and the exact solution for these signs at which a coordinate is 0, and the last;
    None where x is.  Of a singular block the shortest way that comes nearest."""
    right = -(q + np.where(signs > 0, up, -down))
    try:
        move = np.linalg.solve(block, right)
    except np.linalg.LinAlgError:
        move = np.linalg.lstsq(block, right, rcond=None)[0]
    crossing = np.flatnonzero(x * (x + move) < 0)
    t = np.append(-x[crossing] / move[crossing], 1.0)
    points = x + t[:, None] * move
    points[np.arange(len(crossing)), crossing] = 0.0
    gradients = np.where(points > 0, up, down)
    gradients[points == 0] = 0.0
    change = (q @ move) * t + (move @ block @ move) * t**2 / 2
    change += (gradients * np.abs(points)).sum(axis=1) - kinked(x, up, down)
    best = int(np.argmin(change))
    return points[best] if change[best] < 0 else None


def lasso_on_simplex(
    H: np.ndarray,
    g: np.ndarray,
    x0: np.ndarray,
    up: np.ndarray,
    down: np.ndarray,
    inside: np.ndarray,
) -> np.ndarray:
    """The same, where the coordinates ``inside``, (a,) bool, stay non-negative and keep their sum.

    The sum falls with a price on these coordinates, which is found between two that are tried.

    >>> both = np.ones(2, bool)
    >>> free, held = np.zeros(2), np.full(2, np.inf)
    >>> lasso_on_simplex(np.eye(2), np.array([0.0, 0.5]), np.array([0.5, 0.5]), free, held, both).round(6)
    array([0.75, 0.25])
    """
    total = x0[inside].sum()
    if not total:
        return lasso_step(H, g, x0, np.where(inside, np.inf, up), down)

    def at(multiplier: float, first: np.ndarray = x0) -> tuple[float, np.ndarray]:
        x = lasso_step(H, g, x0, up + multiplier * inside, down, first)
        return float(x[inside].sum() - total), x

    centre = -float(np.median(g[inside]))
    width = float(np.ptp(g[inside])) + float(np.abs(np.diag(H)).max()) * 1e-3 + 1e-6
    (low, (above, x_low)), (high, (below, x_high)) = (
        (p, at(p)) for p in (centre - width, centre + width)
    )
    while above < 0:
        low -= (width := 2 * width)
        above, x_low = at(low)
    while below > 0:
        high += (width := 2 * width)
        below, x_high = at(high)
    for _ in range(MAX_MULTIPLIERS):
        if above - below <= 1e-9 * max(total, 1e-12):
            break
        # the sum is piecewise linear in the price: between a chord's zero and the middle
        share = min(max(above / (above - below), 0.05), 0.95)
        multiplier = low + share * (high - low)
        more, x = at(multiplier, x_high if share > 0.5 else x_low)
        if more >= 0:
            low, above, x_low = multiplier, more, x
        else:
            high, below, x_high = multiplier, more, x
    t = above / (above - below) if above > below else 0.0
    x = x_low + t * (x_high - x_low)
    inner = np.maximum(x[inside], 0.0)
    x[inside] = inner * (total / inner.sum())
    return x


def lbfgs_step(
    gradient: np.ndarray, diagonal: np.ndarray, moves: np.ndarray, turns: np.ndarray, first: float
) -> np.ndarray:
    """The step, (..., D).  gradient, diagonal: (..., D), the latter of the Hessian.  moves, turns: (k, ..., D), the
    last differences of weights and of their gradients; 0 for none.  first: by how much the diagonal's step
    is shortened before there is a move.

    >>> none = np.zeros((0, 2))
    >>> lbfgs_step(np.array([2.0, 4.0]), np.array([2.0, 2.0]), none, none, 0.5)
    array([-0.5, -1. ])
    """
    curved = (moves * turns).sum(axis=-1)
    rho = np.where(curved > 0, 1.0 / np.where(curved > 0, curved, 1.0), 0.0)
    q, alphas = gradient.copy(), []
    for s, y, r in zip(moves[::-1], turns[::-1], rho[::-1], strict=True):
        alpha = r * (s * q).sum(axis=-1)
        q -= alpha[..., None] * y
        alphas.append(alpha)
    p = q / diagonal * _length(diagonal, turns, curved, first)[..., None]
    for s, y, r, alpha in zip(moves, turns, rho, alphas[::-1], strict=True):
        p += (alpha - r * (y * p).sum(axis=-1))[..., None] * s
    return -p


def _length(
    diagonal: np.ndarray, turns: np.ndarray, curved: np.ndarray, first: float
) -> np.ndarray:
    """By how much the diagonal alone would step too far, as the latest move says."""
    scale = np.full(diagonal.shape[:-1], first)
    for y, c in zip(turns, curved, strict=True):
        norm = (y * (y / diagonal)).sum(axis=-1)
        scale = np.where(c > 0, c / np.where(norm > 0, norm, 1.0), scale)
    return scale
