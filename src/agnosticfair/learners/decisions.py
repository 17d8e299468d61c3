"""How a rule decides: the score of a row from its estimates, and what each subgroup that it lies in adds.

score(x) = c(x) - shift - sum_s pi_s(x) sum_k b_k(x) A_ks,   c = false_negative eta - false_positive (1 - eta)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agnosticfair.data.axes import codes_of
from agnosticfair.data.encoding import Encoding
from agnosticfair.data.table import Table
from agnosticfair.learners.estimates import PROBABILITY_BITS, Estimates, predict
from agnosticfair.learners.heads import joint, strata
from agnosticfair.mathematics.crossed import cross, entries, weighed_at
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.parts import SITE, Named, members, sizes_of

COEFFICIENT_BITS = 28
"""Coefficients are multiples of 2^-28: what a row's subgroups add up to does not hang on the order of addition."""


@dataclass(frozen=True)
class Decision:
    """What the program found.

    Parameters
    ----------
    prices : (float, float)
        Of a false positive and of a false negative.
    coefficients : (K, C) array
        A: what belonging to a subgroup costs by the probability of each stratum; the last row is overall.
    shift : float
        The multiplier of the positive rate.
    subgroups : Named or None
        The K - 1 subgroups.
    """

    prices: tuple[float, float]
    coefficients: np.ndarray
    shift: float = 0.0
    subgroups: Named | None = None


def plain(estimates: Estimates, prices: tuple[float, float]) -> Decision:
    """The learner's own decisions."""
    return Decision(prices, np.zeros((1, len(strata(estimates.heads)))))


def utility(eta: np.ndarray, prices: tuple[float, float]) -> np.ndarray:
    """c, what a positive decision is worth, on the grid of probabilities.

    >>> utility(np.array([0.75, 0.25]), (1.0, 1.0))
    array([ 0.5, -0.5])
    """
    false_positive, false_negative = prices
    return on_grid(false_negative * eta - false_positive * (1.0 - eta), PROBABILITY_BITS)


def scores(
    decision: Decision,
    estimates: Estimates,
    encoding: Encoding,
    table: Table,
    who: str = "the data",
    client: str = "",
) -> np.ndarray:
    """The score of every row, (n,), by the model of all rows; positive where the decision is."""
    P = predict(estimates, encoding, estimates.folds, table, who)
    return of_probabilities(decision, estimates, P, codes(decision, table, who, client))


def codes(decision: Decision, table: Table, who: str, client: str = "") -> np.ndarray:
    """Every row's values on the axes of the subgroups, (n, axes); a site that is not known lies in no site's."""
    if decision.subgroups is None:
        return np.zeros((len(table), 0), np.int16)
    axes, _ = decision.subgroups.agreed
    unknown = [a for a, axis in enumerate(axes) if axis.name == SITE and client not in axis.values]
    known = tuple(axis for a, axis in enumerate(axes) if a not in unknown)
    found = np.full((len(table), len(axes)), -1, np.int16)
    found[:, [a for a in range(len(axes)) if a not in unknown]] = codes_of(
        table, known, who, client
    )
    return found


def of_probabilities(
    decision: Decision, estimates: Estimates, P: np.ndarray, codes: np.ndarray
) -> np.ndarray:
    """The score of every row, (n,), from the probabilities of its heads, (H, n), and its values, (n, axes)."""
    found = utility(P[0], decision.prices) - decision.shift
    A = on_grid(np.array(decision.coefficients, float), COEFFICIENT_BITS)
    if not A.any():
        return found
    pi = joint(estimates.heads, P)
    for own, a in zip(pi, A.T, strict=True):
        found -= own * _weighed(decision, codes, a)
    return found


def _weighed(decision: Decision, codes: np.ndarray, a: np.ndarray) -> np.ndarray:
    """sum_k b_k(x) a_k of every row, (n,), overall last."""
    found = np.full(len(codes), a[-1])
    if decision.subgroups is None or not a[:-1].any():
        return found
    at, (axes, parts) = decision.subgroups.places, decision.subgroups.agreed
    crossed, shallow = cross(codes, sizes_of(axes)), a[:-1][at.shallow]
    found += weighed_at(crossed, entries(crossed, *at.at), shallow, len(codes))
    for m in at.deep.tolist():
        found += a[m] * members(codes, parts[m])
    return found
