"""Bounds that hold, with a stated probability, for the population that held-out rows were drawn from.

Rows are independent draws, and the model was fitted on others. Within a cell (a subgroup, a group and, where the metric
asks for one, a label) the positive decisions among the cell's n rows are then binomial, so that Clopper and Pearson's
limits are exact at any n. Theorems, each with the proof in its docstring, make of them what a certificate says:

- ``binomial.largest``: of two rates, the largest difference (or ratio), about 1.45 times tighter than the box of both
  limits;
- ``levels``: what every subgroup gets of delta, by rows alone, so that the subgroups may be any conjunctions, ever so
many;
- ``within``: the bound over all of them at once, which needs no correction for their number;
- ``reweighting``: the worst over mixtures of subgroups, and over kernels, as a fractional program over a box.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agnosticfair.mathematics import metrics
from agnosticfair.mathematics.ambiguity import Ambiguity, Outcome
from agnosticfair.mathematics.binomial import chernoff, clopper_pearson, largest
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.mathematics.ratios import proved, worst_difference, worst_ratio

SHARP = 0.815  # what delta is spent on: intervals of estimable subgroups,
OVERALL = 0.05  # of overall by itself,
REST = 0.02  # and of other subgroups;
COUNTS = 0.01  # counts of all,
ONE = 0.005  # and of one;
UPPER = 0.1  # the bound over all

OPTIMISTIC = 3.4
"""Standard errors of a bound at the least: a subgroup that is too wide even so is not bounded sharply."""

RARE = 4.0
"""By how many times fewer rows than the second largest a group is left out overall, where rows are too few for the
precision."""


def spent(rows: ArrayLike, n: float, sets: int, candidates: int, delta: float) -> np.ndarray:
    """What each subgroup gets of delta, by its own rows: delta / 2 (1 / candidates + rows / (n sets)), (M,).

    Subgroups are conjunctions of values of some columns; ``candidates`` of them could have been looked at, and they
    come of ``sets`` different sets of columns, the empty one (overall) included.

    **Theorem.** If subgroup m's bounds fail with probability at most delta_m given the counts of its cells, all bounds
    hold with probability at least 1 - delta, whichever subgroups are then shown.

    *Proof.* delta_m is a function of subgroup m's own counts, so that P(m fails) <= E[delta_m]. The subgroups of one
    set of columns are disjoint: their rows add up to at most n, so that sum_m delta_m <= delta for every outcome, and
    the union of failures has probability at most E[sum_m delta_m] <= delta. []

    >>> spent([100, 60, 40], 100, sets=2, candidates=4, delta=0.08).round(4).tolist()
    [0.03, 0.022, 0.018]
    """
    return delta / 2 * (1 / candidates + np.asarray(rows, float) / (n * sets))


def compared(counts: np.ndarray, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Positive decisions k and rows n behind every rate that a metric looks at: (L, G, M) each, L sets of labels.

    counts: (M, G, 2, 2) rows by subgroup, group, label, decision.
    """
    looked = metrics.ratios(METRICS[metric], np.moveaxis(counts, 0, -1))
    return np.stack([k for _, k, _ in looked]), np.stack([n for _, _, n in looked])


