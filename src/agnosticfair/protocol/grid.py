"""The grid that a reply's numbers lie on: multiples of a power of two that the task settles.

Sums over n rows of values up to ``2^SPARE_BITS`` in absolute value are then integers below 2^53 in units
of the grid. A float64 adds them up exactly, whoever adds in whatever order, and modulo 2^64 they can be
masked (``protocol.secure``) without a bit being lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from agnosticfair.data.encoding import FEATURE_BITS
from agnosticfair.data.encoding import exponents as exponents
from agnosticfair.errors import SettingsError
from agnosticfair.protocol.messages import Reply
from agnosticfair.protocol.requests import UNCOUNTED, Task  # noqa: F401 (an example)

SPARE_BITS = 3
"""Bits of a row's value above one."""

WEIGHT_BITS = 10
"""Bits above one of a model's weight, where local models are averaged."""

MIN_BITS = 14
"""A coarser grid than 2^-14 would show in the model; it holds 2^36 rows."""


def base_bits(n: int) -> int:
    """Bits after the point that n rows' sums keep; refused where n is so large that too few are left.

    >>> base_bits(48_842)
    34
    """
    bits = 53 - SPARE_BITS - int(n).bit_length()
    if bits < MIN_BITS:
        raise SettingsError(
            f"sums over {n} rows would not fit in 64 bits on a grid of 2^-{MIN_BITS}: take fewer rows"
        )
    return bits


def bits(field: str, task: Task) -> Any:
    """Bits after the point of a field: one number, or one for each of the last axes' columns.

    A step that is asked before the rows are counted sends counts, and weights on the grid of features.
    """
    if not task.n:
        return FEATURE_BITS
    if field == "w":  # a sum over sites, not over rows
        return 53 - WEIGHT_BITS - len(task.clients).bit_length()
    base = base_bits(task.n)
    if task.encoding.scale or field not in _OF_FEATURES:
        return base
    return base - _OF_FEATURES[field](exponents(task.encoding))


_OF_FEATURES = {
    "J_1": lambda e: e,
    "J_L": lambda e: e,
    "J_g": lambda e: e,
    "phi_C": lambda e: e,
    "head_gradient": lambda e: e,
    "head_hessian": lambda e: (e[:, None] + e)[np.tril_indices(len(e))],
    "H": lambda e: e[:, None] + e,
    "total": lambda e: e[:-1],
    "x": lambda e: e[:-1],
    "x_squares": lambda e: 2 * e[:-1],
}
"""Fields whose last axes are the features: what scales them where the encoding does not."""


def on_grid(reply: Reply, task: Task) -> Reply:
    """The reply with every number on its field's grid; what is there already keeps its bits.

    >>> on_grid(Reply(0, {"n": np.array(0.1)}), UNCOUNTED).sums["n"] * 2**20
    np.float64(104858.0)
    """
    sums = {name: rounded(value, bits(name, task)) for name, value in reply.sums.items()}
    return replace(reply, sums=sums)


def rounded(value: np.ndarray, bits: Any) -> np.ndarray:
    """The nearest multiples of 2^-bits; new arrays, of the same layout."""
    unit = np.ldexp(1.0, bits)
    scaled = np.asarray(value * unit)
    np.rint(scaled, scaled)
    scaled /= unit
    return scaled
