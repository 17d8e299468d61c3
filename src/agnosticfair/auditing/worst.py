"""The worst case over kernels on the rows at hand, from sums of K over the cells (group, label, decision)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from math import isfinite, nan

import numpy as np

from agnosticfair.auditing.certificate import Certificate, Group, Tilt
from agnosticfair.auditing.inputs import KernelInputs
from agnosticfair.auditing.question import AuditQuestion
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics import notions
from agnosticfair.mathematics.ambiguity import Ambiguity, Worst, check, worst_linear
from agnosticfair.mathematics.fairness import worst_pair
from agnosticfair.mathematics.notions import NOTIONS

COARSE = 1e-3
"""Tolerance of the search in a resample: well under the resamples' own spread."""

MEASURES = ("worst_difference", "difference", "worst_accuracy", "accuracy")


def measured(
    asked: AuditQuestion,
    sums: Mapping[str, np.ndarray],
    groups: tuple[str, ...],
    given: KernelInputs,
    labelled: bool,
    tell: Callable[[], None],
) -> Certificate:
    """The certificate from the sums of ``tally``, whoever added them up."""
    psi, *resamples = sums["psi"].reshape(1 + asked.bootstrap, len(groups), 2, 2, -1)
    if not labelled and NOTIONS[asked.notion].needs_labels:
        raise SettingsError(f"notion {asked.notion!r} compares rows of one label: give y")
    A, gap = _checked_gap(psi, asked, groups)
    alpha = gap.worst.alpha
    errors = worst_linear(A, _errors(psi)[:-1])
    found = np.full((len(resamples), len(MEASURES)), nan)
    for r, resample in enumerate(resamples):
        found[r] = _resampled(resample, asked)
        tell()
    names = MEASURES if labelled else MEASURES[:2]
    return Certificate(
        worst_difference=gap.worst.value,
        worst_accuracy=1 - errors.value / A.n if labelled else nan,
        difference=notions.gap(NOTIONS[asked.notion], psi[..., -1]),
        accuracy=1 - float(_errors(psi)[-1]) / A.n if labelled else nan,
        pair=(groups[gap.pair[0]], groups[gap.pair[1]]),
        intervals=_intervals(found, names, asked.confidence),
        confidence=asked.confidence,
        resamples=int(np.isfinite(found).all(axis=1).sum()),
        tolerance=gap.worst.tolerance,
        outcome=gap.worst.outcome,
        notion=asked.notion,
        basis=asked.basis,
        bound=asked.bound,
        floor=asked.floor,
        n=round(A.n),
        groups={
            name: group_of(psi[g], gap.labels, alpha, A.n, asked.notion)
            for g, name in enumerate(groups)
        },
        under_floor=tuple(name for g, name in enumerate(groups) if g not in gap.reachable),
        alpha_difference=alpha,
        alpha_accuracy=errors.alpha if labelled else np.full_like(alpha, nan),
        profile=profile(sums, alpha, A.n, given),
    )


def _set(psi: np.ndarray, bound: float) -> Ambiguity:
    total = psi.sum(axis=(0, 1, 2))
    return Ambiguity(total[:-1], float(total[-1]), bound if isfinite(bound) else None)


def _errors(psi: np.ndarray) -> np.ndarray:
    return psi[:, 0, 1].sum(axis=0) + psi[:, 1, 0].sum(axis=0)


@dataclass(frozen=True)
class _Gap:
    """The worst gap between two groups: in which pair, among rows of which labels; and the groups
    that reach the floor under some alpha, in every comparison."""

    worst: Worst
    pair: tuple[int, int]
    labels: tuple[int, ...]
    reachable: frozenset[int]


