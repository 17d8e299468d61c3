"""What a model is watched against: the subgroups of its certificate, their shares among the audited rows, and the
limit of each; and where rows lie: their mix of single values against those that the certified set can have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import Certificate
from agnosticfair.auditing.subgroups import CountedSubgroups
from agnosticfair.data.reading import MISSING
from agnosticfair.data.table import Column, Table, intersected
from agnosticfair.errors import ModelError, existing
from agnosticfair.mathematics.binomial import change_evidence, clopper_pearson, rate_bounds
from agnosticfair.mathematics.subgroups import Axis, Subgroup, sizes_of, starts_of, subgroup_name
from agnosticfair.model import Model
from agnosticfair.settings import POSITIVE, require

HANDED = "sensitive_features"
"""The column of groups where no model names it."""
OTHER = "the model and the certificate do not belong together: give the certificate that was made of this model"


@dataclass(frozen=True)
class Baseline:
    """The rows a certificate was made on, as counts of every pair of values, (I, I).

    The first subgroup is overall. ``limits`` is what no difference of each subgroup is to exceed: what was certified
    of it by itself, unless a limit was named; ``bound`` is of mixtures of single values: no row weighs more.
    ``model`` is a digest, empty where decisions are handed over; ``compared`` has each subgroup's groups that the
    certificate is about.
    """

    axes: tuple[Axis, ...]
    subgroups: tuple[Subgroup, ...]
    counts: np.ndarray
    n: int
    sensitive_features: tuple[str, ...]
    groups: tuple[str, ...]
    metric: str
    limits: tuple[float, ...]
    bound: float
    model: str
    subgroup_rows: tuple[int, ...]
    compared: tuple[tuple[bool, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(subgroup_name(self.axes, subgroup) for subgroup in self.subgroups)

    @property
    def values(self) -> np.ndarray:
        """Rows of each value of each axis, those of no agreed value last, axis by axis: (I + C,)."""
        here, starts = np.diag(self.counts), starts_of(sizes_of(self.axes))
        return np.r_[here, [self.n - here[a:b].sum() for a, b in pairwise(starts)]]

    @property
    def comparable(self) -> np.ndarray:
        """Which groups of which subgroups the certificate compares, (P, G)."""
        return np.array(self.compared, bool)

    @property
    def value_names(self) -> tuple[str, ...]:
        named = (f"{axis.name} = {value}" for axis in self.axes for value in axis.values)
        return (*named, *(f"{axis.name} = a value never seen" for axis in self.axes))

    @property
    def id(self) -> str:
        """A digest of all of it but the limits: only states of one baseline add up, whatever they are held to."""
        axes = [[a.name, a.values, a.edges] for a in self.axes]
        content = {**vars(self), "axes": axes, "counts": self.counts.tolist(), "limits": None}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def baseline_of(
    certificate: Baseline | Certificate | Mapping[str, Any],
    model: Model | None = None,
    limit: float | None = None,
) -> Baseline:
    """What is watched, from a certificate or its JSON: its estimable subgroups, each against its own certified bound.

    limit: for all of them instead.
    """
    if limit is not None:
        require(POSITIVE, limit=limit)
    if isinstance(certificate, Baseline):
        if model is not None and certificate.model != model.digest:
            raise ModelError(OTHER)
        return certificate
    if not isinstance(certificate, Certificate | Mapping):
        raise ModelError(f"{type(certificate).__name__} is no certificate: give what 'audit' made")
    content = certificate.to_json() if isinstance(certificate, Certificate) else certificate
    sums = content.get("sums")
    if not isinstance(sums, Mapping) or not isinstance(content.get("upper"), int | float):
        raise ModelError(
            "this certificate bounds nothing beyond its rows: audit rows that the model was not fitted on"
        )
    if model is not None and sums.get("model", model.digest) != model.digest:
        raise ModelError(OTHER)
    try:
        return _baseline(Certificate.from_json(content), model, limit)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ModelError(
            f"this is no certificate of agnosticfair, or it is damaged ({type(error).__name__}): audit again"
        ) from None


def _baseline(certificate: Certificate, model: Model | None, limit: float | None) -> Baseline:
    counted = CountedSubgroups.from_json(existing(certificate.sums))
    # overall is watched, estimable or not, against the bound over all
    pairs = zip(counted.listed, certificate.subgroups, strict=True)
    there = [(one, record) for one, record in pairs if record.estimable or not one]
    watched = [record for _, record in there]
    highs = [record.high for record in watched if record.estimable]
    alone = certificate.mixtures is None and certificate.kernels is None
    if limit is None and alone and certificate.upper > max(highs, default=1.0):
        limit = certificate.upper  # of ``fit --limit``, which claims the limit and no other bound
    limits = [subgroup.high if subgroup.estimable else certificate.upper for subgroup in watched]
    assert counted.pairs is not None
    if counted.pairs.ndim == 1:
        raise ModelError(
            f"a monitor compares pairs of values, and {len(counted.pairs):,} values are too many for that: audit "
            "again with the columns (--columns) that matter"
        )
    return Baseline(
        axes=counted.axes,
        subgroups=tuple(one for one, _ in there),
        counts=counted.pairs,
        n=certificate.n,
        sensitive_features=(HANDED,) if model is None else model.sensitive_features,
        groups=certificate.groups,
        metric=certificate.metric,
        limits=tuple(limits) if limit is None else (limit,) * len(watched),
        bound=1 / counted.min_share,
        model="" if model is None else model.digest,
        subgroup_rows=tuple(subgroup.rows for subgroup in watched),
        compared=tuple(
            tuple(rate.compared or not subgroup.estimable for rate in subgroup.rates)
            for subgroup in watched
        ),
    )


def groups_of(table: Table, baseline: Baseline) -> np.ndarray:
    """Every row's group, (n,); the number of groups where it is not known."""
    column, unknown = _group_column(table, baseline), len(baseline.groups)
    if column is None:
        return np.full(len(table), unknown)
    codes = column.aligned(baseline.groups)
    return np.where(codes < 0, unknown, codes)


def strange_groups(table: Table, baseline: Baseline) -> dict[str, tuple[str, ...]]:
    """Groups that nothing was promised of, under their columns' name."""
    column = _group_column(table, baseline)
    there = set() if column is None else {*column.present}
    unknown = sorted(g for g in there - {*baseline.groups} if MISSING not in g.split(" & "))
    return {" and ".join(baseline.sensitive_features): tuple(unknown)} if unknown else {}


def _group_column(table: Table, baseline: Baseline) -> Column | None:
    names = baseline.sensitive_features
    if not names or any(name not in table.sensitive_features for name in names):
        return None
    columns = {name: table.sensitive_features[name] for name in names}
    return intersected(columns) if len(names) > 1 else columns[names[0]]


# --- where rows lie against it ---

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
    mass = alpha * np.diag(baseline.counts) / baseline.n
    heavy = [k for k in np.argsort(-mass, kind="stable")[:5] if mass[k] > 1e-9]
    weighs_most = {baseline.value_names[k]: float(mass[k]) for k in heavy}
    return Place(where, point, weighs_most, changed, sentence)


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
