"""Plug-in rules with one multiplier, re-implemented from their papers: LinearPost and FedFACT.

Both take the utility of a positive decision by estimates of P(Y | x) and subtract a multiple of what the row adds to
the groups' overall difference; the multiplier solves the dual of their linear program, which for two groups is a
bisection.

- LinearPost (Xian and Zhao, 2024), blind: groups by an estimate of P(S | x), both by boosted trees out of fold.
- FedFACT (Zhang et al., NeurIPS 2025), post-processing under the global constraint: the group itself, over federated
  estimates. A deployment is no client, so that the clients' own constraints have no meaning there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from agnosticfair.data.table import Table
from agnosticfair.mathematics.linear import sigmoid
from agnosticfair_research.entrants.entrant import Decide, Entrant, Train, above
from agnosticfair_research.entrants.ours import plain_model
from agnosticfair_research.entrants.thresholds import chosen_threshold, rate_threshold

HEAD_FOLDS = 3
"""Folds by which boosted trees judge training rows."""


def boosted_heads(train: Train) -> tuple[np.ndarray, Callable[[Table], np.ndarray]]:
    """P(Y = 1 | x) and P(S = 1 | x) of the training rows out of fold, (n, 2), and on any table.

    scikit-learn's histogram gradient boosting at its defaults, once for all entrants and settings.
    """

    from sklearn.ensemble import HistGradientBoostingClassifier as Trees

    def learn() -> tuple[np.ndarray, Callable[[Table], np.ndarray]]:
        rows, targets = train.pooled, (train.pooled.y, (train.pooled.s == 1).astype(int))
        folds = np.random.default_rng([train.seed, 3]).integers(0, HEAD_FOLDS, len(rows.y))
        P = np.empty((len(rows.y), 2))
        for k, target in enumerate(targets):
            for fold in range(HEAD_FOLDS):
                learner = Trees(random_state=train.seed)
                learner.fit(rows.X[folds != fold], target[folds != fold])
                P[folds == fold, k] = learner.predict_proba(rows.X[folds == fold])[:, 1]
        heads = [Trees(random_state=train.seed).fit(rows.X, target) for target in targets]

        def predict(table: Table) -> np.ndarray:
            X = train.rows(table).X
            with threadpool_limits(1):
                return np.column_stack([head.predict_proba(X)[:, 1] for head in heads])

        return P, predict

    with threadpool_limits(1):  # after the import, for its threads are none before
        return train.shared("boosted heads", learn)


def utility(eta: np.ndarray, costs: tuple[float, float]) -> np.ndarray:
    """What a positive decision is worth more than a negative one, (n,)."""
    return costs[1] * eta - costs[0] * (1.0 - eta)


def one_multiplier(
    worth: np.ndarray, gamma: np.ndarray, limit: float, rate: float | None
) -> tuple[float, float]:
    """The multiplier nearest 0, and the threshold, at which the groups' rates differ by at most ``limit``.

    worth: (n,) utility.  gamma: (n,) probability of group 1.  rate: of positives, where it is fixed; the threshold is
    0 elsewhere.  The difference falls as the multiplier rises.
    """
    slope = apart_by(gamma, float(gamma.mean()))

    def at(multiplier: float) -> tuple[float, float]:
        scores = worth - multiplier * slope
        threshold = 0.0 if rate is None else rate_threshold(scores, rate)
        return float(((scores > threshold) * slope).mean()), threshold

    start, threshold = at(0.0)
    if abs(start) <= limit:
        return 0.0, threshold
    sign = 1.0 if start > 0 else -1.0
    near, far = 0.0, 1.0
    while sign * at(sign * far)[0] > limit and far < 1e6:
        far *= 2
    for _ in range(40):
        middle = (near + far) / 2
        near, far = (near, middle) if sign * at(sign * middle)[0] <= limit else (middle, far)
    return sign * far, at(sign * far)[1]


def apart_by(gamma: np.ndarray, share: float) -> np.ndarray:
    """What a positive decision of each row adds to rate of group 1 less that of group 0, (n,), over n."""
    return gamma / share - (1.0 - gamma) / (1.0 - share)


def linearpost(train: Train, limit: float) -> Decide:
    """Blind: the group by its estimate."""
    P, predict = boosted_heads(train)
    share = float(P[:, 1].mean())
    worth = utility(P[:, 0], train.costs)
    multiplier, threshold = one_multiplier(worth, P[:, 1], limit, train.positive_rate)

    def score(table: Table) -> np.ndarray:
        eta, gamma = predict(table).T
        return utility(eta, train.costs) - multiplier * apart_by(gamma, share)

    return above(score, threshold)


def fedfact(train: Train, limit: float) -> Decide:
    """By the group itself, over ``fl``'s probabilities."""
    model = plain_model(train)
    eta = sigmoid(np.concatenate([model.decision(table) for table in train.clients.values()]))
    gamma = (train.pooled.s == 1).astype(float)
    worth = utility(eta, train.costs)
    multiplier, threshold = one_multiplier(worth, gamma, limit, train.positive_rate)

    def score(table: Table) -> np.ndarray:
        group = (table.column(train.sensitive_features).codes == 1).astype(float)
        worth = utility(sigmoid(model.decision(table)), train.costs)
        return worth - multiplier * apart_by(group, float(gamma.mean()))

    return above(score, threshold)


def boosted(train: Train, limit: float) -> Decide:
    """By the utility alone; fairness is none of its business."""
    P, predict = boosted_heads(train)
    threshold = train.costs[0] / sum(train.costs)
    if train.positive_rate is not None:
        threshold = rate_threshold(P[:, 0], train.positive_rate)
    return above(lambda table: predict(table)[:, 0], threshold)


def moved(train: Train, limit: float) -> Decide:
    """The sceptic, who says that fewer or more positives alone lower any difference: boosted trees whose threshold is
    moved until the overall difference on training rows, out of fold, is within the limit."""
    P, predict = boosted_heads(train)
    return above(lambda table: predict(table)[:, 0], chosen_threshold(train, P[:, 0], limit))


LINEARPOST = Entrant(
    "linearpost",
    linearpost,
    "re-implemented: the overall difference, blind, over boosted trees",
    rates=True,
    pooled=True,
    packages=("sklearn",),
)
FEDFACT = Entrant(
    "fedfact",
    fedfact,
    "re-implemented: the overall difference, by the group itself",
    rates=True,
    sees=True,
)
BOOSTED = Entrant(
    "boosted",
    boosted,
    "boosted trees without fairness: the ceiling",
    rates=True,
    asks=False,
    pooled=True,
    packages=("sklearn",),
)
MOVED = Entrant(
    "boosted-moved",
    moved,
    "the sceptic: boosted trees at a moved threshold",
    pooled=True,
    packages=("sklearn",),
)