def on_rows(counts: np.ndarray, metric: str, keep: np.ndarray) -> np.ndarray:
    """What ``differences`` has as value, without any bound, (M,); nan where nothing is compared."""
    k, n = compared(counts, metric)
    there = np.where(keep.T, n, 0)
    if not METRICS[metric].bounds:
        return _widest(k, there)[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.fmax.reduce(np.where(there > 0, k / n, np.nan)[0])


@dataclass(frozen=True)
class Bounds:
    """Of every subgroup: the value on the rows, and the ends between which the population's lies, (M,) each.  pair:
    (M, 2) the groups of the value on the rows, the higher rate first; -1 without any."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    pair: np.ndarray


def differences(
    counts: np.ndarray,
    delta: ArrayLike,
    metric: str,
    keep: np.ndarray | None = None,
    rough: ArrayLike = False,
) -> Bounds:
    """The largest difference of two groups' rates in each subgroup, from (M, G, 2, 2) counts; 'bounded_group_loss':
    the highest error rate.  delta: (M,) what the subgroup's bounds may fail with, together.

    Both ends hold at once (``ends``).  keep: (M, G), the groups that are compared, all unless said; which ones may
    hang on the subgroup's own counts of rows, not on decisions. A group without rows is compared with none on the rows,
    and leaves ``high`` at 1: what is not there cannot be bounded.
    """
    k, n = compared(counts, metric)
    keep = np.ones((k.shape[2], k.shape[1]), bool) if keep is None else keep
    if METRICS[metric].bounds:
        return _rates_alone(k[0], n[0], np.asarray(delta, float), keep.T)
    value, pair = _widest(k, np.where(keep.T, n, 0))
    outer, inner = (_ups(k, n, level, rough) for level in ends(delta, len(k), k.shape[1]))
    high = _over(np.max, outer, keep, -np.inf)
    low = _over(np.max, {(y, i, j): -inner[y, j, i] for y, i, j in inner}, keep, -np.inf)
    none = keep.sum(axis=1) < 2
    return Bounds(
        value,
        np.where(none, 0.0, np.maximum(low, 0.0)),
        np.where(none, 1.0, np.minimum(high, 1.0)),
        pair,
    )


def _over(
    reduce: Callable[..., np.ndarray],
    bounds_of: Mapping[tuple[int, int, int], np.ndarray],
    keep: np.ndarray,
    nothing: float,
) -> np.ndarray:
    """The largest or smallest over the pairs of groups that are both compared, (M,)."""
    return reduce(
        [np.where(keep[:, i] & keep[:, j], v, nothing) for (_, i, j), v in bounds_of.items()],
        axis=0,
    )


def ratios(
    counts: np.ndarray,
    delta: ArrayLike,
    metric: str = "demographic_parity",
    keep: np.ndarray | None = None,
    rough: ArrayLike = False,
) -> Bounds:
    """The impact ratio of each subgroup: the lowest of the groups' rates over the highest one, and its bounds.

    Rates of which none is positive have no ratio: nan on the rows, and 0 to 1 around it.
    """
    k, n = compared(counts, metric)
    keep = np.ones((k.shape[2], k.shape[1]), bool) if keep is None else keep
    levels = ends(delta, len(k), k.shape[1])
    outer, inner = (_ups(k, n, level, rough, relative=True) for level in levels)
    there = np.where(keep.T, n, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(there > 0, k / n, np.nan)
        top, bottom = np.fmax.reduce(rates, axis=1), np.fmin.reduce(rates, axis=1)
        known = (top > 0) & ((there > 0).sum(axis=1) > 1)
        value = np.fmin.reduce(np.where(known, bottom / top, np.nan))
        low = _over(np.min, {key: 1 / up for key, up in outer.items()}, keep, np.inf)
    high = _over(np.min, inner, keep, np.inf)
    none = keep.sum(axis=1) < 2
    pair = _widest(k, there)[1]
    return Bounds(
        value,
        np.where(none, 0.0, np.clip(low, 0.0, 1.0)),
        np.where(none, 1.0, np.minimum(high, 1.0)),
        pair,
    )


def ends(delta: ArrayLike, sets: int, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """The levels of a subgroup's one-sided bounds: for the outer end of its largest difference, and for the inner end.

    **Theorem.** Let D be the largest of the differences d_e, e the ordered pairs of groups in each set of labels, J in
    all, and let every one-sided bound of d_e be exact. With the outer end the largest of bounds at level delta / 2,
    and the inner end the largest lower bound at delta / (2 (J - 1)), both hold with probability 1 - delta.

    *Proof.* The outer end is no less than the bound of the pair that has D, so it fails only where that one does:
    delta / 2. The inner end fails where some lower bound exceeds D: of the pair that is D's reversed this is within the
    event before, its bound being at a smaller level; there are J - 1 others. []
    """
    half = np.asarray(delta, float) / 2
    return half, half / max(sets * groups * (groups - 1) - 1, 1)


def _ups(
    k: np.ndarray, n: np.ndarray, level: ArrayLike, rough: ArrayLike, relative: bool = False
) -> dict[tuple[int, int, int], np.ndarray]:
    """The largest difference, or ratio, of every ordered pair of groups among the rows of each set of labels."""
    return {
        (y, i, j): largest(k[y][[j, i]], n[y][[j, i]], level, relative, rough)
        for y in range(len(k))
        for i, j in permutations(range(k.shape[1]), 2)
    }


def _widest(k: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest difference on the rows, and its groups; nan and -1 where fewer than two have rows."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(n > 0, k / n, np.nan)
    maximum = np.where(np.isnan(rates), -np.inf, rates)
    minimum = np.where(np.isnan(rates), np.inf, rates)
    gaps = maximum.max(axis=1) - minimum.min(axis=1)
    gaps[(n > 0).sum(axis=1) < 2] = -np.inf
    which, places = gaps.argmax(axis=0), np.arange(k.shape[2])
    value = gaps[which, places]
    pair = np.stack(
        [maximum.argmax(axis=1)[which, places], minimum.argmin(axis=1)[which, places]], axis=1
    )
    none = ~np.isfinite(value)
    pair[none] = -1
    return np.where(none, np.nan, value), pair


def _rates_alone(k: np.ndarray, n: np.ndarray, delta: np.ndarray, keep: np.ndarray) -> Bounds:
    """The highest rate of a compared group, (M,), between the largest of their lower and upper limits: the upper one
    need hold for the highest rate alone (``ends``)."""
    low, high = clopper_pearson(k, n, delta / len(k))[0], clopper_pearson(k, n, delta)[1]
    low, high = np.where(keep, low, 0.0), np.where(keep | ~keep.any(axis=0), high, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where((n > 0) & keep, k / n, -np.inf)
    top, highest = rates.argmax(axis=0), rates.max(axis=0)
    there = np.isfinite(highest)
    pair = np.where(there[:, None], np.stack([top, top], axis=1), -1)
    return Bounds(np.where(there, highest, np.nan), low.max(axis=0), high.max(axis=0), pair)


@dataclass(frozen=True)
class Sample:
    """What is known of the subgroups before any decision is looked at.

    rows: (L, G, M), of the groups behind the compared rates, for each set of labels.  total: (M,), all rows,
    overall first.  min_share: the share of rows that a subgroup must hold to be bounded sharply.  sets, candidates:
    see ``spent``. precision: the half width up to which a difference counts as estimable.  alone: rates are
    bounded, not compared.
    """

    rows: np.ndarray
    total: np.ndarray
    min_share: float
    sets: int
    candidates: int
    precision: float
    alone: bool = False


def levels(sample: Sample, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """What each subgroup gets of delta, (M,), and which subgroups are bounded sharply, (M,) of bool.

    **Theorem.** Let E be the subgroups whose counts N pass a rule that more rows only pass more easily (``_enough``),
    and K the number of candidates whose counts pass it after being inflated twice, N -> ``_above(_below(N))``. If
    every subgroup in E has bounds of level SHARP delta / K, and every other one of REST times ``spent``, all hold with
    probability 1 - (SHARP + REST + COUNTS) delta; OVERALL delta more where overall has that level.

    *Proof.* With probability 1 - COUNTS delta all counts of all candidates obey N <= _above(x) and x <= _below(N), x
    their expectations (Chernoff's tails of binomials, over all counts). Let P be the candidates whose _above(x)
    passes: a set that hangs on the population alone. Then E is within P, and P within the K candidates counted:
    |P| <= K. A sharp bound at SHARP delta / K that fails fails at SHARP delta / |P|, too, which given the subgroup's
    own counts has at most that probability; there are |P| such subgroups. The others are ``spent``'s. []

    So subgroups without rows enough cost next to nothing, however many there are. All candidates that can pass
    inflated must be among ``total``: subgroups are to be searched down to ``thinnest``.  Overall is a subgroup that
    is fixed beforehand, and has OVERALL of delta besides: with few rows that is what can be certified.  What is left
    of delta, ONE and UPPER of it, is ``within``'s.
    """
    L = _tail(sample, delta)
    able = _enough(sample, sample.rows, sample.total)
    inflated = _enough(
        sample, _above(_below(sample.rows, L), L), _above(_below(sample.total, L), L)
    )
    sharp = SHARP * delta / max(int(inflated.sum()), 1)
    n = float(sample.total[0])
    rest = spent(sample.total, n, sample.sets, sample.candidates, REST * delta)
    level, able = np.where(able, sharp, rest), able.copy()
    level[0], able[0] = max(float(level[0]), OVERALL * delta), _compares(sample)
    return level, able


def _compares(sample: Sample) -> bool:
    """Whether two groups have rows overall, one where rates stand alone."""
    return bool((sample.rows[:, :, 0].min(axis=0) > 0).sum() > (0 if sample.alone else 1))


def within(counts: np.ndarray, sample: Sample, delta: float, metric: str) -> float:
    """An upper bound on the largest difference in any estimable subgroup, without a price for their number.

    counts: (M, G, 2, 2), of all subgroups that were searched.

    **Theorem.** Let S be the pairs of groups in subgroups whose counts pass the rule of ``may_count`` inflated. The
    largest bound of a pair in S, each at level UPPER delta, is below some difference of an estimable subgroup with
    probability at most (UPPER + ONE) delta, besides the COUNTS delta of ``levels``.

    *Proof* (an intersection-union test). Let P be the pairs whose _above(x) passes: fixed by the population, as is the
    pair e* of the largest difference in P. Where all counts obey N <= _above(x), the pairs compared in estimable
    subgroups are within P, so that none differs by more than e*. Where the counts of e* alone obey x <= _below(N),
    which they do but for ONE delta, e* is in S, and the largest bound over S is no less than its own: that one fails,
    given the subgroup's counts, with probability at most UPPER delta. []
    """
    L, one = _tail(sample, delta), np.log((2 * len(sample.rows) + 1) / (ONE * delta))
    rows = _above(_below(sample.rows, one), L)
    pairs = may_count(sample, rows, _above(_below(sample.total, one), L))
    k, n = compared(counts, metric)
    bounds = [0.0]
    for (i, j), inside in pairs.items():
        for y in range(len(k)) if inside.any() else ():
            some = k[y][[j, i]][:, inside], n[y][[j, i]][:, inside]
            if sample.alone:
                up = clopper_pearson(some[0][0], some[1][0], 2 * UPPER * delta)[1]
            else:
                up = largest(*some, UPPER * delta)
            bounds.append(float(up.max()))
    return min(max(bounds), 1.0)


def may_count(
    sample: Sample, rows: np.ndarray, total: np.ndarray
) -> dict[tuple[int, int], np.ndarray]:
    """In which subgroups each ordered pair of groups (each group twice, where rates stand alone) could be estimable
    with so many rows: a rule that more rows only pass more easily. Overall is always among them."""
    groups = range(rows.shape[1])
    with np.errstate(divide="ignore"):
        variance = (0.25 / rows).max(axis=0)
    large = total >= sample.min_share * float(sample.total[0])
    overall = np.arange(len(total)) == 0
    if sample.alone:
        narrow = {(g, g): large & _narrow(variance[g], sample.precision) for g in groups}
    else:
        narrow = {
            (i, j): large & _narrow(variance[i] + variance[j], sample.precision)
            for i, j in permutations(groups, 2)
        }
    there = np.isfinite(variance[:, 0])
    return {(i, j): inside | (overall & there[i] & there[j]) for (i, j), inside in narrow.items()}


def _narrow(variance: np.ndarray, precision: float) -> np.ndarray:
    return OPTIMISTIC * np.sqrt(variance) <= precision


def reached(sample: Sample, delta: float) -> np.ndarray:
    """The subgroups that hold, but for ONE delta each, whichever of the population's own could be estimable, (M,): S of
    ``within``, subgroup by subgroup."""
    L, one = (
        _tail(sample, delta),
        np.log((len(sample.rows[0]) * len(sample.rows) + 1) / (ONE * delta)),
    )
    rows = _above(_below(sample.rows, one), L)
    enough_rows = _enough(sample, rows, _above(_below(sample.total, one), L))
    return enough_rows | ((np.arange(len(enough_rows)) == 0) & _compares(sample))


def thinnest(minimum: float, n: float, strata: int, candidates: int, delta: float) -> int:
    """The fewest rows of a subgroup that could pass ``levels``' rule inflated, where it asks for the share ``minimum``.

    strata: counts that are looked at in each subgroup, its total included.
    """
    L = np.log(2 * strata * candidates / (COUNTS * delta))
    return bisect_left(
        range(int(minimum * n) + 1), minimum * n, key=lambda rows: float(_above(_below(rows, L), L))
    )


def _tail(sample: Sample, delta: float) -> float:
    sets, groups, _ = sample.rows.shape
    return float(np.log(2 * (sets * groups + 1) * sample.candidates / (COUNTS * delta)))


def _above(expected: np.ndarray, L: float) -> np.ndarray:
    """What a count exceeds with probability at most exp(-L): Bernstein's tail."""
    return expected + np.sqrt(2 * expected * L) + 2 * L / 3


def _below(count: ArrayLike, L: float) -> np.ndarray:
    """What the expectation of a count exceeds with probability at most exp(-L): Chernoff's lower tail, solved."""
    return np.asarray((np.sqrt(np.asarray(count) + L / 2) + np.sqrt(L / 2)) ** 2)


def _enough(sample: Sample, rows: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Whether two groups (one, where rates stand alone) could be within the precision at OPTIMISTIC deviations."""
    with np.errstate(divide="ignore"):
        variance = np.sort((0.25 / rows).max(axis=0), axis=0)
    needed = variance[0] if sample.alone else variance[:2].sum(axis=0)
    return _narrow(needed, sample.precision) & (total >= sample.min_share * float(sample.total[0]))


def estimable(sample: Sample, delta: np.ndarray) -> np.ndarray:
    """Which groups of each subgroup are compared, (M, G), by their rows alone: all False where fewer than two can be.

    delta: (M,), of ``levels``.  Groups join from the largest down while the interval of a difference with the one
    before, at rates of one half and by the normal's approximation, is no wider than +- ``precision``. Two groups that
    join pass ``may_count``. Where no two groups do overall, the two largest are compared all the same, with those
    of a RARE-th of their rows: it is one subgroup, fixed beforehand, and its interval says how little is known.
    """
    from scipy.special import ndtri

    L, G, M = sample.rows.shape
    level = delta / (2 * G) if sample.alone else ends(delta, L, G)[1]
    z = np.where(np.arange(M) == 0, -ndtri(level), np.maximum(-ndtri(level), OPTIMISTIC))
    with np.errstate(divide="ignore"):
        variance = (0.25 / sample.rows).max(axis=0)
    order = np.argsort(variance, axis=0, kind="stable")
    sorted_ = np.take_along_axis(variance, order, axis=0)
    before = 0 * order if sample.alone else np.vstack([sorted_[1:2], sorted_[:-1]])
    joins = z * np.sqrt(sorted_ + before) <= sample.precision
    second = sorted_[min(0 if sample.alone else 1, G - 1), 0]
    if not joins[: 1 if sample.alone else 2, 0].all() and np.isfinite(second):
        joins[:, 0] = sorted_[:, 0] <= RARE * second
    keep = np.zeros((G, M), bool)
    np.put_along_axis(keep, order, np.logical_and.accumulate(joins, axis=0), axis=0)
    return keep.T


SUPPORT = 3
"""Subgroups that a worst mixture needs: one equation for the weights, and one for each group's mass."""


@dataclass(frozen=True)
class Proved:
    """An upper bound, and the duals that show it by weak duality: edges (E, 3) of every pair looked at."""

    value: float
    duals: tuple[np.ndarray, ...]


def mixtures(
    counts: np.ndarray,
    delta: float,
    metric: str,
    floor: float,
    tolerance: float = 1e-4,
    duals: Sequence[Any] | None = None,
) -> Proved:
    """An upper bound on the difference of two groups under every mixture of subgroups in which both keep the share
    ``floor``, however many subgroups there are.

    counts: (M, G, 2, 2), of ``confidence.reached`` subgroups.  duals: by which the bound is to be shown, instead of
    looking for it.

    **Theorem.** A mixture draws from subgroup m with probability u_m. With rates p and group shares rho of the
    subgroups its groups' rates are ``sum_m u_m rho_mj p_mj / sum_m u_m rho_mj``. Let all p, rho have one-sided
    Clopper-Pearson limits at delta / (6 SUPPORT). The worst over mixtures and the box of these limits is below the
    population's worst with probability at most delta.

    *Proof.* With both groups' masses held fixed the difference is linear in u: some worst mixture of the population is
    a vertex of three equations, and mixes SUPPORT subgroups. It is fixed, as are its set of labels and its two groups,
    so that only its subgroups' limits need hold: of the higher rate, the lower rate and both ends of two shares, 6 in
    each. Inside the box the rate of j grows with p_mj and that of k falls with lower p_mk, whatever u; and u_m rho for
    any rho in a box is a mixture of its corners with the same sum u_m: so the worst over box and mixtures is the worst
    over mixtures of the corners, a fractional linear program (``worst_difference``). []
    """
    k, n = compared(counts, metric)
    total = counts.sum(axis=(1, 2, 3))
    # a mixture's rate of one group is an average of the subgroups': one subgroup is worst
    if METRICS[metric].bounds:
        return Proved(float(clopper_pearson(k[0], n[0], 2 * delta)[1].max()), ())
    level, dual_bounds = 2 * delta / (6 * SUPPORT), _Duals(floor, tolerance, duals)
    for y in range(len(k)):
        low, high = clopper_pearson(k[y], n[y], level)
        minimum, maximum = clopper_pearson(n[y], total, level)
        for j, i in permutations(range(k.shape[1]), 2):
            _mixed(dual_bounds, (low[i], high[j]), [(minimum[g], maximum[g]) for g in (i, j)])
    return dual_bounds.proved()


class _Duals:
    """Differences one after the other: looked for, or shown by the duals that are given."""

    def __init__(self, floor: float, tolerance: float, duals: Sequence[Any] | None) -> None:
        self.floor, self.tolerance, self.worst = floor, tolerance, 0.0
        self.known: Iterator[Any] | None = None if duals is None else iter(duals)
        self.solved: list[np.ndarray] = []

    def look(self, A: Ambiguity, a: np.ndarray, b: np.ndarray, floor: float | None = None) -> None:
        """One more difference; there is none where no reweighting keeps both floors."""
        floor = self.floor if floor is None else floor
        if self.known is None:
            worst = worst_difference(A, a, b, floor, self.tolerance)
            edges = np.zeros((0, 3)) if worst.edges is None else worst.edges
        else:
            edges = np.array(next(self.known, ()), float).reshape(-1, 3)
        value = proved(A, a, b, floor, edges)
        self.solved.append(edges)
        self.worst = max(self.worst, 0.0 if np.isnan(value) else value)

    def proved(self) -> Proved:
        """The worst of all, which is at most 1."""
        if self.known is not None and next(self.known, None) is not None:
            raise ValueError("there are duals of nothing")
        return Proved(min(self.worst, 1.0), tuple(self.solved))


def _mixed(
    dual_bounds: _Duals,
    rates: Sequence[np.ndarray],
    shares: Sequence[tuple[np.ndarray, np.ndarray]],
) -> None:
    """The worst over mixtures of the corners, for one ordered pair."""
    corners = [*product((0, 1), repeat=2)]
    b = np.array([np.concatenate([shares[g][corner[g]] for corner in corners]) for g in (0, 1)])
    possible = b.sum(axis=0) <= 1 + 1e-9  # two groups are at most all rows
    a = b * np.array([np.tile(rate, len(corners)) for rate in rates])
    A = Ambiguity(np.ones(int(possible.sum())), 1.0)
    dual_bounds.look(A, a[:, possible], b[:, possible])


def reweightings(
    psi: np.ndarray,
    n: float,
    delta: float,
    metric: str,
    bound: float | None,
    floor: float,
    tolerance: float = 1e-4,
    duals: Sequence[Any] | None = None,
) -> Proved:
    """An upper bound on the difference of two groups under every reweighting of the *population* by kernels in [0, 1].

    psi: (G, 2, 2, M) sums of K over the cells of n rows.  The set: 0 <= alpha <= bound, mean weight one and both
    groups' masses at least ``floor``, means being the population's.  duals: as in ``mixtures``.

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
    looked = metrics.ratios(METRICS[metric], psi)
    events = 2 * psi.shape[0] * len(looked) + 1
    low, high = chernoff(total, n, delta / (events * len(total)))
    shrink, grow = (
        float((total / n / high).min()),
        float((total / n / np.maximum(low, 1e-300)).max()),
    )
    A = Ambiguity(total, n, None if bound is None else bound / shrink)
    dual_bounds = _Duals(floor, tolerance, duals)
    for _, a, b in looked:
        ends = [chernoff(mass, n, delta / (events * len(total))) for mass in (a, b - a)]
        (p_low, p_high), (n_low, n_high) = [(n * lo, n * hi) for lo, hi in ends]
        top, bottom = p_high + n_low, p_low + n_high
        minimum = [float((corner / (p_high + n_high)).min()) for corner in (top, bottom)]
        min_mass = floor / grow * min(minimum)
        if METRICS[metric].bounds:
            alone = [worst_ratio(A, p_high[g], top[g], min_mass) for g in range(len(top))]
            dual_bounds.worst = max(
                [w.value for w in alone if w.outcome is Outcome.OPTIMAL], default=0.0
            )
            continue
        for j, k in permutations(range(len(top)), 2):
            both = np.stack([p_low[k], p_high[j]]), np.stack([bottom[k], top[j]])
            dual_bounds.look(A, *both, min_mass)
    return dual_bounds.proved()
