"""The two adversaries: what they may reweight, and the worst that they can do to a w that clients answered for.

    Phi(w) = (1 - share) L(w) + share max_{alpha in A_L} L(w, alpha) + ridge |w|^2 / 2
    subject to  <C, psi_g(w)> <= tau  for every cut C of the fairness adversary's set

The solvers that play them (``exact``, ``saddle``) go by these functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from agnosticfair.errors import DataError, SettingsError
from agnosticfair.mathematics.ambiguity import Ambiguity, check, worst_linear
from agnosticfair.mathematics.fairness import (
    Comparisons,
    kernel_cuts,
    shrunk,
    under_floor,
    uniform_cuts,
    worst_pair,
    worst_rate_cuts,
)
from agnosticfair.methods import Fairness, Method
from agnosticfair.server.plan import Plan, fairness_of

Sums = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Point:
    """A w that the clients have answered for: their sums, and what follows from them."""

    w: np.ndarray
    sums: Sums
    loss: float
    worst: float
    alpha: np.ndarray
    cuts: np.ndarray


@dataclass(frozen=True)
class Game:
    """Both adversaries' sets and what is compared.  ridge: (D,).  nominal: the pairs that uniform weights compare.
    precision: of the search for the worst reweighting."""

    method: Method
    n: float
    clients: tuple[str, ...]
    compared: Comparisons
    ridge: np.ndarray
    under_floor: tuple[str, ...] = ()
    nominal: tuple[tuple[int, int | None], ...] = ()
    precision: float = 1e-3

    @property
    def fairness(self) -> Fairness:
        return fairness_of(self.method)


def game(plan: Plan) -> Game:
    """As the summary statistics settle it."""
    ridge = np.append(np.full(plan.features, plan.method.ridge), 0.0)
    return Game(plan.method, plan.n, plan.clients, plan.compared, ridge)


def begun(game: Game, sums: Sums) -> Game:
    """What the first reply settles: the rows' weight in all, and which groups are under the floor.

    Raises, with what to change, where one of the two adversaries' sets is empty or nothing is left to
    be compared. Groups under the floor are named in the result; where uniform weights have a limit of
    their own, that one holds for them, too.
    """
    masses, fairness = sums["psi_theta"], game.method.fairness
    game = replace(game, n=float(masses[:, -1].sum()), nominal=game.compared.pairs)
    check(Ambiguity(sums["psi_theta_L"], game.n, game.method.bound))
    if fairness is None or fairness.each:
        return game
    A = Ambiguity(masses[:, :-1].sum(axis=0), game.n, fairness.bound)
    masses_by, names = game.compared.members @ masses[:, :-1], game.compared.names
    check(A)
    small = under_floor(A, masses_by, fairness.floor)
    compared = game.compared.without(small)
    if not compared.pairs:
        check(A, masses_by, fairness.floor, names)
        raise SettingsError(f"floor {fairness.floor:g} leaves no two groups to compare: lower it")
    return replace(game, compared=compared, under_floor=tuple(names[j] for j in small))


def for_clients(C: np.ndarray, game: Game, sums: Sums) -> np.ndarray:
    """C, (.., G, F + 1), for the clients' kernels, which are not drawn together by ``trust``."""
    trust = game.fairness.trust
    if trust == 0:
        return C
    p = sums["psi_theta"][:, :-1].sum(axis=0) / game.n
    blocks = [(1 - trust) * C[..., :-1], C[..., -1:] + trust * (C[..., :-1] @ p)[..., None]]
    return np.concatenate(blocks, axis=-1)


def drawn_together(game: Game, sums: Sums) -> dict[str, np.ndarray]:
    """The sums of the fairness adversary's kernels, drawn towards uniform weights by ``trust``."""
    trust = game.fairness.trust
    if trust == 0:
        return dict(sums)
    p = sums["psi_theta"][:, :-1].sum(axis=0) / game.n
    names = [name for name in ("psi_g", "psi_theta", "psi_hat", "J_g") if name in sums]
    return {**sums, **{name: shrunk(sums[name], p, trust) for name in names}}


def loss_of(game: Game, sums: Sums, p: np.ndarray | None = None) -> tuple[float, np.ndarray]:
    """Phi without its ridge, at w or, linearised, at w + p; and the weights its gradient puts on kernels."""
    mean, psi_L, share = sums["loss"], sums["psi_L"], game.method.share
    if p is not None:
        mean, psi_L = mean + sums["J_1"] @ p, psi_L + sums["J_L"] @ p
    worst = worst_linear(Ambiguity(sums["psi_theta_L"], game.n, game.method.bound), psi_L)
    return float((1 - share) * mean + share * worst.value) / game.n, worst.alpha


