"""Reweighing functions K: what the adversary can weigh up, one column per kernel (eq. reweighing_alpha).

theta_alpha(x) = sum_m alpha_m K_m(x).  A basis is data; ``design`` turns rows into K of shape (n, M).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agnosticfair.errors import SettingsError


@dataclass(frozen=True)
class Basis:
    """Which kernels: kind 'constant', 'by_client' or 'gaussian' (with its number and width)."""

    kind: str
    kernels: int = 1
    sigma: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ("constant", "by_client", "gaussian"):
            raise SettingsError(
                f"unknown basis {self.kind!r}; take constant, by_client or gaussian"
            )
        if self.kernels < 1 or not self.sigma > 0:
            raise SettingsError(
                f"a basis needs at least one kernel and a positive width, not {self.kernels} "
                f"kernels of width {self.sigma}"
            )


def constant() -> Basis:
    """One kernel, K = 1: every alpha in A is uniform weights."""
    return Basis("constant")


def by_client() -> Basis:
    """One indicator per client: the mixtures of agnostic federated learning."""
    return Basis("by_client")


def gaussian(kernels: int = 200, sigma: float = 1.0) -> Basis:
    """Gaussians around centres (eq. Gaussian_kernel), which are drawn from the training rows."""
    return Basis("gaussian", kernels, sigma)


def gaussian_kernel(X: np.ndarray, centres: np.ndarray, sigma: float) -> np.ndarray:
    """K[i, m] = exp(-|b_m - x_i|^2 / (2 sigma^2)), for X (n, d) and centres (M, d).

    >>> gaussian_kernel(np.array([[0.0], [1.0]]), np.array([[0.0]]), 1.0).round(4)
    array([[1.    ],
           [0.6065]])
    """
    K = X @ (centres.T / sigma**2)
    K -= np.einsum("ij,ij->i", X, X)[:, None] / (2 * sigma**2)
    K -= np.einsum("ij,ij->i", centres, centres) / (2 * sigma**2)
    np.minimum(K, 0.0, out=K)
    return np.exp(K, out=K)


def width(basis: Basis, clients: Sequence[str]) -> int:
    """M, the number of kernels."""
    return {"constant": 1, "by_client": len(clients), "gaussian": basis.kernels}[basis.kind]


def support(basis: Basis, client: str, clients: Sequence[str]) -> slice:
    """The kernels that are not zero at a client: its own indicator, or all of them.

    >>> support(by_client(), "b", ["a", "b"])
    slice(1, 2, None)
    """
    if basis.kind != "by_client":
        return slice(0, width(basis, clients))
    own = clients.index(client)
    return slice(own, own + 1)


def design(
    basis: Basis, X: np.ndarray, centres: np.ndarray | None, client: str, clients: Sequence[str]
) -> np.ndarray:
    """K for the rows X (n, d) of one client among ``clients``.

    >>> design(by_client(), np.zeros((2, 1)), None, "b", ["a", "b"])
    array([[0., 1.],
           [0., 1.]])
    """
    if basis.kind == "gaussian":
        if centres is None:
            raise SettingsError("a gaussian basis needs centres: draw them before the first round")
        return gaussian_kernel(X, centres, basis.sigma)
    K = np.zeros((len(X), width(basis, clients)))
    K[:, clients.index(client) if basis.kind == "by_client" else 0] = 1.0
    return K


def row_priorities(X: np.ndarray, seed: int) -> np.ndarray:
    """A pseudo-random number in [0, 1) for every row, a function of its content and the seed alone.

    The same row gets the same number at whichever client it lies, so "the rows of lowest priority
    number" is a random sample of the distinct rows that does not depend on how rows are spread.
    """
    odd = 2 * np.random.default_rng(seed).integers(0, 2**62, size=X.shape[1]) + 1
    mix = np.asarray(odd, dtype=np.uint64)
    # + 0.0 turns -0.0 into 0.0, which is the same number with other bits
    bits = np.ascontiguousarray(X + 0.0, dtype=np.float64).view(np.uint64)
    with np.errstate(over="ignore"):
        h = np.zeros(len(X), dtype=np.uint64)
        for j in range(X.shape[1]):
            h = (h ^ bits[:, j]) * mix[j]
            h ^= h >> np.uint64(29)
        h *= np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(32)
    return (h >> np.uint64(11)) * 2.0**-53