def _worst_gap(
    A: Ambiguity, psi: np.ndarray, asked: AuditQuestion, tolerance: float
) -> _Gap | None:
    """The largest difference of rates over A and all ordered pairs of groups; None if there is none."""
    notion, G = NOTIONS[asked.notion], len(psi)
    looked = notions.ratios(notion, psi[..., :-1])
    a, b = (np.concatenate([entry[place] for entry in looked]) for place in (1, 2))
    pairs: list[tuple[int, int | None]] = [(j, None) for j in range(len(a))]
    if not notion.bounds:
        of_labels = range(0, len(a), G)
        pairs = [(i + j, i + k) for i in of_labels for j, k in permutations(range(G), 2)]
    found = worst_pair(A, a, b, pairs, asked.floor, tolerance)
    if found is None:
        return None
    j, k = found.pair
    reachable = frozenset(g for g in range(G) if {*range(g, len(a), G)} <= found.reachable)
    pair = (j % G, (j if k is None else k) % G)
    return _Gap(found.worst, pair, looked[j // G][0], reachable)


def _checked_gap(
    psi: np.ndarray, asked: AuditQuestion, groups: tuple[str, ...]
) -> tuple[Ambiguity, _Gap]:
    """A and the worst gap over it, or the sentence that says why there is none."""
    A = check(_set(psi, asked.bound))
    gap = _worst_gap(A, psi, asked, asked.tolerance)
    if gap is None and asked.basis.kind == "constant":
        # nothing is reweighed, so that no floor is needed: half a row will do
        gap = _worst_gap(A, psi, replace(asked, floor=0.5 / A.n), asked.tolerance)
    if gap is not None:
        return A, gap
    for _, _, b in notions.ratios(NOTIONS[asked.notion], psi[..., :-1]):
        check(A, b, asked.floor, groups)
    raise SettingsError(f"floor {asked.floor:g} holds for no two groups at once: lower it")


def _resampled(psi: np.ndarray, asked: AuditQuestion) -> tuple[float, ...]:
    """MEASURES on one resample; nan where it has none, as when a group's rows were not drawn."""
    A, errors = _set(psi, asked.bound), _errors(psi)
    try:
        gap = _worst_gap(check(A), psi, asked, COARSE)
    except SettingsError:
        gap = None
    if gap is None:
        return (nan,) * len(MEASURES)
    worst = gap.worst.value - gap.worst.tolerance, 1 - worst_linear(A, errors[:-1]).value / A.n
    return (
        worst[0],
        notions.gap(NOTIONS[asked.notion], psi[..., -1]),
        worst[1],
        1 - float(errors[-1]) / A.n,
    )


def _intervals(
    found: np.ndarray, names: tuple[str, ...], confidence: float
) -> dict[str, tuple[float, float]]:
    """Percentile intervals; none where less than half of the resamples have an answer."""
    there = found[np.isfinite(found).all(axis=1)]
    if not len(found) or len(there) < len(found) / 2:
        return {}
    low, high = np.quantile(there, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0).tolist()
    return {name: (low[k], high[k]) for k, name in enumerate(names)}


def group_of(
    psi: np.ndarray, labels: tuple[int, ...], alpha: np.ndarray, n: float, notion: str
) -> Group:
    """One group from its cells, (2, 2, M + 1); its rates are those among its rows of these labels."""
    mass = psi.sum(axis=(0, 1))
    looked = notions.ratios(NOTIONS[notion], psi[None])
    ((a,), (b,)) = next((a, b) for own, a, b in looked if own == labels)
    rate = float(a[-1] / b[-1]) if b[-1] > 0 else nan
    worst = alpha @ b[:-1]
    worst_rate = float(alpha @ a[:-1] / worst) if worst > 0 else nan
    rows, worst_share = round(float(mass[-1])), float(alpha @ mass[:-1] / n)
    return Group(rows, rows / n, rate, worst_share, worst_rate)


def profile(
    sums: Mapping[str, np.ndarray], alpha: np.ndarray, n: float, given: KernelInputs
) -> tuple[Tilt, ...]:
    """Every feature's mean over the rows and under alpha, the most shifted first."""
    means, worst_means = sums["psi_x"][-1] / n, alpha @ sums["psi_x"][:-1] / n
    variances = np.maximum(sums["x_squares"] / n - means**2, 0.0)
    moves = variances > 1e-12  # in the units of the kernels, where less is rounding
    shifts = np.where(moves, worst_means - means, 0.0) / np.sqrt(np.where(moves, variances, 1.0))
    columns = given.low + given.span * means, given.low + given.span * worst_means, shifts
    tilts = map(Tilt, given.names, *(column.tolist() for column in columns))
    return tuple(sorted(tilts, key=lambda tilt: -abs(tilt.shift)))
