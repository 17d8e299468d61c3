"""A round's sums, stated once: their names, their shapes, and what every row adds to them.

Under w with d = x.w, per kernel m and stratum j (every sum with the rows' weights, where they have any):

    psi_L = sum K l,  J_L = sum K l' x           (and the same with K = 1: loss, J_1)
    psi_g[j] = sum_{s=j} K g,  J_g[j] = sum_{s=j} K g' x
    psi_hat[j] = sum_{s=j} K [d > 0]             (of wrong decisions instead, where g is the loss)
    psi_theta[j] = sum_{s=j} K                   (each with K = 1 as a last column: the uniform weights)
    H = sum (theta_L l'' + c g'') x x^T          theta_L = 1 - share + share K alpha,  c = K C[s]

A client adds up ``of_loss`` and ``of_fair`` of its rows (``client.sums``); the server reads the totals by these
names.  A new column is a name here, what it reveals, and its value in the function below; one test holds the client to
this module.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from agnosticfair.mathematics.fairness import Surrogate, surrogate_values
from agnosticfair.mathematics.linear import log_loss, log_loss_derivatives

OF_LOSS = ("psi_L", "psi_theta_L", "J_L")
OF_FAIR = ("psi_g", "psi_theta", "psi_hat", "J_g")
"""Fields by kernel, and by stratum and kernel; the last of each is the gradient, a vector for every kernel."""

GRADIENTS = ("J_1", "J_L", "J_g", "H")
"""Fields that a network, whose gradient is one gradient, does without."""

REVEALS = {
    "loss": "the site's total loss under w",
    "J_1": "the loss's gradient: with few rows, what these rows look like",
    "psi_L": "losses weighted by nearness to each centre: how well w does around it",
    "psi_theta_L": "how many rows lie around each centre",
    "J_L": "gradients around each centre: with few rows near it, what they look like",
    "psi_g": "positive decisions (smoothed) per group around each centre",
    "psi_theta": "how many rows of each group lie around each centre",
    "psi_hat": "positive decisions per group around each centre",
    "J_g": "their gradients: with few rows of a group near a centre, what they look like",
    "H": "second moments of the features: with few rows, what they look like",
    "correct": "how many rows w decides rightly",
}
"""What each could tell of a client's rows to whoever sees it."""


class RowValues(NamedTuple):
    """Of every row, (n,): loss, surrogate, their gradients and curvatures in d; 1 where the decision counts
    in psi_hat, and where it is right."""

    loss: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray
    g: np.ndarray
    g_gradient: np.ndarray
    g_hessian: np.ndarray
    hat: np.ndarray
    right: np.ndarray
    one: np.ndarray


def row_values(d: np.ndarray, y: np.ndarray, surrogate: Surrogate) -> RowValues:
    """What rows of signed distances d and labels y add.

    >>> row_values(np.zeros(1), np.ones(1), Surrogate()).loss.round(4)
    array([0.6931])
    """
    loss, one = log_loss(d, y), np.ones_like(d)
    gradient, hessian = log_loss_derivatives(d, y)
    right = ((d > 0) == (y > 0)) * one
    if surrogate.kind == "loss":
        return RowValues(loss, gradient, hessian, loss, gradient, hessian, one - right, right, one)
    g, g_gradient, g_hessian = surrogate_values(surrogate, d)
    return RowValues(loss, gradient, hessian, g, g_gradient, g_hessian, (d > 0) * one, right, one)


def of_loss(v: RowValues) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """A row's part of OF_LOSS: its values, and what its features are multiplied with."""
    return (v.loss, v.one), v.gradient


def of_fair(v: RowValues) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """A row's part of OF_FAIR: its values, and what its features are multiplied with."""
    return (v.g, v.one, v.hat), v.g_gradient


def fields_of(
    plain: np.ndarray, by_loss: np.ndarray, by_fair: np.ndarray, H: np.ndarray, correct: Any
) -> dict[str, np.ndarray]:
    """The fields of a reply.  plain: (2 + D,), sums of ``of_loss``; by_loss: (M, 2 + D) the same by kernel;
    by_fair: (G, F + 1, 3 + D), of ``of_fair``."""
    fields = {"loss": plain[0], "J_1": plain[len(OF_LOSS) - 1 :]}
    for names, total in ((OF_LOSS, by_loss), (OF_FAIR, by_fair)):
        *scalars, gradient = names
        fields |= {name: total[..., k] for k, name in enumerate(scalars)}
        fields[gradient] = total[..., len(scalars) :]
    return {**fields, "H": H, "correct": np.asarray(correct)}


def shapes(D: int, M: int, G: int, F: int) -> dict[str, tuple[int, ...]]:
    """What the fields look like, for D features with the intercept, M kernels of the loss and F of the
    fairness adversary, the uniform weights among them.

    >>> shapes(3, 2, 2, 5)["J_g"]
    (2, 5, 3)
    """
    widths = (len(OF_LOSS) - 1 + D, len(OF_FAIR) - 1 + D)
    empty = fields_of(
        np.empty(widths[0]),
        np.empty((M, widths[0])),
        np.empty((G, F, widths[1])),
        np.empty((D, D)),
        0.0,
    )
    return {name: np.shape(value) for name, value in empty.items()}
