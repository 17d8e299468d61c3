"""What is limited: the state of ``deciding``, the decisions' worst differences over the adversary's set, and what an
adversary who spreads over named parts charges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from agnosticfair.mathematics.notions import NOTIONS
from agnosticfair.methods import Fairness
from agnosticfair.server import adversaries

TOLERATED = 1.5e-3
"""Decisions are steps, and rows lie on the threshold: a limit kept to this is kept."""

WHOLE, USUAL_TAU, LEAST_TAU, STEEP = 20.0, 0.05, 1e-3, 1.5
"""What an adversary who spreads charges for the squared difference among everybody, from 0 on. All prices are those
at USUAL_TAU, and grow as tau falls, by the power STEEP: one number goes from lax to strict. Below LEAST_TAU, where
decisions are too coarse to tell, they grow no more: a fit would look at nothing else."""

DECIDED = 0.5
"""The share of decisions, not of the sigmoid, in what is charged for. Where few features make few different scores, a
warm sigmoid sees no difference that decisions have; decisions alone hold for these rows and less for others."""

FIRST_DAMPING, MOST_CUTS = 1e-2, 300
"""MOST_CUTS go into a model."""


class Limits(Protocol):
    """What every solver over named parts has.  limited: whether the limit is looked at yet.  here: the answered w in
    question."""

    @property
    def game(self) -> adversaries.Game: ...
    @property
    def fairness(self) -> Fairness: ...
    @property
    def limited(self) -> bool: ...
    @property
    def here(self) -> adversaries.Point | None: ...


@dataclass(frozen=True)
class LimitedState:
    """All of the solver between two rounds.

    game: both adversaries' sets and what is compared.  metric: X'X / n, (D, D), in which steps are measured.
    limited: whether the limit is looked at yet.  frozen: the temperature from then on, where
    differences are charged for.  promised: by the step to w.  best: the answered w of least merit
    whose decisions keep the limit; ``since``: the rounds it stands.  slopes: the parts whose slopes are asked for,
    None for all.  trials: the weights (T, D) that the next question is about; tries: how many such rounds there were.
    constant: the intercept of the best answer for everybody, where it is known.  looked: the round in which parts of
    three values were last looked at.
    """

    game: adversaries.Game
    w: np.ndarray
    alpha: np.ndarray
    round: int = 0
    metric: np.ndarray | None = None
    limited: bool = False
    frozen: float | None = None
    here: adversaries.Point | None = None
    step: adversaries.SolvedStep | None = None
    promised: float = 0.0
    best: adversaries.Point | None = None
    since: int = 0
    refused: int = 0
    damping: float = FIRST_DAMPING
    nu: float = 2.0
    slopes: np.ndarray | None = None
    trials: np.ndarray | None = None
    tries: int = 0
    constant: float | None = None
    looked: int = 0
    outcome: str = "running"
    history: tuple[dict, ...] = field(default_factory=tuple)

    @property
    def under_floor(self) -> tuple[str, ...]:
        return self.game.under_floor

    @property
    def fairness(self) -> Fairness:
        assert self.game.method.fairness is not None
        return self.game.method.fairness

    def over(self, worst: float) -> float:
        """How far a difference is over the limit, as the merit counts it."""
        return max(worst - self.fairness.tau - TOLERATED, 0.0)

    def keeps(self, point: adversaries.Point) -> bool:
        """Whether the decisions there keep the limit."""
        return self.limited and self.over(point.worst) <= 0

    def merit(self, loss: float, worst: float) -> float:
        """What is minimised: the loss, and what a violation weighs."""
        return loss + (self.nu * self.over(worst) if self.limited else 0.0)


def deviation(metric: np.ndarray | None, w: np.ndarray) -> float:
    """The standard deviation of the scores x.w, from X'X / n, whose last column has the means."""
    if metric is None:
        return 0.0
    return float(np.sqrt(max(w @ metric @ w - (metric[-1] @ w) ** 2, 0.0)))


