"""Reweighting functions K: what the adversary can weigh up, one column per kernel (eq. reweighing_alpha).

theta_alpha(x) = sum_m alpha_m K_m(x).  A basis is data; ``design`` turns rows into K of shape (n, M).
Any function from rows to K will do as well (``checked``): whoever holds the rows calls it, and the
fit sees kind 'function'; ``gaussian_at`` makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.subgroups import FEATURES, SITE, check_depth
from agnosticfair.settings import COUNT, NATURAL, POSITIVE, SHARE, require, require_name

CENTRES = ("rows", "ranges", "kmeans", "given")
Reweighting = Callable[[Any], np.ndarray]
"""A user's own basis: from rows X to K, (n, M), non-negative."""


@dataclass(frozen=True)
class Basis:
    """Which kernels: kind 'constant', 'by_client', 'gaussian' (with its number, its width and where its
    centres come from), or a 'function', whose kernels come with every row.

    centres: 'kmeans' (means of rows, by rounds of sums), 'ranges' (drawn from the agreed ranges and categories),
    'rows' (a sample of the training rows, which all clients get to see: never unless asked for) or 'given'.
    split: every client's rows have Gaussians of their own, which the adversary then weighs apart.
    """

    kind: str
    kernels: int = 1
    sigma: float = 1.0
    centres: str = "kmeans"
    split: bool = False
    columns: tuple[str, ...] | None = None
    depth: int = 2
    min_share: float = 0.01
    bins: int = 4

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that are named to name subgroups: neither all features nor the site."""
        return tuple(c for c in self.columns or () if c not in (FEATURES, SITE))

    def __post_init__(self) -> None:
        require_name("basis", self.kind, KINDS)
        require(bool, split=self.split)
        if self.split and not KINDS[self.kind].splits:
            raise SettingsError(f"a basis {self.kind!r} cannot be split by client: take 'gaussian'")
        require_name("centres", self.centres, CENTRES)
        require(COUNT, kernels=self.kernels, bins=self.bins)
        check_depth(self.depth)
        require(SHARE, min_share=self.min_share)
        require(POSITIVE, sigma=self.sigma)


def constant() -> Basis:
    """One kernel, K = 1: every alpha in A is uniform weights.

    Examples
    --------
    >>> constant().kernels
    1
    """
    return Basis("constant")


def by_client() -> Basis:
    """One indicator per client: the mixtures of agnostic federated learning.

    Examples
    --------
    >>> by_client().kind
    'by_client'
    """
    return Basis("by_client")


def gaussian(kernels: int = 200, sigma: float = 1.0, centres: str = "kmeans") -> Basis:
    """Gaussians around centres (eq. Gaussian_kernel): means of training rows, or what is requested.

    Parameters
    ----------
    kernels : int
    sigma : float
        Their width.
    centres : {'kmeans', 'ranges', 'rows'}
        How they are found. 'rows', the paper's, shows every client rows of the others.

    Examples
    --------
    >>> gaussian(50, sigma=0.5).kernels
    50
    """
    return Basis("gaussian", kernels, sigma, centres)


def subgroups(
    columns: Sequence[str] | None = None, depth: int = 2, min_share: float = 0.01, bins: int = 4
) -> Basis:
    """Subgroups that people can name: every conjunction of at most ``depth`` values of different columns.

    Parameters
    ----------
    columns : sequence of str, optional
        Whose values name subgroups: all features unless said, or by '*' among others, ``("*", "race")``. Columns that
        are no features, and sensitive ones, may be named; 'site' is the client that holds a row.
    depth : int
        Values in one subgroup, 1 to 3.
    min_share : float
        The share of the rows that a subgroup of an audit holds at least; a rule has ``min_people``.
    bins : int
        Into which a column of numbers is cut, each with about as many rows, by counts that clients send.

    Examples
    --------
    >>> subgroups(depth=1).min_share
    0.01
    """
    named = None if columns is None else tuple(columns)
    return Basis("subgroups", columns=named, depth=depth, min_share=min_share, bins=bins)


def checked(function: Reweighting, X: Any, n: int) -> np.ndarray:
    """K = function(X), (n, M), or the sentence that says what is wrong with it.

    >>> checked(lambda X: np.ones((len(X), 2)), np.zeros((3, 1)), 3).shape
    (3, 2)
    """
    K = np.asarray(function(X))
    if K.ndim != 2 or len(K) != n or K.shape[1] < 1 or K.dtype.kind not in "biuf":
        raise SettingsError(
            f"the basis gave {K.dtype} of shape {K.shape} for {n} rows: return numbers, one row per row of "
            "X and one column per kernel"
        )
    K = K.astype(float)
    if not np.isfinite(K).all() or K.min() < 0:
        raise SettingsError(
            f"the basis gave values from {K.min():g} to {K.max():g}: weights are finite and not negative"
        )
    return K


def gaussian_at(centres: Any, sigma: float = 1.0) -> Reweighting:
    """Gaussians around centres that you name, a public sample say.

    Parameters
    ----------
    centres : (M, d) array
        In the units of X.
    sigma : float
        Their width.

    Examples
    --------
    >>> gaussian_at([[0.0], [1.0]])(np.array([[0.0]])).round(3)
    array([[1.   , 0.607]])
    """
    b = np.asarray(centres, float)
    return lambda X: gaussian_kernel(np.asarray(X, float), b, sigma)


def gaussian_kernel(X: np.ndarray, centres: np.ndarray, sigma: float) -> np.ndarray:
    """K[i, m] = exp(-|b_m - x_i|^2 / (2 sigma^2)), for X (n, d) and centres (M, d).

    >>> gaussian_kernel(np.array([[0.0], [1.0]]), np.array([[0.0]]), 1.0).round(4)
    array([[1.    ],
           [0.6065]])
    """
    K = X @ centres.T
    K -= np.einsum("ij,ij->i", X, X)[:, None] / 2
    K -= np.einsum("ij,ij->i", centres, centres) / 2
    np.minimum(K, 0.0, out=K)
    K /= sigma**2
    return np.exp(K, out=K)


def _gaussian_design(basis: Basis, X: np.ndarray, centres: np.ndarray | None) -> np.ndarray:
    return gaussian_kernel(X, _centres(basis, centres), basis.sigma)


def _centres(basis: Basis, centres: np.ndarray | None) -> np.ndarray:
    if centres is None:
        raise SettingsError(f"a {basis.kind} basis needs centres: draw them before the first round")
    return centres[: basis.kernels]


@dataclass(frozen=True)
class BasisKind:
    """What a kind of basis is.

    design: (basis, X, centres) to K, (n, M), at one client; None where K comes with the rows.
    kernels: M at one client.  centred: it has centres, (M, d), which clients and server agree on.
    apart: each client's rows have kernels of their own; ``splits``: only where the basis says so.
    """

    name: str
    design: Callable[[Basis, np.ndarray, np.ndarray | None], np.ndarray] | None
    kernels: Callable[[Basis], int] = lambda basis: basis.kernels
    centred: bool = False
    apart: bool = False
    splits: bool = False


def _ones(basis: Basis, X: np.ndarray, centres: np.ndarray | None) -> np.ndarray:
    return np.ones((len(X), 1))


KINDS: dict[str, BasisKind] = {}
"""The kinds of basis by name; ``register`` adds one."""


def register(kind: BasisKind) -> BasisKind:
    """Know a kind of basis, in every process that takes part."""
    KINDS[kind.name] = kind
    return kind


register(BasisKind("constant", _ones, lambda basis: 1))
register(BasisKind("by_client", _ones, lambda basis: 1, apart=True))
register(BasisKind("gaussian", _gaussian_design, centred=True, splits=True))
register(BasisKind("function", None))
register(BasisKind("subgroups", None))


def kernel_width(basis: Basis) -> int:
    """The number of kernels that one client's rows have: those of its ``support``."""
    return KINDS[basis.kind].kernels(basis)


