"""The multipliers of the rule's program: which comparisons there are, their limits, and the objective from sums.

A multiplier x_e belongs to a weight function b_k and two compared groups; mixtures of weight functions and the bounds
of the positive rate have theirs, too.  Where the worst utility of any weight function counts, its adversary's weights
alpha >= 0, sum alpha = 1, are further coordinates: decisions have the utility

    -(1 - share) loss - share sum_k alpha_k loss_k,   loss_k = E[b_k (false_negative eta - d c)] / E[b_k]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.quadratic import kinked, residual
from agnosticfair.mathematics.scores import COEFFICIENT_BITS, Directions

PATH = (1.0, 0.3, 0.1, 0.03, 0.01)
"""Smoothing, in units of utility."""

MANY = 600  # of fewer comparisons each is charged as one of so many
MIN_UNIT = 0.05  # the least unit of differences that are charged


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
class WorstUtility:
    """The worst utility of any weight function counts.  share: how much of all; the rest is the mean's, by which rows
    that the adversary leaves are decided.  error_costs: of a false positive and a false negative."""

    share: float
    error_costs: tuple[float, float]

    def losses(self, worth: np.ndarray, worths: np.ndarray) -> np.ndarray:
        """Mean loss, from the mean of d c and that of c, which says how often a positive is expected.

        >>> WorstUtility(0.9, (1.0, 1.0)).losses(np.array([0.25]), np.array([0.5]))
        array([0.5])
        """
        false_positive, false_negative = self.error_costs
        positives = (worths + false_positive) / (false_positive + false_negative)
        return false_negative * positives - worth


@dataclass(frozen=True)
class RateLimits:
    """What the rule has to keep.

    tau: (K,), the limit of each weight function, inf for none.  ``spend`` is what differences within the limits cost:
    so much utility times the mean of (difference / limit)^2 over all comparisons, weighted by the root of their
    people; less where these are fewer than MANY. Under ``min_people`` expected people of both groups a weight
    function is not compared. Differences end within ``tolerance`` of what is optimal; ``path`` has the values of eps.
    ``mixtures`` limits every mixture of the weight functions, too; ``worst`` is None where the mean utility counts.
    """

    tau: np.ndarray
    pairs: tuple[tuple[int, int], ...]
    spend: float = 0.0
    positive_rate: tuple[float, float] | None = None
    min_people: float = 1.0
    tolerance: float = 5e-4
    path: tuple[float, ...] = PATH
    max_rounds: int = 60
    mixtures: Mixtures | None = None
    worst: WorstUtility | None = None


@dataclass(frozen=True)
class Coordinates:
    """The multipliers.  k, j, other: weight function and groups, (E,).  up, down: gradients of the penalty, the last of
    the positive rate.  curvature: of the penalty near 0, inf where nothing is charged.  mass: (K, P), E[b_k pi_p].
    mixed: (m, K, P), differences of rates that mix weight functions, whose multipliers come after the E others.
    members, worths: (K,), E[b_k] and E[b_k c] / E[b_k] where the worst utility counts, whose adversary's K weights come
    next; empty otherwise.  worst: how it counts."""

    k: np.ndarray
    j: np.ndarray
    other: np.ndarray
    up: np.ndarray
    down: np.ndarray
    curvature: np.ndarray
    mass: np.ndarray
    mixed: np.ndarray
    members: np.ndarray
    worths: np.ndarray
    worst: WorstUtility | None = None

    @property
    def size(self) -> int:
        return len(self.up)

    @property
    def rates(self) -> int:
        """How many differences of rates there are, E + m; the adversary's weights come after them."""
        return len(self.k) + len(self.mixed)

    def zero(self) -> np.ndarray:
        """Multipliers of the learner's own decisions: the adversary has the mean."""
        x = np.zeros(self.size)
        if self.worst is not None:
            x[-2] = 1.0
        return x

    def feasible(self, x: np.ndarray) -> np.ndarray:
        """x, with an adversary's weights that add up to 1."""
        if self.worst is None:
            return x
        x = x.copy()
        alpha = np.maximum(x[self.rates : -1], 0.0)
        x[self.rates : -1] = alpha / alpha.sum()
        return x

    def weights(self, x: np.ndarray) -> np.ndarray | None:
        """W, (K,): how much each weight function's utility counts, on its grid; None for the mean."""
        if self.worst is None:
            return None
        W = self.worst.share * x[self.rates : -1] / self.members
        W[-1] += 1.0 - self.worst.share
        return on_grid(W, COEFFICIENT_BITS)

    def coefficients(self, x: np.ndarray) -> np.ndarray:
        """A, (K, P), of these multipliers, on its grid."""
        A, E = np.zeros(self.mass.shape), len(self.k)
        np.add.at(A, (self.k, self.j), x[:E] / self.mass[self.k, self.j])
        np.add.at(A, (self.k, self.other), -x[:E] / self.mass[self.k, self.other])
        A += np.einsum("m,mkp->kp", x[E : self.rates], self.mixed)
        return on_grid(A, COEFFICIENT_BITS)

    def penalty(self, x: np.ndarray) -> float:
        return kinked(x, self.up, self.down, self.curvature)

    def charged(self, r: np.ndarray) -> float:
        """What these differences cost, (E + m,): the conjugate of the penalty near 0."""
        return float((r * r / (2 * self.curvature[: self.rates])).sum())

    def differences(self, decided: np.ndarray) -> np.ndarray:
        """r of every coordinate but the last, (E + m,).  decided: (P, K), E[d b_k pi_p]."""
        rates = decided.T / np.where(self.mass > 0, self.mass, 1.0)
        each = rates[self.k, self.j] - rates[self.k, self.other]
        return np.append(each, np.einsum("mkp,pk->m", self.mixed, decided))

    def scales(self, which: np.ndarray) -> np.ndarray:
        """By what the Hessian's directions are divided, so that none exceeds 1."""
        E = len(self.k)
        scale = np.ones(self.size)
        scale[:E] = np.minimum(self.mass[self.k, self.j], self.mass[self.k, self.other])
        R = self.rates
        scale[E:R] = 1.0 / np.abs(self.mixed).max(axis=(1, 2), initial=1e-300)
        if self.worst is not None:
            scale[R:-1] = self.members / (self.worst.share * max(self.worst.error_costs))
        return scale[which]

    def directions(self, which: np.ndarray) -> Directions:
        """The Hessian's directions of these coordinates, scaled; mixed ones last, as ``ordered`` has them."""
        E, R, last = len(self.k), self.rates, self.size - 1
        each, rate = which[which < E], which[which == last]
        of_worst = which[(which >= R) & (which < last)]
        mixed = which[(which >= E) & (which < R)]
        scale, none = self.scales(each), np.full(len(rate), -1)
        # an adversary's weight adds to the score what a multiplier takes off
        maximum = 1.0 if self.worst is None else -1.0 / max(self.worst.error_costs)
        return Directions(
            np.concatenate([self.k[each], none + len(self.mass), of_worst - R]),
            np.concatenate([self.j[each], none, np.full(len(of_worst), -2)]),
            np.concatenate([self.other[each], none, np.full(len(of_worst), -1)]),
            np.concatenate(
                [
                    scale / self.mass[self.k[each], self.j[each]],
                    np.ones(len(rate)),
                    np.full(len(of_worst), maximum),
                ]
            ),
            np.append(
                scale / self.mass[self.k[each], self.other[each]],
                np.zeros(len(rate) + len(of_worst)),
            ),
            self.mixed[mixed - E] * self.scales(mixed)[:, None, None],
        )

    def ordered(self, which: np.ndarray) -> np.ndarray:
        """Coordinates as ``directions`` has them."""
        E, R, last = len(self.k), self.rates, self.size - 1
        of_worst = (which >= R) & (which < last)
        is_mixed = (which >= E) & (which < R)
        return np.concatenate(
            [which[which < E], which[which == last], which[of_worst], which[is_mixed]]
        )


