"""The linear model: signed distance d_w(x) = w.x (last entry of x is 1), and its logistic loss."""

from __future__ import annotations

from typing import Any

import numpy as np


def units(low: np.ndarray, high: np.ndarray, scale: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """low and span of columns with these ranges, so that (X - low) / span lies in [0, 1]; a constant column has
    span 1, and without ``scale`` all keep their own units.

    >>> units(np.array([2.0, 5.0]), np.array([6.0, 5.0]))
    (array([2., 5.]), array([4., 1.]))
    """
    if not scale:
        return np.zeros_like(low), np.ones_like(high)
    return low, np.where(high > low, high - low, 1.0)


def on_grid(v: np.ndarray, bits: int | np.ndarray) -> np.ndarray:
    """v rounded, in place, to multiples of 2^-bits.  bits: one number, or one per column.

    Products of two such numbers are multiples of a finer power of two, and a float64 adds up to 2^53
    multiples of it *exactly*: then a sum is the same to the last bit in whatever order, in however
    many pieces and at however many clients it is made.

    >>> on_grid(np.array([0.3, -0.3]), 2)
    array([ 0.25, -0.25])
    """
    big = np.ldexp(1.5, 52 - bits)
    v += big
    v -= big
    return v


def sigmoid(z: Any, xp: Any = np) -> Any:
    """1 / (1 + exp(-z)), without overflow.  xp: numpy or torch, here and below.

    >>> sigmoid(np.array([0.0, -1000.0]))
    array([0.5, 0. ])
    """
    e = xp.exp(-abs(z))
    return xp.where(z >= 0, 1.0, e) / (1.0 + e)


def log_loss(d: Any, y: Any, xp: Any = np) -> Any:
    """log(1 + exp(d)) - y d for labels y in {0, 1}, per row.

    >>> log_loss(np.array([0.0]), np.array([1.0])).round(4)
    array([0.6931])
    """
    return (d + abs(d)) / 2 + xp.log1p(xp.exp(-abs(d))) - y * d


def log_loss_derivatives(d: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and second derivative of the loss in d: sigmoid(d) - y and sigmoid(d) (1 - sigmoid(d))."""
    p = sigmoid(d)
    return p - y, p * (1.0 - p)
