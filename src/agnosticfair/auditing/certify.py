"""From counts to a certificate: what an audit, its verification and a fit's certificate share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from math import inf, isfinite, nan
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import Certificate, KernelBound, not_estimable
from agnosticfair.auditing.subgroups import (
    Agreed,
    Count,
    CountedSubgroups,
    SubgroupRecord,
    checked_groups,
    pairs_of,
    records,
    searched,
    subgroups_in,
)
from agnosticfair.data.encoding import shown
from agnosticfair.errors import SettingsError, existing
from agnosticfair.mathematics import confidence, metrics
from agnosticfair.mathematics.ambiguity import Ambiguity, Worst, check, worst_linear
from agnosticfair.mathematics.basis import Basis, check_seed, gaussian, subgroups
from agnosticfair.mathematics.fairness import worst_pair
from agnosticfair.mathematics.metrics import METRICS, PARITY, metric_of
from agnosticfair.mathematics.subgroups import Axis
from agnosticfair.settings import CONFIDENCE, POSITIVE, SHARE, Kind, require

BOUND = 5.0
"""Of alpha, where kernels are requested without one."""


@dataclass(frozen=True)
class AuditRequest:
    """The set that is certified: named subgroups, their mixtures, and kernels where ``basis`` is not None.  agreed:
    the subgroups that a fit was held to, on which its own rows are measured."""

    subgroups: Basis = field(default_factory=subgroups)
    agreed: Agreed | None = None
    confidence: float = 0.95
    precision: float = 0.1
    mixtures: bool = False
    metric: str = PARITY.name
    floor: float = 0.05
    basis: Basis | None = None
    bound: float = inf

    def __post_init__(self) -> None:
        metric_of(self.metric)
        require(POSITIVE, bound=self.bound, precision=self.precision)
        require(SHARE, floor=self.floor)
        require(CONFIDENCE, confidence=self.confidence)

    @property
    def delta(self) -> float:
        """What subgroups, their mixtures and kernels may each fail with: an even share of 1 - confidence."""
        return (1 - self.confidence) / (1 + self.mixtures + (self.basis is not None))


def audit_request(
    subgroups: Any, basis: Any, bound: float | None, centres: Any, seed: int, **options: Any
) -> AuditRequest:
    """What a user's arguments ask for.  basis: of kernels or of subgroups, or a function that makes kernels."""
    check_seed(seed)
    if isinstance(basis, Basis) and basis.kind == "subgroups":
        basis, subgroups = None, basis if subgroups is None else subgroups
    if isinstance(basis, Basis) and basis.kind == "constant":
        basis, bound = None, None  # uniform weights
    if basis is not None and not isinstance(basis, Basis):
        require(Kind("a Basis, or a function from X to K", callable, object), basis=basis)
        basis = getattr(basis, "basis", Basis("function"))  # of a fit
    if basis is None and centres is not None:
        basis = gaussian(200, 1.0)
    if basis is None and bound is not None:
        raise SettingsError(
            f"bound {bound:g} is of kernels, and none are asked for: give a basis, or leave out the bound"
        )
    bound = inf if basis is None else BOUND if bound is None else bound
    agreed = subgroups if isinstance(subgroups, Agreed) else None
    set_of_subgroups = subgroups_in(subgroups) if agreed is None else agreed.basis
    return AuditRequest(set_of_subgroups, agreed, basis=basis, bound=bound, **options)


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
    if request.agreed is not None and not held_out:
        every = ((), *request.agreed.subgroups)
        depth = max(map(len, every))
        counted = CountedSubgroups(tuple(axes), every, send(every), depth, 0.0)
    else:
        counted = searched(axes, request.subgroups, send, request.delta)
    checked_groups(counted, groups, request.metric)
    strata = None if psi is None else psi.reshape(len(groups), 2, 2, -1)
    if held_out:
        counted, sums = replace(counted, pairs=pairs_of(axes, send)), dict(identity)
        if strata is not None:
            sums |= {"psi": strata.tolist()} | ({} if beyond else {"kernel_duals": None})
        certificate = from_sums(request, counted, groups, labelled, sums)
    else:
        certificate = _measured(request, counted, groups, labelled)
        if strata is not None:
            bound = kernel_bound(strata, request, groups, labelled)
            certificate = replace(certificate, kernels=bound)
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
    """The certificate that counts and the other sums give: the one function of audit, fit and ``verify``.  What the
    sums' duals show is bounded by these; else duals are searched for, and the certificate's sums have them. Duals of
    kernels that are None say that kernels exceed 1: then nothing is bounded over them."""
    subgroups = records(counted, groups, request.metric, request.delta, request.precision)
    uppers = [max((subgroup.high for subgroup in subgroups if subgroup.estimable), default=1.0)]
    mixed = kernels = None
    notes = [counted.coarser, *notes_of(subgroups)]
    if request.mixtures:
        proof = mixtures_of(counted, request, sums.get("duals"))
        mixed, sums = proof.value, sums | {"duals": [edges.tolist() for edges in proof.duals]}
        uppers.append(mixed)
    if request.basis is not None:
        psi = np.array(sums["psi"], float)
        kernels = kernel_bound(psi, request, groups, labelled)
        if sums.get("kernel_duals", ()) is None:
            notes.append(ABOVE_ONE)
        else:
            bound, n = None if request.bound == inf else request.bound, float(psi[..., -1].sum())
            how = (request.delta, request.metric, bound, request.floor)
            known = sums.get("kernel_duals")
            proof = confidence.reweightings(psi[..., :-1], n, *how, duals=known)
            kernels = replace(kernels, upper=proof.value)
            sums = sums | {"kernel_duals": [edges.tolist() for edges in proof.duals]}
            uppers.append(proof.value)
    return replace(
        _plain(request, counted, subgroups, labelled),
        upper=max(uppers),
        mixtures=mixed,
        kernels=kernels,
        sums=counted.to_json() | sums,
        notes=tuple(filter(None, notes)),
    )


