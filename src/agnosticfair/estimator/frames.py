"""Frames with texts, dates and sensitive columns as the numbers and groups that an estimator is fitted on.

The rules are those of files (docs/files.md): texts become one column per category, a missing text is the
category '?', dates are days since 1970.  Sensitive columns are groups and never features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from warnings import warn

import numpy as np

from agnosticfair.auditing.inputs import codes, days, name_of, typed
from agnosticfair.data.axes import FEATURES, SITE
from agnosticfair.data.columns import keys_of
from agnosticfair.data.encoding import shown
from agnosticfair.data.reading import MISSING
from agnosticfair.data.table import DATED, Column, Table
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.mathematics import scoring
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.methods import Method
from agnosticfair.settings import names_of, require_name

ALL = "all"
"""The client that holds all rows where nobody names clients."""

UNKNOWN = ("error", "ignore")
"""What may become of a text that the fit has not seen, in scikit-learn's words."""

MAX_REPEATS = 16
"""Whole sample weights of at most this mean repeat rows; others weigh them."""


@dataclass(frozen=True)
class Layout:
    """What the columns of a frame are, as they were when it was fitted on.

    features: their names, in order.  categories: of those with texts.  sensitive: the names of the groups'
    columns.  subgroups: of those that name subgroups and are no features.  dates: of the features that
    are dates.  commonest: the text of each column with texts that most rows have.
    """

    features: tuple[Any, ...]
    categories: Mapping[Any, tuple[str, ...]]
    sensitive: tuple[Any, ...] = ()
    subgroups: tuple[Any, ...] = ()
    dates: tuple[Any, ...] = ()
    commonest: Mapping[Any, str] = field(default_factory=dict)

    @property
    def numbers(self) -> tuple[Any, ...]:
        return tuple(name for name in self.features if name not in self.categories)

    def names(self, groups: Sequence[str]) -> list[str]:
        """What ``coef_`` is of, in order: columns of numbers, and one for each category."""
        return [
            f"{self.name_of(name, groups)}{end}"
            for name in self.features
            for end in [f"={value}" for value in self.categories.get(name, ())] or [""]
        ]

    def name_of(self, name: Any, groups: Sequence[str]) -> str:
        """What a feature is called in a table: not as a sensitive feature is."""
        return f"{name} (feature)" if str(name) in groups else str(name)


def layout_of(
    X: Any,
    sensitive: Sequence[Any] | str | int | None,
    subgroups: Sequence[Any] | str | int | None = None,
) -> Layout | None:
    """The layout of a frame, or of an array whose sensitive columns, or those that name subgroups, are given by place;
    None where X is numbers alone and all columns are features."""
    groups, others = (() if v is None else names_of(v) for v in (sensitive, subgroups))
    others = tuple(name for name in others if name != SITE)
    if both := {*groups} & {*others}:
        raise SettingsError(
            f"column {both.pop()!r} is among sensitive_columns and subgroups_by: keep one"
        )
    named = (*groups, *others)
    columns = _columns(X)
    if columns is None:
        if named:
            what = "sensitive_columns" if groups else "subgroups_by"
            raise SettingsError(f"{what} {named[0]!r} names a column, and X has none: give a frame")
        return None
    if not named and not hasattr(X, "columns"):
        return None  # texts in an array are refused as scikit-learn does
    for name, times in Counter(columns).items():
        if times > 1:
            raise DataError(f"X has {times} columns named {name!r}: rename all but one")
    for name in named:
        if name not in columns:
            raise DataError(f"X has no column {name!r}: name one of {shown(map(str, columns), 12)}")
    values = {name: _values(X, name) for name in columns if name not in named}
    texts = {name: _texts(column) for name, column in values.items()}
    categorical = {name: Column.of(some) for name, some in texts.items() if some is not None}
    keys = _keys(values, categorical) if hasattr(X, "columns") else {}
    features = tuple(name for name in values if str(name) not in keys)
    used = {k: column for k, column in categorical.items() if str(k) not in keys}
    dated = tuple(name for name in features if values[name].dtype.kind == "M")
    commonest = {k: c.categories[np.bincount(c.codes).argmax()] for k, c in used.items()}
    categories = {name: column.categories for name, column in used.items()}
    layout = Layout(features, categories, groups, others, dated, commonest)
    plain = len(features) == len(columns) and not categories and not dated
    return None if plain else layout


def _keys(values: Mapping[Any, np.ndarray], texts: Mapping[Any, Column]) -> dict[str, str]:
    """The identifiers among the columns of a frame, of which a warning tells."""
    whole = {str(k): v.astype(float) for k, v in values.items() if v.dtype.kind in "iu"}
    keys = keys_of(Table(whole, {str(k): column for k, column in texts.items()}, None, {}))
    for name, why in keys.items():
        said = f"column {name!r} of X is an identifier ({why}) and no feature: drop it"
        warn(said, UserWarning, stacklevel=6)
    return keys


