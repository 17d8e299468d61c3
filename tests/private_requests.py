"""Rows, a task and the requests of private steps, for the tests of privacy."""

from dataclasses import astuple, replace
from functools import partial

import numpy as np
from helpers import small_table

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.schema import schema_of
from agnosticfair.data.summary import summary_statistics
from agnosticfair.learners.estimates import Estimates, heads
from agnosticfair.methods import method
from agnosticfair.privacy.fit import schema_axes
from agnosticfair.privacy.ledger import Ledger, PrivateSite
from agnosticfair.privacy.requests import (
    PrivateCounts,
    PrivateDecisions,
    PrivateGradients,
    PrivateHeads,
    PrivateMoments,
    PrivateRates,
)
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.requests import SubgroupSet, Task
from agnosticfair.server import plan as server

ROWS = small_table(400, 3)
SCHEMA = schema_of(summary_statistics(ROWS, "all"), "y")


W = np.array([1.5, -0.5, 3.0, -2.0, 0.7, 0.2])
HEADS = heads([("sex", ROWS.sensitive_features["sex"].categories)])
ESTIMATES = Estimates("linear", HEADS, 0, 0, {"w": np.array([[W, -W[::-1]]])})


def task_of(rows=ROWS) -> Task:
    statistics = summary_statistics(rows, "all")
    task = server.plan(method("fairfl"), statistics, ("a",), positive="yes").task
    return replace(task, estimates=ESTIMATES)


REQUEST = {
    "private_counts": PrivateCounts,
    "private_moments": PrivateMoments,
    "private_gradients": partial(PrivateGradients, temperature=0.3, w=W),
    "private_heads": partial(PrivateHeads, heads=HEADS, w=0.3 * ESTIMATES.arrays["w"][0]),
    "private_rates": partial(PrivateRates, error_costs=(1.0, 1.0), eps=0.3, shift=-0.2),
    "private_decisions": partial(PrivateDecisions, w=W),
}


def rates_of(task: Task) -> dict:
    """Coefficients and directions of every place of a task."""
    K = 1 + (0 if task.subgroups is None else len(task.subgroups.values))
    each = [(k, *strata, 1.0, 0.5) for k in range(K) for strata in ((0, 1), (1, 0))]
    return {"A": np.linspace(-0.3, 0.3, 2 * K).reshape(K, 2), "directions": np.array(each)}


def send(step: str, task: Task, z: float = 1.0, maximum: int = 0, **more) -> Broadcast:
    more = {**(rates_of(task) if step == "private_rates" else {}), **more}
    return Broadcast(1, task, REQUEST[step](z=z, max_rows=maximum, **more))


def with_singles(task: Task, few: int | None = None) -> Task:
    """The task with subgroups of single values, of jobs and of bins of age."""
    axes = schema_axes(
        replace(SCHEMA, bins={"age": tuple(np.quantile(ROWS.numeric["age"], (0.3, 0.6)))})
    )
    subgroups = [((a, v),) for a, axis in enumerate(axes) for v in range(len(axis.values))][:few]
    rows = np.full((len(subgroups), 3, 2), -1.0)
    rows[:, 0] = [subgroup[0] for subgroup in subgroups]
    return replace(task, subgroups=SubgroupSet(tuple(astuple(axis) for axis in axes), rows))


def site(ledger=None, **settings) -> PrivateSite:
    held = partial(answer, Client("a", ROWS))
    return PrivateSite("a", held, ledger or Ledger(3.0, 1e-5), **settings)
