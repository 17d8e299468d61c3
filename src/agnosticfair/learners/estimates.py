"""Estimates: what a learner has learned, as arrays; and what it predicts for a row, by a model for every fold.

A learner is a record in ``LEARNERS``: its prediction is a pure function, at a client as in a model.
Model f < folds trained on the rows of other folds, model ``folds`` on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

import numpy as np

from agnosticfair.data.encoding import Encoding
from agnosticfair.data.rows import folds_by_features
from agnosticfair.data.summary import MAX_GROUPS
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.learners import linear, trees
from agnosticfair.learners.rule import NAMES
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.scores import PROBABILITY_BITS


@dataclass(frozen=True)
class Estimates:
    """What a learner of ``LEARNERS`` has learned.

    ``arrays`` are of folds + 1 models; of one, that of all rows, where ``folds`` is 0. ``columns`` names for each
    head the column that holds its probabilities; empty texts for those that are learned. ``aware``: groups' heads are
    the sensitive feature itself.
    """

    kind: str
    heads: tuple[Head, ...]
    folds: int
    seed: int
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    aware: bool = False


@dataclass(frozen=True)
class Learner:
    """A kind of estimates.

    ``predict`` goes from (arrays, encoding, number of the model, table, who) to probabilities of the heads that are
    learned, (H, n); ``who`` names the rows in errors. ``of_all_rows`` goes from (arrays, folds) to the arrays of the
    model of all rows alone. ``check`` of (arrays, encoding, number of heads) from a file raises ``ValueError`` unless
    they fit. ``linear``: its array ``w`` has the weights of the encoded features: a card draws them, and ONNX has
    them.
    """

    name: str
    summary: str
    predict: Callable[[Mapping[str, np.ndarray], Encoding, int, Table, str], np.ndarray]
    of_all_rows: Callable[[Mapping[str, np.ndarray], int], Mapping[str, np.ndarray]]
    check: Callable[[Mapping[str, np.ndarray], Encoding, int], None]
    linear: bool = False


LEARNERS: dict[str, Learner] = {}
"""The learners by name; ``register_learner`` adds to them."""


def register_learner(learner: Learner) -> Learner:
    """Make a learner known by its name, in every process that takes part."""
    LEARNERS[learner.name] = learner
    if learner.name not in NAMES:
        NAMES.append(learner.name)
    return learner


_BINS = "logistic regression over bins of every column of numbers, and over categories"
_LINEAR = linear.predict, linear.of_all_rows, linear.check, True
register_learner(Learner("additive", f"an additive model: {_BINS}", *_LINEAR))
register_learner(
    Learner("linear", "a linear model: logistic regression over the columns", *_LINEAR)
)
_TREES = trees.predict, trees.of_all_rows, trees.check
register_learner(Learner("trees", "gradient-boosted trees", *_TREES))


def learner_of(kind: str) -> Learner:
    """The learner of that name, or the sentence that says which there are."""
    if kind not in LEARNERS:
        raise SettingsError(f"unknown learner {kind!r}; there are: {', '.join(LEARNERS)}")
    return LEARNERS[kind]


def learned(estimates: Estimates) -> tuple[int, ...]:
    """The numbers of the heads that are learned: neither a column's nor the sensitive feature itself."""
    columns = estimates.columns or ("",) * len(estimates.heads)
    pairs = enumerate(zip(estimates.heads, columns, strict=True))
    return tuple(
        h for h, (head, column) in pairs if not column and not (estimates.aware and head.features)
    )


def predict(
    estimates: Estimates,
    encoding: Encoding,
    index: int,
    table: Table,
    who: str = "the data",
) -> np.ndarray:
    """Probabilities of all heads by the model of this number, (H, n), multiples of 2^-20.

    A row's probabilities do not hang on the rows beside it.
    """
    forest = np.empty((len(estimates.heads), len(table)))
    learner = learned(estimates)
    if learner:
        forest[list(learner)] = learner_of(estimates.kind).predict(
            estimates.arrays, encoding, index, table, who
        )
    for h, head in enumerate(estimates.heads):
        if h not in learner and estimates.aware and head.features:
            forest[h] = in_group(head, _attributes(head, table, who))
        elif h not in learner:
            forest[h] = probability_column(table, estimates.columns[h], who)
    return on_grid(forest, PROBABILITY_BITS)


