"""Fairness notions as linear cuts on per-group coefficient vectors.

Every notion here looks at psi_g[j] = sum_{s_i = j} K(x_i) g(d_w(x_i)), shape (G, M), with g the
indicator of a positive decision or a surrogate of it. For a fixed reweighing alpha, the risk
difference of two groups is *linear* in psi_g, because the masses psi_theta[j] do not depend on w:

    RD_alpha(j, k) = alpha.psi_g[j] / alpha.psi_theta[j] - alpha.psi_g[k] / alpha.psi_theta[k]

so it is one matrix of coefficients C, (G, M), and the constraint is <C, psi_g> <= tau: a *cut*.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np

from agnosticfair.ambiguity import Ambiguity, worst_differences, worst_linear
from agnosticfair.errors import SettingsError
from agnosticfair.linear import sigmoid

MOST_CUTS = 6
"""Reweighings that one look for the worst one offers as cuts."""


@dataclass(frozen=True)
class Surrogate:
    """g: 'sigmoid' of d / temperature, compared as rates; or 'covariance', g = d (eq. fairness_convariance)."""

    kind: str = "sigmoid"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ("sigmoid", "covariance") or not self.temperature > 0:
            raise SettingsError(
                f"unknown surrogate {self.kind!r} at temperature {self.temperature}; take 'sigmoid' "
                "with a positive temperature, or 'covariance'"
            )


def surrogate_values(
    surrogate: Surrogate, d: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """g, g' and g'' at the signed distances d.

    >>> [float(v[0]) for v in surrogate_values(Surrogate(), np.zeros(1))]
    [0.5, 0.25, 0.0]
    """
    if surrogate.kind == "covariance":
        return d, np.ones_like(d), np.zeros_like(d)
    T = surrogate.temperature
    g = sigmoid(d / T)
    slope = g * (1.0 - g) / T
    return g, slope, slope * (1.0 - 2.0 * g) / T


def rate_cut(alpha: np.ndarray, psi_theta: np.ndarray, j: int, k: int) -> np.ndarray:
    """C with <C, psi_g> = rate of group j minus rate of group k under alpha.  psi_theta: (G, M).

    >>> rate_cut(np.ones(1), np.array([[4.0], [2.0]]), 1, 0)
    array([[-0.25],
           [ 0.5 ]])
    """
    C = np.zeros_like(psi_theta)
    C[j] = alpha / (alpha @ psi_theta[j])
    C[k] = -alpha / (alpha @ psi_theta[k])
    return C


def covariance_cut(alpha: np.ndarray, psi_theta: np.ndarray, s_bar: float) -> np.ndarray:
    """C with <C, psi_g> = (1/n) sum_i theta(x_i) (s_i - s_bar) g_i, for two groups 0 and 1."""
    n = alpha @ psi_theta.sum(axis=0)
    return np.outer(np.arange(len(psi_theta)) - s_bar, alpha) / n


def kernel_cuts(psi_theta: np.ndarray) -> np.ndarray:
    """Cuts (k, G, M) that compare the groups under each kernel by itself, groups of no mass left out."""
    G, M = psi_theta.shape
    return np.array(
        [
            rate_cut(np.eye(M)[m], psi_theta, j, k)
            for m in range(M)
            for j, k in permutations(range(G), 2)
            if psi_theta[j, m] > 0 and psi_theta[k, m] > 0
        ]
    ).reshape(-1, G, M)


def uniform_cuts(psi_theta: np.ndarray) -> np.ndarray:
    """Cuts (k, G, M) that compare the groups under the last kernel alone, which is K = 1."""
    G, M = psi_theta.shape
    return np.array(
        [rate_cut(np.eye(M)[-1], psi_theta, *pair) for pair in permutations(range(G), 2)]
    )


def worst_rate_cuts(
    A: Ambiguity,
    psi_g: np.ndarray,
    psi_theta: np.ndarray,
    floor: float,
    tolerance: float,
    target: float,
) -> np.ndarray:
    """Cuts (k, G, M) of the reweighings in A under which two groups' rates differ most.

    The first of each pair is within ``tolerance`` of the worst, or nothing exceeds ``target``.
    """
    cuts = []
    for j, k in permutations(range(len(psi_g)), 2):
        alphas, _ = worst_differences(A, psi_g[[k, j]], psi_theta[[k, j]], floor, tolerance, target)
        cuts += [rate_cut(alpha, psi_theta, j, k) for alpha in alphas[:MOST_CUTS]]
    return np.array(cuts).reshape(-1, *psi_g.shape)


def worst_covariance_cuts(
    A: Ambiguity, psi_g: np.ndarray, psi_theta: np.ndarray, s_bar: float
) -> np.ndarray:
    """The two cuts of the reweighings with the largest and the lowest covariance."""
    psi_C = (np.arange(len(psi_g)) - s_bar) @ psi_g
    return np.array(
        [
            sign * covariance_cut(worst_linear(A, sign * psi_C).alpha, psi_theta, s_bar)
            for sign in (1.0, -1.0)
        ]
    )
