"""How far one row can move each field of a private step, and what noise each field gets.

Neighbours are two sets of rows of which one has a row more (*add or remove*). A row x enters clipped:
|x| <= C, its numbers truncated towards zero, so that no norm grows. What one row adds to a field, in the
Euclidean norm over all entries of the field:

* ``groups`` (G,), rows of each group: a row is of one group, so 1.
* ``moments`` (D (D + 1) / 2,), the upper triangle of x x^T: at most |x x^T|_F = |x|^2 <= C^2.
* ``gradient`` (D,), (p - y) x with p in (0, 1) and y in {0, 1}: at most |x| <= C.
* ``slopes`` (G, D), 4 g (1 - g) x in the block of the row's group, g in (0, 1): at most |x| <= C.
* ``hat`` (G,), whether the row is decided positively, in its group's entry: at most 1.
* ``curve`` (), 4 p (1 - p) with p in (0, 1): at most 1.
* ``right`` (), whether the row is decided rightly: at most 1.

``tests/protocol/privacy`` adds and removes every row of small tables and measures these norms.

A step with fields f of sensitivities D_f and shares a_f adds discrete Gaussian noise of standard deviation
sigma_f = z D_f (sum a^2)^(1/2) / a_f to every entry of f. Then sum_f (D_f / sigma_f)^2 = 1 / z^2, so that
the step is (1 / (2 z^2))-zCDP (Canonne, Kamath and Steinke, 2020, for integers and any scale per
coordinate), as one Gaussian of multiplier z is.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from agnosticfair.protocol.questions import Task

NUMERIC = 0.2
"""What a scaled number adds to the squared norm that rows are clipped to; each category adds one."""

SHARES: Mapping[str, Mapping[str, float]] = {
    "private_counts": {"groups": 1.0},
    "private_moments": {"moments": 1.0},
    "private_slopes": {"gradient": 1.0, "slopes": 0.35, "hat": 1.0, "curve": 0.2},
    "private_decisions": {"hat": 1.0, "right": 1.0, "groups": 1.0},
}
"""The private steps, their fields, and how much of a step's privacy goes to each."""


def clip_of(task: Task) -> float:
    """C, the norm that rows are clipped to, from the agreed encoding alone: an intercept, one for each
    category, and a little for each number."""
    encoding = task.encoding
    return sqrt(1 + len(encoding.categorical) + NUMERIC * len(encoding.numeric))


def sensitivity(field: str, clip: float) -> float:
    """How far one row can move a field, in the Euclidean norm.

    >>> sensitivity("moments", 2.5), sensitivity("hat", 2.5)
    (6.25, 1.0)
    """
    return {"moments": clip**2, "gradient": clip, "slopes": clip}.get(field, 1.0)


def deviations(step: str, z: float, clip: float) -> dict[str, float]:
    """The standard deviation of each field's noise, so that the step costs as one Gaussian of multiplier z.

    >>> deviations("private_counts", 2.0, 2.5)
    {'groups': 2.0}
    """
    shares = SHARES[step]
    whole = sqrt(sum(a * a for a in shares.values()))
    return {field: z * sensitivity(field, clip) * whole / a for field, a in shares.items()}
