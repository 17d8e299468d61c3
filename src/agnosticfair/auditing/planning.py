"""How many rows an audit needs for the precision that is wanted, before anybody decides on them."""

from __future__ import annotations

from math import ceil

from agnosticfair.auditing.subgroups import OF_DIFFERENCES
from agnosticfair.mathematics.confidence import OPTIMISTIC, OVERALL, SHARP, ends


def rows_needed(
    one: float,
    other: float,
    precision: float,
    confidence: float = 0.95,
    subgroups: int | None = None,
) -> int:
    """About the rows in all at which the difference between two groups is known to +- precision.

    Parameters
    ----------
    one, other : float
        The shares of all rows that the two groups have in the subgroup.
    precision, confidence : float
        As in ``audit``.
    subgroups : int, optional
        Subgroups that are certified together; None for everybody, which has a share of its own.

    Examples
    --------
    >>> rows_needed(0.5, 0.5, 0.1), rows_needed(0.05, 0.05, 0.1, subgroups=40)
    (967, 11560)
    """
    from scipy.special import ndtri

    delta = OF_DIFFERENCES * (1 - confidence)
    level = OVERALL * delta if subgroups is None else SHARP * delta / max(subgroups, 1)
    z = float(-ndtri(ends(level, 1, 2)[1]))
    z = z if subgroups is None else max(z, OPTIMISTIC)
    return ceil(0.25 * (1 / one + 1 / other) * (z / precision) ** 2)
