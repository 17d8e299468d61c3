"""The rule row by row: scores, smoothed decisions, and the sums over rows that the rule's program needs.

    score(x) = c(x) w(x) - nu - sum_p pi_p(x) sum_k b_k(x) A_kp

c is the utility of a positive decision, pi_p the probability of a compared group (and label event), b_k a weight
function (membership of a subgroup, a kernel, a client), A the coefficients that the program finds; w(x) is 1, or
sum_k b_k(x) W_k where the utility of the worst subgroup counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any, ClassVar, Protocol

import numpy as np

from agnosticfair.mathematics.linear import on_grid, sigmoid
from agnosticfair.mathematics.subgroups import (
    Crossed,
    Entries,
    Overlaps,
    Places,
    Subgroup,
    entries,
    members,
    overlaps,
    sums_at,
    weighed_at,
)

COEFFICIENT_BITS = 28
"""Coefficients are multiples of 2^-28: what a row's subgroups add up to does not hang on the order of addition."""

PROBABILITY_BITS = 20
"""Probabilities and utilities are multiples of 2^-20."""

CURVATURE_BITS = 4
"""The Hessian is a model of steps and nothing else, on a coarser grid: a row's curvature is a multiple of 2^-4."""

HESSIAN_ROWS = 1 << 17  # of all sites, about: drawn by a hash of their probabilities
MULTIPLIER = -7046029254386353131  # of that hash
CHUNK = 2048  # rows by which it is added up
TILE = 64  # directions by which it is added up: only its upper triangle is needed


def direction_bits(bits: int) -> tuple[int, int]:
    """Bits after the point of what a Hessian's direction multiplies, and of what it multiplies that with, where sums
    have so many.

    >>> direction_bits(34), direction_bits(20)
    ((7, 8), (4, 4))
    """
    both = (bits - CURVATURE_BITS) // 2
    return both // 2, both - both // 2


MIN_COUNTED = 1 << 19  # indicators from which on counting what subgroups share may pay
TABLE = 6000  # what a table costs, in rows
COUNTED = 25  # products of a matrix that take as long as counting a row once
MAX_AXES = 16
MAX_CELLS = 1 << 21  # of all tables


class Weights(Protocol):
    """The weight functions b of some rows, the last of them overall, b = 1.  Rows are arrays of ``xp``, numpy or torch;
    coefficients and sums are numpy's."""

    @property
    def xp(self) -> Any: ...

    @property
    def size(self) -> int:
        """K, with overall."""
        ...

    def weigh(self, a: np.ndarray) -> Any:
        """sum_k b_k(x) a_k of every row, (n,).  a: (K,)."""
        ...

    def add(self, V: Any) -> np.ndarray:
        """sum_i b_k(x_i) v_i of every v, (m, K).  V: (m, n)."""
        ...

    def columns(self, which: np.ndarray, rows: Any) -> Any:
        """b of these weight functions and rows, (which, rows)."""
        ...


