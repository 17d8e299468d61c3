"""From counts to a certificate: the one function that an audit, its verification and a fit's own certificate share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, nan
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import Certificate, not_estimable
from agnosticfair.auditing.kernels import beyond_rows, kernel_bound
from agnosticfair.auditing.proof import mixtures_of, sums_of
from agnosticfair.auditing.request import AuditRequest
from agnosticfair.auditing.subgroups import (
    Count,
    CountedSubgroups,
    SubgroupRecord,
    checked_groups,
    listed,
    records,
    searched,
)
from agnosticfair.data.encoding import shown
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.mathematics.subgroups import Axis

ABOVE_ONE = "A kernel exceeds 1 on some row: over reweightings nothing is bounded beyond the rows."


def certified(
    request: AuditRequest,
    groups: tuple[str, ...],
    axes: Sequence[Axis],
    send: Count,
    *,
    labelled: bool = True,
    held_out: bool = True,
    beyond: bool = True,
    psi: np.ndarray | None = None,
    centres: np.ndarray | None = None,
    notes: tuple[str, ...] = (),
    **identity: str,
) -> Certificate:
    """The certificate of whoever answers for the rows.

    send: for the counts of subgroups.  psi: (4 G, M + 1), sums of kernels, where the request has some.  beyond: whether
    these are in [0, 1], as a bound beyond the rows needs.  identity: digests of model and rows, where they are known.
    """
    if not labelled and METRICS[request.metric].needs_labels:
        raise SettingsError(f"metric {request.metric!r} compares rows of one label: give y")
    agreed = request.subgroups.agreed
    if agreed is not None and not held_out:
        counted = listed(axes, agreed.subgroups, send, 0.0)
    else:
        counted = searched(axes, request.subgroups, send, request.share * (1 - request.confidence))
    checked_groups(counted, groups, request.metric)
    strata = None if psi is None else psi.reshape(len(groups), 2, 2, -1)
    if not held_out:
        certificate = _measured(request, counted, groups, labelled)
    else:
        sums = sums_of(counted, axes, request.subgroups.depth, send) | identity
        sums |= {"psi": strata.tolist()} if strata is not None and beyond else {}
        certificate = from_sums(request, counted, groups, labelled, sums)
    if strata is not None and certificate.kernels is None:
        certificate = replace(certificate, kernels=kernel_bound(strata, request, groups, labelled))
    if certificate.kernels is not None:
        certificate = replace(certificate, kernels=replace(certificate.kernels, centres=centres))
    return replace(certificate, notes=(*notes, *certificate.notes))


def from_sums(
    request: AuditRequest,
    counted: CountedSubgroups,
    groups: tuple[str, ...],
    labelled: bool,
    sums: dict[str, Any],
) -> Certificate:
    """The certificate that sums give.  What their duals show is bounded by these; else duals are searched for, and the
    certificate's sums have them."""
    share = request.share
    subgroups = records(
        counted, groups, request.metric, request.confidence, request.precision, share=share
    )
    uppers = [max((subgroup.high for subgroup in subgroups if subgroup.estimable), default=1.0)]
    mixed = kernels = None
    if request.mixtures:
        proof = mixtures_of(counted, request, sums.get("duals"))
        mixed, sums = proof.value, sums | {"duals": [edges.tolist() for edges in proof.duals]}
        uppers.append(mixed)
    if "psi" in sums:
        psi = np.array(sums["psi"], float)
        proof = beyond_rows(psi, request, sums.get("kernel_duals"))
        kernels = replace(kernel_bound(psi, request, groups, labelled), upper=proof.value)
        sums = sums | {"kernel_duals": [edges.tolist() for edges in proof.duals]}
        uppers.append(proof.value)
    certificate = _plain(request, counted, subgroups, labelled)
    return replace(
        certificate,
        upper=max(uppers),
        mixtures=mixed,
        kernels=kernels,
        sums=sums,
        notes=notes_of(subgroups),
    )


def _measured(
    request: AuditRequest, counted: CountedSubgroups, groups: tuple[str, ...], labelled: bool
) -> Certificate:
    """What subgroups show on the rows of the fit: nothing of it is bounded. Where the fit was held to subgroups of its
    own, it is measured on these, whatever number of rows they have."""
    subgroups = records(
        counted, groups, request.metric, request.confidence, request.precision, bounded=False
    )
    if request.subgroups.agreed is not None:
        subgroups = tuple(
            replace(subgroup, estimable=isfinite(subgroup.difference)) for subgroup in subgroups
        )
    return _plain(request, counted, subgroups, labelled)


def _plain(
    request: AuditRequest,
    counted: CountedSubgroups,
    subgroups: tuple[SubgroupRecord, ...],
    labelled: bool,
) -> Certificate:
    """A certificate without bounds."""
    strata = counted.counts[0]  # (G, label, decision)
    right = float(np.trace(strata, axis1=1, axis2=2).sum() / strata.sum()) if labelled else nan
    return Certificate(
        metric=request.metric,
        confidence=request.confidence,
        precision=request.precision,
        floor=request.floor,
        n=int(strata.sum()),
        accuracy=right,
        subgroups=subgroups,
    )


def notes_of(subgroups: Sequence[SubgroupRecord]) -> tuple[str, ...]:
    """What is not certified, named: subgroups with too few rows, and groups that were left out of all rows."""
    few = not_estimable(subgroups)
    notes = []
    if few and isfinite(few[0].difference):
        worst = few[0]
        notes.append(
            f"Not estimable for too few rows: {len(few):,} subgroups, with measured differences up to "
            f"{worst.difference:.4f} ({worst.name}, {worst.rows:,} rows)."
        )
    left = sorted(
        {name for subgroup in subgroups[:1] if subgroup.estimable for name in subgroup.left_out}
    )
    if left:
        notes.append(f"Compared with none, having too few rows: {shown(left)}.")
    return tuple(notes)
