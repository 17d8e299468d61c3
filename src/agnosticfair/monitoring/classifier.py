"""A classifier, anybody's, that predicts and records what it predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import Certificate
from agnosticfair.auditing.inputs import column, name_of, positive_of, table_of
from agnosticfair.data.table import Column
from agnosticfair.errors import ModelError
from agnosticfair.monitoring.baseline import HANDED
from agnosticfair.monitoring.monitor import POSITIVE_LABEL, Monitor
from agnosticfair.monitoring.verdict import Verdict


class MonitoredClassifier:
    """Wraps a fitted classifier: every prediction is counted before it is answered.

    Parameters
    ----------
    estimator : object with ``predict`` and ``classes_``
        Any fitted classifier of two classes, scikit-learn's or this package's.
    certificate : Certificate or mapping
        What ``audit(estimator, X, y, sensitive_features=...)`` made of it on rows it was not fitted on.
    positive : the class that counts as 1; chosen as in ``audit`` unless said
    state, confidence : as in ``Monitor``

    Examples
    --------
    See docs/monitoring.md.
    """

    def __init__(
        self,
        estimator: Any,
        certificate: Certificate | Mapping[str, Any],
        *,
        positive: object = None,
        state: str | Path | None = None,
        confidence: float = 0.95,
    ) -> None:
        if not hasattr(estimator, "predict") or len(getattr(estimator, "classes_", ())) != 2:
            raise ModelError(
                f"{type(estimator).__name__} is no fitted classifier of two classes: fit it first"
            )
        self.estimator, self.classes_ = estimator, estimator.classes_
        self.positive = positive_of(
            [name_of(c) for c in np.asarray(self.classes_).tolist()], positive
        )
        self.monitor = Monitor(None, certificate, state=state, confidence=confidence)

    def predict(self, X: Any, *, sensitive_features: Any = None, **options: Any) -> np.ndarray:
        """The estimator's labels of rows that are counted first.

        Parameters
        ----------
        X : what the estimator takes
        sensitive_features : (n,) array, optional
            Groups, where they are known.
        **options
            ``when`` and ``again`` of ``Monitor.update``.

        Returns
        -------
        (n,) array
            What the estimator says.
        """
        labels = np.asarray(self.estimator.predict(X))
        self.record(X, labels, sensitive_features=sensitive_features, **options)
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """The estimator's own probabilities; nothing is counted.

        Parameters
        ----------
        X : what the estimator takes

        Returns
        -------
        (n, 2) array
        """
        return np.asarray(self.estimator.predict_proba(X))

    def record(
        self, X: Any, labels: Any, *, sensitive_features: Any = None, y: Any = None, **options: Any
    ) -> Verdict:
        """Count rows with the labels they were given, and the true ones where they are known.

        Parameters
        ----------
        X : what the estimator takes
        labels : (n,) array
            Given by whoever decided.
        sensitive_features, y : (n,) arrays, optional
            Groups and true labels, where they are known.
        **options
            As in ``Monitor.update``.

        Returns
        -------
        Verdict
            Where things stand.
        """
        rows = replace(table_of(X), target=None)
        if y is not None:
            rows = replace(rows, target=Column(self._positive(y, len(rows)), ("0", POSITIVE_LABEL)))
        if sensitive_features is not None:
            groups = column(sensitive_features, "sensitive_features", len(rows))
            rows = replace(rows, sensitive_features={HANDED: Column.of(map(name_of, groups))})
        return self.monitor.update(rows, decisions=self._positive(labels, len(rows)), **options)

    @property
    def verdict_(self) -> Verdict:
        """Where things stand."""
        return self.monitor.verdict()

    def _positive(self, labels: Any, n: int) -> np.ndarray:
        """Which labels are the positive one, (n,) of 0 and 1."""
        texts = map(name_of, column(labels, "labels", n).tolist())
        return np.array([text == self.positive for text in texts], dtype=np.int32)
