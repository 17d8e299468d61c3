"""Requests of learners, and of what their estimates say of subgroups."""

from __future__ import annotations

import numpy as np

from agnosticfair.learners.estimates import Head, strata
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
    rows; and, where it is asked for, the Hessian of the model of all rows, its lower triangle; its diagonal alone where
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
        assert task.estimates is not None
        M = 0 if task.subgroups is None else len(task.subgroups.values)
        return dict.fromkeys(("surplus", "variance"), (len(task.estimates.heads), M + 1))
