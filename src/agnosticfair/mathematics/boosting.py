"""Gradient boosting from histograms that are sums over rows: the rows' side; the server's is ``growing``.

Gradients and Hessians of the logistic loss are multiples of a power of two, so that a histogram is the same to the
last bit in whatever order and in however many pieces its rows are added up: the trees of pooled rows are those of any
split of them. A sibling's histogram is its parent's less the other child's, exactly.

Ties are broken by the lowest column, then the lowest code, with missing values to the left first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from agnosticfair.mathematics.linear import log_loss, sigmoid
from agnosticfair.mathematics.trees import (
    LEAF,
    Bins,
    Forest,
    goes_right,
    margins,
    pack,
    ranks,
)
from agnosticfair.threads import compiled

GRADIENT_BITS = 20
"""Gradients are multiples of 2^-20 where the number of rows allows it."""

G, H, N = range(3)
"""What a histogram holds of a code's rows: the sum of gradients, of Hessians, and how many there are."""

_ROWS = 1 << 15
"""Rows that are counted at a time: what is gathered of them stays in a core's cache."""

_CODES = 1 << 16
"""Sums that are added to together: they stay in a core's cache."""

_COUNT_BITS = 22
"""Bits of a count that is added up together with Hessians."""


@dataclass(frozen=True)
class Boosting:
    """How trees are grown.

    ``rate`` shrinks every tree, ``l2`` is added to a leaf's Hessian, ``smooth`` to the one by which categories are
    ordered for a split. A category with fewer than ``min_rows`` in a node is split off with the other rare ones;
    ``min_bin`` is the rows of a bin, or of a category with a code of its own. After ``patience`` trees without a
    lower loss out of fold no more are grown. ``monotone``, of every column: 1 where the first head's margin may not
    fall with it, -1 where it may not rise; empty for none.
    """

    trees: int = 200
    depth: int = 5
    rate: float = 0.1
    l2: float = 1.0
    min_rows: int = 20
    min_bin: int = 10
    min_hessian: float = 1e-3
    smooth: float = 10.0
    patience: int = 10
    monotone: tuple[int, ...] = ()


def gradients(
    margin: Any, target: Any, bits: int, weights: Any = None, xp: Any = np
) -> tuple[Any, Any]:
    """Gradient and Hessian of each row's logistic loss in its margin, multiples of 2^-bits, which float32 holds.

    >>> gradients(np.zeros(1), np.ones(1), 20)
    (array([-0.5], dtype=float32), array([0.25], dtype=float32))
    """
    p, unit = sigmoid(margin, xp), 2.0**bits
    g, h = xp.round((p - target * 1.0) * unit) / unit, xp.round(p * (1.0 - p) * unit) / unit
    if weights is not None:  # rounded before, too: a row that weighs 2 counts as the row twice
        g, h = xp.round(g * weights * unit) / unit, xp.round(h * weights * unit) / unit
    return xp.asarray(g, dtype=xp.float32), xp.asarray(h, dtype=xp.float32)


def losses(margin: Any, target: Any, bits: int, weights: Any = None, xp: Any = np) -> Any:
    loss, unit = log_loss(margin, target * 1.0, xp), 2.0**bits
    return xp.round((loss if weights is None else loss * weights) * unit) / unit


