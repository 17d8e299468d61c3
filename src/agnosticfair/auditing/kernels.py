"""The worst case over reweightings by kernels, from sums of K over the cells (group, label, decision)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from agnosticfair.errors import SettingsError
from agnosticfair.mathematics import confidence, metrics
from agnosticfair.mathematics.ambiguity import Ambiguity, Outcome, Worst, check, worst_linear
from agnosticfair.mathematics.basis import Basis
from agnosticfair.mathematics.fairness import worst_pair
from agnosticfair.mathematics.metrics import METRICS

if TYPE_CHECKING:
    from agnosticfair.auditing.request import AuditRequest

TOLERANCE = 1e-4
"""How near the search comes to the worst case."""


@dataclass(frozen=True, eq=False)
class KernelBound:
    """What holds for every reweighting alpha of the rows in A = {0 <= alpha <= bound, mean weight 1}.

    Attributes
    ----------
    worst_difference, worst_accuracy : float
        No alpha shows more between two groups that each keep the share ``floor`` of the mass, and none is right less
        often; ``alpha`` and ``alpha_accuracy`` show them, the difference to ``tolerance``.
    upper : float
        The bound on the difference over reweightings of the population; nan on the rows of the fit.
    pair : tuple of str
        The two groups, the one of the higher rate first.
    under_floor : tuple of str
        Groups that have the share ``floor`` under no alpha; they are compared with none.
    outcome : Outcome
        FAILED: the tolerance was not reached; the bounds hold all the same.
    centres : (M, d) array or None
        Of the kernels, in the units of X.
    """

    basis: Basis
    bound: float
    worst_difference: float
    worst_accuracy: float
    pair: tuple[str, str]
    under_floor: tuple[str, ...]
    tolerance: float
    outcome: Outcome
    alpha: np.ndarray = field(repr=False)
    alpha_accuracy: np.ndarray = field(repr=False)
    upper: float = nan
    centres: np.ndarray | None = field(default=None, repr=False)

    @property
    def about(self) -> str:
        """The set in words."""
        return about(self.basis, self.bound)


def about(basis: Basis, bound: float) -> str:
    """Kernels and bound of a set A in words."""
    kernels = {
        "constant": "uniform weights",
        "by_client": "mixtures of the clients",
        "function": f"{basis.kernels} kernels of a function",
    }
    many = f"{basis.kernels} gaussian kernels of width {basis.sigma:.3g}"
    limit = f"bound {bound:g}" if isfinite(bound) else "no bound"
    return f"{kernels.get(basis.kind, many)}, {limit}"


def kernel_bound(
    psi: np.ndarray, request: AuditRequest, groups: tuple[str, ...], labelled: bool
) -> KernelBound:
    """The worst case on the rows.  psi: (G, 2, 2, M + 1) sums of (K, 1) over the cells."""
    assert request.basis is not None
    A = check(_ambiguity(psi, request.bound))
    worst, pair, reachable = _worst_gap(A, psi, request, groups)
    wrong = worst_linear(A, (psi[:, 0, 1] + psi[:, 1, 0]).sum(axis=0)[:-1])
    return KernelBound(
        basis=request.basis,
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


def beyond_rows(psi: np.ndarray, request: AuditRequest, duals: Any = None) -> confidence.Proved:
    """The bound over reweightings of the population: searched for, or shown by duals."""
    delta = request.share * (1 - request.confidence)
    bound = None if request.bound == inf else request.bound
    n = float(psi[..., -1].sum())
    return confidence.reweightings(
        psi[..., :-1], n, delta, request.metric, bound, request.floor, duals=duals
    )


def _ambiguity(psi: np.ndarray, bound: float) -> Ambiguity:
    total = psi.sum(axis=(0, 1, 2))
    return Ambiguity(total[:-1], float(total[-1]), bound if isfinite(bound) else None)


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
