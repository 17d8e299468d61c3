"""Estimates: what a learner has learned, as arrays; and what it predicts for a row, by a model for every fold.

A learner is a record in ``LEARNERS``: its prediction is a pure function, at a client as in a model.
Model f < folds trained on the rows of other folds, model ``folds`` on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from agnosticfair.data.encoding import Encoding
from agnosticfair.data.rows import folds_by_features
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.learners import linear, trees
from agnosticfair.learners.heads import Head, in_group
from agnosticfair.mathematics.linear import on_grid

PROBABILITY_BITS = 20
"""Probabilities are multiples of 2^-20."""


@dataclass(frozen=True)
class Estimates:
    """What a learner has learned.

    Parameters
    ----------
    kind : str
        The learner, a name of ``LEARNERS``.
    heads : tuple of Head
    folds, seed : int
        Of the folds by which training rows were judged.
    arrays : mapping of str to array
        The learner's own, for folds + 1 models; for one, that of all rows, where ``folds`` is 0.
    columns : tuple of str
        For each head the column that holds its probabilities; empty texts for those that are learned.
    aware : bool
        Groups' heads are the sensitive feature itself.
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

    Parameters
    ----------
    name : str
    summary : str
        What it is, in a sentence.
    predict : callable
        From (arrays, encoding, number of the model, table, who) to probabilities of the heads that are learned,
        (H, n); ``who`` names the rows in errors.
    of_all_rows : callable
        From (arrays, folds) to the arrays of the model of all rows alone.
    check : callable
        Of (arrays, encoding, number of heads) that come from a file: raises ``ValueError`` unless they fit.
    """

    name: str
    summary: str
    predict: Callable[[Mapping[str, np.ndarray], Encoding, int, Table, str], np.ndarray]
    of_all_rows: Callable[[Mapping[str, np.ndarray], int], Mapping[str, np.ndarray]]
    check: Callable[[Mapping[str, np.ndarray], Encoding, int], None]


LEARNERS: dict[str, Learner] = {}
"""The learners by name; ``register_learner`` adds to them."""


def register_learner(learner: Learner) -> Learner:
    """Make a learner known by its name."""
    LEARNERS[learner.name] = learner
    return learner


register_learner(
    Learner(
        "additive",
        "logistic regression over bins of every column of numbers and the categories",
        linear.predict,
        linear.of_all_rows,
        linear.check,
    )
)
register_learner(
    Learner(
        "linear",
        "logistic regression over the columns",
        linear.predict,
        linear.of_all_rows,
        linear.check,
    )
)
register_learner(
    Learner(
        "trees",
        "gradient-boosted trees over bins",
        trees.predict,
        trees.of_all_rows,
        trees.check,
    )
)


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


def to_header(estimates: Estimates) -> dict[str, Any]:
    """All but the arrays, as JSON has it."""
    about = {k: v for k, v in vars(estimates).items() if k not in ("heads", "arrays")}
    return {**about, "heads": [vars(head) for head in estimates.heads]}


def from_header(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Estimates:
    """The inverse of ``to_header``; what is read is not trusted: ValueError, KeyError or TypeError for what is none."""
    heads = tuple(_head(entry) for entry in header["heads"])
    columns = tuple(header["columns"])
    if not heads or (columns and len(columns) != len(heads)) or type(header["aware"]) is not bool:
        raise ValueError("heads")
    if not all(isinstance(text, str) for text in (header["kind"], *columns)):
        raise ValueError("columns")
    estimates = Estimates(
        header["kind"],
        heads,
        int(header["folds"]),
        int(header["seed"]),
        dict(arrays),
        columns,
        header["aware"],
    )
    if learned(estimates):
        learner_of(estimates.kind)
    return estimates


def _head(entry: Mapping[str, Any]) -> Head:
    texts = {k: tuple(entry[k]) for k in ("features", "group", "other")}
    if not all(isinstance(v, str) for names in texts.values() for v in names):
        raise ValueError("a head's group")
    if entry["label"] not in (None, 0, 1) or not isinstance(entry["name"], str):
        raise ValueError("a head's label")
    if not len(texts["features"]) == len(texts["group"]) == len(texts["other"] or texts["group"]):
        raise ValueError("a head's group")
    return Head(entry["name"], label=entry["label"], **texts)


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
