"""Classifiers of scikit-learn as learners, where rows lie in one place: what they learned lives in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.rows import folds_by_features
from agnosticfair.data.table import Table, concatenate
from agnosticfair.errors import SettingsError
from agnosticfair.learners.estimates import Estimates, Head, Learner, register_learner, targets
from agnosticfair.mathematics.linear import log_loss

LOCAL = "local:"
"""Learners whose names begin so are known in this process alone."""

_NUMBERS = count()
_TRAINED: dict[str, list[Any]] = {}
_TINY = 1e-6


def trained(
    classifier: Any,
    heads: tuple[Head, ...],
    folds: int,
    seed: int,
    encoding: Encoding,
    positive: str,
    tables: Sequence[Table],
) -> tuple[Estimates, float]:
    """A classifier's estimates of these heads, by a clone for each fold and one of all rows; and their mean log loss,
    all heads together, on rows that they were not trained on."""
    table = concatenate([*tables])
    X, fold = encode(encoding, table), folds_by_features(table, folds, seed)
    t, counts = targets(heads, table.labels(positive), table.sensitive_features)
    models = [
        [
            _fitted(classifier, X, t[h], counts[h] & (fold != f), table.weights)
            for h in range(len(heads))
        ]
        for f in range(folds + 1)
    ]
    estimates = Estimates(_known_as(type(classifier).__name__, models), heads, folds, seed)
    loss = 0.0
    for f in range(folds):
        for h in range(len(heads)):
            on = counts[h] & (fold == f)
            if on.any():
                p = np.clip(_positive(models[f][h], X[on]), _TINY, 1 - _TINY)
                loss += float(log_loss(np.log(p / (1 - p)), t[h, on].astype(float)).sum())
    return estimates, loss / max(len(table), 1)


def _fitted(
    classifier: Any, X: np.ndarray, t: np.ndarray, on: np.ndarray, weights: np.ndarray | None
) -> Any:
    """A clone of the classifier, fitted to these rows; a number where they have one answer."""
    from sklearn.base import clone

    y = t[on].astype(int)
    if len({*y.tolist()}) < 2:
        return float(y.mean()) if len(y) else 0.5
    options = {} if weights is None else {"sample_weight": weights[on]}
    try:
        return clone(classifier).fit(X[on], y, **options)
    except TypeError as error:
        raise SettingsError(
            f"learner {type(classifier).__name__} cannot be fitted ({error}): take a classifier of scikit-learn's kind"
        ) from None


def _positive(model: Any, X: np.ndarray) -> np.ndarray:
    if isinstance(model, float):
        return np.full(len(X), model)
    return np.asarray(model.predict_proba(X), float)[:, 1]


def _known_as(called: str, models: list[list[Any]]) -> str:
    """The name under which these models are a learner in this process.  called: their class."""
    name = f"{LOCAL}{called}-{next(_NUMBERS)}"

    def predict(
        arrays: Mapping[str, np.ndarray], encoding: Encoding, index: int, table: Table, who: str
    ) -> np.ndarray:
        estimator = models[index if "last" not in arrays else -1]
        X = encode(encoding, table, who)
        return np.array([_positive(model, X) for model in estimator])

    def of_all_rows(arrays: Mapping[str, np.ndarray], folds: int) -> dict[str, np.ndarray]:
        return {"last": np.ones(1)}

    def check(arrays: Mapping[str, np.ndarray], encoding: Encoding, heads: int) -> None:
        raise ValueError(f"{name} is known in the process that trained it alone")

    register_learner(Learner(name, called, predict, of_all_rows, check))
    _TRAINED[name] = models[-1]
    return name


def trained_classifiers(estimates: Estimates | None) -> list[Any] | None:
    """The classifiers of all rows, a head each, to send to another process; None where they are none of this room's."""
    return None if estimates is None else _TRAINED.get(estimates.kind)


def known_here(estimates: Estimates, models: list[Any]) -> Estimates:
    """The estimates of classifiers that another process trained, under a name of this one."""
    called = estimates.kind.removeprefix(LOCAL).partition("-")[0]
    return replace(estimates, kind=_known_as(called, [models]))