def is_centred(basis: Basis) -> bool:
    """Whether the basis has centres, which clients and server agree on."""
    return KINDS[basis.kind].centred


def comes_with_rows(basis: Basis) -> bool:
    """Whether K is made by whoever holds the rows."""
    return KINDS[basis.kind].design is None


def is_apart(basis: Basis) -> bool:
    """Whether every client's rows have kernels of their own."""
    return KINDS[basis.kind].apart or basis.split


def width(basis: Basis, clients: Sequence[str]) -> int:
    """M, the number of kernels in all.

    >>> width(by_client(), ["a", "b"])
    2
    """
    return kernel_width(basis) * (len(clients) if is_apart(basis) else 1)


def support(basis: Basis, client: str, clients: Sequence[str]) -> slice:
    """The kernels that are not zero at a client: its own indicator or Gaussians, or all of them.

    >>> support(by_client(), "b", ["a", "b"])
    slice(1, 2, None)
    """
    place, size = clients.index(client) if is_apart(basis) else 0, kernel_width(basis)
    return slice(place * size, (place + 1) * size)


def settled(basis: Basis, centres: np.ndarray) -> Basis:
    """The basis with no more kernels than it has centres, (M, d)."""
    if not is_centred(basis):
        return basis
    return replace(basis, kernels=min(basis.kernels, len(centres)))


def around(K: np.ndarray, weights: np.ndarray | None, trust: float) -> np.ndarray:
    """K whose mixtures are the reweightings r (trust + (1 - trust) K alpha) around weights r, mean one.

    >>> around(np.array([[0.0], [2.0]]), np.array([1.0, 3.0]), 0.5)
    array([[0.375],
           [2.625]])
    """
    r = np.ones(len(K)) if weights is None else weights / weights.mean()
    return r[:, None] * ((1 - trust) * K + trust * (r @ K / len(r)))


def kernel_design(basis: Basis, X: np.ndarray, centres: np.ndarray | None) -> np.ndarray:
    """K for the rows X (n, d) of one client, of its ``support`` only."""
    make = KINDS[basis.kind].design
    if make is None:
        raise SettingsError(
            f"kernels of a basis {basis.kind!r} come with the rows: give a function of X"
        )
    return make(basis, X, centres)


def design(
    basis: Basis, X: np.ndarray, centres: np.ndarray | None, client: str, clients: Sequence[str]
) -> np.ndarray:
    """K for the rows X (n, d) of one client among ``clients``.

    >>> design(by_client(), np.zeros((2, 1)), None, "b", ["a", "b"])
    array([[0., 1.],
           [0., 1.]])
    """
    K = kernel_design(basis, X, centres)
    if not is_apart(basis):
        return K
    whole = np.zeros((len(X), width(basis, clients)))
    whole[:, support(basis, client, clients)] = K
    return whole


def check_seed(seed: int) -> None:
    """Raise unless numbers can be drawn with that seed."""
    require(NATURAL, seed=seed)


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
