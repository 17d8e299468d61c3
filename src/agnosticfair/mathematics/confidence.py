"""Bounds that hold, with a stated probability, for the population that held-out rows were drawn from.

Rows are independent draws, and the model was fitted on others. Within a cell (a part, a group and, where the notion
asks for one, a label) the positive decisions among the cell's n rows are then binomial, so that Clopper and Pearson's
limits are exact at any n. Three theorems, each with the proof in its docstring, make of them what a certificate says:

- ``largest``: of two rates, the largest difference (or ratio), about 1.45 times tighter than the box of both limits;
- ``levels``: what every part gets of delta, by rows alone, so that the parts may be any conjunctions, ever so many;
- ``mixtures`` and ``reweighings``: the worst over mixtures of parts, and over kernels, as a fractional program
over a box.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from numpy.typing import ArrayLike

from agnosticfair.mathematics import notions
from agnosticfair.mathematics.ambiguity import Ambiguity, Outcome, worst_difference, worst_ratio
from agnosticfair.mathematics.notions import NOTIONS

BEND = 0.02
"""How much of the region's boundary is given up away from its middle: about 1% of width there, and the region
closes."""

CAP = 0.01
"""The share of a bound's level that either rate alone may use: it keeps the search finite."""

MARGIN = 1e-3
"""Added to a bound, relative to its distance from the estimate: more than the search along the boundary can miss."""

NODES = 60

OPTIMISTIC = 3.4
"""Standard errors of a bound at the least: a part that is too wide even so is not bounded sharply."""


