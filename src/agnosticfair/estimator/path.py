"""Accuracy against the worst difference along a path of taus, over arrays and frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agnosticfair.estimator.classifier import AgnosticFairClassifier
from agnosticfair.federation import Fit
from agnosticfair.settings import TAUS
from agnosticfair.tuning import Frontier, Progress, trace


def frontier(
    X: Any,
    y: Any,
    *,
    sensitive_features: Any = None,
    clients: Any = None,
    sample_weight: Any = None,
    estimator: AgnosticFairClassifier | None = None,
    taus: Sequence[float] = TAUS,
    folds: int = 2,
    n_jobs: int = 1,
    on_progress: Progress | None = None,
) -> Frontier:
    """Accuracy against the worst difference for every tau, on held-out folds.

    Parameters
    ----------
    X : (n, d) array or frame
    y : (n,) array
    sensitive_features, clients, sample_weight : (n,) arrays, optional
        As in ``AgnosticFairClassifier.fit``.
    estimator : AgnosticFairClassifier, optional
        With all its settings but tau.
    taus : sequence of float
        The path.
    folds : int
        Of the cross-validation.
    n_jobs : int
        Processes; in a script under ``if __name__ == "__main__":``.
    on_progress : callable, optional
        Called with (done, total) fits.

    Returns
    -------
    Frontier
        ``pick(tau)`` is the fitted estimator of a point, ``pick()`` that of the knee; ``points`` has the numbers.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> s = rng.integers(0, 2, 120)
    >>> X = np.c_[rng.normal(s, 1.0), rng.normal(size=120)]
    >>> send = {"estimator": AgnosticFairClassifier("fairfl"), "taus": (0.1, 0.3), "folds": 2}
    >>> path = frontier(X, X.sum(axis=1) > 0.5, sensitive_features=s, **send)
    >>> [point.tau for point in path.points]
    [0.1, 0.3]
    """
    from sklearn.base import clone  # where it is missing, the classifier says so

    base = clone(AgnosticFairClassifier() if estimator is None else estimator)
    tables, method, how = base._problem(X, y, sensitive_features, clients, sample_weight)

    def picked(fitted: Fit) -> AgnosticFairClassifier:
        fairness = fitted.method.fairness
        one = clone(base).set_params(tau=None if fairness is None else fairness.tau)
        one._problem(X, y, sensitive_features, clients, sample_weight)  # notes features and classes
        one._take(fitted)
        one._training = (X, y, one._groups(X, sensitive_features), sample_weight)
        return one

    names = how.pop("sensitive_features") or ()
    return trace(
        tables,
        method,
        sensitive_features=names,
        taus=taus,
        folds=folds,
        jobs=n_jobs,
        on_progress=on_progress,
        picked=picked,
        **how,
    )
