"""Encoded rows as few columns of numbers and crossed indicators: sums over x without multiplying by zeros and ones.

An indicator's products are its rows' values, so that these sums are, to the last bit, those of rounded products v x.
Rows that look alike are added up once, times how many there are: whole numbers keep sums exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agnosticfair.data.rows import kinds_of
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.subgroups import Crossed, gram, totals


@dataclass(frozen=True)
class Features:
    """Rows x of D features.  numbers: (k, n), those that are no indicators, the intercept last; others: (k,), their
    columns in x; exponents: (k,), powers of two that they do not exceed.  hot: the indicators; at: (I,), their columns
    in x."""

    numbers: np.ndarray
    others: np.ndarray
    exponents: np.ndarray
    hot: Crossed
    at: np.ndarray


def weighed(
    v: np.ndarray, bits: int | np.ndarray, weights: np.ndarray | None, axis: int = 0
) -> np.ndarray:
    """v times the weights of the rows, which lie along the axis, if any, on the grid, in place. It is rounded before
    and after: so a row that weighs 2 is the same, to the last bit, as the row twice."""
    on_grid(v, bits)
    if weights is not None:
        v *= np.expand_dims(weights, tuple(k for k in range(v.ndim) if k != axis % v.ndim))
        on_grid(v, bits)
    return v


def _products(
    rows: Features, v: np.ndarray, bits: int, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """v x on the grid: of the numbers, (k, n), and of an indicator's rows, (n,)."""
    numbers = weighed(rows.numbers * v, (bits - rows.exponents)[:, None], weights, axis=1)
    return numbers, weighed(v.copy(), bits, weights)


def gradient_of(rows: Features, v: np.ndarray, bits: int, weights: np.ndarray | None) -> np.ndarray:
    """sum v x, (D,), of products on a grid of 2^-bits, less the numbers' exponents."""
    numbers, products = _products(rows, v, bits, weights)
    forest = np.empty(len(rows.others) + len(rows.at))
    forest[rows.others], forest[rows.at] = numbers.sum(axis=1), totals(rows.hot, products)
    return forest


def hessian_of(rows: Features, h: np.ndarray, bits: int, weights: np.ndarray | None) -> np.ndarray:
    """sum h x x^T, (D, D), exactly, on a grid of 2^-bits less the numbers' exponents.

    Both h and the numbers are rounded first, so that it is positive semidefinite whatever the rows' number leaves of
    the bits; a number's diagonal has room for what rounding may have taken off it.
    """
    x, products, room = _coarse(rows, h, bits, weights)
    numbers = x * products
    forest = np.empty((len(rows.others) + len(rows.at),) * 2)
    forest[rows.others[:, None], rows.others] = x @ numbers.T + np.diag(room)
    forest[rows.at[:, None], rows.at] = gram(rows.hot, products)
    between = np.array([totals(rows.hot, column) for column in numbers])
    forest[rows.others[:, None], rows.at] = between
    forest[rows.at[:, None], rows.others] = between.T
    return forest


def diagonal(rows: Features, h: np.ndarray, bits: int, weights: np.ndarray | None) -> np.ndarray:
    x, products, room = _coarse(rows, h, bits, weights)
    forest = np.empty(len(rows.others) + len(rows.at))
    forest[rows.others] = np.einsum("kn,n->k", x * x, products) + room
    forest[rows.at] = totals(rows.hot, products)
    return forest


def _coarse(
    rows: Features, h: np.ndarray, bits: int, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers and h on grids whose products are exact, and the square of the numbers' grid times sum h, 0 for the
    intercept, which is whole."""
    fine = bits // 3
    x = on_grid(rows.numbers.copy(), (fine - rows.exponents)[:, None])
    coarse = weighed(h.copy(), bits - 2 * fine, weights)
    room = coarse.sum() * np.ldexp(1.0, 2 * (rows.exponents - fine))
    room[-1] = 0.0
    return x, coarse, room


MAX_DISTINCT = 0.7
"""The most kinds, as a share of the rows, for which that is done."""


@dataclass(frozen=True)
class Distinct:
    """One row of every kind.  first: (kinds,), their places in the table; None for every row.  weights: (kinds,), how
    many rows are of each kind, or what each row weighs; None for one each.

    >>> rows = Distinct.of([np.array([3.0, 4.0, 3.0, 3.0])], None)
    >>> rows.take(np.array([3.0, 4.0, 3.0, 3.0])) @ rows.weights
    np.float64(13.0)
    """

    first: np.ndarray | None
    weights: np.ndarray | None

    @classmethod
    def of(cls, columns: Sequence[np.ndarray], weights: np.ndarray | None) -> Distinct:
        """The rows that differ in one of the columns, (n,) each; rows with weights are all taken."""
        kinds = (
            None if weights is not None or not len(columns[0]) else kinds_of(columns, MAX_DISTINCT)
        )
        return cls(None, weights) if kinds is None else cls(*kinds)

    def take(self, values: np.ndarray) -> np.ndarray:
        """Values of every row, (..., n), as values of every kind."""
        return values if self.first is None else values[..., self.first]
