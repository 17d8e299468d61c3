"""What a model is watched against: the subgroups of its certificate, their shares among the audited rows, and the
limit of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import Certificate
from agnosticfair.auditing.subgroups import CountedSubgroups
from agnosticfair.data.reading import MISSING
from agnosticfair.data.table import Column, Table, intersected
from agnosticfair.errors import ModelError
from agnosticfair.mathematics.subgroups import Axis, Subgroup, sizes_of, starts_of, subgroup_name
from agnosticfair.model import Model
from agnosticfair.settings import POSITIVE, require

HANDED = "sensitive_features"
"""The column of groups where no model names it."""
OTHER = "the model and the certificate do not belong together: give the certificate that was made of this model"


@dataclass(frozen=True)
class Baseline:
    """The rows a certificate was made on, as counts.

    Attributes
    ----------
    axes, subgroups
        The named subgroups; the first one is overall.
    counts : (I, I) array
        Rows of every pair of values.
    n : int
        Rows in all.
    sensitive_features, groups : tuple of str
        As the model has them.
    metric : str
        What is compared.
    limits : (P,) tuple
        What no difference of each subgroup is to exceed: what was certified of it by itself, unless a limit was named.
    bound : float
        Of mixtures of single values: no row weighs more.
    model : str
        Digest of the model; empty where decisions are handed over.
    subgroup_rows : (P,) tuple
        Rows of every subgroup.
    compared : (P, G) tuple
        The groups of each subgroup that the certificate is about.
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
        return (*named, *(f"a value of {axis.name} never seen" for axis in self.axes))

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
    assert certificate.sums is not None
    counted = CountedSubgroups.from_json(certificate.sums)
    by_name = dict(zip(counted.names, counted.subgroups, strict=True))
    # overall is watched, estimable or not, against the bound over all
    watched = [
        certificate.subgroups[0],
        *(subgroup for subgroup in certificate.subgroups[1:] if subgroup.estimable),
    ]
    limits = [subgroup.high if subgroup.estimable else certificate.upper for subgroup in watched]
    assert counted.pairs is not None
    if counted.pairs.ndim == 1:
        raise ModelError(
            f"a monitor compares pairs of values, and {len(counted.pairs):,} values are too many for that: audit "
            "again with the columns (--columns) that matter"
        )
    return Baseline(
        axes=counted.axes,
        subgroups=tuple(by_name[subgroup.name] for subgroup in watched),
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
