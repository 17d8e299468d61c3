"""A deployment of which unlabelled rows are known: weights that make the training rows look like it.

The weights go to ``sample_weight``. Used alone they are the classical answer to a known shift; in a
robust method they move the centre of the set A, and ``trust`` shrinks A towards that centre.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agnosticfair.basis import gaussian_kernel, median_distance, row_priorities
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, SettingsError, SolverError
from agnosticfair.federation import fit
from agnosticfair.given import features
from agnosticfair.methods import method
from agnosticfair.quadratic import Outcome, minimise

HOW = ("density_ratio", "kernel_mean_matching")


def target_weights(
    X: Any,
    target: Any,
    how: str = "density_ratio",
    *,
    most: float = 10.0,
    kernels: int = 100,
    sigma: float | str = "median",
    ridge: float = 1e-3,
    seed: int = 0,
) -> np.ndarray:
    """Weights (n,) of the rows X, mean one, under which they look like the rows ``target``, (m, d).

    how: 'density_ratio' asks a logistic classifier which of the two a row comes from, and weighs by
    its odds, cut at ``most`` times the mean.  'kernel_mean_matching' takes theta = K alpha with 0 <= alpha
    of ``kernels`` Gaussians of width ``sigma`` whose reweighted kernel means are nearest to the target's.

    >>> X = np.array([[0.0], [0.0], [1.0], [1.0]])
    >>> target_weights(X, np.array([[0.0], [0.0], [0.0], [1.0]]), ridge=1e-9).round(3)
    array([1.5, 1.5, 0.5, 0.5])
    """
    if how not in HOW:
        raise SettingsError(f"unknown way {how!r} to weigh rows; take {' or '.join(HOW)}")
    one, two = features(X), features(target)
    if len(one.names) != len(two.names):
        raise DataError(
            f"the target has {len(two.names)} columns and X {len(one.names)}: give the same features"
        )
    x = one.at(slice(0, one.n))
    b = (two.low + two.span * two.at(slice(0, two.n)) - one.low) / one.span
    if how == "density_ratio":
        return _odds(x, b, most, ridge)
    centres = np.vstack([x, b])
    order = np.argsort(row_priorities(centres, seed), kind="stable")
    centres = np.unique(centres[order[: 2 * kernels]], axis=0)[:kernels]
    width = median_distance(centres) if isinstance(sigma, str) else sigma
    return _matched(gaussian_kernel(x, centres, width), gaussian_kernel(b, centres, width))


def _odds(x: np.ndarray, b: np.ndarray, most: float, ridge: float) -> np.ndarray:
    """Odds of coming from b rather than x, by the linear classifier of this package."""
    both = np.vstack([x, b])
    names = [f"x{j:05d}" for j in range(both.shape[1])]
    y = np.repeat([0, 1], [len(x), len(b)]).astype(np.int32)
    table = Table(dict(zip(names, both.T, strict=True)), {}, Column(y, ("0", "1")), {})
    recipe = method("fl", ridge=ridge)
    model = fit({"both": table}, recipe, positive="1", scale=False).model
    d = x @ model.w[:-1]
    weights = np.exp(d - d.max())
    for _ in range(20):  # a cut lowers the mean, which the others make up for
        weights = np.minimum(weights / weights.mean(), most)
    return weights / weights.mean()


def _matched(K: np.ndarray, K_target: np.ndarray) -> np.ndarray:
    """theta = K alpha >= 0 of mean one whose means of K are nearest to the target's."""
    n, M = K.shape
    Q, wanted, mass = K.T @ K / n, K_target.mean(axis=0), K.mean(axis=0)
    P = Q.T @ Q + 1e-8 * np.eye(M)
    G = np.vstack([-np.eye(M), mass, -mass])
    h = np.concatenate([np.zeros(M), [1.0 + 1e-9, -1.0 + 1e-9]])
    solution = minimise(P, -Q.T @ wanted, G, h)
    if solution.outcome is not Outcome.OPTIMAL:
        raise SolverError(
            f"kernel mean matching ended {solution.outcome}: take fewer kernels, or 'density_ratio'"
        )
    theta = K @ np.maximum(solution.x, 0.0)
    return theta / theta.mean()