def decided(state: Limits, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """The sums that the limit is on: of decisions, or of the loss where that is bounded."""
    return sums["psi_hat" if state.fairness.measured.kind == "sigmoid" else "psi_g"]


def differences(state: Limits, psi: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Of every pair compared, in every kernel, (pairs, F + 1): -inf where a group is absent or under the floor.

    psi, theta: (G, F + 1), by cell.
    """
    parts, floor = state.game.compared.parts, state.fairness.floor
    mass = parts @ theta
    enough = mass >= np.maximum(floor * theta.sum(axis=0), 1e-9)
    rates = parts @ psi / np.where(enough, mass, 1.0)
    none = np.zeros((1, rates.shape[1]))
    rates, enough = np.vstack([rates, none]), np.vstack([enough, none == 0])
    j, k = _ends(state)
    return np.where(enough[j] & enough[k], rates[j] - rates[k], -np.inf)


def _ends(state: Limits) -> tuple[np.ndarray, np.ndarray]:
    """The pairs compared, as two arrays; a rate alone is compared with the last row, zero."""
    pairs = state.game.compared.pairs
    P = len(state.game.compared.parts)
    found = np.array([(j, P if k is None else k) for j, k in pairs], int).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def dense_cuts(state: Limits, chosen: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Cuts (k, G, F + 1) of the chosen (pair, kernel), (k, 2)."""
    parts, (j, k) = state.game.compared.parts, _ends(state)
    mass = parts @ theta
    cuts = np.zeros((len(chosen), *theta.shape))
    for row, (pair, m) in enumerate(chosen):
        cuts[row, :, m] = parts[j[pair]] / mass[j[pair], m]
        if k[pair] < len(parts):
            cuts[row, :, m] -= parts[k[pair]] / mass[k[pair], m]
    return cuts


def limited_columns(state: Limits, F: int) -> np.ndarray:
    """The kernels, of F + 1, in which the limit holds one by one: all parts and everybody; everybody alone under an
    adversary who spreads."""
    fairness = state.fairness
    if fairness.basis.kind != "named":
        return np.arange(F)
    return np.array([F]) if fairness.spread is not None else np.arange(F + 1)


def cuts_at(
    state: Limits, psi: np.ndarray, sums: Mapping[str, np.ndarray], least: float
) -> np.ndarray:
    """Cuts (k, G, F + 1) of the fairness adversary that exceed ``least`` at psi, the worst ones first."""
    fairness, theta = state.fairness, sums["psi_theta"]
    mixed = not fairness.each and fairness.spread is None and fairness.basis.kind != "constant"
    by_client = fairness.basis.kind == "by_client"
    if mixed or by_client or np.isfinite(fairness.nominal):
        cuts = adversaries.cuts_at(state.game, psi, sums)
        values = np.einsum("kgm,gm->k", cuts, psi)
    else:
        columns = limited_columns(state, theta.shape[1] - 1)
        found = differences(state, psi[:, columns], theta[:, columns])
        chosen = np.argwhere(found > least)
        order = np.argsort(-found[found > least], kind="stable")[:MOST_CUTS]
        chosen = chosen[order]
        chosen[:, 1] = columns[chosen[:, 1]]
        return dense_cuts(state, chosen, theta)
    return cuts[values > least]


def charges(state: Limits, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The price of every part and, last, of everybody; and the difference from which on it is charged."""
    fairness = state.fairness
    tau, price = fairness.tau, fairness.spread or 0.0
    if NOTIONS[fairness.notion].bounds:  # a group's loss is no difference: charged over its limit
        return np.append(np.full(columns - 1, price), WHOLE), np.full(columns, tau)
    strict = (USUAL_TAU / max(tau, LEAST_TAU)) ** STEEP
    prices = np.append(np.full(columns - 1, price), WHOLE)
    return strict * prices, np.append(np.full(columns - 1, tau / 2), 0.0)


def begins(state: Limits) -> float:
    """The difference from which on a part is charged for, or the limit on each."""
    return (
        float(charges(state, 2)[1][0]) if state.fairness.spread is not None else state.fairness.tau
    )


def charged(state: Limits, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """The sums (G, F + 1) whose differences are charged for."""
    return (1 - DECIDED) * sums["psi_g"] + DECIDED * decided(state, sums)


@dataclass(frozen=True)
class Charge:
    """What the adversary who spreads charges: its value, and for each (pair, part) over its beginning, one after the
    other, the ends j and k, the column m, the price and the difference's excess."""

    value: float
    j: np.ndarray
    k: np.ndarray
    m: np.ndarray
    price: np.ndarray
    excess: np.ndarray
    mass: np.ndarray

    @property
    def over(self) -> np.ndarray:
        """The pairs and parts that are charged, (k, 3)."""
        return np.column_stack([self.j, self.k, self.m])

    def shares(self, parts: np.ndarray) -> np.ndarray:
        """What each cell's psi adds to each difference, (k, G).  parts: (P, G)."""
        by_cell, m = np.vstack([parts, np.zeros(parts.shape[1])]), self.m
        shares = [by_cell[end] / self.mass[end, m, None] for end in (self.j, self.k)]
        return shares[0] - shares[1]

    def weights(self, parts: np.ndarray) -> np.ndarray:
        """The slope of the value in psi, (G, F + 1): what is charged on cells and parts."""
        found = np.zeros((parts.shape[1], self.mass.shape[1]))
        own = 2 * self.price * self.excess
        np.add.at(found.T, self.m, own[:, None] * self.shares(parts))
        return found


def charge(state: Limits, sums: Mapping[str, np.ndarray], moved: Any = 0.0) -> Charge:
    """What is charged at these sums, slopes aside.  moved: what a step adds to psi, as far as is known."""
    theta, parts = sums["psi_theta"], state.game.compared.parts
    mass = np.vstack([parts @ theta, np.ones(theta.shape[1])])
    if state.fairness.spread is None or not state.limited:
        none, nowhere = np.zeros(0), np.zeros(0, int)
        return Charge(0.0, nowhere, nowhere, nowhere, none, none, mass)
    prices, begin = charges(state, theta.shape[1])
    excess = np.maximum(differences(state, charged(state, sums) + moved, theta) - begin, 0.0)
    value, (j, k) = float((prices * excess**2).sum()), _ends(state)
    a, m = np.nonzero(excess)
    return Charge(value, j[a], k[a], m, prices[m], excess[a, m], mass)


@dataclass(frozen=True)
class Penalty:
    """``charge`` of a linear model, as a quadratic of its step: value, gradient (D,) and Gauss-Newton curvature (D, D)
    at no step, of the parts that are charged after some step p, and what weights p puts on cells and parts (G, F + 1).
    over: the pairs and parts charged."""

    value: float
    slope: np.ndarray
    curve: np.ndarray
    weights: np.ndarray
    over: np.ndarray


def penalty(
    state: LimitedState,
    sums: Mapping[str, np.ndarray],
    after: tuple[np.ndarray, Charge] | None = None,
) -> Penalty:
    """What is charged at these sums.  after: a step p instead, and what is charged there, where slopes are known."""
    p, found = (None, charge(state, sums)) if after is None else after
    parts = state.game.compared.parts
    J = np.einsum("kg,gkd->kd", found.shares(parts), sums["J_g"][:, found.m])
    excess = found.excess if p is None else found.excess - J @ p
    own, curve = 2 * found.price * excess, (J * (2 * found.price)[:, None]).T @ J
    return Penalty(float(own @ excess) / 2, own @ J, curve, found.weights(parts), found.over)


def evaluate(state: LimitedState, sums: Mapping[str, np.ndarray]) -> adversaries.Point:
    """Loss with what the adversary charges, and the worst difference of decisions, over the whole of all sets."""
    game, w = state.game, state.w
    loss, alpha = adversaries.loss_of(game, sums)
    psi = decided(state, sums)
    tau = state.fairness.tau
    cuts = cuts_at(state, psi, sums, 0.25 * tau) if state.limited else np.zeros((0, *psi.shape))
    worst = float(np.einsum("kgm,gm->k", cuts, psi).max(initial=0.0))
    loss += float(adversaries.ridge_of(game) @ (w * w)) / 2 + charge(state, sums).value
    return adversaries.Point(w, sums, loss, worst, alpha, cuts)


def by_part(state: Limits) -> np.ndarray:
    """The largest difference of what is decided in every named part, (M,); -inf where nothing can be compared."""
    assert state.here is not None
    sums = state.here.sums
    return differences(state, decided(state, sums), sums["psi_theta"])[:, :-1].max(axis=0)


def worst_cases(state: Limits) -> tuple[float, float]:
    """The worst difference over the set, of the surrogate and of what is decided."""
    if state.here is None:
        return float("nan"), float("nan")
    sums, fairness = state.here.sums, state.fairness
    if fairness.basis.kind == "named" and fairness.each:
        every = (
            differences(state, psi, sums["psi_theta"])
            for psi in (sums["psi_g"], decided(state, sums))
        )
        surrogate, decisions = (float(found.max(initial=0.0)) for found in every)
        return surrogate, decisions
    game = replace(state.game, here=state.here)
    cuts = cuts_at(state, sums["psi_g"], sums, -np.inf)
    return float(
        np.einsum("kgm,gm->k", cuts, sums["psi_g"]).max(initial=0.0)
    ), adversaries.worst_decisions(game)
