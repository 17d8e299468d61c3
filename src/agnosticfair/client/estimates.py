"""A client's rows by the task's estimates: cached, and rebuilt from the task alone at any time."""

from __future__ import annotations

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.client.features import weighed
from agnosticfair.data.axes import codes_of
from agnosticfair.errors import FederationError, existing
from agnosticfair.learners import estimates
from agnosticfair.learners.estimates import joint, targets
from agnosticfair.mathematics.subgroups import (
    Crossed,
    cross,
    entries,
    gram,
    sizes_of,
    subgroup_sums,
    sums_at,
)
from agnosticfair.protocol.messages import Broadcast, Reply, base_bits
from agnosticfair.protocol.requests import Calibration, SubgroupMasses, Task


def probabilities(client: Client, task: Task) -> np.ndarray:
    """Out-of-fold probabilities of the heads, (H, n), rows as in the table."""
    if task.estimates is None:
        raise FederationError("the request is about estimates and its task has none: ask again")
    return estimates.out_of_fold(task.estimates, task.encoding, client.rows, client.who)


def strata(client: Client, task: Task) -> np.ndarray:
    """Out-of-fold P(Y = y, S = s | x) of ``heads.strata``, (C, n), rows as in the table."""
    P = client.cached(task, probabilities)
    return joint(existing(task.estimates).heads, P)


def codes(client: Client, task: Task) -> np.ndarray:
    """Every row's value on every axis of the task's subgroups, (n, axes)."""
    return codes_of(client.rows, existing(task.subgroups).agreed[0], client.who, client.key)


def crossed(client: Client, task: Task) -> Crossed:
    return cross(client.cached(task, codes), sizes_of(existing(task.subgroups).agreed[0]))


def over_subgroups(client: Client, task: Task, V: np.ndarray) -> np.ndarray:
    """Sums of each v over the rows of every subgroup and, last, overall, (k, M + 1).  V: (k, n), on a grid."""
    overall = V.sum(axis=1)[:, None]
    if task.subgroups is None:
        return overall
    at, (_, subgroups) = task.subgroups.places, task.subgroups.agreed
    forest = np.empty((len(V), len(subgroups)))
    rows = client.cached(task, crossed)
    forest[:, at.shallow] = sums_at(rows, entries(rows, *at.at), V, len(at.shallow))
    deep = [subgroups[m] for m in at.deep.tolist()]
    forest[:, at.deep] = (
        [subgroup_sums(client.cached(task, codes), deep, v) for v in V] if deep else 0.0
    )
    return np.hstack([forest, overall])


def masses(client: Client, broadcast: Broadcast[SubgroupMasses]) -> Reply:
    """Expected people of every stratum, by subgroup or by pair of values."""
    task = broadcast.task
    V = client.cached(task, strata).copy()
    weighed(V, base_bits(task.n), client.rows.weights, axis=1)
    if not len(existing(task.subgroups).values):
        return Reply(broadcast.round, {"masses": gram(client.cached(task, crossed), V)})
    return Reply(broadcast.round, {"masses": over_subgroups(client, task, V)[:, :-1]})


def calibration(client: Client, broadcast: Broadcast[Calibration]) -> Reply:
    """Observed less expected, and its variance, of every head in every subgroup."""
    task, table = broadcast.task, client.rows
    P, bits = client.cached(task, probabilities), base_bits(task.n)
    y = table.labels(task.positive)
    t, counts = targets(existing(task.estimates).heads, y, table.sensitive_features)
    V = weighed(np.concatenate([(t - P) * counts, P * (1 - P) * counts]), bits, None, axis=1)
    if table.weights is not None:
        weights = np.concatenate(
            [np.tile(w, (len(P), 1)) for w in (table.weights, table.weights**2)]
        )
        V = weighed(V * weights, bits, None, axis=1)
    surplus, variance = np.split(over_subgroups(client, task, V), 2)
    return Reply(broadcast.round, {"surplus": surplus, "variance": variance})