def histogram(
    codes: np.ndarray, slot: np.ndarray, g: np.ndarray, h: np.ndarray, slots: int, bins: Bins
) -> np.ndarray:
    """Sums by slot, column and code, (slots, B, 3).  codes: (n, C).  slot: (n,), where a row is counted, -1 for
    nowhere.

    >>> histogram(np.array([[1], [1]], np.uint8), np.zeros(2, int), np.ones(2), np.ones(2), 1, Bins((2,), 1))[0, 1]
    array([2., 2., 2.])
    """
    B = int(bins.starts[-1])
    total = np.zeros((slots, B, 3))
    add, step = compiled(add_rows), _packed_rows(h)
    if add is not None and step:
        for a in range(0, len(slot), step):
            chunk = slice(a, a + step)
            add(codes[chunk], slot[chunk], g[chunk], h[chunk], bins.starts, total)
        return total
    together = max(1, min(slots, _CODES // B))
    for begin in range(0, len(slot), _ROWS):
        block = slot[begin : begin + _ROWS]
        for k in range(0, slots, together):
            rows = np.flatnonzero((block >= k) & (block < k + together))
            first = (block[rows].astype(np.int32) - k) * B
            rows += begin
            some = _counted(codes[rows], g[rows], h[rows], first, bins, together * B)
            total[k : k + together] += some.reshape(together, B, 3)[: slots - k]
    return total


def add_rows(
    codes: np.ndarray,
    slot: np.ndarray,
    g: np.ndarray,
    h: np.ndarray,
    starts: np.ndarray,
    total: np.ndarray,
) -> None:
    """``histogram`` as a loop over at most ``_packed_rows``: a Hessian and a count are added as one whole number."""
    S, B = total.shape[0], total.shape[1]
    unit, packed = 2.0**GRADIENT_BITS, np.zeros((S, B, 2), np.int64)
    for i in range(len(slot)):
        if slot[i] < 0:
            continue
        node_histogram = packed[slot[i]]
        g_i, both = np.int64(g[i] * unit), (np.int64(h[i] * unit) << _COUNT_BITS) + 1
        for c in range(codes.shape[1]):
            at = starts[c] + codes[i, c]
            node_histogram[at, 0] += g_i
            node_histogram[at, 1] += both
    for s in range(S):
        for b in range(B):
            total[s, b, 0] += packed[s, b, 0] / unit
            total[s, b, 1] += (packed[s, b, 1] >> _COUNT_BITS) / unit
            total[s, b, 2] += packed[s, b, 1] & ((1 << _COUNT_BITS) - 1)


def _packed_rows(h: np.ndarray) -> int:
    """How many rows ``add_rows`` may add up so that 63 bits hold a sum of Hessians and a count; 0 for none.

    >>> _packed_rows(np.array([0.25, 0.1])), _packed_rows(np.array([1e30]))
    (4194303, 0)
    """
    maximum = float(h.max(initial=0.25))
    return min((1 << _COUNT_BITS) - 1, int(2.0 ** (62 - _COUNT_BITS - GRADIENT_BITS) / maximum))


def _counted(
    codes: np.ndarray, g: np.ndarray, h: np.ndarray, first: np.ndarray, bins: Bins, size: int
) -> np.ndarray:
    """Sums by place, (size, 3), a row's being those of its codes after its first one: a product with a sparse matrix of
    ones, of all three at once."""
    from scipy.sparse import csr_matrix

    n, C = codes.shape
    at = codes + bins.starts[:-1].astype(np.int32)
    at += first[:, None]
    each = np.arange(0, n * C + 1, C, dtype=np.int32)
    ones = csr_matrix((np.ones(n * C), at.ravel(), each), shape=(n, size))
    return ones.T @ np.stack([g, h, np.ones_like(g)], axis=1).astype(float)


LOSS_BITS = 14


@dataclass(frozen=True)
class CodedRows:
    """Rows as trees see them.

    codes: (n, C) uint8.  columns: the same, column by column.  target, counts: (H, n), of every head, and which rows
    it is trained on.  ``folds`` is 0 where there is one model, of all rows; ``bits`` are of the gradients' grid;
    ``ways`` say how far each model's rows have come in its trees, and change from request to request.
    """

    bins: Bins
    codes: np.ndarray
    columns: np.ndarray
    target: np.ndarray
    counts: np.ndarray
    fold: np.ndarray
    folds: int
    weights: np.ndarray | None
    bits: int
    ways: dict[int, Way] = field(default_factory=dict)
    xp: ClassVar[Any] = np

    def trains(self, model: int) -> Any:
        """The rows that a model is trained on, (n,) bool."""
        fold, head = divmod(model, len(self.target))
        return self.counts[head] & (self.fold != fold) if fold < self.folds else self.counts[head]

    def loss(self, margin: Any, model: int) -> float:
        """The loss of a fold's rows, by which its model is judged."""
        fold, head = divmod(model, len(self.target))
        on = self.counts[head] & (self.fold == fold)
        weights = None if self.weights is None else self.weights[on]
        bits = min(LOSS_BITS, self.bits)
        return float(losses(margin[on], self.target[head][on], bits, weights, self.xp).sum())

    def gradients(self, margin: Any, model: int) -> tuple[Any, Any]:
        """Gradient and Hessian of every row's loss at these margins."""
        target = self.target[model % len(self.target)]
        return gradients(margin, target, self.bits, self.weights, self.xp)

    def margins(self, forest: Forest) -> Any:
        """The log odds of every row, (n,)."""
        return margins(forest, self.bins, self.columns)

    def places(self) -> Any:
        """Where rows stand before a tree: in its root."""
        return np.zeros(len(self.fold), np.uint8)

    def descend(self, place: Any, tree: Forest, start: int, end: int) -> Any:
        """The rows' places within level ``end`` of a forest's first tree, from those within level ``start``."""
        rank = ranks(tree, self.bins)
        for level in range(start, end):
            right = np.zeros_like(place)
            for k in range(2**level):
                node = 2**level - 1 + k
                if tree.column[0, node] != LEAF:
                    here = goes_right(tree, self.bins, self.columns, 0, node, int(rank[0, node]))
                    here &= (place == k).view(np.uint8)
                    right |= here
            place = place + place + right
        return place

    def leaf_values(self, place: Any, tree: Forest) -> Any:
        """What the leaves of a forest's first tree add."""
        return tree.value[0].astype(float).take(place)

    def histogram(self, way: Way, slots: np.ndarray) -> np.ndarray:
        """Sums of the rows that the model of this way is trained on, (slots, B, 3).  slots: (256,), of places."""
        slot = slots.take(way.place)
        slot[way.apart] = -1
        return histogram(self.codes, slot, way.g, way.h, int(slots.max()) + 1, self.bins)


@dataclass
class Way:
    """How far one model's rows have come.  done: its finished trees.  margin: (n,).  now: the tree that grows, of which
    ``level`` levels are gone.  place: (n,) uint8, within the level.  g, h: (n,) float32, at the margin.  apart: the
    rows that it is not trained on."""

    done: Forest
    margin: Any
    apart: Any
    now: Forest | None = None
    level: int = 0
    place: Any = None
    g: Any = None
    h: Any = None


def _grows_from(old: Forest, new: Forest, level: int) -> bool:
    """Whether the first levels of two growing trees are the same."""
    nodes = slice(0, 2**level - 1)
    names = ("column", "threshold", "missing_right")
    same = all(np.array_equal(getattr(old, k)[0, nodes], getattr(new, k)[0, nodes]) for k in names)
    return same and np.array_equal(old.sets, new.sets[: len(old.sets)])


def _way(rows: CodedRows, model: int, done: Forest, now: Forest, level: int) -> Way:
    """The way of one model's rows, up to where a request is: ``level`` levels of ``now`` after the trees ``done``."""
    way = rows.ways.get(model)
    if way is None or not _known(way, done, rows.bins):
        way = Way(done, rows.margins(done), rows.xp.where(~rows.trains(model))[0])
        way.g, way.h = rows.gradients(way.margin, model)
    elif len(done) > len(way.done):  # the last tree's leaves, from where the rows stand in it
        last = done.only(len(done) - 1, rows.bins)
        _descend(rows, way, last, last.depth)
        way.margin += rows.leaf_values(way.place, last)
        way.done, way.now = done, None
        way.g, way.h = rows.gradients(way.margin, model)
    _descend(rows, way, now, level)
    way.now, way.level = now, level
    rows.ways[model] = way
    return way


def _known(way: Way, done: Forest, bins: Bins) -> bool:
    """Whether the trees are those of the way, or one more."""
    if way.done is done:
        return True
    first = done.first(len(way.done), bins)
    return len(done) - len(way.done) in (0, 1) and np.array_equal(
        pack([way.done], bins), pack([first], bins)
    )


def _descend(rows: CodedRows, way: Way, tree: Forest, level: int) -> None:
    """Bring the rows to a level of a tree: from where they stand, if that is in this tree."""
    if way.now is None or way.level > level or not _grows_from(way.now, tree, way.level):
        way.level, way.place = 0, rows.places()
    way.place = rows.descend(way.place, tree, way.level, level)


def level_sums(
    rows: CodedRows, forests: Sequence[tuple[Forest, Forest]], level: int, count: np.ndarray
) -> dict[str, np.ndarray]:
    """The histograms of the nodes to count, and the loss out of fold where a tree begins; zeros elsewhere.

    forests: of every model the finished trees, and the one that grows, to ``level``.  count: (P, 2), models and
    nodes. Returns hist: (P, B, 3) and loss: (H,).
    """
    heads = len(rows.target)
    hist, loss = np.zeros((len(count), int(rows.bins.starts[-1]), 3)), np.zeros(heads)
    for model in np.unique(count[:, 0]).tolist():
        done, now = forests[model]
        way = _way(rows, model, done, now, level)
        of_model = np.flatnonzero(count[:, 0] == model)
        slots = np.full(256, -1, np.int16)
        slots[count[of_model, 1]] = np.arange(len(of_model))
        hist[of_model] = rows.histogram(way, slots)
        if level == 0 and model < rows.folds * heads:
            loss[model % heads] += rows.loss(way.margin, model)
    return {"hist": hist, "loss": loss}
