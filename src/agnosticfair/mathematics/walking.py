"""Rows on their way through trees that grow: margins, gradients and places, advanced from request to request.

All of it can be rebuilt from a request alone; what is kept between requests saves only the way that was gone already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agnosticfair.mathematics.boosting import gradients, histogram, losses
from agnosticfair.mathematics.trees import (
    LEAF,
    Bins,
    Forest,
    from_numbers,
    goes_right,
    leaves,
    margins,
    ranks,
    unpack,
)

LOSS_BITS = 14


@dataclass(frozen=True)
class CodedRows:
    """Rows as trees see them.

    Parameters
    ----------
    codes : (n, C) uint8
    columns : (C, n) uint8
        The same, column by column.
    target, counts : (H, n) bool
        Of every head, and which rows it is trained on.
    fold : (n,) int
    folds : int
        0 where there is one model, of all rows.
    weights : (n,) array or None
    bits : int
        Of the gradients' grid.
    """

    codes: np.ndarray
    columns: np.ndarray
    target: np.ndarray
    counts: np.ndarray
    fold: np.ndarray
    folds: int
    weights: np.ndarray | None
    bits: int

    def trains(self, model: int) -> np.ndarray:
        """The rows that a model is trained on, (n,) bool."""
        fold, head = divmod(model, len(self.target))
        return self.counts[head] & (self.fold != fold) if fold < self.folds else self.counts[head]

    def judged(self, model: int) -> np.ndarray:
        """The rows that a fold's model is judged by: those of the fold."""
        fold, head = divmod(model, len(self.target))
        return self.counts[head] & (self.fold == fold)


@dataclass
class Way:
    """How far one model's rows have come.  done: its finished trees.  margin: (n,).  now: the tree that grows, of which
    ``level`` levels are gone.  place: (n,) uint8, within the level.  g, h: (n,) float32, at the margin.  apart: the
    rows that it is not trained on."""

    done: Forest
    margin: np.ndarray
    apart: np.ndarray
    now: Forest | None = None
    level: int = 0
    place: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))
    g: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    h: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))


@dataclass
class Walk:
    """The ways of all models' rows.  packed, done: the finished trees of the last request, as sent and unpacked."""

    ways: dict[int, Way] = field(default_factory=dict)
    packed: np.ndarray = field(default_factory=lambda: np.zeros(0))
    done: list[Forest] = field(default_factory=list)


def descend(
    place: np.ndarray, tree: Forest, bins: Bins, columns: np.ndarray, start: int, end: int
) -> np.ndarray:
    """The rows' places within level ``end`` of a forest's first tree, from those within level ``start``.

    place: (n,) uint8.  columns: (C, n).
    """
    rank = ranks(tree, bins)
    for level in range(start, end):
        right = np.zeros_like(place)
        for k in range(2**level):
            node = 2**level - 1 + k
            if tree.column[0, node] != LEAF:
                here = goes_right(tree, bins, columns, 0, node, int(rank[0, node]))
                here &= (place == k).view(np.uint8)
                right |= here
        place = place + place + right
    return place


def _same(one: Forest, other: Forest) -> bool:
    """Whether two forests are the same, the values of their leaves included."""
    names = ("column", "threshold", "missing_right", "value", "sets")
    if one is other:
        return True
    same = (np.array_equal(getattr(one, k), getattr(other, k)) for k in names)
    return one.start == other.start and all(same)


def _grows_from(old: Forest, new: Forest, level: int) -> bool:
    """Whether the first levels of two growing trees are the same."""
    nodes = slice(0, 2**level - 1)
    names = ("column", "threshold", "missing_right")
    same = all(np.array_equal(getattr(old, k)[0, nodes], getattr(new, k)[0, nodes]) for k in names)
    return same and np.array_equal(old.sets, new.sets[: len(old.sets)])


def finished_trees(walk: Walk, packed: np.ndarray, bins: Bins) -> list[Forest]:
    """The finished trees of a request, which most requests have in common with the last one."""
    if not (walk.done and np.array_equal(walk.packed, packed)):
        walk.packed, walk.done = packed, unpack(from_numbers(packed), bins)
    return walk.done


