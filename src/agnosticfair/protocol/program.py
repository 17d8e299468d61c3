"""The request of a round of the rule's program (``mathematics.program``)."""

from __future__ import annotations

import numpy as np

from agnosticfair.mathematics.scores import Directions, Points
from agnosticfair.protocol.requests import Shapes, Task, request


@request(
    "program",
    value="how far the rule's scores are above 0",
    utility="what the rule's decisions are worth by the estimates",
    right="how many of the rule's decisions agree with labels",
    positives="how many decisions are positive",
    decided="how many positive decisions each group is expected to get in each subgroup: with few people, who they are",
    hessian="how many rows near the threshold two subgroups have in common: with few, what they look like",
    curvature="how many rows are near the threshold",
    drawn="the same, of a draw of the rows",
    mass="how many people of each group are expected in each subgroup: with few, who they are",
    members="how many rows each subgroup has: with few, who they are",
    totals="what positive decisions for all would be worth by the estimates",
    worth="what the rule's decisions are worth in each subgroup: with few people, who they are",
    worths="what positive decisions for all would be worth in each subgroup: with few people, who they are",
)
class ProgramSums:
    """Sums at several points of the program: coefficients A, (T, K, P), shifts nu and smoothings eps, (T,).

    error_costs: of a false positive and a false negative.  directions: of the Hessian at the first point, (a, 5),
    columns as ``Directions`` has them, with -1 for none; mixed: those that mix weight functions, (m, K, P).  hessian,
    masses: whether they are asked for.  W: how much each weight function's utility counts, (T, K); (T, 0) for the mean.
    """

    error_costs: tuple[float, float]
    hessian: bool
    masses: bool
    A: np.ndarray
    nu: np.ndarray
    eps: np.ndarray
    directions: np.ndarray
    mixed: np.ndarray
    W: np.ndarray

    def points(self) -> Points:
        """The points as the mathematics has them."""
        k, j, other = self.directions[:, :3].astype(int).T
        first, second = self.directions[:, 3:].T
        at = Directions(k, j, other, first, second, self.mixed)
        W = self.W if self.W.shape[1] else None
        return Points(self.A, self.nu, self.eps, at if self.hessian else None, self.masses, W)

    def shapes(self, task: Task) -> Shapes:
        return self.points().shapes()


def sums_request(points: Points, error_costs: tuple[float, float]) -> ProgramSums:
    """The request for these points.

    >>> points = Points(np.zeros((1, 2, 2)), np.zeros(1), np.ones(1))
    >>> sums_request(points, (1.0, 1.0)).points().shapes() == points.shapes()
    True
    """
    at = points.directions
    directions, mixed = np.zeros((0, 5)), np.zeros((0, *points.A.shape[1:]))
    if at is not None:
        directions = np.column_stack([at.k, at.j, at.other, at.first, at.second]).astype(float)
        mixed = at.mixed
    return ProgramSums(
        error_costs,
        at is not None,
        points.masses,
        points.A,
        points.nu,
        points.eps,
        directions,
        mixed,
        np.zeros((len(points.A), 0)) if points.W is None else points.W,
    )