def _measured(
    request: AuditRequest, counted: CountedSubgroups, groups: tuple[str, ...], labelled: bool
) -> Certificate:
    """What subgroups show on the rows of the fit: nothing of it is bounded. Where the fit was held to subgroups of its
    own, it is measured on these, whatever number of rows they have."""
    how = (request.metric, request.delta, request.precision)
    subgroups = records(counted, groups, *how, bounded=False)
    if request.agreed is not None:
        subgroups = tuple(replace(one, estimable=isfinite(one.difference)) for one in subgroups)
    measured = _plain(request, counted, subgroups, labelled)
    return replace(measured, notes=tuple(filter(None, [counted.coarser])))


def _plain(
    request: AuditRequest,
    counted: CountedSubgroups,
    subgroups: tuple[SubgroupRecord, ...],
    labelled: bool,
) -> Certificate:
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
            f"Not estimable for too few rows: {len(few):,} subgroup{'s' * (len(few) > 1)}, with measured differences "
            f"up to {worst.difference:.4f} ({worst.name}, {worst.rows:,} rows)."
        )
    left = sorted(
        {name for subgroup in subgroups[:1] if subgroup.estimable for name in subgroup.left_out}
    )
    if left:
        notes.append(f"Compared with none, having too few rows: {shown(left)}.")
    return tuple(notes)


def mixtures_of(
    counted: CountedSubgroups, request: AuditRequest, duals: Sequence[Any] | None = None
) -> confidence.Proved:
    """The bound over mixtures of the estimable subgroups: looked for, or shown by duals."""
    metric, precision = request.metric, request.precision
    if not counted.levels(metric, precision, request.delta)[1].any():
        return confidence.Proved(1.0, ())
    there = confidence.reached(counted.sample(metric, precision), request.delta)
    left = (1 - confidence.COUNTS - confidence.SUPPORT * confidence.ONE) * request.delta
    return confidence.mixtures(counted.counts[there], left, metric, request.floor, duals=duals)


TOLERANCE = 1e-4
"""How near the search comes to the worst case."""


def kernel_bound(
    psi: np.ndarray, request: AuditRequest, groups: tuple[str, ...], labelled: bool
) -> KernelBound:
    """The worst case on the rows.  psi: (G, 2, 2, M + 1) sums of (K, 1) over the cells."""
    total = psi.sum(axis=(0, 1, 2))
    bound = request.bound if isfinite(request.bound) else None
    A = check(Ambiguity(total[:-1], float(total[-1]), bound))
    worst, pair, reachable = _worst_gap(A, psi, request, groups)
    wrong = worst_linear(A, (psi[:, 0, 1] + psi[:, 1, 0]).sum(axis=0)[:-1])
    return KernelBound(
        basis=existing(request.basis),
        bound=request.bound,
        worst_difference=worst.value,
        worst_accuracy=1 - wrong.value / A.n if labelled else nan,
        pair=(groups[pair[0]], groups[pair[1]]),
        under_floor=tuple(name for g, name in enumerate(groups) if g not in reachable),
        tolerance=worst.tolerance,
        outcome=worst.outcome,
        alpha=worst.alpha,
        alpha_accuracy=wrong.alpha if labelled else np.full_like(worst.alpha, nan),
    )


def _worst_gap(
    A: Ambiguity, psi: np.ndarray, request: AuditRequest, groups: tuple[str, ...]
) -> tuple[Worst, tuple[int, int], frozenset[int]]:
    """The worst gap between two groups, its pair, and the groups that reach the floor under some alpha in every
    comparison."""
    metric, G = METRICS[request.metric], len(groups)
    ratios = metrics.ratios(metric, psi[..., :-1])
    a, b = (np.concatenate([entry[place] for entry in ratios]) for place in (1, 2))
    pairs: list[tuple[int, int | None]] = [(j, None) for j in range(len(a))]
    if not metric.bounds:
        by_labels = range(0, len(a), G)
        pairs = [(i + j, i + k) for i in by_labels for j, k in permutations(range(G), 2)]
    gap = worst_pair(A, a, b, pairs, request.floor, TOLERANCE)
    if gap is None:
        for _, _, mass in ratios:
            check(A, mass, request.floor, groups)
        raise SettingsError(f"floor {request.floor:g} holds for no two groups at once: lower it")
    j, k = gap.pair
    reachable = frozenset(g for g in range(G) if {*range(g, len(a), G)} <= gap.reachable)
    return gap.worst, (j % G, (j if k is None else k) % G), reachable
