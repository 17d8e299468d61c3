"""A quasi-Newton step from a diagonal and the last moves (L-BFGS), of many problems at once."""

from __future__ import annotations

import numpy as np


def lbfgs_step(
    gradient: np.ndarray, diagonal: np.ndarray, moves: np.ndarray, turns: np.ndarray, first: float
) -> np.ndarray:
    """The step, (..., D).

    Parameters
    ----------
    gradient : (..., D) array
    diagonal : (..., D) array
        Of the Hessian.
    moves, turns : (k, ..., D) arrays
        The last differences of weights and of their gradients, the latest last; 0 for none.
    first : float
        By how much the diagonal's step is shortened before there is a move.

    Examples
    --------
    >>> none = np.zeros((0, 2))
    >>> lbfgs_step(np.array([2.0, 4.0]), np.array([2.0, 2.0]), none, none, 0.5)
    array([-0.5, -1. ])
    """
    curved = (moves * turns).sum(axis=-1)
    rho = np.where(curved > 0, 1.0 / np.where(curved > 0, curved, 1.0), 0.0)
    q, alphas = gradient.copy(), []
    for s, y, r in zip(moves[::-1], turns[::-1], rho[::-1], strict=True):
        alpha = r * (s * q).sum(axis=-1)
        q -= alpha[..., None] * y
        alphas.append(alpha)
    p = q / diagonal * _length(diagonal, turns, curved, first)[..., None]
    for s, y, r, alpha in zip(moves, turns, rho, alphas[::-1], strict=True):
        p += (alpha - r * (y * p).sum(axis=-1))[..., None] * s
    return -p


def _length(
    diagonal: np.ndarray, turns: np.ndarray, curved: np.ndarray, first: float
) -> np.ndarray:
    """By how much the diagonal alone would step too far, as the latest move says."""
    scale = np.full(diagonal.shape[:-1], first)
    for y, c in zip(turns, curved, strict=True):
        norm = (y * (y / diagonal)).sum(axis=-1)
        scale = np.where(c > 0, c / np.where(norm > 0, norm, 1.0), scale)
    return scale
