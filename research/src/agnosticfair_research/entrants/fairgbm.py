"""FairGBM (Cruz et al., ICLR 2023): gradient boosting under constraints on error rates."""

from __future__ import annotations

from agnosticfair_research.entrants.entrant import Decide, Entrant, Train


def fairgbm(train: Train, limit: float) -> Decide:
    """It bounds differences of error rates, the nearest it has to rates of decisions, by ``limit``."""
    from fairgbm import FairGBMClassifier

    rows = train.pooled
    bounds = {"constraint_fpr_tolerance": limit, "constraint_fnr_tolerance": limit}
    learner = FairGBMClassifier(
        constraint_type="FNR,FPR", random_state=train.seed, n_jobs=1, **bounds
    )
    learner.fit(rows.X, rows.y, constraint_group=rows.s)
    return lambda table: (learner.predict_proba(train.rows(table).X)[:, 1] > 0.5).astype(float)


FAIRGBM = Entrant(
    "fairgbm", fairgbm, "boosted trees, error rates bounded", pooled=True, packages=("fairgbm",)
)
