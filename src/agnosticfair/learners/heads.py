"""Heads: P(Y, S | x) by the chain rule, as binary targets on some of the rows.

Two groups have one head, P(S = g | x), and the other group is the complement; more have one each, normalised.
A fairness metric on labels has a head for each label: P(S = g | x, Y = y), trained on the rows of that label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from agnosticfair.data.table import Column
from agnosticfair.errors import SettingsError

MAX_GROUPS = 50
"""A sensitive feature with more is an age or an identifier: its groups are too small to compare."""


@dataclass(frozen=True)
class Head:
    """A binary target.

    Parameters
    ----------
    name : str
        'label', 'group:F', or 'group:F|1' on the rows of label 1.
    features : tuple of str
        The sensitive features, none for the label.
    group : tuple of str
        The group's value of each.
    label : int or None
        Of the rows that it is trained on; None for all.
    other : tuple of str
        The group that the complement stands for, where there are two.
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
        if len(groups) > MAX_GROUPS:
            raise SettingsError(
                f"sensitive feature {name!r} has {len(groups)} groups, more than {MAX_GROUPS}: cut it into bins, or "
                "join its values"
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
    heads_found = []
    for group in groups[1:] if two else groups:
        pairs = zip(names, group, strict=True)
        what = " & ".join(f"{name}={value}" if several else value for name, value in pairs)
        text = f"group:{what}" + ("" if label is None else f"|{label}")
        heads_found.append(Head(text, names, group, label, groups[0] if two else ()))
    return heads_found


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
