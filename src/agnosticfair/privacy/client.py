"""A client's private steps: sums to which no row adds more than ``privacy.requests`` says.

Whether a request is answered depends on no row: a row that does not fit the task adds nothing, and is not reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agnosticfair.client.client import Client, strata_of
from agnosticfair.data.axes import codes_of
from agnosticfair.data.encoding import encode
from agnosticfair.data.table import Table
from agnosticfair.data.wire import LARGEST
from agnosticfair.errors import DataError, existing
from agnosticfair.learners.decisions import scores
from agnosticfair.learners.estimates import joint, predict, targets
from agnosticfair.mathematics.linear import sigmoid
from agnosticfair.mathematics.scores import smoothed, utility
from agnosticfair.mathematics.subgroups import members
from agnosticfair.privacy.requests import (
    PrivateCounts,
    PrivateDecisions,
    PrivateGradients,
    PrivateHeads,
    PrivateMoments,
    PrivatePlan,
    PrivateRates,
    clip_of,
)
from agnosticfair.protocol.messages import Broadcast, Reply, bits
from agnosticfair.protocol.requests import Task


def clipped(X: np.ndarray, clip: float, bits: int) -> np.ndarray:
    """Rows shortened to the norm ``clip``, on a grid, truncated towards zero so that no norm grows.

    >>> clipped(np.array([[3.0, 4.0]]), 2.5, 10)
    array([[1.5, 2. ]])
    """
    norms = np.sqrt((X * X).sum(axis=1))
    shortened = X * np.minimum(1.0, clip / np.maximum(norms, clip))[:, None]
    return truncated(shortened, bits)


def truncated(v: np.ndarray, bits: int) -> np.ndarray:
    """Multiples of 2^-bits, none larger in absolute value: sums over rows are then exact."""
    return np.trunc(v * 2.0**bits) / 2.0**bits


@dataclass(frozen=True)
class PrivateRows:
    """Rows as the private steps see them.  table: those that fit.  X: encoded.  y, s: labels and strata.  inside:
    (1 + M, n), whether overall (always), and each subgroup, has the row."""

    table: Table
    X: np.ndarray
    y: np.ndarray
    s: np.ndarray
    inside: np.ndarray

    def by_place(self, values: np.ndarray, strata: int) -> np.ndarray:
        """Sums of one value per row by subgroup and stratum, (1 + M, strata)."""
        members = [self.s == j for j in range(strata)]
        return np.stack([self.inside[:, rows] @ values[rows] for rows in members], axis=1)


def check_unweighted(rows: Table, who: str) -> None:
    """Raise where rows have weights: how far one of them moves a sum is not bounded then."""
    if rows.weights is not None:
        raise DataError(
            f"{who} has weighted rows, of which privacy has no bound: leave weights out"
        )


def seen(client: Client, broadcast: Broadcast[Any]) -> PrivateRows:
    """The client's rows, of which only the first ``max_rows`` take part where it says so."""
    check_unweighted(client.rows, client.who)
    return client.cached(broadcast.task, prepared, broadcast.request.max_rows)


def prepared(client: Client, task: Task, max_rows: int) -> PrivateRows:
    """The rows as the task encodes them, without those that do not fit it."""
    table = (
        client.rows if not max_rows else client.rows.take(np.arange(len(client.rows)) < max_rows)
    )
    table = table.take(fitting(table, task))
    X = np.ones((len(table), task.encoding.width + 1))
    encode(task.encoding, table, client.who, X[:, :-1])
    axes, subgroups = ((), []) if task.subgroups is None else task.subgroups.agreed
    codes = codes_of(table, axes, client.who, client.key)
    inside = np.array([members(codes, subgroup) for subgroup in [(), *subgroups]], np.float64)
    return PrivateRows(
        table, X, table.labels(task.positive), strata_of(client, table, task), inside
    )


def fitting(table: Table, task: Task) -> np.ndarray:
    """Which rows have finite numbers, and categories and groups that the task knows, (n,) of bool."""
    fits = np.ones(len(table), bool)
    for values in table.numeric.values():
        fits &= np.abs(values) <= LARGEST
    for name, known in (*task.encoding.categorical, *task.sensitive_features):
        if name in table.categorical or name in table.sensitive_features:
            fits &= table.column(name).aligned(known) >= 0
    return fits


def plan(client: Client, broadcast: Broadcast[PrivatePlan]) -> Reply:
    """Room for a plan is a matter of the site's ledger: of the rows nothing is asked."""
    return Reply(broadcast.round, {"reserved": np.array(1.0)})


def counts(client: Client, broadcast: Broadcast[PrivateCounts]) -> Reply:
    rows = seen(client, broadcast)
    return Reply(
        broadcast.round, {"groups": rows.by_place(np.ones(len(rows.y)), broadcast.task.strata)}
    )


def moments(client: Client, broadcast: Broadcast[PrivateMoments]) -> Reply:
    X = _clipped(seen(client, broadcast), broadcast.task)
    return Reply(broadcast.round, {"moments": (X.T @ X)[np.triu_indices(X.shape[1])]})


def _clipped(rows: PrivateRows, task: Task) -> np.ndarray:
    return clipped(rows.X, clip_of(task), pair_bits(task))