def cuts_at(game: Game, psi: np.ndarray, sums: Sums, minimum: float) -> np.ndarray:
    """The worst cuts (k, G, M) of the fairness adversary at psi, of those that exceed ``minimum`` there."""
    fairness, members = game.method.fairness, game.compared.members
    if fairness is None:
        return np.zeros((0, *psi.shape))
    psi_theta = members @ sums["psi_theta"]
    if fairness.each:
        empty = np.argwhere(psi_theta <= 0)
        if len(empty):
            raise DataError(
                f"client {game.clients[empty[0][1]]!r} lacks one of the sensitive groups; method "
                f"{game.method.name!r} compares the groups at every client: leave that client out or "
                "take another method"
            )
    total = sums["psi_theta"].sum(axis=0)
    cuts = _worst_cuts(game, fairness, members @ psi, psi_theta, total)
    if isfinite(fairness.nominal):
        nominal = uniform_cuts(psi_theta, game.nominal) * (fairness.tau / fairness.nominal)
        cuts = np.concatenate([cuts, nominal])
    cuts = np.einsum("pg,kpm->kgm", members, cuts)
    return cuts[values(cuts, psi) > minimum]


def values(cuts: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """What each cut, (k, G, M), is at psi."""
    return np.einsum("kgm,gm->k", cuts, psi)


def _worst_cuts(
    game: Game, fairness: Fairness, psi: np.ndarray, psi_theta: np.ndarray, total: np.ndarray
) -> np.ndarray:
    """The cuts of the adversary's own kernels; the last column, uniform weights, is not one of them.

    psi, psi_theta: (P, M + 1), of the compared groups.  total: (M + 1,), of all rows.
    """
    kernels, kernels_theta, pairs = psi[:, :-1], psi_theta[:, :-1], game.compared.pairs
    if fairness.each or kernels_theta.shape[1] == 1:
        cuts = kernel_cuts(kernels_theta, pairs)
    else:
        A, floor = Ambiguity(total[:-1], game.n, fairness.bound), fairness.floor
        limits = floor, game.precision, fairness.tau
        cuts = worst_rate_cuts(A, kernels, kernels_theta, pairs, *limits)
    return np.concatenate([cuts, np.zeros((*cuts.shape[:2], 1))], axis=2)


def evaluate(
    game: Game, w: np.ndarray, sums: Sums, psi: np.ndarray, penalty: float, limited: bool = True
) -> Point:
    """Loss and worst difference at w, over the whole of both sets.  psi: what the limit is on, where it is looked at.

    At w = 0 every alpha shows no difference, and which one is worst is rounding: no cut far below tau is kept.
    """
    loss, alpha = loss_of(game, sums)
    cuts = cuts_at(game, psi, sums, 0.0) if limited else np.zeros((0, *psi.shape))
    shown = values(cuts, psi)
    binding = cuts[shown > 0.25 * game.fairness.tau]
    return Point(w, sums, loss + penalty, float(shown.max(initial=0.0)), alpha, binding)


def worst_cases(game: Game, here: Point | None) -> tuple[float, float]:
    """The largest difference over the fairness adversary's set of what is limited, and of true decisions: a
    certificate on the training rows and this basis; under uniform weights where there is no adversary.  Where
    nothing is compared, a group's highest share of wrong decisions."""
    if here is None or not len(game.compared.members):
        return float("nan") if here is None else here.worst, float("nan")
    members, sums, fairness = game.compared.members, here.sums, game.method.fairness
    psi, theta = members @ sums["psi_hat"], members @ sums["psi_theta"]
    if fairness is None or fairness.each or fairness.basis.kind == "constant":
        there = theta[:, -1] > 0
        rates = psi[:, -1] / np.where(there, theta[:, -1], 1.0)
        pairs = [(j, k) for j, k in game.compared.pairs if there[j] and (k is None or there[k])]
        gaps = (float(rates[j] - (0.0 if k is None else rates[k])) for j, k in pairs)
        return here.worst, max(gaps, default=0.0)
    A = Ambiguity(sums["psi_theta"].sum(axis=0)[:-1], game.n, fairness.bound)
    worst = worst_pair(A, psi[:, :-1], theta[:, :-1], game.compared.pairs, fairness.floor)
    return here.worst, 0.0 if worst is None else max(worst.worst.value, 0.0)


def positive_in(game: Game, sums: Sums) -> dict[str, float]:
    """The share of positive decisions, for a round's record; nothing where decisions are not what was counted."""
    if game.fairness.measured.kind == "loss":
        return {}
    return {"positive": float(sums["psi_hat"][:, -1].sum()) / game.n}
