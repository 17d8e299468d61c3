"""Bounds beyond the rows over mixtures of subgroups, and over reweightings by kernels: fractional programs over a
box."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np

from agnosticfair.mathematics import metrics
from agnosticfair.mathematics.ambiguity import Ambiguity, Outcome
from agnosticfair.mathematics.binomial import chernoff, clopper_pearson
from agnosticfair.mathematics.confidence import compared
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.mathematics.ratios import proved, worst_difference, worst_ratio

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
    possible = b.sum(axis=0) <= 1 + 1e-9  # two groups are at most everybody
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
