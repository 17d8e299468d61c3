"""What is limited: the state of ``deciding``, and the decisions' worst differences over the adversary's set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from agnosticfair.methods import Fairness
from agnosticfair.server import adversaries

TOLERATED = 1.5e-3
"""Decisions are steps, and rows lie on the threshold: a limit kept to this is kept."""

FIRST_DAMPING, MOST_CUTS = 1e-2, 300
"""MOST_CUTS go into a model."""


@dataclass(frozen=True)
class LimitedState:
    """All of the solver between two rounds.

    game: both adversaries' sets and what is compared.  metric: X'X / n, (D, D), in which steps are measured.
    limited: whether the limit is looked at yet.  promised: by the step to w.  best: the answered w of least merit
    whose decisions keep the limit; ``since``: the rounds it stands.  trials: the weights (T, D) that the next
    question is about; tries: how many such rounds there were.  constant: the intercept of the best constant answer,
    where it is known.
    """

    game: adversaries.Game
    w: np.ndarray
    alpha: np.ndarray
    round: int = 0
    metric: np.ndarray | None = None
    limited: bool = False
    here: adversaries.Point | None = None
    step: adversaries.SolvedStep | None = None
    promised: float = 0.0
    best: adversaries.Point | None = None
    since: int = 0
    refused: int = 0
    damping: float = FIRST_DAMPING
    nu: float = 2.0
    trials: np.ndarray | None = None
    tries: int = 0
    constant: float | None = None
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


def decided(state: LimitedState, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """The sums that the limit is on: of decisions, or of the loss where that is bounded."""
    return sums["psi_hat" if state.fairness.measured.kind == "sigmoid" else "psi_g"]


def differences(state: LimitedState, psi: np.ndarray, theta: np.ndarray) -> np.ndarray:
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


def _ends(state: LimitedState) -> tuple[np.ndarray, np.ndarray]:
    """The pairs compared, as two arrays; a rate alone is compared with the last row, zero."""
    pairs = state.game.compared.pairs
    P = len(state.game.compared.parts)
    found = np.array([(j, P if k is None else k) for j, k in pairs], int).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def dense_cuts(state: LimitedState, chosen: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Cuts (k, G, F + 1) of the chosen (pair, kernel), (k, 2)."""
    parts, (j, k) = state.game.compared.parts, _ends(state)
    mass = parts @ theta
    cuts = np.zeros((len(chosen), *theta.shape))
    for row, (pair, m) in enumerate(chosen):
        cuts[row, :, m] = parts[j[pair]] / mass[j[pair], m]
        if k[pair] < len(parts):
            cuts[row, :, m] -= parts[k[pair]] / mass[k[pair], m]
    return cuts


def cuts_at(
    state: LimitedState, psi: np.ndarray, sums: Mapping[str, np.ndarray], least: float
) -> np.ndarray:
    """Cuts (k, G, F + 1) of the fairness adversary that exceed ``least`` at psi, the worst ones first."""
    fairness, theta = state.fairness, sums["psi_theta"]
    mixed = not fairness.each and fairness.basis.kind != "constant"
    by_client = fairness.basis.kind == "by_client"
    if mixed or by_client or np.isfinite(fairness.nominal):
        cuts = adversaries.cuts_at(state.game, psi, sums)
        values = np.einsum("kgm,gm->k", cuts, psi)
    else:
        found = differences(state, psi[:, :-1], theta[:, :-1])
        order = np.argsort(-found[found > least], kind="stable")[:MOST_CUTS]
        return dense_cuts(state, np.argwhere(found > least)[order], theta)
    return cuts[values > least]


def evaluate(state: LimitedState, sums: Mapping[str, np.ndarray]) -> adversaries.Point:
    """Loss, and the worst difference of decisions, over the whole of all sets."""
    game, w = state.game, state.w
    loss, alpha = adversaries.loss_of(game, sums)
    psi = decided(state, sums)
    tau = state.fairness.tau
    cuts = cuts_at(state, psi, sums, 0.25 * tau) if state.limited else np.zeros((0, *psi.shape))
    worst = float(np.einsum("kgm,gm->k", cuts, psi).max(initial=0.0))
    loss += float(adversaries.ridge_of(game) @ (w * w)) / 2
    return adversaries.Point(w, sums, loss, worst, alpha, cuts)


def worst_cases(state: LimitedState) -> tuple[float, float]:
    """The worst difference over the set, of the surrogate and of what is decided."""
    if state.here is None:
        return float("nan"), float("nan")
    sums = state.here.sums
    game = replace(state.game, here=state.here)
    cuts = cuts_at(state, sums["psi_g"], sums, -np.inf)
    return float(
        np.einsum("kgm,gm->k", cuts, sums["psi_g"]).max(initial=0.0)
    ), adversaries.worst_decisions(game)
