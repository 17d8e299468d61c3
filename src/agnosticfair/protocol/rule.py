"""Requests of the rule: of its learners, of what their estimates say of subgroups, and of its program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agnosticfair.data.axes import Binning
from agnosticfair.errors import existing
from agnosticfair.learners.estimates import Head, strata
from agnosticfair.mathematics.scores import Points
from agnosticfair.protocol.requests import Shapes, Task, request

MAX_NUMBERS = 115_000
"""Of a message, so that it stays under a megabyte."""


def hessian_numbers(heads: int, width: int) -> int:
    """How many numbers a head's Hessian has in a message.

    >>> hessian_numbers(2, 200), hessian_numbers(2, 5000)
    (20100, 5000)
    """
    lower = width * (width + 1) // 2
    return lower if heads * lower <= MAX_NUMBERS else width


@request(
    "learn",
    head_loss="how well each head's estimate fits the site's rows",
    head_gradient="the gradient of each head's loss, a sum over rows for every weight: of few rows, or over many "
    "rounds, it may be solved for what they look like",
    head_hessian="how many rows, as far as they are undecided, have two features at once: with few, what they "
    "look like",
    head_mass="how many rows each head is trained on: those of a label, or of all but a fold",
    held_out="how well estimates fit rows that they were not trained on",
)
class Learn:
    """Loss and gradient at w, (models, H, D), of every head's logistic regression, by the model of each fold and of all
    rows; and, where it is requested, the Hessian of the model of all rows, its lower triangle; its diagonal alone where
    that would be more than MAX_NUMBERS."""

    heads: tuple[Head, ...]
    folds: int
    seed: int
    hessian: bool
    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        models, H, D = self.w.shape
        each = dict.fromkeys(("head_loss", "head_mass"), (models, H))
        lower = {"head_hessian": (H, hessian_numbers(H, D))} if self.hessian else {}
        return {**each, "head_gradient": self.w.shape, "held_out": (H,), **lower}


@request(
    "subgroup_masses",
    masses="how many people of each group are expected in each subgroup or pair of values: with few, who they "
    "are",
)
class SubgroupMasses:
    """Sums of estimated P(Y = y, S = s | x) over the task's subgroups; where it has none, over each pair of values."""

    def shapes(self, task: Task) -> Shapes:
        assert task.subgroups is not None and task.estimates is not None  # noqa: PT018
        axes, subgroups = task.subgroups.agreed
        size = sum(len(axis.values) for axis in axes)
        C = len(strata(task.estimates.heads))
        return {"masses": (C, len(subgroups)) if subgroups else (C, size, size)}


@request(
    "calibration",
    surplus="by how much labels and groups exceed what is expected in each subgroup: with few people, who they are",
    variance="how uncertain the estimates are in each subgroup",
)
class Calibration:
    """Observed less expected, and its variance, of every head in each of the task's subgroups and, last, overall."""

    def shapes(self, task: Task) -> Shapes:
        M = 0 if task.subgroups is None else len(task.subgroups.values)
        return dict.fromkeys(("surplus", "variance"), (len(existing(task.estimates).heads), M + 1))


@request(
    "fine_counts",
    fine_bin_counts="how many rows lie in each small cell of a column's range, or have no number there: with few, who "
    "they are",
    value_counts="how many rows have each category",
)
class FineCounts:
    """How many rows lie between cuts, (columns, K), of every column of numbers, and how many have each category: for
    the bins of trees (``data.axes``)."""

    cuts: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        values = sum(len(vocabulary) for _, vocabulary in task.encoding.categorical)
        rows, width = self.cuts.shape
        return {"fine_bin_counts": (rows, width + 2), "value_counts": (values,)}


@dataclass(frozen=True)
class PackedTrees:
    """Bins; finished trees and those that grow, of every model, packed over these bins (``mathematics.trees``)."""

    binning: Binning
    done: np.ndarray
    growing: np.ndarray


@request(
    "level",
    hist="for each node of the trees that grow: how many rows have each bin or category of every column, and the "
    "sums of their gradients, which tell how many have the label or the group; a node has at least as many rows of all "
    "sites together as the request says, a bin in it, or a single site, may have one",
    tree_loss="how well trees fit rows that they were not grown from",
)
class Level:
    """Histograms of a level of all trees that grow: of ``count``, (P, 2), models and nodes.

    trees: those so far and those that grow: with them any client can begin here.  min_rows: that a node has, of all
    sites together; a coordinator says so, and a site refuses less than its own min-rows.
    """

    heads: tuple[Head, ...]
    folds: int
    seed: int
    level: int
    trees: PackedTrees
    count: np.ndarray
    min_rows: int

    def shapes(self, task: Task) -> Shapes:
        codes = int(self.trees.binning.bins(task.encoding).starts[-1])
        return {"hist": (len(self.count), codes, 3), "tree_loss": (len(self.heads),)}


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
    """Sums at several points of the program.  error_costs: of a false positive and a false negative."""

    error_costs: tuple[float, float]
    points: Points

    def shapes(self, task: Task) -> Shapes:
        return self.points.shapes()
