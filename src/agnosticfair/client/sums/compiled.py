"""The histogram of ``mathematics.boosting``, compiled by Numba where it is installed: the same bits, faster."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from agnosticfair.mathematics import boosting
from agnosticfair.mathematics.trees import Bins


def histogram(
    codes: np.ndarray, slot: np.ndarray, g: np.ndarray, h: np.ndarray, slots: int, bins: Bins
) -> np.ndarray:
    """As ``boosting.histogram``."""
    add = _compiled()
    if add is None:
        return boosting.histogram(codes, slot, g, h, slots, bins)
    total = np.zeros((slots, int(bins.starts[-1]), 3))
    add(codes, slot, g, h, bins.starts, total)
    return total


@cache
def _compiled() -> Callable[..., Any] | None:
    """The loop over rows, compiled; None without Numba."""
    try:
        from numba import njit
    except ImportError:
        return None
    return njit(cache=True, nogil=True)(_add)


def _add(
    codes: np.ndarray,
    slot: np.ndarray,
    g: np.ndarray,
    h: np.ndarray,
    starts: np.ndarray,
    total: np.ndarray,
) -> None:
    for i in range(len(slot)):
        if slot[i] < 0:
            continue
        own, g_i, h_i = total[slot[i]], np.float64(g[i]), np.float64(h[i])
        for c in range(codes.shape[1]):
            at = starts[c] + codes[i, c]
            own[at, 0] += g_i
            own[at, 1] += h_i
            own[at, 2] += 1.0
