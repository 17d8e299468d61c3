"""The questions of private steps.  z: the noise multiplier that each of them is to be answered with; among how many
sites it is shared a site knows by its session, and no question says.  most: rows that a site adds at most, where whole
sites are to be hidden; 0 where rows are.

Decisions and rows are counted for everybody and, where the task has named parts of single values, for each of them.
"""

from __future__ import annotations

import numpy as np

from agnosticfair.learners.heads import Head, strata
from agnosticfair.protocol.questions import Shapes, Task, question


def places(task: Task) -> int:
    """Everybody, and every part."""
    return 1 + (0 if task.named is None else len(task.named.parts))


@question("private_plan", reserved="that the site has room for the plan in its budget")
class PrivatePlan:
    """The noise multipliers of all questions of a fit, for which a site reserves room before the first of them.
    fit: a digest of the fit, which tells one plan from another.  ends: whether the fit is over, and the site takes
    back what was reserved and not asked."""

    fit: str
    ends: bool
    multipliers: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {"reserved": ()}


@question("private_counts")
class PrivateCounts:
    """How many rows each group has, everywhere and in each part."""

    z: float
    most: int

    def shapes(self, task: Task) -> Shapes:
        return {"groups": (places(task), task.cells)}


@question("private_moments")
class PrivateMoments:
    """The second moment of the clipped rows, its upper triangle."""

    z: float
    most: int

    def shapes(self, task: Task) -> Shapes:
        D = task.encoding.width + 1
        return {"moments": (D * (D + 1) // 2,)}


@question("private_slopes")
class PrivateSlopes:
    """The loss's gradient at w, and per group decisions and their slope, smoothed at this temperature.  active:
    (K,), of everybody (0) and the parts (1, ...) those whose slopes are asked for."""

    z: float
    most: int
    temperature: float
    w: np.ndarray
    active: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        D, G = len(self.w), task.cells
        found = {"gradient": (D,), "slopes": (len(self.active), G, D), "curve": ()}
        return {**found, "hat": (places(task), G)}


@question("private_heads")
class PrivateHeads:
    """The gradient of every head's logistic regression at w, (H, D), and its mean curvature."""

    z: float
    most: int
    heads: tuple[Head, ...]
    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {"gradients": self.w.shape, "curves": (len(self.heads),)}


@question("private_rates")
class PrivateRates:
    """Expected people of every stratum that the rule with coefficients A, (1 + M, C), decides positively, overall and
    in each subgroup; and the upper triangle of the dual's Hessian.

    prices: of a false positive and a false negative.  eps: smooths decisions; 0 decides.  shift: taken off every score.
    directions: (a, 5) of place, stratum, stratum, and what the strata's probabilities are multiplied with, 0 to 1."""

    z: float
    most: int
    prices: tuple[float, float]
    eps: float
    shift: float
    A: np.ndarray
    directions: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        assert task.estimates is not None
        a, C = len(self.directions), len(strata(task.estimates.heads))
        return {"rates": (places(task), C), "rates_hessian": (a * (a + 1) // 2,)}


@question("private_decisions")
class PrivateDecisions:
    """Rows and decisions under w, or under the task's rule, for the certificate."""

    z: float
    most: int
    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {
            "groups": (places(task), task.cells),
            "hat": (places(task), task.cells),
            "right": (),
        }
