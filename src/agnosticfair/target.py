"""A deployment of which unlabelled rows are known: weights that make the training rows look like it.

The weights go to ``sample_weight``. Used alone they are the classical answer to a known shift; in a
robust method they move the centre of the set A, and ``trust`` shrinks A towards that centre.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agnosticfair.auditing.inputs import features
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.mathematics.basis import gaussian_kernel, median_distance, row_priorities
from agnosticfair.methods import method

HOW = ("density_ratio", "kernel_mean_matching")
STEPS = 300
"""Gradient steps of kernel mean matching."""


def target_weights(
    X: Any,
    target: Any,
    how: str = "density_ratio",
    *,
    max_weight: float = 10.0,
    kernels: int = 100,
    sigma: float | str = "median",
    ridge: float = 1e-3,
    seed: int = 0,
) -> np.ndarray:
    """Weights of rows, mean one, under which they look like the rows of a target.

    Parameters
    ----------
    X : (n, d) array
        The rows to weigh.
    target : (m, d) array
        Rows of the deployment.
    how : {'density_ratio', 'kernel_mean_matching'}
        The first asks a logistic classifier which of the two a row comes from, and weighs by its odds; the second
        takes those weights whose mean of a Gaussian kernel is nearest to the target's.
    max_weight : float
        No row weighs more than this many times the mean.
    kernels : int
        Rows from which the kernel's mean is seen.
    sigma : float or 'median'
        Width of the kernel.
    ridge : float
        Of the classifier, or of the matching.
    seed : int
        Draws these rows.

    Returns
    -------
    (n,) array

    Examples
    --------
    >>> X = np.array([[0.0], [0.0], [1.0], [1.0]])
    >>> target_weights(X, np.array([[0.0], [0.0], [0.0], [1.0]]), ridge=1e-9).round(3)
    array([1.5, 1.5, 0.5, 0.5])
    """
    if how not in HOW:
        raise SettingsError(f"unknown way {how!r} to weigh rows; take {' or '.join(HOW)}")
    if (
        not max_weight >= 1
        or kernels < 1
        or not (sigma == "median" or (not isinstance(sigma, str) and sigma > 0))
    ):
        raise SettingsError(
            f"max_weight is {max_weight}, kernels {kernels}, sigma {sigma!r}: give at least 1, 1, and 'median' "
            "or a positive width"
        )
    one, two = features(X), features(target)
    if len(one.names) != len(two.names):
        raise DataError(
            f"the target has {len(two.names)} columns and X {len(one.names)}: give the same features"
        )
    named = _has_names(X) and _has_names(target)
    if strange := [
        pair for pair in zip(one.names, two.names, strict=True) if named and len({*pair}) > 1
    ]:
        raise DataError(
            f"the target has column {strange[0][1]!r} where X has {strange[0][0]!r}: give the same "
            "features in the same order"
        )
    x = one.at(slice(0, one.n))
    b = (two.low + two.span * two.at(slice(0, two.n)) - one.low) / one.span
    if how == "density_ratio":
        return _odds(x, b, max_weight, ridge)
    centres = np.vstack([x, b])
    order = np.argsort(row_priorities(centres, seed), kind="stable")
    centres = np.unique(centres[order[: 2 * kernels]], axis=0)[:kernels]
    width = median_distance(centres) if isinstance(sigma, str) else sigma
    values, vectors = np.linalg.eigh(gaussian_kernel(centres, centres, width))
    positive = values > 1e-6 * values[-1]
    white = vectors[:, positive] / np.sqrt(
        values[positive]
    )  # so that |.| is the kernel's own distance
    Phi = gaussian_kernel(x, centres, width) @ white
    return _matched(Phi, (gaussian_kernel(b, centres, width) @ white).mean(axis=0), max_weight)


def _has_names(X: Any) -> bool:
    return isinstance(X, Table) or hasattr(X, "columns")


def _odds(x: np.ndarray, b: np.ndarray, max_weight: float, ridge: float) -> np.ndarray:
    """Odds of coming from b rather than x, by the linear classifier of this package."""
    both = np.vstack([x, b])
    names = [f"x{j:05d}" for j in range(both.shape[1])]
    y = np.repeat([0, 1], [len(x), len(b)]).astype(np.int32)
    table = Table(dict(zip(names, both.T, strict=True)), {}, Column(y, ("0", "1")), {})
    chosen_method = method("fl", ridge=ridge)
    model = fit({"both": table}, chosen_method, positive="1", scale=False).model
    d = x @ model.w[:-1]
    return _cut(np.exp(d - d.max()), max_weight)


def _cut(weights: np.ndarray, max_weight: float) -> np.ndarray:
    """min(c weights, most) with the c that makes its mean one; where too few are positive for that, these
    weigh the same.

    >>> _cut(np.array([0.0, 1.0, 9.0]), 2.0)
    array([0., 1., 2.])
    """
    n, w = len(weights), np.sort(weights)[::-1]
    rest, left = np.cumsum(w[::-1])[::-1], n - max_weight * np.arange(n)
    first = int(np.argmax(left * w <= max_weight * rest))  # so many are cut
    if not rest[first] > 0:
        return (weights > 0) / (weights > 0).mean()
    return np.minimum(weights * (left[first] / rest[first]), max_weight)


def _matched(Phi: np.ndarray, wanted: np.ndarray, max_weight: float) -> np.ndarray:
    """theta in [0, most], mean one, that minimises |Phi.T theta / n - wanted|^2: accelerated gradient
    steps, each brought back to the box and then to the mean.  Phi: (n, M), wanted: (M,).
    """
    n = len(Phi)
    theta = ahead = np.ones(n)
    rate, momentum = n / np.linalg.norm(Phi.T @ Phi / n, 2), 1.0
    for _ in range(STEPS):
        step = ahead - rate * (Phi @ (Phi.T @ ahead / n - wanted)) / n
        step = np.clip(step + (1.0 - step.mean()), 0.0, max_weight)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = step + (momentum - 1) / following * (step - theta)
        theta, momentum = step, following
    return _cut(theta, max_weight)
