"""This package's methods: rules over estimates, linear models and a network."""

from __future__ import annotations

from typing import Any

import numpy as np

from agnosticfair.data.table import Table
from agnosticfair.federation import fit
from agnosticfair.methods import Method, Network, method
from agnosticfair.model import Model
from agnosticfair_research.entrants.entrant import Decide, Entrant, Train


def model_of(train: Train, method: str | Method) -> Model:
    """A method of this package, fitted."""
    columns, seed = train.sensitive_features, train.seed
    return fit(
        train.clients, method, sensitive_features=columns, positive=train.positive, seed=seed
    ).model


def _fit(train: Train, name: str, **changes: Any) -> Decide:
    model = model_of(train, method(name, **changes))

    def decide(table: Table) -> np.ndarray:
        return (model.decision(table) > 0).astype(float)

    return decide


def _network() -> Network:
    """On a GPU where there is one: the same method, with sums that are rounded in another order."""
    from torch import cuda

    return Network("mlp", device="cuda" if cuda.is_available() else "cpu")


FL = Entrant("fl", lambda t, _: _fit(t, "fl"), "no fairness", asks=False, ours=True)
FAIRFL = Entrant(
    "fairfl", lambda t, a: _fit(t, "fairfl", tau=a), "fair under training weights", ours=True
)
AGNOSTICFAIR = Entrant(
    "agnosticfair",
    lambda t, a: _fit(t, "agnosticfair", tau=a, centres="rows"),
    "robust over kernels",
    ours=True,
)
RULE = Entrant(
    "rule",
    lambda t, a: _fit(t, "rule", tau=a),
    "the default: a limit in every subgroup, by the better of two learners",
    ours=True,
)
ADDITIVE = Entrant(
    "rule-additive",
    lambda t, a: _fit(t, "rule", tau=a, learner="additive"),
    "the rule over additive estimates, which can be drawn",
    ours=True,
)
LINEAR = Entrant(
    "rule-linear",
    lambda t, a: _fit(t, "rule", tau=a, learner="linear"),
    "the rule over linear estimates",
    ours=True,
)
NETWORK = Entrant(
    "agnosticfair-mlp",
    lambda t, a: _fit(t, "agnosticfair", network=_network(), tau=a, centres="rows"),
    "robust over kernels, as a network; on a GPU where there is one",
    packages=("torch",),
    ours=True,
)
