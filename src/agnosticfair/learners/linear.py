"""The additive and the linear learner: logistic regressions over encoded rows, whose weights are ``w``, (models, H, D).

Rows are few columns of numbers and, for each categorical or binned column, a code: no matrix of zeros and ones is made.
Weights are multiples of 2^-24 and numbers of 2^-20, so that a score is exact, in whatever order it is added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from agnosticfair.data.encoding import (
    FEATURE_BITS,
    Encoding,
    codes_and_numbers,
    exponents,
    indicators,
)
from agnosticfair.data.table import Table
from agnosticfair.mathematics.linear import on_grid, sigmoid

WEIGHT_BITS = 24


@dataclass(frozen=True)
class Compact:
    """Rows.  numbers: (k, n), scaled.  codes: (C, n), of every categorical or binned column.  starts: (C + 1,), where
    the columns' indicators begin among the features."""

    numbers: np.ndarray
    codes: np.ndarray
    starts: tuple[int, ...]


def compact(encoding: Encoding, table: Table, who: str = "the data") -> Compact:
    """The rows of a table as an encoding has them."""
    numbers, codes = codes_and_numbers(encoding, table, who)
    if not encoding.scale:  # scaled ones are on their grid
        on_grid(numbers, (FEATURE_BITS - exponents(encoding)[: len(numbers)])[:, None])
    return Compact(numbers, codes, indicators(encoding))


def scores(rows: Compact, w: np.ndarray) -> np.ndarray:
    """w.x of every row, (n,).  w: (D,), the intercept last."""
    margins = np.full(rows.numbers.shape[1] if len(rows.numbers) else rows.codes.shape[1], w[-1])
    for j, column in enumerate(rows.numbers):
        margins += column * w[j]
    for (a, b), codes in zip(pairwise(rows.starts), rows.codes, strict=True):
        margins += w[a:b][codes]
    return margins


def predict(
    arrays: Mapping[str, np.ndarray], encoding: Encoding, index: int, table: Table, who: str
) -> np.ndarray:
    rows = compact(encoding, table, who)
    return np.array([sigmoid(scores(rows, w)) for w in arrays["w"][index]])


def of_all_rows(arrays: Mapping[str, np.ndarray], folds: int) -> dict[str, np.ndarray]:
    return {"w": arrays["w"][folds:]}


def check(arrays: Mapping[str, np.ndarray], encoding: Encoding, heads: int) -> None:
    """Raise ``ValueError`` unless these are one model's weights of so many heads."""
    w = arrays.get("w")
    if {*arrays} != {"w"} or w is None or w.shape != (1, heads, encoding.width + 1):
        raise ValueError("the weights of the estimates")
    if w.dtype != np.float64 or not np.isfinite(w).all():
        raise ValueError("the weights of the estimates")
