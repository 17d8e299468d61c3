"""Frames with texts, dates and sensitive columns as the numbers and groups that an estimator is fitted on.

The rules are those of files (docs/files.md): texts become one column per category, a missing text is the
category '?', dates are days since 1970.  Sensitive columns are groups and never features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agnosticfair.auditing.inputs import codes, days, name_of
from agnosticfair.data.axes import FEATURES, SITE, band_axis
from agnosticfair.data.census import MOST_VALUES
from agnosticfair.data.encoding import FEATURE_BITS, shown
from agnosticfair.data.reading import MISSING
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.mathematics import metrics
from agnosticfair.mathematics.linear import on_grid, units
from agnosticfair.mathematics.notions import NOTIONS
from agnosticfair.mathematics.parts import Axis, Part, part_name
from agnosticfair.methods import Method
from agnosticfair.settings import names_of, require_name

ALL = "all"
"""The client that holds all rows where nobody names clients."""

UNKNOWN = ("error", "ignore")
"""What may become of a text that the fit has not seen, in scikit-learn's words."""

MOST_REPEATS = 16
"""Whole sample weights of a larger mean are scaled, as others are."""


@dataclass(frozen=True)
class Layout:
    """What the columns of a frame are, as they were when it was fitted on.

    features: their names, in order.  categories: of those with texts.  sensitive: the names of the groups'
    columns.  parts: of those that name parts of the population and are no features.  dates: of the features that
    are dates.
    """

    features: tuple[Any, ...]
    categories: Mapping[Any, tuple[str, ...]]
    sensitive: tuple[Any, ...] = ()
    parts: tuple[Any, ...] = ()
    dates: tuple[Any, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the numbers that are fitted on."""
        made = [
            [f"{name}={value}" for value in self.categories[name]]
            if name in self.categories
            else [str(name)]
            for name in self.features
        ]
        return tuple(name for part in made for name in part)


def parts_in_units(
    axes: Sequence[Axis],
    parts: Sequence[Part],
    columns: Sequence[str],
    low: np.ndarray,
    span: np.ndarray,
    dates: Sequence[Any] = (),
) -> dict[str, str]:
    """What a fit calls each of its named parts -> the same in the columns' own names and units.  dates: the columns
    that are days since 1970.

    >>> axes = (band_axis("x0", (0.5,)), band_axis("x1", (1.0,)))
    >>> low, span = np.array([20.0, 0.0]), np.array([40.0, 1.0])
    >>> parts_in_units(axes, [((0, 1), (1, 0))], ("age", "job=a"), low, span)
    {'x0 = 0.5 or more and x1 = under 1': 'age = 40 or more and job=a = no'}
    """
    own = axes_in_units(axes, columns, low, span, dates)
    return {part_name(axes, part): part_name(own, part) for part in parts}


def axes_in_units(
    axes: Sequence[Axis],
    columns: Sequence[str],
    low: np.ndarray,
    span: np.ndarray,
    dates: Sequence[Any] = (),
) -> list[Axis]:
    """The axes of a fit in the columns' own names and units."""
    own = []
    for axis in axes:
        j = int(axis.name[1:]) if axis.edges else -1  # as ``table_of_rows`` names them
        if j < 0:
            own.append(Axis(axis.name.removeprefix(OF_FRAME), axis.values))
        elif "=" in columns[j] and len(axis.edges) == 1 and (low[j], span[j]) == (0.0, 1.0):
            own.append(Axis(columns[j], ("no", "yes")))
        else:
            edges = [low[j] + span[j] * edge for edge in axis.edges]
            dated = columns[j] in dates
            if dated and float(low[j]).is_integer() and float(span[j]).is_integer():
                edges = [
                    float(np.ceil(edge - 1e-3)) for edge in edges
                ]  # no row between: whole days
            own.append(band_axis(columns[j], edges, dated))
    return own


def layout_of(
    X: Any,
    sensitive: Sequence[Any] | str | int | None,
    parts: Sequence[Any] | str | int | None = None,
) -> Layout | None:
    """The layout of a frame, or of an array whose sensitive columns, or those that name parts, are given by place;
    None where X is numbers alone and all columns are features."""
    groups, others = (() if v is None else names_of(v) for v in (sensitive, parts))
    others = tuple(name for name in others if name != SITE)
    if both := {*groups} & {*others}:
        raise SettingsError(
            f"column {both.pop()!r} is among sensitive_columns and parts_by: keep one"
        )
    named = (*groups, *others)
    columns = _columns(X)
    if columns is None:
        if named:
            what = "sensitive_columns" if groups else "parts_by"
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
    features = tuple(name for name in columns if name not in named)
    texts = {name: _texts(_values(X, name)) for name in features}
    categories = {k: tuple(sorted({*v})) for k, v in texts.items() if v is not None}
    dated = tuple(name for name in features if _values(X, name).dtype.kind == "M")
    made = Layout(features, categories, groups, others, dated)
    return made if named or categories or dated else None


def numbers_of(layout: Layout, X: Any, unknown: str = "error") -> np.ndarray:
    """The frame as numbers, (n, d): its own, dates in days, and one column for each category.  unknown: 'error', or
    'ignore' a text that was not seen."""
    require_name("handle_unknown", unknown, UNKNOWN)
    check_columns(layout, X)
    parts = [_numbers(layout, X, name, unknown) for name in layout.features]
    if not parts:
        raise DataError("X has no feature beside its sensitive columns: keep at least one")
    return np.column_stack(parts)


def groups_of(layout: Layout, X: Any) -> dict[str, Any]:
    """The sensitive columns of a frame, by name."""
    check_columns(layout, X, layout.sensitive)
    return {str(name): _values(X, name) for name in layout.sensitive}


OF_FRAME = "column "
"""Before the names of a frame's columns, among those that name parts: no column of numbers is called so."""


def columns_by_name(layout: Layout | None, X: Any) -> dict[str, Column]:
    """The frame's columns of texts, and those that name parts alone, for ``Table.other``."""
    if layout is None:
        return {}
    check_columns(layout, X, (*layout.categories, *layout.parts))
    found = {}
    for name in (*layout.categories, *layout.parts):
        values = _values(X, name)
        found[f"{OF_FRAME}{name}"] = Column.of(_texts(values) or map(name_of, values.tolist()))
    return found


def with_part_columns(
    recipe: Method, layout: Layout | None, features: Sequence[str], others: Sequence[str]
) -> Method:
    """The recipe whose named parts have the frame's columns: as they are called in the fit.

    features: the names of the numbers that are fitted on.  others: of further columns, and of groups.
    """
    fairness, given = recipe.fairness, layout.parts if layout else ()
    if fairness is None or fairness.basis.kind != "named":
        return recipe
    basis = fairness.basis
    if basis.columns is None and not (layout and (layout.categories or given)):
        return recipe
    digits, texts = len(str(len(features))), layout.categories if layout else {}
    dummies = {f"{name}={value}" for name, values in texts.items() for value in values}
    own = {n: f"x{j:0{digits}d}" for j, n in enumerate(features) if n not in dummies}
    own |= {str(k): f"{OF_FRAME}{k}" for k, values in texts.items() if len(values) <= MOST_VALUES}
    known = own | {str(name): f"{OF_FRAME}{name}" for name in given}
    known |= {name: name for name in (*others, SITE)}
    named: list[str] = []
    for name in (FEATURES,) if basis.columns is None else basis.columns:
        if name != FEATURES and name not in known:
            raise SettingsError(f"no column {name!r} to name parts by; there are {shown([*known])}")
        named += own.values() if name == FEATURES else [known[name]]
    basis = replace(basis, columns=tuple(dict.fromkeys(named)))
    return replace(recipe, fairness=replace(fairness, basis=basis))


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
    return np.asarray(X[name]) if hasattr(X, "columns") else X[:, name]


def _texts(values: np.ndarray) -> list[str] | None:
    """The values as texts, None where they are numbers or dates."""
    if values.dtype.kind in "biufM":
        return None
    if values.dtype.kind == "O":
        try:
            values.astype(float)
            return None
        except (TypeError, ValueError):
            pass
    texts = map(name_of, values.tolist())
    return [MISSING if text == "nan" else text.strip() for text in texts]


def _numbers(layout: Layout, X: Any, name: Any, unknown: str) -> np.ndarray:
    values = _values(X, name)
    if name in layout.categories:
        known = layout.categories[name]
        texts = _texts(values)
        texts = texts if texts is not None else [name_of(v) for v in values.tolist()]
        strange = sorted({*texts} - {*known})
        if strange and unknown == "error":
            raise DataError(
                f"column {name!r} of X has the value {shown(strange)}, unseen in the fit: map it to a "
                f"known one ({shown(known)}), or take handle_unknown='ignore'"
            )
        return (np.asarray(texts)[:, None] == np.asarray(known)).astype(float)
    if values.dtype.kind == "M":
        return days(values, name)
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


def ranges(X: np.ndarray, weights: np.ndarray | None, scale: bool) -> tuple[np.ndarray, np.ndarray]:
    """low and span of the columns over the rows that count; a constant column has span 1."""
    rows = X if weights is None or (weights > 0).all() else X[weights > 0]
    return units(rows.min(axis=0), rows.max(axis=0), scale)


def _are_few(weights: np.ndarray) -> bool:
    """Whether weights are plainly repeated rows: whole numbers, and not large (or all zero)."""
    return bool((weights == np.round(weights)).all() and weights.mean() <= MOST_REPEATS)


def table_of_rows(
    X: np.ndarray,
    y: Column,
    sensitive_features: Mapping[str, Column],
    weights: np.ndarray | None,
    K: np.ndarray | None,
    others: Mapping[str, Column] | None = None,
) -> Table:
    """A table whose columns are named so that their order is that of X."""
    digits = len(str(X.shape[1]))
    numeric = {f"x{j:0{digits}d}": X[:, j] for j in range(X.shape[1])}
    if weights is not None and not _are_few(weights):
        # only their ratios count; around one they suit the grid that sums are made on
        weights = np.ldexp(weights, -int(np.ceil(np.log2(weights[weights > 0].mean()))))
    return Table(numeric, {}, y, sensitive_features, weights=weights, kernels=K, other=others or {})


def rows_by_name(
    x: np.ndarray, layout: Layout | None, X: Any, sensitive: Mapping[str, Column]
) -> Table:
    """Rows with the columns that name a fit's subgroups; who holds a row is not known.  x: in units of the fit."""
    none = Column(np.zeros(len(x), np.int32), ("",))
    others = {SITE: none, **columns_by_name(layout, X), **sensitive}
    return table_of_rows(on_grid(x, FEATURE_BITS), none, {}, None, None, others)


def dealt(table: Table, owners: np.ndarray | None, keys: tuple[str, ...]) -> dict[str, Table]:
    """A table per client, without the rows of weight zero."""
    weights = table.weights
    if weights is not None and not (weights > 0).all():
        table = table.take(weights > 0)
        owners = None if owners is None else owners[weights > 0]
    if owners is None:
        return {ALL: table}
    parts = {key: np.flatnonzero(owners == k) for k, key in enumerate(keys)}
    return {key: table.take(rows) for key, rows in parts.items() if len(rows)}


def fairness_scorer(
    sensitive_column: Any, *, notion: str = "demographic_parity", limit: float | None = None
) -> Callable[[Any, Any, Any], float]:
    """A scorer for ``GridSearchCV`` and ``cross_val_score``, whose X has a column with the groups.

    Parameters
    ----------
    sensitive_column : str or int
        The column of X, by its name or place.
    notion : str
        A key of ``NOTIONS``.
    limit : float, optional
        Of the difference that the notion measures.

    Returns
    -------
    callable
        Of (estimator, X, y). Without a limit: minus the difference. With one: the accuracy where the limit is kept,
        and minus the difference, which is always less, where it is not.

    Examples
    --------
    >>> scorer = fairness_scorer("sex", limit=0.1)
    """
    require_name("notion", notion, NOTIONS)

    def score(estimator: Any, X: Any, y: Any) -> float:
        s, _ = codes(_values(X, sensitive_column), f"column {sensitive_column!r}", len(y))
        positive = estimator.classes_[1]
        right, decided = np.asarray(y) == positive, np.asarray(estimator.predict(X)) == positive
        gap = metrics.gap(notion, right, decided, s)
        if limit is not None and gap <= limit:
            return metrics.accuracy(right, decided)
        return -gap

    return score
