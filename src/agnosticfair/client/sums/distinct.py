"""Rows that look alike are added up once, times how many there are: whole numbers keep sums exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agnosticfair.data.rows import kinds_of

FEW = 0.7
"""The most kinds, as a share of the rows, for which that is done."""


@dataclass(frozen=True)
class Distinct:
    """One row of every kind.

    Parameters
    ----------
    first : (kinds,) array or None
        Their places in the table; None for every row.
    weights : (kinds,) array or None
        How many rows are of each kind, or what each row weighs; None for one each.

    Examples
    --------
    >>> rows = Distinct.of([np.array([3.0, 4.0, 3.0, 3.0])], None)
    >>> rows.take(np.array([3.0, 4.0, 3.0, 3.0])) @ rows.weights
    np.float64(13.0)
    """

    first: np.ndarray | None
    weights: np.ndarray | None

    @classmethod
    def of(cls, columns: Sequence[np.ndarray], weights: np.ndarray | None) -> Distinct:
        """The rows that differ in one of the columns, (n,) each; rows with weights are all taken."""
        kinds = None if weights is not None or not len(columns[0]) else kinds_of(columns, FEW)
        return cls(None, weights) if kinds is None else cls(*kinds)

    def take(self, values: np.ndarray) -> np.ndarray:
        """Values of every row, (..., n), as values of every kind."""
        return values if self.first is None else values[..., self.first]
