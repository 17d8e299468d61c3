"""Loops compiled by Numba where it is installed (extra 'trees'): the same bits, faster."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def compiled(loop: Callable[..., None]) -> Callable[..., Any] | None:
    """The function, compiled; None without Numba."""
    try:
        from numba import njit
    except ImportError:
        return None
    return njit(cache=True, nogil=True, error_model="numpy")(loop)
