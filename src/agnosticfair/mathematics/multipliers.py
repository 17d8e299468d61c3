"""The multipliers of the rule's program: which comparisons there are, their limits, and the objective from sums.

A multiplier x_e belongs to a weight function b_k and two compared groups; mixtures of weight functions and the bounds
of the positive rate have theirs, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from agnosticfair.mathematics.lasso import kinked
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.scores import COEFFICIENT_BITS, Directions

PATH = (0.3, 0.1, 0.03, 0.01, 0.005)
"""Smoothing, in units of utility."""


@dataclass(frozen=True)
class Mixtures:
    """Reweightings sum alpha_k b_k with 0 <= alpha <= bound and mean one (``ambiguity``), overall aside.  tau: the
    limit of each.  floor: the least share of people that each group keeps.  trust: theta = trust + (1 - trust)
    sum alpha_k b_k instead."""

    tau: float
    bound: float | None = None
    floor: float = 0.0
    trust: float = 0.0


@dataclass(frozen=True)
class RateLimits:
    """What the rule has to keep.

    Parameters
    ----------
    tau : (K,) array
        The limit of each weight function; inf for none.
    pairs : tuple of (int, int)
        The compared groups, each pair once.
    ridge : float
        Weight of the squared multipliers: an adversary who spreads over subgroups.
    positive_rate : (float, float) or None
        Bounds of the share of positive decisions.
    min_people : float
        Expected people of both groups under which a weight function is not compared.
    tolerance : float
        Differences end within it of what is optimal.
    path : tuple of float
        Values of eps.
    max_rounds : int
    mixtures : Mixtures or None
        RateLimits on every mixture of the weight functions, too.
    """

    tau: np.ndarray
    pairs: tuple[tuple[int, int], ...]
    ridge: float = 0.0
    positive_rate: tuple[float, float] | None = None
    min_people: float = 1.0
    tolerance: float = 5e-4
    path: tuple[float, ...] = PATH
    max_rounds: int = 60
    mixtures: Mixtures | None = None


@dataclass(frozen=True)
class Coordinates:
    """The multipliers.  k, j, other: weight function and groups, (E,).  up, down: slopes of the penalty, (E + 1,), the
    last of the positive rate.  mass: (K, P), E[b_k pi_p].  mixed: (m, K, P), differences of rates that mix weight
    functions, whose multipliers come after the E others."""

    k: np.ndarray
    j: np.ndarray
    other: np.ndarray
    up: np.ndarray
    down: np.ndarray
    mass: np.ndarray
    mixed: np.ndarray

    @property
    def size(self) -> int:
        """How many there are, with the positive rate's."""
        return len(self.up)

    def coefficients(self, x: np.ndarray) -> np.ndarray:
        """A, (K, P), of these multipliers, on its grid."""
        A, E = np.zeros(self.mass.shape), len(self.k)
        np.add.at(A, (self.k, self.j), x[:E] / self.mass[self.k, self.j])
        np.add.at(A, (self.k, self.other), -x[:E] / self.mass[self.k, self.other])
        A += np.einsum("m,mkp->kp", x[E:-1], self.mixed)
        return on_grid(A, COEFFICIENT_BITS)

    def differences(self, decided: np.ndarray) -> np.ndarray:
        """r of every coordinate but the last, (E + m,).  decided: (P, K), E[d b_k pi_p]."""
        rates = decided.T / np.where(self.mass > 0, self.mass, 1.0)
        each = rates[self.k, self.j] - rates[self.k, self.other]
        return np.append(each, np.einsum("mkp,pk->m", self.mixed, decided))

    def scales(self, which: np.ndarray) -> np.ndarray:
        """By what the Hessian's directions are divided, so that none exceeds 1."""
        E = len(self.k)
        found = np.ones(self.size)
        found[:E] = np.minimum(self.mass[self.k, self.j], self.mass[self.k, self.other])
        found[E:-1] = 1.0 / np.abs(self.mixed).max(axis=(1, 2), initial=1e-300)
        return found[which]

    def directions(self, which: np.ndarray) -> Directions:
        """The Hessian's directions of these coordinates, scaled; mixed ones last, as their numbers are."""
        E, last = len(self.k), self.size - 1
        each, rate = which[which < E], which[which == last]
        scale, ones = self.scales(each), np.ones(len(rate))
        none = np.full(len(rate), -1)
        overall = np.full(len(rate), len(self.mass) - 1)
        mixed = which[(which >= E) & (which < last)]
        return Directions(
            np.append(self.k[each], overall),
            np.append(self.j[each], none),
            np.append(self.other[each], none),
            np.append(scale / self.mass[self.k[each], self.j[each]], ones),
            np.append(scale / self.mass[self.k[each], self.other[each]], 0 * ones),
            self.mixed[mixed - E] * self.scales(mixed)[:, None, None],
        )

    def ordered(self, which: np.ndarray) -> np.ndarray:
        """Coordinates as ``directions`` has them."""
        E, last = len(self.k), self.size - 1
        is_mixed = (which >= E) & (which < last)
        return np.concatenate([which[which < E], which[which == last], which[is_mixed]])


def coordinates(mass: np.ndarray, n: float, limits: RateLimits) -> Coordinates:
    """The multipliers of all comparisons with enough people.  mass: (K, P), sums."""
    pairs = np.array(limits.pairs, int).reshape(-1, 2)
    k, at = (v.ravel() for v in np.indices((len(mass), len(pairs))))
    j, other = pairs[at].T
    least = np.minimum(mass[k, j], mass[k, other])
    on = (least >= max(limits.min_people, 1e-9)) & np.isfinite(limits.tau[k])
    k, j, other = k[on], j[on], other[on]
    low, high = limits.positive_rate or (-np.inf, np.inf)
    up, down = np.append(limits.tau[k], high), np.append(limits.tau[k], -low)
    return Coordinates(k, j, other, up, down, mass / n, np.zeros((0, *mass.shape)))


@dataclass(frozen=True)
class At:
    """The objective at x: value, gradient of the smooth part, and the sums it was made from, as means."""

    x: np.ndarray
    eps: float
    value: float
    gradient: np.ndarray
    differences: np.ndarray
    decided: np.ndarray
    utility: float
    positive: float
    right: float
    smooth: float


def objective(
    at: Coordinates, limits: RateLimits, n: float, x: np.ndarray, eps: float, sums: Mapping, t: int
) -> At:
    """The t-th point of a reply."""
    decided, positive = sums["decided"][t] / n, float(sums["positives"][t]) / n
    r = at.differences(decided)
    smooth = float(sums["value"][t]) / n
    own = x[:-1]
    value = smooth + kinked(x, at.up, at.down) + limits.ridge * float(own @ own)
    gradient = np.append(-r + 2 * limits.ridge * own, -positive)
    return At(
        x,
        eps,
        value,
        gradient,
        r,
        decided,
        float(sums["utility"][t]) / n,
        positive,
        float(sums["right"][t]) / n,
        smooth,
    )
