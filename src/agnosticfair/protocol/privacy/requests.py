"""The requests of private steps.  z: the noise multiplier that each of them is to be answered with; among how many
sites it is shared a site knows by its session, and no request says.  most: rows that a site adds at most, where whole
sites are to be hidden; 0 where rows are.

Decisions and rows are counted for everybody and, where the task has subgroups of single values, for each of them.
"""

from __future__ import annotations

import numpy as np

from agnosticfair.learners.estimates import Head, strata
from agnosticfair.protocol.requests import Shapes, Task, request


def places(task: Task) -> int:
    """Everybody, and every subgroup."""
    return 1 + (0 if task.subgroups is None else len(task.subgroups.values))


@request("private_plan", reserved="that the site has room for the plan in its budget")
class PrivatePlan:
    """The noise multipliers of all requests of a fit, for which a site reserves room before the first of them.
    fit: a digest of the fit, which tells one plan from another.  ends: whether the fit is over, and the site takes
    back what was reserved and not asked."""

    fit: str
    ends: bool
    multipliers: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {"reserved": ()}


@request("private_counts")
class PrivateCounts:
    """How many rows each group has, everywhere and in each subgroup."""

    z: float
    max_rows: int

    def shapes(self, task: Task) -> Shapes:
        return {"groups": (places(task), task.strata)}


@request("private_moments")
class PrivateMoments:
    """The second moment of the clipped rows, its upper triangle."""

    z: float
    max_rows: int

    def shapes(self, task: Task) -> Shapes:
        D = task.encoding.width + 1
        return {"moments": (D * (D + 1) // 2,)}


@request("private_gradients")
class PrivateGradients:
    """The loss's gradient at w, and per group decisions and their gradient, smoothed at this temperature.  active:
    (K,), of everybody (0) and the subgroups (1, ...) those whose gradients are asked for."""

    z: float
    max_rows: int
    temperature: float
    w: np.ndarray
    active: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        D, G = len(self.w), task.strata
        shapes_found = {
            "gradient": (D,),
            "group_gradients": (len(self.active), G, D),
            "hessian": (),
        }
        return {**shapes_found, "hat": (places(task), G)}


@request("private_heads")
class PrivateHeads:
    """The gradient of every head's logistic regression at w, (H, D), and its mean curvature."""

    z: float
    max_rows: int
    heads: tuple[Head, ...]
    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {"gradients": self.w.shape, "curves": (len(self.heads),)}


@request("private_rates")
class PrivateRates:
    """Expected people of every stratum that the rule with coefficients A, (1 + M, C), decides positively, overall and
    in each subgroup; and the upper triangle of the dual's Hessian.

    error_costs: of a false positive and a false negative.  eps: smooths decisions; 0 decides.  shift: taken off every
    score. directions: (a, 5) of place, stratum, stratum, and what the strata's probabilities are multiplied with, 0 to
    1."""

    z: float
    max_rows: int
    error_costs: tuple[float, float]
    eps: float
    shift: float
    A: np.ndarray
    directions: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        assert task.estimates is not None
        a, C = len(self.directions), len(strata(task.estimates.heads))
        return {"rates": (places(task), C), "rates_hessian": (a * (a + 1) // 2,)}


@request("private_decisions")
class PrivateDecisions:
    """Rows and decisions under w, or under the task's rule, for the certificate."""

    z: float
    max_rows: int
    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {
            "groups": (places(task), task.strata),
            "hat": (places(task), task.strata),
            "right": (),
        }