def _attributes(head: Head, table: Table, who: str) -> dict:
    absent = [name for name in head.features if name not in table.sensitive_features]
    if absent:
        raise DataError(
            f"{who} has no sensitive feature {absent[0]!r}, by which the model decides (aware): add the column, or "
            "train without aware"
        )
    return {name: table.sensitive_features[name] for name in head.features}


def probability_column(table: Table, name: str, who: str) -> np.ndarray:
    """A column that holds probabilities, or the sentence that says why it does not."""
    if name not in table.numeric:
        raise DataError(f"{who} has no column of numbers {name!r} with probabilities: add it")
    values = np.asarray(table.numeric[name], float)
    bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(bad):
        raise DataError(
            f"column {name!r} of {who} holds {values[bad[0]]:g} in row {bad[0] + 1}, which is no probability: give "
            "numbers from 0 to 1, not scores or percentages"
        )
    return values


def check_estimates(estimates: Estimates, encoding: Encoding) -> None:
    """Raise ``ValueError`` for what comes from a file and is none."""
    heads, columns = estimates.heads, estimates.columns
    if not heads or (columns and len(columns) != len(heads)):
        raise ValueError("heads")
    for head in heads:
        if head.label not in (None, 0, 1):
            raise ValueError("a head's label")
        if not len(head.features) == len(head.group) == len(head.other or head.group):
            raise ValueError("a head's group")
    if count := len(learned(estimates)):
        learner_of(estimates.kind).check(estimates.arrays, encoding, count)


def out_of_fold(
    estimates: Estimates, encoding: Encoding, table: Table, who: str = "the data"
) -> np.ndarray:
    """Probabilities of training rows by models that did not see them, (H, n); without folds by the one model."""
    if not estimates.folds:
        return predict(estimates, encoding, 0, table, who)
    fold = folds_by_features(table, estimates.folds, estimates.seed)
    forest = np.empty((len(estimates.heads), len(table)))
    for f in range(estimates.folds):
        rows = np.flatnonzero(fold == f)
        if len(rows):
            forest[:, rows] = predict(estimates, encoding, f, table.take(rows), who)
    return forest


def of_all_rows(estimates: Estimates) -> Estimates:
    """The estimates of the model of all rows alone: what a model file has."""
    if not estimates.folds:
        return estimates
    arrays = learner_of(estimates.kind).of_all_rows(estimates.arrays, estimates.folds)
    return replace(estimates, folds=0, arrays=arrays)


@dataclass(frozen=True)
class Head:
    """A binary target: the label, or a group, its value of each sensitive feature.

    ``name`` is 'label', 'group:F', or 'group:F|1' on the rows of label 1; ``label`` of the rows that it is trained
    on, None for all; ``other`` the group that the complement stands for, where there are two.
    """

    name: str
    features: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    label: int | None = None
    other: tuple[str, ...] = ()


LABEL = Head("label")
BOTH = ((0, 1),)
"""The labels of demographic parity: all rows at once."""


@dataclass(frozen=True)
class Stratum:
    """A group of some sensitive features and, where the fairness metric asks for one, a label."""

    features: tuple[str, ...]
    group: tuple[str, ...]
    label: int | None


def heads(
    sensitive_features: Sequence[tuple[str, Sequence[str]]],
    labels: Sequence[tuple[int, ...]] = BOTH,
    intersections: bool = False,
) -> tuple[Head, ...]:
    """The label's head, and those of the groups.  sensitive_features: the name and the groups of each.  labels: of the
    rows among which the fairness metric compares (``Metric.labels``).

    ``strata`` of these heads are in the order of ``fairness.comparisons``.

    >>> [head.name for head in heads([("sex", ("F", "M"))])]
    ['label', 'group:M']
    >>> [head.name for head in heads([("sex", ("F", "M"))], ((0,), (1,)))]
    ['label', 'group:M|0', 'group:M|1']
    """
    return (
        LABEL,
        *(
            head
            for names, groups in blocks(sensitive_features, intersections)
            for label in labels
            for head in _of_groups(names, groups, label, len(sensitive_features) > 1)
        ),
    )