def coordinates(sums: Mapping[str, np.ndarray], n: float, limits: RateLimits) -> Coordinates:
    """The multipliers of all comparisons with enough people.  sums: of ``scores.Points.masses``."""
    mass = sums["mass"].T
    pairs = np.array(limits.pairs, int).reshape(-1, 2)
    k, at = (v.ravel() for v in np.indices((len(mass), len(pairs))))
    j, other = pairs[at].T
    minimum = np.minimum(mass[k, j], mass[k, other])
    on = (minimum >= max(limits.min_people, 1e-9)) & np.isfinite(limits.tau[k])
    k, j, other = k[on], j[on], other[on]
    low, high = limits.positive_rate or (-np.inf, np.inf)
    members, worths = np.zeros(0), np.zeros(0)
    if limits.worst is not None:  # with few people a weight function counts for less than its share
        members = np.maximum(sums["members"], max(limits.min_people, 1e-9)) / n
        worths = sums["worths"] / n / members
    free, fixed = np.zeros(len(members)), np.full(len(members), np.inf)
    return Coordinates(
        k=k,
        j=j,
        other=other,
        up=np.concatenate([limits.tau[k], free, [high]]),
        down=np.concatenate([limits.tau[k], fixed, [-low]]),
        curvature=np.concatenate([curvatures(minimum[on], limits.tau[k], limits), fixed, [np.inf]]),
        mass=mass / n,
        mixed=np.zeros((0, *mass.shape)),
        members=members,
        worths=worths,
        worst=limits.worst,
    )