def clopper_pearson(k: ArrayLike, n: ArrayLike, delta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Exact limits of binomial rates: each end fails with probability at most delta / 2.

    No rows (n = 0) bound nothing: 0 and 1.

    >>> [round(float(end), 4) for end in clopper_pearson(0, 10, 0.05)]
    [0.0, 0.3085]
    """
    from scipy.special import betaincinv  # slow to import, and only bounds need it

    k, n, tail = np.broadcast_arrays(*(np.asarray(v, float) for v in (k, n, np.divide(delta, 2.0))))
    with np.errstate(invalid="ignore", divide="ignore"):
        low = np.where(k > 0, betaincinv(np.maximum(k, 1e-9), n - k + 1, tail), 0.0)
        high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1e-9), 1 - tail), 1.0)
    return low, high


def largest(
    k: ArrayLike,
    n: ArrayLike,
    alpha: ArrayLike,
    relative: bool = False,
    rough: ArrayLike = False,
) -> np.ndarray:
    """An upper bound on p[1] - p[0] (``relative``: on p[1] / p[0]) that fails with probability at most alpha.

    k, n : (2, J) positive decisions and rows of the two cells.  alpha: (J,) or a number.  A cell without rows bounds
    nothing: 1, or infinity.  rough: (J,), where the box of two limits at alpha / 2 will do, as for few rows.

    **Theorem.** For a point p, let P1 = P(X1 <= k1), P0 = P(X0 >= k0) under p and Z = Phi^-1(1 - P) of each. The
    set of all p with ``F(p) = S + BEND T^2 <= c``, Z1 and Z0 at most B, has probability at least 1 - alpha of
    holding the true p, where ``S = w1 Z1 + w0 Z0, T = w0 Z1 - w1 Z0``, w a unit vector that depends on p and n
    alone, T is clipped to where F increases in Z1 and Z0, and c, B are such that standard normal G1, G0 have
    ``P(G1' + BEND G0'^2 > c) = (1 - 2 CAP) alpha`` and ``P(G1 > B) = CAP alpha``.

    *Proof.* Exact p-values are stochastically at least uniform, so each Z is stochastically at most normal; X1, X0
    are independent, so there are independent normal G >= Z; F and the two caps increase in Z, so they reject no
    more often than with G, and clipping T makes F smaller; a rotation leaves normals normal. The level adds up to
    alpha. []

    The bound is the largest difference over that set: with w along the standard errors at p its boundary is nearly a
    line of equal differences, where the box of two limits at alpha / 2 has its corner. The boundary is walked by T.
    """
    k, n = np.asarray(k, float), np.asarray(n, float)
    alpha = np.broadcast_to(np.asarray(alpha, float), k.shape[1:])
    there = (n > 0).all(axis=0) & ~np.asarray(rough, bool)
    low, high = clopper_pearson(k, n, alpha)[0][0], clopper_pearson(k, n, alpha)[1][1]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(low > 0, high / low, np.inf) if relative else high - low
    found = np.where((n > 0).all(axis=0), found, np.inf if relative else 1.0)
    if there.any():
        found[there] = _walked(k[:, there], n[:, there], alpha[there], relative)
    return found


def _walked(k: np.ndarray, n: np.ndarray, alpha: np.ndarray, relative: bool) -> np.ndarray:
    """The largest difference along the boundary: a coarse look, then a fine one where that was best."""
    from scipy.special import ndtri

    limits = _critical((1 - 2 * CAP) * alpha), -ndtri(CAP * alpha)
    coarse = np.broadcast_to(np.linspace(-6.0, 6.0, 9), (k.shape[1], 9))
    near = coarse[0, _at(k, n, limits, coarse, relative, 4 if relative else 2).argmax(axis=1)]
    fine = near[:, None] + np.linspace(-1.2, 1.2, 7)
    best = _at(k, n, limits, fine, relative, 6 if relative else 3).max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = k / n
        if not relative:
            here = rates[1] - rates[0]
            return np.minimum(best + MARGIN * np.maximum(best - here, 0.0), 1.0)
        here = np.where(rates[0] > 0, rates[1] / rates[0], np.inf)
        return np.where(
            np.isfinite(best), best * (1 + MARGIN * (1 - np.minimum(here / best, 1))), np.inf
        )


def _at(
    k: np.ndarray,
    n: np.ndarray,
    limits: tuple[np.ndarray, np.ndarray],
    T: np.ndarray,
    relative: bool,
    steps: int,
) -> np.ndarray:
    """The difference, or ratio, at the points of the boundary with these T, (J, T), to that many steps."""
    from scipy.special import betaincinv, ndtr

    (k0, k1), (n0, n1) = k[..., None], n[..., None]
    c, cap = limits[0][:, None], limits[1][:, None]
    p0, p1 = (k0 + 0.5) / (n0 + 1) + 0 * T, (k1 + 0.5) / (n1 + 1) + 0 * T
    for _ in range(steps):  # the weights are those of the point they lead to
        s0 = np.sqrt((p0 * (1 - p0) + 0.25 / n0) / n0) / (p0 + 0.25 / n0 if relative else 1.0)
        s1 = np.sqrt((p1 * (1 - p1) + 0.25 / n1) / n1) / (p1 + 0.25 / n1 if relative else 1.0)
        w0, w1 = s0 / np.hypot(s0, s1), s1 / np.hypot(s0, s1)
        S = c - BEND * np.clip(T, -w1 / (2 * BEND * w0), w0 / (2 * BEND * w1)) ** 2
        z0, z1 = np.minimum(w0 * S - w1 * T, cap), np.minimum(w1 * S + w0 * T, cap)
        p0 = np.where(k0 > 0, betaincinv(np.maximum(k0, 1e-9), n0 - k0 + 1, ndtr(-z0)), 0.0)
        p1 = np.where(k1 < n1, betaincinv(k1 + 1, np.maximum(n1 - k1, 1e-9), ndtr(z1)), 1.0)
    with np.errstate(divide="ignore"):
        return np.where(p0 > 0, p1 / p0, np.inf) if relative else p1 - p0


def _critical(alpha: np.ndarray) -> np.ndarray:
    """c with P(G1 + BEND G0^2 > c) = alpha for independent standard normals, (J,)."""
    from scipy.special import ndtr

    t, weight = np.polynomial.hermite_e.hermegauss(NODES)
    weight = weight / weight.sum()
    low, high = np.zeros(len(alpha)), np.full(len(alpha), 40.0)
    for _ in range(60):
        middle = (low + high) / 2
        over = ndtr(BEND * t * t - middle[:, None]) @ weight > alpha
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    return high


def spent(rows: ArrayLike, n: float, sets: int, candidates: int, delta: float) -> np.ndarray:
    """What each part gets of delta, by its own rows: delta / 2 (1 / candidates + rows / (n sets)), (M,).

    Parts are conjunctions of values of some columns; ``candidates`` of them could have been looked at, and they come
    of ``sets`` different sets of columns, the empty one (everybody) included.

    **Theorem.** If part m's bounds fail with probability at most delta_m given the counts of its cells, all bounds
    hold with probability at least 1 - delta, whichever parts are then shown.

    *Proof.* delta_m is a function of part m's own counts, so that P(m fails) <= E[delta_m]. The parts of one set of
    columns are disjoint: their rows add up to at most n, so that sum_m delta_m <= delta for every outcome, and the
    union of failures has probability at most E[sum_m delta_m] <= delta. []

    >>> spent([100, 60, 40], 100, sets=2, candidates=4, delta=0.08).round(4).tolist()
    [0.03, 0.022, 0.018]
    """
    return delta / 2 * (1 / candidates + np.asarray(rows, float) / (n * sets))


def compared(counts: np.ndarray, notion: str) -> tuple[np.ndarray, np.ndarray]:
    """Positive decisions k and rows n behind every rate that a notion looks at: (L, G, M) each, L sets of labels.

    counts: (M, G, 2, 2) rows by part, group, label, decision.
    """
    looked = notions.ratios(NOTIONS[notion], np.moveaxis(counts, 0, -1))
    return np.stack([k for _, k, _ in looked]), np.stack([n for _, _, n in looked])


@dataclass(frozen=True)
class Bounds:
    """Of every part: the value on the rows, and the ends between which the population's lies, (M,) each.  pair:
    (M, 2) the groups of the value on the rows, the higher rate first; -1 without any."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    pair: np.ndarray


def differences(
    counts: np.ndarray,
    delta: ArrayLike,
    notion: str,
    keep: np.ndarray | None = None,
    rough: ArrayLike = False,
) -> Bounds:
    """The largest difference of two groups' rates in each part, from (M, G, 2, 2) counts; 'bounded_group_loss':
    the highest error rate.  delta: (M,) what the part's bounds may fail with, together.

    Both ends hold at once.  keep: (M, G), the groups that are compared, all unless said; which ones may hang on the
    part's own counts of rows, not on decisions. A group without rows is compared with none on the rows, and leaves
    ``high`` at 1: what is not there cannot be bounded.
    """
    k, n = compared(counts, notion)
    keep = np.ones((k.shape[2], k.shape[1]), bool) if keep is None else keep
    if NOTIONS[notion].bounds:
        return _rates_alone(k[0], n[0], np.asarray(delta, float), keep.T)
    value, pair = _widest(k, np.where(keep.T, n, 0))
    ups = _ups(k, n, delta, rough)
    high = _over(np.max, ups, keep, -np.inf)
    low = _over(np.max, {(y, i, j): -ups[y, j, i] for y, i, j in ups}, keep, -np.inf)
    none = keep.sum(axis=1) < 2
    return Bounds(
        value,
        np.where(none, 0.0, np.maximum(low, 0.0)),
        np.where(none, 1.0, np.minimum(high, 1.0)),
        pair,
    )


def _over(
    reduce: Callable[..., np.ndarray],
    found: Mapping[tuple[int, int, int], np.ndarray],
    keep: np.ndarray,
    nothing: float,
) -> np.ndarray:
    """The largest or smallest over the pairs of groups that are both kept, (M,)."""
    return reduce(
        [np.where(keep[:, i] & keep[:, j], v, nothing) for (_, i, j), v in found.items()], axis=0
    )


def ratios(
    counts: np.ndarray,
    delta: ArrayLike,
    notion: str = "demographic_parity",
    keep: np.ndarray | None = None,
    rough: ArrayLike = False,
) -> Bounds:
    """The impact ratio of each part: the lowest of the groups' rates over the highest one, and its bounds.

    Rates of which none is positive have no ratio: nan on the rows, and 0 to 1 around it.
    """
    k, n = compared(counts, notion)
    keep = np.ones((k.shape[2], k.shape[1]), bool) if keep is None else keep
    ups, there = _ups(k, n, delta, rough, relative=True), np.where(keep.T, n, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(there > 0, k / n, np.nan)
        top, bottom = np.fmax.reduce(rates, axis=1), np.fmin.reduce(rates, axis=1)
        known = (top > 0) & ((there > 0).sum(axis=1) > 1)
        value = np.fmin.reduce(np.where(known, bottom / top, np.nan))
        low = _over(np.min, {key: 1 / up for key, up in ups.items()}, keep, np.inf)
    high = _over(np.min, ups, keep, np.inf)
    none = keep.sum(axis=1) < 2
    pair = _widest(k, there)[1]
    return Bounds(
        value,
        np.where(none, 0.0, np.clip(low, 0.0, 1.0)),
        np.where(none, 1.0, np.minimum(high, 1.0)),
        pair,
    )


def _ups(
    k: np.ndarray, n: np.ndarray, delta: ArrayLike, rough: ArrayLike, relative: bool = False
) -> dict[tuple[int, int, int], np.ndarray]:
    """The largest difference, or ratio, of every ordered pair of groups among the rows of each set of labels."""
    ordered = [*permutations(range(k.shape[1]), 2)]
    level = np.asarray(delta, float) / (len(ordered) * len(k))
    return {
        (y, i, j): largest(k[y][[j, i]], n[y][[j, i]], level, relative, rough)
        for y in range(len(k))
        for i, j in ordered
    }


def _widest(k: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest difference on the rows, and its groups; nan and -1 where fewer than two have rows."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(n > 0, k / n, np.nan)
    most = np.where(np.isnan(rates), -np.inf, rates)
    least = np.where(np.isnan(rates), np.inf, rates)
    gaps = most.max(axis=1) - least.min(axis=1)
    gaps[(n > 0).sum(axis=1) < 2] = -np.inf
    which, parts = gaps.argmax(axis=0), np.arange(k.shape[2])
    value = gaps[which, parts]
    pair = np.stack([most.argmax(axis=1)[which, parts], least.argmin(axis=1)[which, parts]], axis=1)
    none = ~np.isfinite(value)
    pair[none] = -1
    return np.where(none, np.nan, value), pair


def _rates_alone(k: np.ndarray, n: np.ndarray, delta: np.ndarray, keep: np.ndarray) -> Bounds:
    """The highest rate of a kept group, (M,), between the largest of their lower and upper limits."""
    low, high = clopper_pearson(k, n, delta / len(k))
    low, high = np.where(keep, low, 0.0), np.where(keep | ~keep.any(axis=0), high, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where((n > 0) & keep, k / n, -np.inf)
    top, found = rates.argmax(axis=0), rates.max(axis=0)
    there = np.isfinite(found)
    pair = np.where(there[:, None], np.stack([top, top], axis=1), -1)
    return Bounds(np.where(there, found, np.nan), low.max(axis=0), high.max(axis=0), pair)


@dataclass(frozen=True)
class Sample:
    """What is known of the parts before any decision is looked at.

    rows: (L, G, M), of the groups behind the compared rates, for each set of labels.  total: (M,), all rows,
    everybody's first.  least: the share of rows that a part must hold to be bounded sharply.  sets, candidates:
    see ``spent``. precision: the half width up to which a difference counts as estimable.  alone: rates are
    bounded, not compared.
    """

    rows: np.ndarray
    total: np.ndarray
    least: float
    sets: int
    candidates: int
    precision: float
    alone: bool = False


def levels(sample: Sample, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """What each part gets of delta, (M,), and which parts are bounded sharply, (M,) of bool.

    **Theorem.** Let E be the parts whose counts N pass a rule that more rows only pass more easily (``_enough``), and
    K the number of candidates whose counts pass it after being inflated twice, N -> ``_above(_below(N))``. If
    every part in E has bounds of level 0.9 delta / K, and every other one of 0.09 times ``spent``, all hold with
    probability 1 - delta.

    *Proof.* With probability 1 - 0.01 delta all counts of all candidates obey N <= _above(x) and x <= _below(N), x
    their expectations (Chernoff's tails of binomials, over all counts). Let P be the candidates whose _above(x)
    passes: a set that hangs on the population alone. Then E is within P, and P within the K candidates counted:
    |P| <= K. A sharp bound at 0.9 delta / K that fails fails at 0.9 delta / |P|, too, which given the part's own
    counts has at most that probability; there are |P| such parts. The others are ``spent``'s. []

    So parts without rows enough cost next to nothing, however many there are. All candidates that can pass
    inflated must be among ``total``: parts are to be searched down to ``thinnest``.
    """
    L = _tail(sample, delta)
    able = _enough(sample, sample.rows, sample.total)
    inflated = _enough(
        sample, _above(_below(sample.rows, L), L), _above(_below(sample.total, L), L)
    )
    sharp = 0.9 * delta / max(int(inflated.sum()), 1)
    n = float(sample.total[0])
    rest = spent(sample.total, n, sample.sets, sample.candidates, 0.09 * delta)
    return np.where(able, sharp, rest), able


def thinnest(least: float, n: float, cells: int, candidates: int, delta: float) -> int:
    """The fewest rows of a part that could pass ``levels``' rule inflated, where it asks for the share ``least``.

    cells: counts that are looked at in each part, its total included.
    """
    L = np.log(2 * cells * candidates / (0.01 * delta))
    rows = np.arange(int(least * n) + 2)
    return int(np.argmax(_above(_below(rows, L), L) >= min(least * n, rows[-1])))


def _tail(sample: Sample, delta: float) -> float:
    sets, groups, _ = sample.rows.shape
    return float(np.log(2 * (sets * groups + 1) * sample.candidates / (0.01 * delta)))


def _above(expected: np.ndarray, L: float) -> np.ndarray:
    """What a count exceeds with probability at most exp(-L): Bernstein's tail."""
    return expected + np.sqrt(2 * expected * L) + 2 * L / 3


def _below(count: np.ndarray, L: float) -> np.ndarray:
    """What the expectation of a count exceeds with probability at most exp(-L): Chernoff's lower tail, solved."""
    return (np.sqrt(np.asarray(count) + L / 2) + np.sqrt(L / 2)) ** 2


def _enough(sample: Sample, rows: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Whether two groups (one, where rates stand alone) could be within the precision at OPTIMISTIC deviations."""
    with np.errstate(divide="ignore"):
        variance = np.sort((0.25 / rows).max(axis=0), axis=0)
    needed = variance[0] if sample.alone else variance[:2].sum(axis=0)
    wide = OPTIMISTIC * np.sqrt(needed) <= sample.precision
    return wide & (total >= sample.least * float(sample.total[0]))


def estimable(sample: Sample, delta: np.ndarray) -> np.ndarray:
    """Which groups of each part are compared, (M, G), by their rows alone: all False where fewer than two can be.

    delta: (M,), of ``levels``.  Groups join from the largest down while the interval of a difference with the one
    before, at rates of one half and by the normal's approximation, is no wider than +- ``precision``.
    """
    from scipy.special import ndtri

    L, G, M = sample.rows.shape
    z = -ndtri(delta / (2 * G if sample.alone else max(L * G * (G - 1), 1)))
    with np.errstate(divide="ignore"):
        variance = (0.25 / sample.rows).max(axis=0)
    order = np.argsort(variance, axis=0, kind="stable")
    sorted_ = np.take_along_axis(variance, order, axis=0)
    before = 0 * order if sample.alone else np.vstack([sorted_[1:2], sorted_[:-1]])
    joins = z * np.sqrt(sorted_ + before) <= sample.precision
    keep = np.zeros((G, M), bool)
    np.put_along_axis(keep, order, np.logical_and.accumulate(joins, axis=0), axis=0)
    return keep.T


def mixtures(
    counts: np.ndarray, delta: ArrayLike, notion: str, floor: float, tolerance: float = 1e-4
) -> float:
    """An upper bound on the difference of two groups under every mixture of parts in which both keep the share
    ``floor``.

    counts: (M, G, 2, 2).  delta: (M,), as ``spent`` says.

    **Theorem.** A mixture draws from part m with probability u_m. With rates p and group shares rho of the parts
    its groups' rates are ``sum_m u_m rho_mj p_mj / sum_m u_m rho_mj``. Clopper-Pearson limits at delta_m / (4 G L)
    for all p, rho of part m fail somewhere with probability at most delta. Inside the box the rate of j grows with
    p_mj and that of k falls with lower p_mk, whatever u; and u_m rho for any rho in a box is a mixture of its
    corners with the same sum u_m: so the worst over box and mixtures is the worst over mixtures of the corners, a
    fractional linear program (``worst_difference``). []
    """
    k, n = compared(counts, notion)
    total = counts.sum(axis=(1, 2, 3))
    level = np.asarray(delta, float) / (2 * k.shape[1] * len(k))
    if NOTIONS[notion].bounds:  # a mixture's rate of one group is an average of the parts'
        return float(clopper_pearson(k[0], n[0], level)[1].max())
    worst = 0.0
    for y in range(len(k)):
        low, high = clopper_pearson(k[y], n[y], level)
        least, most = clopper_pearson(n[y], total, level)
        for j, i in permutations(range(k.shape[1]), 2):
            found = _mixed(
                (low[i], high[j]), [(least[g], most[g]) for g in (i, j)], floor, tolerance
            )
            worst = max(worst, found)
    return min(worst, 1.0)


def _mixed(
    rates: Sequence[np.ndarray],
    shares: Sequence[tuple[np.ndarray, np.ndarray]],
    floor: float,
    tolerance: float,
) -> float:
    """The worst over mixtures of the corners, for one ordered pair; 0 where no mixture keeps both floors."""
    corners = [*product((0, 1), repeat=2)]
    b = np.array([np.concatenate([shares[g][corner[g]] for corner in corners]) for g in (0, 1)])
    possible = b.sum(axis=0) <= 1 + 1e-9  # two groups are at most everybody
    a = b * np.array([np.tile(rate, len(corners)) for rate in rates])
    A = Ambiguity(np.ones(int(possible.sum())), 1.0)
    found = worst_difference(A, a[:, possible], b[:, possible], floor, tolerance)
    return 0.0 if found.outcome is Outcome.INFEASIBLE else float(found.value)


def chernoff(total: ArrayLike, n: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Limits of the mean of variables in [0, 1], from their sum: each end fails with probability at most delta / 2.

    Chernoff's with the relative entropy: by convexity exp(t x) <= 1 - x + x exp(t), so that the mean's tails are
    at most those bounds of a binomial, exp(-n KL(mean || mu)).

    >>> [round(float(end), 3) for end in chernoff(20.0, 100, 0.05)]
    [0.107, 0.322]
    """
    mean, budget = np.asarray(total, float) / n, np.log(2 / delta) / n
    ends = []
    for outer in (0.0, 1.0):
        inside, outside = mean.copy(), np.full_like(mean, outer)
        for _ in range(60):
            middle = (inside + outside) / 2
            far = _entropy(mean, middle) > budget
            inside, outside = np.where(far, inside, middle), np.where(far, middle, outside)
        ends.append(outside)
    return ends[0], ends[1]


def _entropy(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """KL of two Bernoulli rates."""
    from scipy.special import rel_entr

    return rel_entr(p, q) + rel_entr(1 - p, 1 - q)


def reweighings(
    psi: np.ndarray,
    n: float,
    delta: float,
    notion: str,
    bound: float | None,
    floor: float,
    tolerance: float = 1e-4,
) -> float:
    """An upper bound on the difference of two groups under every reweighing of the *population* by kernels in [0, 1].

    psi: (G, 2, 2, M) sums of K over the cells of n rows.  The set: 0 <= alpha <= bound, mean weight one and both
    groups' masses at least ``floor``, means being the population's.

    **Theorem.** Chernoff's limits of all positive and negative masses (and of psi_theta) hold at once with
    probability 1 - delta. For any alpha a rate grows with its positive and falls with its negative masses, so the
    box's worst is at one corner for all alpha. Scaled so that the *rows'* mean weight is one, alpha is at most
    bound / r with r = min_m psi_theta / its upper limit, and a group's mass at the corner at least floor c / R, R
    = max_m psi_theta / its lower limit and c the least ratio of the corner's mass to the box's largest: so the
    worst over the rows' set with these limits bounds the population's. []
    """
    total = psi.sum(axis=(0, 1, 2))
    live = total > 0
    psi, total = psi[..., live], total[live]
    looked = notions.ratios(NOTIONS[notion], psi)
    events = 2 * psi.shape[0] * len(looked) + 1
    low, high = chernoff(total, n, delta / (events * len(total)))
    shrink, grow = (
        float((total / n / high).min()),
        float((total / n / np.maximum(low, 1e-300)).max()),
    )
    A = Ambiguity(total, n, None if bound is None else bound / shrink)
    worst = 0.0
    for _, a, b in looked:
        ends = [chernoff(mass, n, delta / (events * len(total))) for mass in (a, b - a)]
        (p_low, p_high), (n_low, n_high) = [(n * lo, n * hi) for lo, hi in ends]
        top, bottom = p_high + n_low, p_low + n_high
        least = [float((corner / (p_high + n_high)).min()) for corner in (top, bottom)]
        kept = floor / grow * min(least)
        worst = max(
            worst, _worst_at_corners(A, p_low, p_high, bottom, top, kept, notion, tolerance)
        )
    return min(worst, 1.0)


def _worst_at_corners(
    A: Ambiguity,
    p_low: np.ndarray,
    p_high: np.ndarray,
    bottom: np.ndarray,
    top: np.ndarray,
    floor: float,
    notion: str,
    tolerance: float,
) -> float:
    if NOTIONS[notion].bounds:
        alone = [worst_ratio(A, p_high[g], top[g], floor) for g in range(len(top))]
        return max((w.value for w in alone if w.outcome is Outcome.OPTIMAL), default=0.0)
    worst = 0.0
    for j, k in permutations(range(len(top)), 2):
        a, b = np.stack([p_low[k], p_high[j]]), np.stack([bottom[k], top[j]])
        found = worst_difference(A, a, b, floor, tolerance)
        if found.outcome is not Outcome.INFEASIBLE:
            worst = max(worst, found.value)
    return worst
