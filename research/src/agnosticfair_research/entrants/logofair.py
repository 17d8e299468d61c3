"""LoGoFair (Zhang et al., AAAI 2025), re-implemented from the paper: thresholds by group after federated training.

The Bayes-optimal rule under a bound on the groups' rates is a threshold per group, moved by lambda over the group's
share. A deployment is no client, so that the clients' own corrections have no meaning there: the global ones decide.
Published on Adult (5 clients, Dirichlet 0.5): accuracy 0.825, global gap 0.0115.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agnosticfair.data.table import Table
from agnosticfair.mathematics.linear import sigmoid
from agnosticfair_research.entrants.averaging import gap
from agnosticfair_research.entrants.entrant import Decide, Entrant, Train
from agnosticfair_research.entrants.ours import model_of


def logofair(train: Train, limit: float) -> Decide:
    """``fl``'s probabilities, then lambda by bisection until the rates differ by ``limit``."""
    model = model_of(train, "fl")
    score = 2 * sigmoid(np.concatenate([model.decision(t) for t in train.clients.values()])) - 1
    s = train.pooled.s
    shares = np.array([(s == 0).mean(), (s == 1).mean()])

    def moved(score: np.ndarray, s: np.ndarray, lam: float) -> np.ndarray:
        return (score > lam * np.where(s == 1, 1.0, -1.0) / shares[np.minimum(s, 1)]).astype(float)

    lam = _bisected(lambda lam: gap(moved(score, s, lam), s), limit)

    def decide(table: Table) -> np.ndarray:
        own = table.column(train.sensitive_features).codes
        return moved(2 * sigmoid(model.decision(table)) - 1, own, lam)

    return decide


def _bisected(of: Callable[[float], float], limit: float) -> float:
    """The smallest move after which the gap, which falls as lambda grows, is within the limit."""
    start = of(0.0)
    if abs(start) <= limit:
        return 0.0
    near, far, sign = 0.0, 1.0, 1.0 if start > 0 else -1.0
    for _ in range(40):
        middle = (near + far) / 2
        near, far = (near, middle) if sign * of(sign * middle) <= limit else (middle, far)
    return sign * far


LOGOFAIR = Entrant(
    "logofair", logofair, "re-implemented: the global thresholds, by group", sees=True
)