def curvatures(people: np.ndarray, tau: np.ndarray, limits: RateLimits) -> np.ndarray:
    """Of the penalty near 0, (E,).  people: of the smaller group of each comparison; tau: its limit, none from 1 on."""
    result, on = np.full(len(tau), np.inf), (tau > 0) & (tau < 1)
    if limits.spend > 0 and on.any():
        weights = np.sqrt(people[on])
        shares = weights / weights.mean() / max(len(weights), MANY)
        result[on] = np.maximum(tau[on], MIN_UNIT) ** 2 / (2 * limits.spend * shares)
    return result


@dataclass(frozen=True)
class At:
    """The objective at x: value, gradient of the smooth subgroup, and the sums it was made from, as means.  losses:
    (K,), of each weight function where the worst counts."""

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
    losses: np.ndarray


def objective(at: Coordinates, n: float, x: np.ndarray, eps: float, sums: Mapping, t: int) -> At:
    decided, positive = sums["decided"][t] / n, float(sums["positives"][t]) / n
    r = at.differences(decided)
    smooth = float(sums["value"][t]) / n
    utility, losses = float(sums["utility"][t]) / n, np.zeros(0)
    if at.worst is not None:
        share, alpha = at.worst.share, x[at.rates : -1]
        losses = at.worst.losses(sums["worth"][t] / n / at.members, at.worths)
        without = at.worst.losses(np.zeros(len(at.worths)), at.worths)
        smooth -= (1.0 - share) * without[-1] + share * float(alpha @ without)
        utility = -(1.0 - share) * losses[-1] - share * float(losses.max())
    value = smooth + at.penalty(x)
    of_worst = np.zeros(0) if at.worst is None else -at.worst.share * losses
    gradient = np.concatenate([-r, of_worst, [-positive]])
    return At(
        x=x,
        eps=eps,
        value=value,
        gradient=gradient,
        differences=r,
        decided=decided,
        utility=utility,
        positive=positive,
        right=float(sums["right"][t]) / n,
        smooth=smooth,
        losses=losses,
    )


def unsettled(at: Coordinates, point: At) -> float:
    """How far the point is from the optimum: by differences of rates, and by what the adversary could still gain."""
    left = residual(point.gradient, point.x, at.up, at.down, at.curvature)
    if at.worst is not None:
        inner = slice(at.rates, -1)
        g, alpha = point.gradient[inner], point.x[inner]
        left[inner] = float(alpha @ g - g.min())
    return float(left.max())
