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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike

from agnosticfair.mathematics import notions
from agnosticfair.mathematics.binomial import clopper_pearson, largest
from agnosticfair.mathematics.notions import NOTIONS

OPTIMISTIC = 3.4
"""Standard errors of a bound at the least: a part that is too wide even so is not bounded sharply."""


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
