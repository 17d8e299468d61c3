"""A plain gradient-boosted tree on pooled rows: the ceiling of accuracy."""

from __future__ import annotations

from agnosticfair_research.entrants.entrant import Decide, Entrant, Train


def boosted(train: Train, limit: float) -> Decide:
    """scikit-learn's histogram gradient boosting at its defaults; fairness is none of its business."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows = train.pooled
    learner = HistGradientBoostingClassifier(random_state=train.seed).fit(rows.X, rows.y)
    return lambda table: learner.predict(train.rows(table).X).astype(float)


BOOSTED = Entrant(
    "boosted-tree",
    boosted,
    "no fairness; the ceiling",
    asks=False,
    pooled=True,
    packages=("sklearn",),
)
