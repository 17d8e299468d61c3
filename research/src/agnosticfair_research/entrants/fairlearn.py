"""fairlearn's reduction to weighted classification, on pooled rows: overall, or within the values of a column."""

from __future__ import annotations

from functools import partial

import numpy as np

from agnosticfair.data.axes import axes_of_table, codes_of
from agnosticfair.data.table import Table, concatenate
from agnosticfair_research.deployments import MIN_ROWS, MIN_SHARE
from agnosticfair_research.entrants.entrant import Decide, Entrant, Train

EPS = 0.01  # of its optimisation, fairlearn's own default


def exponentiated_gradient(train: Train, limit: float, controlled: bool = False) -> Decide:
    """Rates may differ by ``limit``; controlled: within every value of ``control_column``, too."""
    from fairlearn.reductions import DemographicParity, ErrorRate, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    rows, (false_positive, false_negative) = train.pooled, train.costs
    learner = ExponentiatedGradient(
        LogisticRegression(max_iter=1000, solver="newton-cholesky"),
        DemographicParity(difference_bound=limit),
        objective=ErrorRate(costs={"fp": false_positive, "fn": false_negative}),
        eps=EPS,
    )
    given = {"control_features": control_column(train)} if controlled else {}
    learner.fit(rows.X, rows.y, sensitive_features=rows.s, **given)

    def decide(table: Table) -> np.ndarray:
        # the mixture's expected decision; predict would draw one of its models by lot
        return np.asarray(learner._pmf_predict(train.rows(table).X)[:, 1])

    return decide


def control_column(train: Train) -> np.ndarray:
    """Codes (n,) of the feature that tells most of the group, in bits, among those of which two values or more hold
    enough rows of every group; the rows of all other values are one more value. No label is looked at."""
    table, s = concatenate([*train.clients.values()]), train.pooled.s
    axes = axes_of_table(table, sorted({*table.numeric, *table.categorical}))
    codes, best, most = codes_of(table, axes), np.zeros(len(table), np.int64), -1.0
    for column in codes.T:
        counts = np.zeros((column.max() + 2, s.max() + 1))
        np.add.at(counts, (column, s), 1)  # -1, a value that has no bin, is the last
        total = counts.sum(axis=1)
        usable = (total >= MIN_ROWS) & (counts.min(axis=1) >= MIN_SHARE * total)
        if usable.sum() > 1 and (bits := _information(counts)) > most:
            rest = usable.sum()
            best, most = np.where(usable, np.cumsum(usable) - 1, rest)[column], bits
    return best


def _information(counts: np.ndarray) -> float:
    """Mutual information of rows and columns of a table of counts.

    >>> _information(np.eye(2)), _information(np.ones((2, 2)))
    (1.0, 0.0)
    """
    p = counts / counts.sum()
    outer = p.sum(axis=1, keepdims=True) * p.sum(axis=0)
    inside = p > 0
    return float((p[inside] * np.log2(p[inside] / outer[inside])).sum())


EXPONENTIATED = Entrant(
    "fairlearn-eg",
    exponentiated_gradient,
    "decides by lot among its models: expected rates",
    pooled=True,
    packages=("fairlearn",),
)
CONTROLLED = Entrant(
    "fairlearn-eg-control",
    partial(exponentiated_gradient, controlled=True),
    "the same within every value of the column that tells most of the group",
    pooled=True,
    packages=("fairlearn",),
)
