"""From counts to a certificate: the one function that an audit, its verification and a fit's own certificate share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, nan
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import Certificate, not_estimable
from agnosticfair.auditing.kernels import beyond_rows, kernel_bound
from agnosticfair.auditing.parts import (
    Asked,
    Found,
    PartRecord,
    checked_groups,
    listed,
    records,
    searched,
)
from agnosticfair.auditing.proof import mixtures_of, sums_of
from agnosticfair.auditing.request import AuditRequest
from agnosticfair.data.encoding import shown
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.notions import NOTIONS
from agnosticfair.mathematics.parts import Axis

ABOVE_ONE = "A kernel exceeds 1 on some row: over reweightings nothing is bounded beyond the rows."


def certified(
    request: AuditRequest,
    groups: tuple[str, ...],
    axes: Sequence[Axis],
    ask: Asked,
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

    ask: for the counts of subgroups.  psi: (4 G, M + 1), sums of kernels, where the request has some.  beyond: whether
    these are in [0, 1], as a bound beyond the rows needs.  identity: digests of model and rows, where they are known.
    """
    if not labelled and NOTIONS[request.notion].needs_labels:
        raise SettingsError(f"notion {request.notion!r} compares rows of one label: give y")
    agreed = request.parts.agreed
    if agreed is not None and not held_out:
        found = listed(axes, agreed.parts, ask, 0.0)
    else:
        found = searched(axes, request.parts, ask, request.share * (1 - request.confidence))
    checked_groups(found, groups, request.notion)
    cells = None if psi is None else psi.reshape(len(groups), 2, 2, -1)
    if not held_out:
        made = _measured(request, found, groups, labelled)
    else:
        sums = sums_of(found, axes, request.parts.depth, ask) | identity
        sums |= {"psi": cells.tolist()} if cells is not None and beyond else {}
        made = from_sums(request, found, groups, labelled, sums)
    if cells is not None and made.kernels is None:
        made = replace(made, kernels=kernel_bound(cells, request, groups, labelled))
    if made.kernels is not None:
        made = replace(made, kernels=replace(made.kernels, centres=centres))
    return replace(made, notes=(*notes, *made.notes))


def from_sums(
    request: AuditRequest,
    found: Found,
    groups: tuple[str, ...],
    labelled: bool,
    sums: dict[str, Any],
) -> Certificate:
    """The certificate that sums give.  What their duals show is bounded by these; else duals are searched for, and the
    certificate's sums have them."""
    share = request.share
    parts = records(
        found, groups, request.notion, request.confidence, request.precision, share=share
    )
    uppers = [max((part.high for part in parts if part.estimable), default=1.0)]
    mixed = kernels = None
    if request.mixtures:
        proof = mixtures_of(found, request, sums.get("duals"))
        mixed, sums = proof.value, sums | {"duals": [edges.tolist() for edges in proof.duals]}
        uppers.append(mixed)
    if "psi" in sums:
        psi = np.array(sums["psi"], float)
        proof = beyond_rows(psi, request, sums.get("kernel_duals"))
        kernels = replace(kernel_bound(psi, request, groups, labelled), upper=proof.value)
        sums = sums | {"kernel_duals": [edges.tolist() for edges in proof.duals]}
        uppers.append(proof.value)
    made = _plain(request, found, parts, labelled)
    return replace(
        made,
        upper=max(uppers),
        mixtures=mixed,
        kernels=kernels,
        sums=sums,
        notes=notes_of(parts),
    )


def _measured(
    request: AuditRequest, found: Found, groups: tuple[str, ...], labelled: bool
) -> Certificate:
    """What subgroups show on the rows of the fit: nothing of it is bounded. Where the fit was held to subgroups of its
    own, it is measured on these, whatever number of rows they have."""
    parts = records(
        found, groups, request.notion, request.confidence, request.precision, bounded=False
    )
    if request.parts.agreed is not None:
        parts = tuple(replace(part, estimable=isfinite(part.difference)) for part in parts)
    return _plain(request, found, parts, labelled)


def _plain(
    request: AuditRequest, found: Found, parts: tuple[PartRecord, ...], labelled: bool
) -> Certificate:
    """A certificate without bounds."""
    cells = found.counts[0]  # (G, label, decision)
    right = float(np.trace(cells, axis1=1, axis2=2).sum() / cells.sum()) if labelled else nan
    return Certificate(
        notion=request.notion,
        confidence=request.confidence,
        precision=request.precision,
        floor=request.floor,
        n=int(cells.sum()),
        accuracy=right,
        parts=parts,
    )


def notes_of(parts: Sequence[PartRecord]) -> tuple[str, ...]:
    """What is not certified, named: subgroups with too few rows, and groups that were left out of all rows."""
    few = not_estimable(parts)
    notes = []
    if few and isfinite(few[0].difference):
        worst = few[0]
        notes.append(
            f"Not estimable for too few rows: {len(few):,} parts, with measured differences up to "
            f"{worst.difference:.4f} ({worst.name}, {worst.rows:,} rows)."
        )
    left = sorted({name for part in parts[:1] if part.estimable for name in part.left_out})
    if left:
        notes.append(f"Compared with none, having too few rows: {shown(left)}.")
    return tuple(notes)