def pair_bits(task: Task) -> int:
    """Bits after the point of factors, so that their products lie on the grid of the sums."""
    return min(16, bits("moments", task) // 2)


def bits_of(task: Task) -> int:
    """Bits after the point of what a row adds: few enough for exact sums, whatever n the task says, and no more than
    the sums are sent with, for rounding them would move them further than a row may."""
    return min(30, bits("gradient", task))


def gradients(client: Client, broadcast: Broadcast[PrivateGradients]) -> Reply:
    """At w: the loss's gradient, and per group decisions and their smoothed gradient, with one curvature.

    gradient = sum (p - y) x,  group_gradients[j] = sum_{s=j} 4 g (1 - g) x with g = sigmoid(d / temperature),
    decided[j] = sum_{s=j} [d > 0],  hessian = sum 4 p (1 - p).
    """
    rows, task, request = seen(client, broadcast), broadcast.task, broadcast.request
    X, G, bits = _clipped(rows, task), task.strata, bits_of(task)
    d = X @ request.w
    p, g = sigmoid(d), sigmoid(d / request.temperature)
    steep = truncated((4 * g * (1 - g))[:, None] * X, bits)
    return Reply(
        broadcast.round,
        {
            "gradient": truncated((p - rows.y)[:, None] * X, bits).sum(axis=0),
            "group_gradients": by_stratum(rows.s, steep, G),
            "decided": by_stratum(rows.s, (d > 0).astype(float), G),
            "hessian": np.array(truncated(4 * p * (1 - p), bits).sum()),
        },
    )


def heads(client: Client, broadcast: Broadcast[PrivateHeads]) -> Reply:
    """At w, of every head: the gradient sum (p - t) x, and sum 4 p (1 - p)."""
    rows, task, request = seen(client, broadcast), broadcast.task, broadcast.request
    X, fine = _clipped(rows, task), bits_of(task)
    t, counts = targets(request.heads, rows.y, rows.table.sensitive_features)
    gradient, curve = np.zeros(request.w.shape), np.zeros(len(request.heads))
    for h, p in enumerate(sigmoid(X @ request.w.T).T):
        gradient[h] = truncated(((p - t[h]) * counts[h])[:, None] * X, fine).sum(axis=0)
        curve[h] = truncated(4 * p * (1 - p) * counts[h], fine).sum()
    return Reply(broadcast.round, {"gradients": gradient, "curves": curve})


def probabilities(client: Client, task: Task, maximum: int) -> np.ndarray:
    """The task's estimates of the fitting rows, (H, n), each from 0 to 1; for ``Client.cached``."""
    rows = client.cached(task, prepared, maximum)
    with np.errstate(all="ignore"):  # weights may be as large as they like
        P = predict(existing(task.estimates), task.encoding, 0, rows.table, client.who)
    return np.clip(np.nan_to_num(P, nan=0.5), 0.0, 1.0)


def rates(client: Client, broadcast: Broadcast[PrivateRates]) -> Reply:
    """With coefficients A: rates[m, c] = sum_{in m} d pi_c, and the upper triangle of sum 4 d (1 - d) v v^T."""
    rows, task, request = seen(client, broadcast), broadcast.task, broadcast.request
    P, fine = client.cached(task, probabilities, request.max_rows), bits_of(task)
    pi, inside = joint(existing(task.estimates).heads, P), rows.inside
    score = utility(P[0], request.error_costs) - request.shift
    score -= np.einsum("cn,cn->n", pi, request.A.T @ inside)
    _, d, curve = smoothed(score, request.eps)
    k, j, other = request.directions[:, :3].astype(int).T
    first, second = request.directions[:, 3:].T
    v = inside[k] * (first[:, None] * pi[j] - second[:, None] * pi[other])
    # products of two multiples of 2^-16 are exact, as those of the moments
    v = truncated(np.sqrt(curve) * v, pair_bits(task))
    upper = (v @ v.T)[np.triu_indices(len(v))]
    return Reply(
        broadcast.round,
        {"rates": inside @ truncated(d * pi, fine).T, "rates_hessian": upper},
    )


def _decided(client: Client, task: Task, rows: PrivateRows, w: np.ndarray) -> np.ndarray:
    """The score of every row: positive where the decision is."""
    if task.rule is None or task.estimates is None:
        return rows.X @ w
    with np.errstate(all="ignore"):
        return scores(task.rule, task.estimates, task.encoding, rows.table, client.who, client.key)


def by_stratum(strata: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Sums over the rows of each stratum, (count, ...)."""
    return np.stack([values[strata == j].sum(axis=0) for j in range(count)])


def decisions(client: Client, broadcast: Broadcast[PrivateDecisions]) -> Reply:
    """What the certificate needs: rows, and positive and right decisions, of the model on unclipped rows."""
    rows, G = seen(client, broadcast), broadcast.task.strata
    d = _decided(client, broadcast.task, rows, broadcast.request.w)
    return Reply(
        broadcast.round,
        {
            "groups": rows.by_place(np.ones(len(d)), G),
            "hat": rows.by_place((d > 0).astype(float), G),
            "right": np.array(float(((d > 0) == (rows.y > 0)).sum())),
        },
    )
