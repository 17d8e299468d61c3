"""OxonFair (Delaney et al., NeurIPS 2024): thresholds by group, found on the training rows."""

from __future__ import annotations

import numpy as np

from agnosticfair.data.table import Table
from agnosticfair_research.entrants.entrant import Decide, Entrant, Train
from agnosticfair_research.entrants.fairlearn import logistic


def oxonfair(train: Train, limit: float) -> Decide:
    """The best accuracy with the groups' rates within ``limit``."""
    from oxonfair import FairPredictor
    from oxonfair.utils import group_metrics

    rows = train.pooled
    given = {"data": rows.X, "target": rows.y, "groups": rows.s}
    learner = FairPredictor(logistic().fit(rows.X, rows.y), given)
    learner.fit(group_metrics.accuracy, group_metrics.demographic_parity, limit)

    def decide(table: Table) -> np.ndarray:
        own = train.rows(table)
        return np.asarray(learner.predict({"data": own.X, "target": own.y, "groups": own.s}), float)

    return decide


OXONFAIR = Entrant(
    "oxonfair", oxonfair, "a threshold per group", sees=True, pooled=True, packages=("oxonfair",)
)
