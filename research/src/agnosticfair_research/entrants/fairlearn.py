"""fairlearn's two mitigations, on pooled rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from agnosticfair.data.table import Table
from agnosticfair_research.entrants.entrant import Decide, Entrant, Train

EPS = 0.01  # of its optimisation, fairlearn's own default


def logistic() -> Any:
    """The base learner of the pooled entrants."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000)


def exponentiated_gradient(train: Train, limit: float) -> Decide:
    """The reduction to weighted classification; rates may differ by ``limit``."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    rows = train.pooled
    learner = ExponentiatedGradient(logistic(), DemographicParity(difference_bound=limit), eps=EPS)
    learner.fit(rows.X, rows.y, sensitive_features=rows.s)

    def decide(table: Table) -> np.ndarray:
        # the mixture's expected decision; predict would draw one of its models by lot
        return np.asarray(learner._pmf_predict(train.rows(table).X)[:, 1])

    return decide


def threshold_optimizer(train: Train, limit: float) -> Decide:
    """Post-processing: a threshold per group, with equal rates."""
    from fairlearn.postprocessing import ThresholdOptimizer

    rows = train.pooled
    learner = ThresholdOptimizer(
        estimator=logistic(),
        constraints="demographic_parity",
        objective="accuracy_score",
        predict_method="predict_proba",
    )
    learner.fit(rows.X, rows.y, sensitive_features=rows.s)

    def decide(table: Table) -> np.ndarray:
        given = train.rows(table)
        return np.asarray(learner._pmf_predict(given.X, sensitive_features=given.s)[:, 1])

    return decide


EXPONENTIATED = Entrant(
    "fairlearn-eg",
    exponentiated_gradient,
    "decides by lot among its models: expected rates",
    pooled=True,
    packages=("fairlearn",),
)
THRESHOLD = Entrant(
    "fairlearn-threshold",
    threshold_optimizer,
    "needs the sensitive feature when deciding, and decides by lot",
    asks=False,
    sees=True,
    pooled=True,
    packages=("fairlearn",),
)