@dataclass(frozen=True)
class Dense:
    """Weight functions as a matrix, (n, K), overall included."""

    b: np.ndarray
    xp: Any = np

    @property
    def size(self) -> int:
        return self.b.shape[1]

    def weigh(self, a: np.ndarray) -> np.ndarray:
        return np.einsum("ik,k->i", self.b, a)

    def add(self, V: np.ndarray) -> np.ndarray:
        return V @ self.b

    def columns(self, which: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return self.b[rows][:, which].T


@dataclass(frozen=True)
class Memberships:
    """Membership of subgroups, and overall, as weight functions (``scores.Weights``) that are never written out.

    codes: (axes, n), every row's value on every axis, ``crossed`` the same; ``at`` is where the subgroups stand among
    all pairs of values.
    """

    codes: np.ndarray
    crossed: Crossed
    subgroups: list[Subgroup]
    at: Places
    xp: ClassVar[Any] = np

    @property
    def size(self) -> int:
        return len(self.subgroups) + 1

    @cached_property
    def entries(self) -> tuple[Entries, ...]:
        """The subgroups of one or two values, by blocks."""
        return entries(self.crossed, *self.at.at)

    @cached_property
    def deep(self) -> Any:
        """Which subgroups of three values the rows lie in, (subgroups, n), sparse; None where there are none."""
        from scipy import sparse

        if not len(self.at.deep):
            return None
        inside = [members(self.codes.T, self.subgroups[m]) for m in self.at.deep.tolist()]
        return sparse.csr_matrix(np.array(inside, float))

    def weigh(self, a: np.ndarray) -> np.ndarray:
        shallow = a[self.at.shallow]
        weights = weighed_at(self.crossed, self.entries, shallow, self.codes.shape[1]) + a[-1]
        return weights if self.deep is None else weights + a[self.at.deep] @ self.deep

    def add(self, V: np.ndarray) -> np.ndarray:
        forest = np.empty((len(V), self.size))
        shallow = self.at.shallow
        forest[:, shallow] = sums_at(self.crossed, self.entries, V, len(shallow))
        if self.deep is not None:
            forest[:, self.at.deep] = (self.deep @ V.T).T
        forest[:, -1] = V.sum(axis=1)
        return forest

    @cached_property
    def overlaps(self) -> Overlaps | None:
        """Where what two subgroups share is counted; None where they have three values, or tables would be large."""
        room = tuple(
            size + int((codes < 0).any())
            for size, codes in zip(self.at.sizes, self.codes, strict=True)
        )
        small = len(room) <= MAX_AXES and sum(map(prod, combinations(room, 4))) <= MAX_CELLS
        return overlaps(room, (*self.subgroups, ())) if small and not len(self.at.deep) else None

    def counts_pay(self, directions: int, factors: int, rows: int) -> bool:
        """Whether ``shared`` is less work than a product of matrices; both give the same bits."""
        if rows * directions < MIN_COUNTED or self.overlaps is None:
            return False
        products = factors * (factors + 1) // 2
        counting = len(self.overlaps.sets) * (TABLE + products * rows)
        return counting * COUNTED < rows * directions**2

    def shared(self, which: np.ndarray, rows: np.ndarray, V: np.ndarray) -> np.ndarray:
        """sum_i b_k(x_i) b_l(x_i) v_i over these rows for all pairs of these weight functions and each v, (m, a, a)."""
        assert self.overlaps is not None
        return self.overlaps.sums(self.codes[:, rows], which, V)

    def columns(self, which: np.ndarray, rows: np.ndarray) -> np.ndarray:
        codes, masks = self.codes[:, rows], dict[tuple[int, int], np.ndarray]()
        inside = np.ones((len(which), len(rows)), bool)
        for row, k in enumerate(which.tolist()):
            for value in () if k == len(self.subgroups) else self.subgroups[k]:
                if value not in masks:
                    masks[value] = codes[value[0]] == value[1]
                inside[row] &= masks[value]
        return inside


@dataclass(frozen=True)
class Estimated:
    """What is estimated of some rows.  c: (n,), the utility of a positive decision.  pi: (P, n), the probability of
    each compared group.  weights: (n,), None for one each.
    """

    c: Any
    pi: Any
    weights: Any = None


def utility(eta: np.ndarray, costs: tuple[float, float] = (1.0, 1.0)) -> np.ndarray:
    """c = false_negative eta - false_positive (1 - eta), on the grid of probabilities.

    >>> utility(np.array([0.75, 0.25]))
    array([ 0.5, -0.5])
    """
    false_positive, false_negative = costs
    return on_grid(false_negative * eta - false_positive * (1.0 - eta), PROBABILITY_BITS)


def score(
    rows: Estimated, b: Weights, A: np.ndarray, nu: float = 0.0, W: np.ndarray | None = None
) -> Any:
    """The rule's score of every row, (n,); a decision is positive where it is above 0.  A: (K, P).  W: (K,), or None.

    >>> rows = Estimated(np.array([0.5]), np.array([[0.25], [0.75]]))
    >>> score(rows, Dense(np.ones((1, 1))), np.array([[1.0, -1.0]]))
    array([1.])
    """
    A = on_grid(np.array(A, float), COEFFICIENT_BITS)
    c = rows.c if W is None else rows.c * b.weigh(on_grid(np.array(W, float), COEFFICIENT_BITS))
    margins = c - nu
    for p, a in enumerate(A.T):
        if a.any():
            margins -= rows.pi[p] * b.weigh(a)
    return margins


def smoothed(t: Any, eps: float, xp: Any = np) -> tuple[Any, Any, Any]:
    """eps softplus(t / eps), its derivative d, and 4 d (1 - d); for eps = 0 max(t, 0), t > 0, and 0.

    >>> [v.round(3).tolist() for v in smoothed(np.array([0.0, 1.0]), 0.5)]
    [[0.347, 1.063], [0.5, 0.881], [1.0, 0.42]]
    """
    if not eps:
        return xp.clip(t, 0.0, None), (t > 0) * 1.0, t * 0.0
    d = sigmoid(t / eps, xp)
    value = xp.clip(t, 0.0, None) + eps * xp.log1p(xp.exp(-abs(t) / eps))
    return value, d, 4.0 * d * (1.0 - d)


@dataclass(frozen=True)
class Directions:
    """In which directions the Hessian is taken.

    k, j, other: (a,), the weight function and the two groups; j = -1 is the constant 1, j = -2 the utility c, other =
    -1 no second group.  first, second: (a,), what the groups' probabilities are multiplied with, at most 1.  mixed:
    (m, K, P), directions that mix weight functions, after the others.
    """

    k: np.ndarray
    j: np.ndarray
    other: np.ndarray
    first: np.ndarray
    second: np.ndarray
    mixed: np.ndarray

    @property
    def size(self) -> int:
        return len(self.k) + len(self.mixed)


def sampled_rows(rows: Estimated, n: int, xp: Any = np) -> Any:
    """Which rows enter the Hessian, as bool, by a hash of what is estimated of them: the same for any split.

    >>> sampled_rows(Estimated(np.zeros(2), np.zeros((1, 2))), 2)
    array([ True,  True])
    """
    among, key = n // HESSIAN_ROWS, xp.asarray(rows.c * 0, dtype=xp.int64)
    if among < 2:
        return key == 0
    for v in (rows.c, *rows.pi):
        key = (key ^ xp.asarray(xp.round(v * 2.0**PROBABILITY_BITS), dtype=xp.int64)) * MULTIPLIER
        key = key ^ (key >> 29)
    return (key >> 1) % among == 0  # numpy's and PyTorch's whole numbers wrap alike


def hessian(
    rows: Estimated,
    b: Weights,
    curvature: Any,
    at: Directions,
    bits: int,
    inside: Any,
) -> tuple[np.ndarray, float]:
    """sum_i curvature_i v_i v_i' over the rows inside, (a, a), exactly, and the sum of their curvatures; below the
    diagonal some of it is not filled in.

    v_ie = b_k sum_f a_ef u_if, of the factors u and coefficients a of ``_factors``: by counting the rows that pairs of
    subgroups share, where that is less work than multiplying by zeros and ones, to the same bits.
    """
    w = weighed(curvature[None] * 1.0, CURVATURE_BITS, rows.weights)[0]
    chosen = b.xp.where((w > 0) & inside)[0]
    w, (u, a), k = w[chosen], _factors(rows, at, chosen, bits, b.xp), at.k.astype(int)
    total = float(w.sum())
    if isinstance(b, Memberships) and not len(at.mixed) and b.counts_pay(len(k), len(u), len(w)):
        pairs = [(f, g) for f in range(len(u)) for g in range(f, len(u))]
        shared = b.shared(k, chosen, np.array([w * u[f] * u[g] for f, g in pairs]))
        matrix = np.zeros((len(k), len(k)))
        for (f, g), sums in zip(pairs, shared, strict=True):
            both = np.outer(a[f], a[g])
            matrix += (both if f == g else both + both.T) * sums
        return matrix, total
    matrix = np.zeros((at.size, at.size))
    chunk, tile = (CHUNK, TILE) if b.xp is np else (HESSIAN_ROWS, at.size)
    mixed = [_mixed(rows, b, C)[chosen] for C in at.mixed]
    across = b.xp.asarray(np.ascontiguousarray(a.T))
    for start in range(0, len(chosen), chunk):
        part = slice(start, start + chunk)
        v = across @ u[:, part]
        v *= b.columns(k, chosen[part])
        if mixed:
            v = b.xp.concatenate([v, *(m[None, part] for m in mixed)])
        on_grid(v, sum(direction_bits(bits)))
        h = v * w[part]
        for first in range(0, at.size, tile):
            matrix[first : first + tile, first:] += in_numpy(h[first : first + tile] @ v[first:].T)
    return matrix, total


def _factors(
    rows: Estimated, at: Directions, chosen: Any, bits: int, xp: Any
) -> tuple[Any, np.ndarray]:
    """What the directions are made of, on its grid: u of the chosen rows, (factors, n), and a, (factors, a)."""
    fine, coefficient = direction_bits(bits)
    used = sorted({*at.j.astype(int).tolist(), *at.other[at.second != 0].astype(int).tolist()})
    used = used or [-1]
    ones = rows.c[chosen] * 0.0 + 1.0
    u = [rows.pi[j][chosen] if j >= 0 else ones if j == -1 else rows.c[chosen] for j in used]
    a = [at.first * (at.j == j) - at.second * (at.other == j) for j in used]
    return on_grid(xp.stack(u), fine), on_grid(np.array(a, float), coefficient)


def _mixed(rows: Estimated, b: Weights, C: np.ndarray) -> np.ndarray:
    return -score(Estimated(np.zeros(len(rows.c)), rows.pi), b, C)


@dataclass(frozen=True)
class Points:
    """What a round evaluates at T points.

    A: (T, K, P), coefficients.  nu: (T,), what each point takes off every score.  eps: (T,), the smoothing; 0 is the
    rule as it decides.  ``directions`` are of the Hessian at the first point; ``masses``: whether what no point
    changes is added up, too.  W: (T, K), how much each weight function's utility counts; None for the mean.
    """

    A: np.ndarray
    nu: np.ndarray
    eps: np.ndarray
    directions: Directions | None = None
    masses: bool = False
    W: np.ndarray | None = None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        T, K, P = self.A.shape
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("value", "utility", "right"), (T,))
        shapes |= {"positives": (T,), "decided": (T, P, K)}
        if self.W is not None:
            shapes["worth"] = (T, K)
        if self.directions is not None:
            a = self.directions.size
            shapes |= {"hessian": (a * (a + 1) // 2,), "curvature": (), "drawn": ()}
        if self.masses:
            shapes |= {"mass": (P, K), "members": (K,), "totals": (3,)}
        if self.masses and self.W is not None:
            shapes["worths"] = (K,)
        return shapes


def evaluate(
    rows: Estimated, b: Weights, y: Any, points: Points, n: int, bits: int
) -> dict[str, np.ndarray]:
    """The sums over rows that ``Points.shapes`` lists, of values on a grid of 2^-bits.

    n: of all sites.  y: labels, of which ``right`` counts those that the hard decisions give.
    """
    xp, sums = b.xp, {k: np.zeros(v) for k, v in points.shapes().items()}
    for t, eps in enumerate(points.eps):
        W = None if points.W is None else points.W[t]
        margins = score(rows, b, points.A[t], points.nu[t], W)
        value, d, curvature = smoothed(margins, float(eps), xp)
        hard = ((margins > 0) == (y > 0)) * 1.0
        plain = weighed(xp.stack([value, d * rows.c, hard, d]), bits, rows.weights)
        for name, v in zip(("value", "utility", "right", "positives"), plain, strict=True):
            sums[name][t] = float(v.sum())
        if t == 0 and points.directions is not None:
            inside = sampled_rows(rows, n, xp)
            h, total = hessian(rows, b, curvature, points.directions, bits, inside)
            sums |= {"hessian": h[np.triu_indices(len(h))], "drawn": np.array(total)}
            curvature = weighed(curvature[None], bits, rows.weights)
            sums["curvature"] = np.array(float(curvature.sum()))
        sums["decided"][t] = b.add(weighed(d * rows.pi, bits, rows.weights))
        if points.W is not None:
            sums["worth"][t] = b.add(plain[1:2])[0]
    if points.masses and points.W is not None:
        sums["worths"] = b.add(weighed(rows.c[None] * 1.0, bits, rows.weights))[0]
    return sums | (_masses(rows, b, bits) if points.masses else {})


def _masses(rows: Estimated, b: Weights, bits: int) -> dict[str, np.ndarray]:
    """What each group and weight function weigh; and the totals of c, its positive and its negative subgroup."""
    c = rows.c[None]
    added = b.add(weighed(b.xp.concatenate([rows.pi, c * 0.0 + 1.0]), bits, rows.weights))
    signed = b.xp.concatenate([c, b.xp.clip(c, 0.0, None), b.xp.clip(c, None, 0.0)])
    totals = [float(v.sum()) for v in weighed(signed, bits, rows.weights)]
    return {"mass": added[:-1], "members": added[-1], "totals": np.array(totals)}


def weighed(V: Any, bits: int, weights: Any) -> Any:
    """V times the rows' weights, on the grid, in place: rounded before and after.  V: (m, n)."""
    on_grid(V, bits)
    if weights is not None:
        V *= weights
        on_grid(V, bits)
    return V


def in_numpy(v: Any) -> np.ndarray:
    return v if isinstance(v, np.ndarray) else v.cpu().numpy()
