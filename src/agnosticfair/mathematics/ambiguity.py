"""The set A = {0 <= alpha <= bound, psi_theta . alpha = n} and what is worst over it.

Inside, everything is said in shares of the mass: u = p * alpha with p = psi_theta / n, so that
A becomes {0 <= u <= h, sum(u) = 1} with h = min(p * bound, 1): no infinity, numbers of order one,
and a coefficient vector c of alpha becomes c / p, an average over rows.  The worst u of a linear
form is a fractional knapsack, and all the rest is built from knapsacks.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agnosticfair.errors import SettingsError

Array = np.ndarray[Any, Any]

TOP = 24  # kernels that usually suffice to hold all the mass
SLACK = 1e-12  # rounding that does not empty a set
MASSLESS = 1e-290  # a kernel below this reaches no row


class Outcome(enum.StrEnum):
    """How a computation ended; anything but OPTIMAL is a value to be counted and shown."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    FAILED = "failed"


@dataclass(frozen=True)
class Ambiguity:
    """A = {0 <= alpha <= bound, psi_theta . alpha = n}: reweightings whose mean weight is one.

    psi_theta: (M,), sum_i K(x_i) over the n rows, non-negative.  bound: None is no bound.
    """

    psi_theta: Array
    n: float
    bound: float | None = None


@dataclass(frozen=True)
class Worst:
    """A worst case over A: no alpha shows more than `value`, and this alpha shows at least
    `value - tolerance`.  Where there is no alpha, value, alpha and tolerance are nan.  edges: (E, 3), what
    `ratios.proved` shows the value by, of a difference.
    """

    value: float
    alpha: Array
    outcome: Outcome
    tolerance: float
    edges: Array | None = None


def nothing(A: Ambiguity, outcome: Outcome) -> Worst:
    return Worst(np.nan, np.full(len(A.psi_theta), np.nan), outcome, np.nan)


def shares(A: Ambiguity) -> tuple[Array, Array]:
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


def knapsack(c: Array, h: Array) -> Array:
    """argmax c . u over {0 <= u <= h, sum(u) = 1}: fill the largest c first. c: (..., M).

    Where many are requested at once, the TOP largest of each are enough if they have the room.
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


def repair(u: Array, h: Array) -> Array:
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
        maximum = worst_linear(A, mass).value / A.n
        if not maximum > 0:
            raise SettingsError(
                f"group {name!r} has no mass: no kernel reaches a row of it; "
                f"check the sensitive column or use a wider kernel"
            )
        if maximum < floor - SLACK:
            raise SettingsError(
                f"floor {floor:g} is too high for group {name!r}: it never has more than "
                f"{maximum:.3g} of the mass; lower it to at most {_rounded(maximum, np.floor):g}"
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
    scale, h = shares(A)
    if h.sum() < 1.0 - SLACK:
        return nothing(A, Outcome.INFEASIBLE)
    c = np.asarray(c, float)
    ratios = c * scale
    unit = float(SLACK * np.abs(ratios[h > 0]).max(initial=0.0))
    alpha = knapsack(np.round(ratios / unit) if unit > 0 else ratios, h) * scale
    return Worst(float(c @ alpha) + unit, alpha, Outcome.OPTIMAL, unit)


def worst_linear_subject_to(
    A: Ambiguity, c: ArrayLike, *, A_ub: ArrayLike, b_ub: ArrayLike
) -> Worst:
    """max c . alpha over A with A_ub @ alpha <= b_ub: a linear program.

    c: (M,).  A_ub: (r, M), b_ub: (r,).  The value is the dual's.

    >>> A = Ambiguity(np.array([1.0, 1.0]), 2)
    >>> worst_linear_subject_to(A, [1.0, 3.0], A_ub=[[0.0, 1.0]], b_ub=[0.5]).alpha
    array([1.5, 0.5])
    """
    from scipy.optimize import linprog  # a client, which solves nothing, starts faster without

    scale, h = shares(A)
    c = np.asarray(c, float) * scale
    size = float(np.abs(c).max()) or 1.0
    rows = np.atleast_2d(np.asarray(A_ub, float)) * scale
    sizes = np.abs(rows).max(axis=1)
    sizes[sizes == 0] = 1.0
    rows_ub, rhs_ub = rows / sizes[:, None], np.atleast_1d(np.asarray(b_ub, float)) / sizes
    rows_eq, rhs_eq = (h > 0)[None].astype(float), np.ones(1)
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
        return nothing(A, Outcome.INFEASIBLE if lp.status == 2 else Outcome.FAILED)
    u = repair(lp.x, h)
    y_ub, y_eq = np.maximum(-size * lp.ineqlin.marginals, 0.0), -size * lp.eqlin.marginals
    reduced = c - y_ub @ rows_ub - y_eq @ rows_eq
    bound = y_ub @ rhs_ub + y_eq @ rhs_eq + h @ np.maximum(reduced, 0.0)  # weak duality
    shown = float(c @ u)
    value = max(float(bound), shown)
    return Worst(value, u * scale, Outcome.OPTIMAL, value - shown)
