"""A round of the rule's program over a client's rows, exactly: the same bits for any split of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.client.estimates import codes, crossed, probabilities, strata
from agnosticfair.client.features import Distinct
from agnosticfair.errors import existing
from agnosticfair.learners.decisions import KERNEL_BITS, Kernels, kernel_weights
from agnosticfair.mathematics.scores import (
    Dense,
    Estimated,
    Memberships,
    Weights,
    evaluate,
    utility,
)
from agnosticfair.mathematics.subgroups import cross, sizes_of
from agnosticfair.protocol.messages import Broadcast, Reply, base_bits
from agnosticfair.protocol.requests import ProgramSums, Task


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
