"""A deployment of which unlabelled rows are known: weights that make the training rows look like it.

The weights go to ``sample_weight``. Used alone they are the classical answer to a known shift; in a
robust method they move the centre of the set A, and ``trust`` shrinks A towards that centre.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agnosticfair.auditing.inputs import features
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.methods import method


def target_weights(
    X: Any, target: Any, *, max_weight: float = 10.0, ridge: float = 1e-3
) -> np.ndarray:
    """Weights of rows, mean one, under which they look like the rows of a target: the odds, by a logistic classifier,
    that a row comes from the target.

    Parameters
    ----------
    X : (n, d) array
        The rows to weigh.
    target : (m, d) array
        Rows of the deployment.
    max_weight : float
        No row weighs more than this many times the mean.
    ridge : float
        Of the classifier.

    Returns
    -------
    (n,) array

    Examples
    --------
    >>> X = np.array([[0.0], [0.0], [1.0], [1.0]])
    >>> target_weights(X, np.array([[0.0], [0.0], [0.0], [1.0]]), ridge=1e-9).round(3)
    array([1.5, 1.5, 0.5, 0.5])
    """
    if not max_weight >= 1:
        raise SettingsError(f"max_weight is {max_weight}: give at least 1")
    one, two = features(X), features(target)
    if len(one.names) != len(two.names):
        raise DataError(
            f"the target has {len(two.names)} columns and X {len(one.names)}: give the same features"
        )
    named = _has_names(X) and _has_names(target)
    if strange := [
        pair for pair in zip(one.names, two.names, strict=True) if named and len({*pair}) > 1
    ]:
        raise DataError(
            f"the target has column {strange[0][1]!r} where X has {strange[0][0]!r}: give the same "
            "features in the same order"
        )
    x = one.at(slice(0, one.n))
    b = (two.low + two.span * two.at(slice(0, two.n)) - one.low) / one.span
    names = [f"x{j:05d}" for j in range(x.shape[1])]
    comes = np.repeat([0, 1], [len(x), len(b)]).astype(np.int32)
    both = dict(zip(names, np.vstack([x, b]).T, strict=True))
    table = Table(both, {}, Column(comes, ("0", "1")), {})
    model = fit({"both": table}, method("fl", ridge=ridge), positive="1", scale=False).model
    d = x @ model.w[:-1]
    return _cut(np.exp(d - d.max()), max_weight)


def _has_names(X: Any) -> bool:
    return isinstance(X, Table) or hasattr(X, "columns")


def _cut(weights: np.ndarray, max_weight: float) -> np.ndarray:
    """min(c weights, most) with the c that makes its mean one; where too few are positive for that, these
    weigh the same.

    >>> _cut(np.array([0.0, 1.0, 9.0]), 2.0)
    array([0., 1., 2.])
    """
    n, w = len(weights), np.sort(weights)[::-1]
    rest, left = np.cumsum(w[::-1])[::-1], n - max_weight * np.arange(n)
    first = int(np.argmax(left * w <= max_weight * rest))  # so many are cut
    if not rest[first] > 0:
        return (weights > 0) / (weights > 0).mean()
    return np.minimum(weights * (left[first] / rest[first]), max_weight)
