"""The audit of a fit: the groups that it compared, over the set that it was held to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from agnosticfair.auditing.parts import Agreed, Subpopulations, asked_parts
from agnosticfair.data.table import Column, intersected
from agnosticfair.federation import Fit
from agnosticfair.mathematics.basis import around, comes_with_rows, design, is_apart, is_centred
from agnosticfair.mathematics.notions import PARITY
from agnosticfair.mathematics.parts import part_name
from agnosticfair.methods import Fairness


def compared(fairness: Fairness | None, columns: Mapping[str, Column]) -> dict[str, Column]:
    """The groups that a fit compares: those of each sensitive feature, or the intersections of all.

    >>> two = {"sex": Column.of(["F", "M"]), "race": Column.of(["a", "b"])}
    >>> list(compared(Fairness(0.05, intersections=True), two)), list(compared(None, two))
    (['sex & race'], ['sex', 'race'])
    """
    if fairness is None or not fairness.intersections or len(columns) < 2:
        return dict(columns)
    return {" & ".join(columns): intersected(columns)}


def agreed_in(fitted: Fit, without: str | None = None) -> Agreed:
    """The named subgroups that a fit was held to: those in which it compared groups; none beside everybody where no
    column names any.  without: the axis of a column that the rows have not."""
    if fitted.named is None:
        return Agreed((), ())
    axes, parts = fitted.named.agreed
    alone = {*fitted.not_compared}
    there = {a: k for k, a in enumerate(a for a, axis in enumerate(axes) if axis.name != without)}
    own = tuple(
        tuple((there[a], v) for a, v in part)
        for part in parts
        if part_name(axes, part) not in alone and all(a in there for a, _ in part)
    )
    return Agreed(tuple(axes[a] for a in there), own)


def certified_set(
    fairness: Fairness | None,
    agreed: Agreed | None = None,
    centres: np.ndarray | None = None,
) -> dict[str, Any]:
    """What is certified of a model: the arguments of ``audit`` and ``audit_clients`` for the set it was trained for.

    Named subgroups where it was held to some; its kernels, with their bound and floor, where it was held to these;
    else, as for a model that was held to nothing, every subgroup that columns name.

    Parameters
    ----------
    fairness : Fairness or None
        Of the fit's method.
    agreed : Agreed, optional
        The named subgroups of the fit.
    centres : (M, d) array, optional
        Of the fit's kernels.

    Examples
    --------
    >>> certified_set(None)["parts"].depth, certified_set(Fairness(0.05))["notion"]
    (2, 'demographic_parity')
    """
    if fairness is None:
        return {"parts": Subpopulations(), "notion": PARITY.name}
    own: dict[str, Any] = {"notion": fairness.notion, "floor": fairness.floor}
    basis = replace(fairness.basis, split=False)
    if basis.kind == "named":
        return own | {"parts": replace(asked_parts(basis), agreed=agreed)}
    if is_centred(basis) and centres is not None:
        return own | {
            "basis": basis,
            "bound": fairness.bound,
            "centres": centres[: basis.kernels],
        }
    return own | {"parts": Subpopulations()}


def own_set(
    fairness: Fairness,
    X: np.ndarray,
    centres: np.ndarray | None,
    kernels: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> dict[str, Any]:
    """What ``audit`` is asked with on these rows, for the set and the notion of a fit.

    Who holds a row is not known here: no kernel is split by client, and for kernels by client it is the audit's
    own set.

    Parameters
    ----------
    fairness : Fairness
        Of the fit's method.
    X : (n, d) array
        Rows as the fit saw them.
    centres : (M, d) array or None
        Of the fit's kernels.
    kernels : (n, M) array, optional
        Where kernels come with the rows.
    weights : (n,) array, optional
        The centre of the set; None for equal ones.
    """
    own = {"bound": fairness.bound, "floor": fairness.floor, "notion": fairness.notion}
    basis = replace(fairness.basis, split=False)
    b = None if centres is None else centres[: basis.kernels]
    if is_apart(basis):
        return {key: value for key, value in own.items() if key != "bound"}
    if not comes_with_rows(basis) and weights is None and fairness.trust == 0:
        return own | {"basis": basis} | ({"centres": b} if is_centred(basis) else {})
    K = design(basis, X, b, "", ("",)) if kernels is None else kernels
    K = around(K, weights, fairness.trust)
    return own | {"basis": lambda _: K}