def go(
    walk: Walk, rows: CodedRows, bins: Bins, model: int, done: Forest, now: Forest, level: int
) -> Way:
    """The way of one model's rows, up to where a request is: ``level`` levels of ``now`` after the trees ``done``."""
    way = walk.ways.get(model)
    if way is None or not _known(way, done, bins):
        apart = np.flatnonzero(~rows.trains(model))
        way = Way(done, margins(done, bins, rows.columns), apart)
        _face(way, rows, model)
    elif len(done) > len(way.done):
        _add_tree(way, rows, bins, done)
        _face(way, rows, model)
    if way.now is None or way.level > level or not _grows_from(way.now, now, way.level):
        way.level, way.place = 0, np.zeros(len(way.margin), np.uint8)
    way.place = descend(way.place, now, bins, rows.columns, way.level, level)
    way.now, way.level = now, level
    walk.ways[model] = way
    return way


def _known(way: Way, done: Forest, bins: Bins) -> bool:
    """Whether the trees are those of the way, or one more."""
    more = len(done) - len(way.done)
    if more not in (0, 1):
        return False
    return _same(way.done, done if not more else done.first(len(way.done), bins))


def _add_tree(way: Way, rows: CodedRows, bins: Bins, done: Forest) -> None:
    """Add the last tree to the margins: from where the rows stand in it, if they do."""
    before = done.first(len(done) - 1, bins)
    last = Forest(
        done.column[-1:],
        done.threshold[-1:],
        done.missing_right[-1:],
        done.sets[len(before.sets) :],
        done.value[-1:],
    )
    if way.now is not None and _grows_from(way.now, last, way.level):
        place = descend(way.place, last, bins, rows.columns, way.level, last.depth)
    else:
        place = leaves(last, bins, rows.columns, 0, ranks(last, bins))
    way.margin += last.value[0].astype(float).take(place)
    way.done, way.now = done, None


def _face(way: Way, rows: CodedRows, model: int) -> None:
    """The gradients at the margin."""
    target = rows.target[model % len(rows.target)]
    way.g, way.h = gradients(way.margin, target, rows.bits, rows.weights)


def level_sums(
    walk: Walk,
    rows: CodedRows,
    bins: Bins,
    forests: Sequence[tuple[Forest, Forest]],
    level: int,
    count: np.ndarray,
) -> dict[str, np.ndarray]:
    """What a request asks for.

    Parameters
    ----------
    walk : Walk
        What is kept; changed here.
    rows : CodedRows
    bins : Bins
    forests : sequence of (Forest, Forest)
        Of every model: finished trees, and the one that grows.
    level : int
        Levels of it that are grown.
    count : (P, 2) int
        Models and nodes.

    Returns
    -------
    dict
        hist: (P, B, 3).  loss: (H,), out of fold, where a tree begins; zeros elsewhere.
    """
    heads = len(rows.target)
    hist, loss = np.zeros((len(count), int(bins.starts[-1]), 3)), np.zeros(heads)
    for model in np.unique(count[:, 0]).tolist():
        done, now = forests[model]
        way = go(walk, rows, bins, model, done, now, level)
        rows_of_model = np.flatnonzero(count[:, 0] == model)
        slots = np.full(256, -1, np.int16)
        slots[count[rows_of_model, 1]] = np.arange(len(rows_of_model))
        slot = slots.take(way.place)
        slot[way.apart] = -1
        hist[rows_of_model] = histogram(rows.codes, slot, way.g, way.h, len(rows_of_model), bins)
        if level == 0 and model < rows.folds * heads:
            loss[model % heads] += _loss(way, rows, model)
    return {"hist": hist, "loss": loss}


def _loss(way: Way, rows: CodedRows, model: int) -> float:
    judged, target = rows.judged(model), rows.target[model % len(rows.target)]
    weights: Any = None if rows.weights is None else rows.weights[judged]
    return float(
        losses(way.margin[judged], target[judged], min(LOSS_BITS, rows.bits), weights).sum()
    )
