"""A client's rows by the task's estimates: cached, and rebuilt from the task alone at any time."""

from __future__ import annotations

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.errors import FederationError
from agnosticfair.learners import estimates
from agnosticfair.learners.heads import joint
from agnosticfair.protocol.questions import Task


def probabilities(client: Client, task: Task) -> np.ndarray:
    """Out-of-fold probabilities of the heads, (H, n), rows as in the table; for ``client.kept``."""
    if task.estimates is None:
        raise FederationError("the question is about estimates and its task has none: ask again")
    return estimates.out_of_fold(task.estimates, task.encoding, client.rows, client.who)


def strata(client: Client, task: Task) -> np.ndarray:
    """Out-of-fold P(Y = y, S = s | x) of ``heads.strata``, (C, n), rows as in the table; for ``client.kept``."""
    P = client.kept(task, probabilities)
    assert task.estimates is not None
    return joint(task.estimates.heads, P)