def blocks(
    sensitive_features: Sequence[tuple[str, Sequence[str]]], intersections: bool
) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """The features that are compared together, with their groups: each by itself, or all at once."""
    for name, groups in sensitive_features:
        if len(groups) < 2:
            raise SettingsError(
                f"sensitive feature {name!r} has one group ({', '.join(map(repr, groups))}); fairness compares two or "
                "more: check the column, or take another one"
            )
    together = prod(len(groups) for _, groups in sensitive_features)
    if intersections and together > MAX_GROUPS:
        raise SettingsError(
            f"{' and '.join(repr(name) for name, _ in sensitive_features)} have {together} groups together, more than "
            f"{MAX_GROUPS}: cut them into fewer bins, join values, or leave intersections out"
        )
    sets = [sensitive_features] if intersections else [(entry,) for entry in sensitive_features]
    return [
        (tuple(name for name, _ in some), [*product(*(groups for _, groups in some))])
        for some in sets
        if some
    ]


def _of_groups(
    names: tuple[str, ...], groups: list[tuple[str, ...]], labels: tuple[int, ...], several: bool
) -> list[Head]:
    two, label = len(groups) == 2, labels[0] if len(labels) == 1 else None
    group_heads = []
    for group in groups[1:] if two else groups:
        pairs = zip(names, group, strict=True)
        what = " & ".join(f"{name}={value}" if several else value for name, value in pairs)
        text = f"group:{what}" + ("" if label is None else f"|{label}")
        group_heads.append(Head(text, names, group, label, groups[0] if two else ()))
    return group_heads


def targets(
    heads: Sequence[Head], y: np.ndarray, groups: Mapping[str, Column]
) -> tuple[np.ndarray, np.ndarray]:
    """t and the rows that count, (H, n) of bool each.  y: (n,) in {0, 1}.

    >>> sex = Column.of(["F", "M", "M"])
    >>> t, counts = targets(heads([("sex", ("F", "M"))], ((0,), (1,))), np.array([1, 0, 1]), {"sex": sex})
    >>> t.astype(int).tolist(), counts.astype(int).tolist()
    ([[1, 0, 1], [0, 1, 1], [0, 1, 1]], [[1, 1, 1], [0, 1, 0], [1, 0, 1]])
    """
    positive = np.asarray(y) > 0
    t, counts = (np.ones((len(heads), len(positive)), bool) for _ in range(2))
    for h, head in enumerate(heads):
        t[h] = positive if not head.features else in_group(head, groups)
        if head.label is not None:
            counts[h] = positive == bool(head.label)
    return t, counts


def in_group(head: Head, groups: Mapping[str, Column]) -> np.ndarray:
    """Which rows are of the head's group, (n,) of bool."""
    return np.logical_and.reduce(
        [
            groups[name].aligned((value,)) == 0
            for name, value in zip(head.features, head.group, strict=True)
        ]
    )


def strata(heads: Sequence[Head]) -> tuple[Stratum, ...]:
    """What ``joint`` has a column for: every group, of every label where heads have one.

    >>> [s.group for s in strata(heads([("sex", ("F", "M"))]))]
    [('F',), ('M',)]
    """
    return tuple(
        Stratum(head.features, group, head.label)
        for head in heads
        if head.features
        for group in ((head.other, head.group) if head.other else (head.group,))
    )


def joint(heads: Sequence[Head], P: np.ndarray) -> np.ndarray:
    """P(Y = y, S = s | x) of all strata, (C, n); P(S = s | x) where heads have no label.  P: (H, n), a head each.

    >>> joint(heads([("sex", ("F", "M"))]), np.array([[0.5], [0.75]])).ravel()
    array([0.25, 0.75])
    """
    columns = []
    for h, head in enumerate(heads):
        if not head.features:
            continue
        of_label = 1.0 if head.label is None else P[0] if head.label else 1.0 - P[0]
        if head.other:
            columns += [of_label * (1.0 - P[h]), of_label * P[h]]
            continue
        same = [
            k for k, o in enumerate(heads) if (o.features, o.label) == (head.features, head.label)
        ]
        total = P[same].sum(axis=0)
        share = np.where(total > 0, P[h] / np.where(total > 0, total, 1.0), 1.0 / len(same))
        columns.append(of_label * share)
    return np.array(columns).reshape(len(columns), P.shape[1])
