"""A round of the rule's program over a client's rows, exactly: the same bits for any split of the rows; and the
rows by the task's estimates, cached, and rebuilt from the task alone at any time."""

from __future__ import annotations

from typing import Any

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.client.sums import Distinct, weighed
from agnosticfair.data.axes import codes_of
from agnosticfair.errors import FederationError, existing
from agnosticfair.learners import estimates
from agnosticfair.learners.decisions import KERNEL_BITS, Kernels, kernel_weights
from agnosticfair.learners.estimates import joint, targets
from agnosticfair.mathematics.scores import (
    Dense,
    Estimated,
    Memberships,
    Weights,
    evaluate,
    utility,
)
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
from agnosticfair.protocol.requests import Calibration, ProgramSums, SubgroupMasses, Task


def distinct(client: Client, task: Task) -> Distinct:
    """The rows that differ in label, subgroups or estimates."""
    if task.subgroups is None:
        return Distinct(None, client.rows.weights)
    seen = [*client.cached(task, codes).T, *client.cached(task, probabilities)]
    return Distinct.of([*seen, client.rows.labels(task.positive)], client.rows.weights)


def subgroups_of(client: Client, task: Task, rows: Distinct) -> Memberships:
    assert task.subgroups is not None
    axes, subgroups = task.subgroups.agreed
    codes_here = np.ascontiguousarray(rows.take(client.cached(task, codes).T))
    whole = (
        client.cached(task, crossed) if rows.first is None else cross(codes_here.T, sizes_of(axes))
    )
    return Memberships(codes_here, whole, subgroups, task.subgroups.places)


def weight_functions(client: Client, task: Task) -> Weights:
    """The task's weight functions of the distinct rows: subgroups, or clients or kernels, overall last."""
    if task.subgroups is not None:
        return subgroups_of(client, task, client.cached(task, distinct))
    ones = np.ones((len(client.rows), 1))
    if task.fair_basis.kind == "constant":
        return Dense(ones)
    kernels = Kernels(task.fair_basis, task.clients, task.centres)
    columns = kernel_weights(kernels, task.encoding, client.rows, client.who, client.key)
    return Dense(np.hstack([columns, ones]))


def estimated(client: Client, task: Task, error_costs: tuple[float, float]) -> Estimated:
    rows = client.cached(task, distinct)
    eta = client.cached(task, probabilities)[0]
    pi = client.cached(task, strata)
    return Estimated(utility(rows.take(eta), error_costs), rows.take(pi), rows.weights)


def on_device(client: Client, task: Task, error_costs: tuple[float, float]) -> Any:
    from agnosticfair.client.rule_device import rule_rows

    b, rows = client.cached(task, weight_functions), client.cached(task, estimated, error_costs)
    y = client.cached(task, distinct).take(client.rows.labels(task.positive))
    codes, subgroups = np.zeros((0, len(y)), np.int16), []
    if isinstance(b, Memberships):
        codes, subgroups = b.codes, b.subgroups
    sizes = b.at.sizes if isinstance(b, Memberships) else ()
    return rule_rows(codes, sizes, subgroups, rows, y, existing(client.device))


def program(client: Client, broadcast: Broadcast[ProgramSums]) -> Reply:
    """What ``scores.evaluate`` states, over the client's rows: on its device, unless weight functions are kernels."""
    task, request = broadcast.task, broadcast.request
    error_costs, points = request.error_costs, request.points
    b = client.cached(task, weight_functions)
    named = isinstance(b, Memberships)
    bits = base_bits(task.n) - (0 if named else KERNEL_BITS)
    if client.device is not None and (named or b.size == 1):
        from agnosticfair.client.rule_device import evaluate as evaluate_there

        there = client.cached(task, on_device, error_costs)
        return Reply(broadcast.round, evaluate_there(there, points, task.n, bits))
    rows = client.cached(task, estimated, error_costs)
    y = client.cached(task, distinct).take(client.rows.labels(task.positive))
    return Reply(broadcast.round, evaluate(rows, b, y, points, task.n, bits))


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