def numbers_of(layout: Layout, X: Any) -> np.ndarray:
    """The columns of numbers of a frame, (n, k), dates in days."""
    check_columns(layout, X)
    if not layout.features:
        raise DataError("X has no feature beside its sensitive columns: keep at least one")
    columns = [_numbers(X, name) for name in layout.numbers]
    return np.column_stack(columns) if columns else np.empty((len(X), 0))


def groups_of(layout: Layout, X: Any) -> dict[str, Any]:
    check_columns(layout, X, layout.sensitive)
    return {str(name): _values(X, name) for name in layout.sensitive}


def check_columns(layout: Layout, X: Any, needed: Sequence[Any] | None = None) -> None:
    """Raise where a column is missing that there was in the fit."""
    there = _columns(X)
    if there is None:
        raise DataError("X was a frame in the fit: give one with the same columns")
    for name in layout.features if needed is None else needed:
        if name not in there:
            raise DataError(f"X has no column {name!r}, which there was in the fit: add it")


def _columns(X: Any) -> tuple[Any, ...] | None:
    if hasattr(X, "columns"):
        return tuple(X.columns)
    array = np.asarray(X) if isinstance(X, np.ndarray) else None
    return None if array is None or array.ndim != 2 else tuple(range(array.shape[1]))


def _values(X: Any, name: Any) -> np.ndarray:
    return typed(X[name], f"column {name!r} of X") if hasattr(X, "columns") else X[:, name]


def _texts(values: np.ndarray) -> list[str] | None:
    """The values as texts, None where they are numbers or dates; truth values are texts, as in files."""
    if values.dtype.kind in "iufM":
        return None
    if values.dtype.kind == "O":
        try:
            values.astype(float)
            return None
        except (TypeError, ValueError):
            pass
    texts = map(name_of, values.tolist())
    return [MISSING if text == "nan" else text.strip() for text in texts]


def _numbers(X: Any, name: Any) -> np.ndarray:
    values = _values(X, name)
    if values.dtype.kind == "M":
        return days(values)
    try:
        return values.astype(float)
    except (TypeError, ValueError):
        raise DataError(
            f"column {name!r} of X should be numbers, as in the fit: correct it"
        ) from None


def feature_columns(values: Any, n: int) -> dict[str, Column]:
    """Sensitive features of any form as columns by name; {} for None.

    >>> feature_columns({"sex": ["F", "M"], "race": ["b", "a"]}, 2)["race"].categories
    ('a', 'b')
    """
    if values is None:
        return {}
    if isinstance(values, Mapping):
        columns = dict(values)
    elif hasattr(values, "columns"):
        columns = {str(name): values[name] for name in values.columns}
    else:
        array = np.asarray(values)
        several = array.ndim == 2 and array.shape[1] > 1
        columns = (
            {f"sensitive feature {j}": array[:, j] for j in range(array.shape[1])}
            if several
            else {str(getattr(values, "name", None) or "sensitive_features"): array}
        )
    return {str(name): _groups(column, str(name), n) for name, column in columns.items()}


def _groups(values: Any, name: str, n: int) -> Column:
    what = name if name == "sensitive_features" else f"sensitive_features {name!r}"
    place, names = codes(values, what, n)
    if len(names) < 2:
        raise DataError(
            f"{what} has one group ({shown(names)}); fairness needs at least two: check the column"
        )
    return Column(place.astype(np.int32), names)


def repeats_of(weights: np.ndarray | None) -> np.ndarray | None:
    """The rows that whole weights stand for, each as often as its weight says; None where weights are no such."""
    if weights is None or not weights.any() or not (weights == np.round(weights)).all():
        return None
    if weights.mean() > MAX_REPEATS:
        return None
    return np.repeat(np.arange(len(weights)), weights.astype(int))


def labels_of(y: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, Column]:
    """The two classes, and y as a column of '0' and '1'."""
    from sklearn.utils.multiclass import check_classification_targets, type_of_target

    check_classification_targets(y)
    classes, place = np.unique(y, return_inverse=True)
    seen = np.unique(place if weights is None else place[weights > 0])
    if len(classes) > 2:
        raise DataError(
            "Only binary classification is supported. The type of the target is "
            f"{type_of_target(y, input_name='y')}, with {len(classes)} classes: make y one class "
            "against the rest, for example y == y[0]"
        )
    if len(seen) < 2:
        raise DataError(
            f"y has one class ({classes[seen].tolist()}); a classifier needs two: check the labels"
        )
    return classes, Column(place.astype(np.int32), ("0", "1"))


