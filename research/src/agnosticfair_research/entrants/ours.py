"""This package's methods: rules over estimates, and linear models."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from agnosticfair.federation import Fit, fit
from agnosticfair.methods import Method, method
from agnosticfair.model import Model
from agnosticfair.server.plan import Start
from agnosticfair_research.entrants.entrant import Decide, Entrant, Train, above
from agnosticfair_research.entrants.thresholds import chosen_threshold, probability_threshold

RATE_MARGIN = 0.005  # either side of a fixed rate of positives
UNLIMITED = 1.0  # a tau that limits nothing


def fitted(train: Train, name: str | Method, start: Start | None = None) -> Fit:
    """A method of this package, fitted."""
    return fit(
        train.clients,
        name,
        sensitive_features=train.sensitive_features,
        positive=train.positive,
        seed=train.seed,
        start=start,
    )


def plain_model(train: Train) -> Model:
    """``fl``, fitted once for these rows."""
    return train.shared("fl", lambda: fitted(train, "fl").model)


def estimates(train: Train) -> Start:
    """What the rule's learner has learned of these rows, once for all settings."""

    def learn() -> Start:
        start = fitted(train, method("rule", tau=UNLIMITED)).start
        assert start is not None
        return replace(start, w=np.zeros(0))

    return train.shared("estimates", learn)


EVERY_RATE = (0.0, 1.0)
"""A rate of positives that limits nothing: with one, a fit does not go on to say what larger limits would cost, which
nobody reads here."""


def rule_model(train: Train, limit: float, everywhere: bool = True) -> Model:
    """The rule at balanced costs, and at the rate of positives if one is fixed; everywhere: in every subgroup, else
    overall only. Its program begins where that of the setting before ended."""
    wanted: dict[str, Any] = {"tau": limit} if everywhere else {"tau": UNLIMITED, "overall": limit}
    rate, path = train.positive_rate, ("path", train.positive_rate, everywhere)
    within = (rate - RATE_MARGIN, rate + RATE_MARGIN) if rate is not None else EVERY_RATE
    wanted["positive_rate"] = (max(within[0], 0.0), min(within[1], 1.0))
    start = train.cache.get(path) or estimates(train)
    fit = fitted(train, method("rule", costs=train.costs, **wanted), start)
    train.cache[path] = fit.start
    return fit.model


def rule(train: Train, limit: float, everywhere: bool = True) -> Decide:
    """The rule's decisions."""
    return above(rule_model(train, limit, everywhere).decision)


def fl(train: Train, limit: float) -> Decide:
    """The plain linear model, its threshold where its probability meets the costs."""
    return _linear(train, plain_model(train), UNLIMITED, probability_threshold(train.costs))


def fairfl(train: Train, limit: float) -> Decide:
    """Fair under training weights, then the threshold of best utility among those that keep the limit there."""
    return _linear(train, fitted(train, method("fairfl", tau=limit)).model, limit)


def _linear(train: Train, model: Model, limit: float, threshold: float | None = None) -> Decide:
    """A linear model at its threshold, or at the best one within a limit, or at the rate of positives that is fixed."""
    if threshold is None or train.positive_rate is not None:
        scores = np.concatenate([model.decision(table) for table in train.clients.values()])
        threshold = chosen_threshold(train, scores, limit)
    return above(model.decision, threshold)


RULE = Entrant("rule", rule, "the default: a limit in every subgroup", rates=True, ours=True)
OVERALL = Entrant(
    "rule-overall",
    partial(rule, everywhere=False),
    "the rule with a limit on the overall difference only",
    rates=True,
    ours=True,
)
FAIRFL = Entrant("fairfl", fairfl, "fair under training weights", rates=True, ours=True)
FL = Entrant("fl", fl, "no fairness", rates=True, asks=False, ours=True)
