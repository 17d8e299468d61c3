"""Where the rows lie: their mix of single values against those that the certified set can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import log

import numpy as np

from agnosticfair.mathematics.binomial import change_evidence, clopper_pearson, rate_bounds
from agnosticfair.mathematics.subgroups import Subgroup, sizes_of, starts_of
from agnosticfair.monitoring.baseline import Baseline

TOLERANCE = 1e-7
"""Of the linear programs, as shares."""


@dataclass(frozen=True)
class Place:
    """Inside, edge or outside; the distance from the nearest mixture of single values, and what weighs most in it;
    whether the mix changed; and the value that moved most."""

    where: str
    distance: float
    nearest: Mapping[str, float]
    changed: bool
    because: str


def placed(baseline: Baseline, values: np.ndarray, rows: int, delta: float) -> Place:
    """Where rows with these counts of values, (I + C,), lie.

    While they are drawn from a reweighting in the set, 'outside' is ever said with probability at most delta / 2; while
    the mix is the baseline's, ``changed`` with the same.
    """
    if not baseline.axes or not rows:
        return Place("inside", 0.0, {}, False, "")
    then, shares = baseline.values / baseline.n, values / rows
    was_low, was_high = clopper_pearson(baseline.values, baseline.n, delta / 6 / len(then))
    margin = np.maximum(was_high - then, then - was_low)
    point, alpha = nearest(baseline, shares)
    if point <= margin.max():
        where = "inside"
    else:
        low, high = rate_bounds(values, np.full(len(then), rows), delta / 4 / len(then))
        where = "edge" if reachable(baseline, low, high, delta / 4) else "outside"
    changed = mix_changed(baseline, values, delta / 2)
    k = int(np.abs(shares - then).argmax())
    moved = f"{100 * then[k]:.1f}% to {100 * shares[k]:.1f}% of the rows."
    sentence = (
        f"{baseline.value_names[k]} went from {moved}" if changed or where != "inside" else ""
    )
    return Place(where, point, _heaviest(baseline, alpha), changed, sentence)


def nearest(baseline: Baseline, shares: np.ndarray) -> tuple[float, np.ndarray]:
    """How far shares, (I + C,), lie from every mix that a mixture of single values has among the baseline's rows:
    min t >= 0 with |G alpha / n - shares| <= t, 0 <= alpha <= bound, mean weight one, G the counts of pairs. A value
    never seen has share 0 in all of them. Returns t and alpha, (I,)."""
    from scipy.optimize import linprog

    G, size = baseline.counts / baseline.n, len(baseline.counts)
    reached = np.vstack([G, np.zeros((len(shares) - size, size))])
    ones = np.ones((len(shares), 1))
    solved = linprog(
        np.r_[np.zeros(size), 1.0],
        A_ub=np.block([[reached, -ones], [-reached, -ones]]),
        b_ub=np.r_[shares, -shares],
        A_eq=np.r_[np.diag(G), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, baseline.bound)] * size + [(0, None)],
    )
    if solved.status != 0:
        return 1.0, np.zeros(size)
    return float(solved.fun), np.asarray(solved.x[:-1])


def reachable(baseline: Baseline, low: np.ndarray, high: np.ndarray, delta: float) -> bool:
    """Whether some mixture of single values and promised subgroups can have shares in the box [low, high], (I + C,), in
    the population: 'no' is wrong with probability at most delta.

    A mixture gives the value v the share sum_p w_p q_pv, with w_p >= 0 of sum one and q_pv the share of v within the
    subgroup p. Of q only bounds are known (``shares_within``), so the answer is that of a linear program in w alone:
    are there w with sum_p w_p minimum_pv <= high_v and sum_p w_p maximum_pv >= low_v for all v? It is put as the
    smallest t by which they miss: without a goal the simplex method may go round for ever.
    """
    from scipy.optimize import linprog

    size = len(baseline.counts)
    subgroups: list[Subgroup] = [subgroup for subgroup in baseline.subgroups if len(subgroup) != 1]
    subgroups += [
        ((a, v),) for a, axis in enumerate(baseline.axes) for v in range(len(axis.values))
    ]
    minimum, maximum = shares_within(baseline, subgroups, delta / 2)
    _, share = clopper_pearson(np.diag(baseline.counts), baseline.n, delta / size)
    cap = np.r_[np.ones(len(subgroups) - size), np.minimum(1.0, baseline.bound * share)]
    ends = np.vstack([minimum.T, -maximum.T])
    solved = linprog(
        np.r_[np.zeros(len(subgroups)), 1.0],
        A_ub=np.column_stack([ends, -np.ones(len(ends))]),
        b_ub=np.r_[high, -low],
        A_eq=np.r_[np.ones(len(subgroups)), 0.0][None],
        b_eq=[1.0],
        bounds=[*((0, maximum) for maximum in cap), (0, None)],
    )
    return bool(solved.status != 0 or solved.fun <= TOLERANCE)  # what is not solved proves nothing


def shares_within(
    baseline: Baseline, subgroups: list[Subgroup], delta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of every value's share within every subgroup in the population, (P, I + C) each, all at once.

    The baseline has the rows of pairs of values. Of a subgroup of one value they are the counts themselves; the rows of
    a conjunction of a and b that have v are at most those of (a, v) and of (b, v), and at least what is left where
    all rows of a, or of b, that lack v are taken away. Clopper and Pearson's limits of these ends are on the safe side.
    """
    starts = starts_of(sizes_of(baseline.axes))
    sizes = np.diag(baseline.counts)
    strange = [sizes - baseline.counts[:, a:b].sum(axis=1) for a, b in pairwise(starts)]
    counts = np.column_stack([baseline.counts, *strange])  # (I, I + C)
    rows = dict(zip(baseline.subgroups, baseline.subgroup_rows, strict=True))
    fewest, maximum = np.empty((2, len(subgroups), counts.shape[1]))
    n, known = np.empty(len(subgroups)), np.zeros((len(subgroups), counts.shape[1]), bool)
    for p, subgroup in enumerate(subgroups):
        ends = [starts[a] + v for a, v in subgroup]
        n[p] = rows[subgroup] if subgroup in rows else sizes[ends[0]]
        with_value = counts[ends] if ends else baseline.values[None]
        total = sizes[ends] if ends else np.array([baseline.n])
        maximum[p] = np.minimum(with_value.min(axis=0), n[p])
        fewest[p] = np.maximum(n[p] - (total[:, None] - with_value).min(axis=0), 0)
        for a, _ in subgroup:
            known[p, np.r_[starts[a] : starts[a + 1], starts[-1] + a]] = True
    level, n = delta / maximum.size, np.maximum(n, 1)[:, None]
    low, high = clopper_pearson(fewest, n, level)[0], clopper_pearson(maximum, n, level)[1]
    return np.where(known, fewest / n, low), np.where(known, maximum / n, high)


def mix_changed(baseline: Baseline, values: np.ndarray, delta: float) -> bool:
    """Whether the counts of values, (I + C,), show that the mix is not the baseline's; while it is, this ever says
    so with probability at most delta."""
    starts, then = starts_of(sizes_of(baseline.axes)), baseline.values
    low, high = clopper_pearson(then, baseline.n, delta / 2 / len(then))
    threshold = log(len(baseline.axes) / (delta / 2))
    for c in range(len(baseline.axes)):
        places = np.r_[starts[c] : starts[c + 1], starts[-1] + c]
        if change_evidence(values[places], low[places], high[places]) > threshold:
            return True
    return False


def _heaviest(baseline: Baseline, alpha: np.ndarray) -> dict[str, float]:
    """What the five heaviest single values weigh in a mixture."""
    mass = alpha * np.diag(baseline.counts) / baseline.n
    order = [k for k in np.argsort(-mass, kind="stable")[:5] if mass[k] > 1e-9]
    return {baseline.value_names[k]: float(mass[k]) for k in order}