def around_one(weights: np.ndarray | None) -> np.ndarray | None:
    """Weights that suit the grid that sums are made on: only their ratios count."""
    if weights is None:
        return None
    return np.ldexp(weights, -int(np.ceil(np.log2(weights[weights > 0].mean()))))


def table_as_read(
    layout: Layout,
    X: Any,
    x: np.ndarray,
    sensitive: Mapping[str, Column],
    groups: Sequence[str],
    unknown: str = "error",
    y: Column | None = None,
    weights: np.ndarray | None = None,
    K: np.ndarray | None = None,
) -> Table:
    """The table that a file with these rows would be: columns by their own names and in their own units, texts as
    categories.

    x: the columns of numbers.  groups: the names of sensitive features in the fit, which no feature has.  unknown:
    'error', or 'ignore': a text that the fit has not seen is the column's commonest.
    """
    require_name("handle_unknown", unknown, UNKNOWN)
    check_columns(layout, X, layout.subgroups) if layout.subgroups else None
    named = {name: layout.name_of(name, groups) for name in layout.features}
    numeric = {named[name]: x[:, j] for j, name in enumerate(layout.numbers)}
    categorical = {named[k]: _known_texts(layout, X, k, unknown) for k in layout.categories}
    columns = {str(k): Column.of(_as_texts(_values(X, k))) for k in layout.subgroups}
    how = {named[k]: DATED for k in layout.dates}
    target = Column(np.zeros(len(x), np.int32), ("",)) if y is None else y
    return Table(
        numeric, categorical, target, sensitive, columns, around_one(weights), kernels=K, how=how
    )


def _as_texts(values: np.ndarray) -> list[str]:
    return _texts(values) or [name_of(v) for v in values.tolist()]


def _known_texts(layout: Layout, X: Any, name: Any, unknown: str) -> Column:
    """The texts of a column by the vocabulary of the fit."""
    column, known = Column.of(_as_texts(_values(X, name))), layout.categories[name]
    strange = sorted({*column.categories} - {*known})
    if strange and unknown == "error":
        raise DataError(
            f"column {name!r} of X has the value {shown(strange)}, unseen in the fit: map it to a "
            f"known one ({shown(known)}), or take handle_unknown='ignore'"
        )
    place = column.aligned(known)
    commonest = known.index(layout.commonest[name])
    return Column(np.where(place < 0, commonest, place).astype(np.int32), known)


def check_subgroup_columns(method: Method, layout: Layout, others: Sequence[str]) -> None:
    """Raise where subgroups are named by a column that there is not.  others: the names of groups."""
    fairness = method.fairness
    if fairness is None or fairness.basis.kind != "subgroups":
        return
    known = [*map(str, layout.features), *map(str, layout.subgroups), *others, SITE, FEATURES]
    for name in fairness.basis.columns or ():
        if name not in known:
            raise SettingsError(
                f"no column {name!r} to name subgroups by; there are {shown(known)}"
            )


def dealt(
    table: Table, owners: np.ndarray | None, keys: tuple[str, ...], repeats: np.ndarray | None
) -> dict[str, Table]:
    """A table per client: with its rows as often as ``repeats_of`` says, else without those of weight zero."""
    weights, some = table.weights, repeats
    if repeats is not None:
        table = replace(table, weights=None)
    elif weights is not None and not (weights > 0).all():
        some = np.flatnonzero(weights > 0)
    if some is not None:
        table, owners = table.take(some), None if owners is None else owners[some]
    if owners is None:
        return {ALL: table}
    rows_of = {key: np.flatnonzero(owners == k) for k, key in enumerate(keys)}
    return {key: table.take(rows) for key, rows in rows_of.items() if len(rows)}


def fairness_scorer(
    sensitive_column: Any, *, metric: str = "demographic_parity", limit: float | None = None
) -> Callable[[Any, Any, Any], float]:
    """A scorer for ``GridSearchCV`` and ``cross_val_score``, whose X has a column with the groups.

    Parameters
    ----------
    sensitive_column : str or int
        The column of X, by its name or place.
    metric : str
        A key of ``METRICS``.
    limit : float, optional
        Of the difference that the metric measures.

    Returns
    -------
    callable
        Of (estimator, X, y). Without a limit: minus the difference. With one: the accuracy where the limit is kept,
        and minus the difference, which is always less, where it is not.

    Examples
    --------
    >>> scorer = fairness_scorer("sex", limit=0.1)
    """
    require_name("metric", metric, METRICS)

    def score(estimator: Any, X: Any, y: Any) -> float:
        s, _ = codes(_values(X, sensitive_column), f"column {sensitive_column!r}", len(y))
        positive = estimator.classes_[1]
        right, decided = np.asarray(y) == positive, np.asarray(estimator.predict(X)) == positive
        gap = scoring.gap(metric, right, decided, s)
        if limit is not None and gap <= limit:
            return scoring.accuracy(right, decided)
        return -gap

    return score
