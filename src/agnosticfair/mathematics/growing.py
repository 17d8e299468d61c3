"""How forests of several models grow together, a level at a time, from requests and histograms.

The server's side is ``Growth``: which nodes to count next, and what the counts make of the trees. The rows' side is
``boosting.CodedRows``: where each row stands in the tree that is growing, rebuilt from a request at any time.

Model m = fold * heads + head trains on the rows of other folds; the last heads models on all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, log

import numpy as np

from agnosticfair.mathematics.boosting import Boosting, G, H, N
from agnosticfair.mathematics.trees import (
    LEAF,
    MAX_CODES,
    Bins,
    Forest,
    empty,
    is_categorical,
    joined,
)
from agnosticfair.threads import compiled

_TINY = 1e-12  # added to Hessians
_MINIMUM = 1e-9  # the share of a node's score that a split must add

_AT_ONCE = 16
"""Nodes that are looked at together: their sums stay in a core's cache."""


@dataclass(frozen=True)
class Splits:
    """The best split of each of Q nodes.  column: LEAF where no split is any good.  sets: (Q, 256), 1 where a code of a
    categorical column goes left.  gain: what the split takes off the loss, times two.  left: (Q, 3), G, H and N of the
    rows that go left."""

    column: np.ndarray
    threshold: np.ndarray
    missing_right: np.ndarray
    sets: np.ndarray
    gain: np.ndarray
    left: np.ndarray


def totals(hist: np.ndarray, bins: Bins) -> np.ndarray:
    """G, H and N of all rows of each node, (Q, 3): those of the first column's codes together."""
    return hist[:, : bins.sizes[0]].sum(axis=1)


def leaf_values(
    sums: np.ndarray, settings: Boosting, bounds: np.ndarray | None = None
) -> np.ndarray:
    """-G / (H + l2) within bounds, before shrinkage.  sums: (..., 3).  bounds: (..., 2).

    >>> leaf_values(np.array([3.0, 2.0, 9.0]), Boosting(l2=1.0)).round(6)
    np.float64(-1.0)
    """
    value = -sums[..., G] / (sums[..., H] + settings.l2 + _TINY)
    return value if bounds is None else np.clip(value, bounds[..., 0], bounds[..., 1])


@dataclass(frozen=True)
class Monotone:
    """What monotone columns ask of Q nodes.  bounds: (Q, 2), of their values.  signs: (Q, C), of the columns."""

    bounds: np.ndarray
    signs: np.ndarray

    def __getitem__(self, nodes: slice) -> Monotone:
        return Monotone(self.bounds[nodes], self.signs[nodes])


def best_splits(
    hist: np.ndarray, bins: Bins, settings: Boosting, monotone: Monotone | None = None
) -> Splits:
    """The best split of each node.  hist: (Q, B, 3).

    A node's sums over all codes are the same for every column.
    """
    nodes = (slice(a, a + _AT_ONCE) for a in range(0, len(hist), _AT_ONCE))
    pieces = [
        _best(hist[q], bins, settings, None if monotone is None else monotone[q]) for q in nodes
    ]
    return Splits(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def _best(
    hist: np.ndarray, bins: Bins, settings: Boosting, monotone: Monotone | None
) -> tuple[np.ndarray, ...]:
    whole = totals(hist, bins).T
    missing = hist[:, bins.starts[: bins.numeric]].transpose(2, 0, 1)  # (3, Q, numeric): code 0
    cut = bins.ordered
    order = cuts = np.ones((len(hist), 0), bool)
    if cut < hist.shape[1]:
        order, cuts = _ordered_categories(hist, bins, settings)
        hist = hist.copy()
        hist[:, cut:] = np.take_along_axis(hist[:, cut:], order[..., None], axis=1)
    scan = None if monotone else compiled(scan_cuts)
    if scan is None:
        best, at, right, sums = _best_cuts(hist, whole, missing, cuts, bins, settings, monotone)
    else:
        Q = len(hist)
        best, at, right = np.full(Q, -np.inf), np.zeros(Q, np.int64), np.zeros(Q, bool)
        limits = settings.l2 + _TINY, settings.min_rows, settings.min_hessian
        sums = np.zeros((Q, 3))
        scan(hist, bins.starts, bins.numeric, cuts, *limits, best, at, right, sums)
    parent = _parent(whole, settings, monotone)
    none = ~(best > parent + _MINIMUM * np.abs(parent))
    column = np.where(none, LEAF, bins.column[at])
    threshold = (at - bins.starts[bins.column[at]]).astype(np.uint8)
    absent = (at < bins.ordered) & ~none
    absent[absent] = missing[N, absent, column[absent]] == 0
    right = np.where(absent, 2 * sums[:, N] < whole[N], right & ~none).astype(np.uint8)
    gain = np.where(none, 0.0, best - parent)
    return column, threshold, right, _sets(order, at, none, bins), gain, sums


def scan_cuts(
    hist: np.ndarray,
    starts: np.ndarray,
    numeric: int,
    cuts: np.ndarray,
    l2: float,
    min_rows: float,
    min_hessian: float,
    best: np.ndarray,
    at: np.ndarray,
    right: np.ndarray,
    sums: np.ndarray,
) -> None:
    """``_best_cuts`` without monotone columns, as a loop; the last four are written to."""
    for q in range(len(hist)):
        node_histogram = hist[q]
        G_q, H_q, N_q = 0.0, 0.0, 0.0
        for b in range(starts[1]):
            G_q += node_histogram[b, 0]
            H_q += node_histogram[b, 1]
            N_q += node_histogram[b, 2]
        for skip in range(2):  # missing numbers to the left, then to the right
            for c in range(numeric if skip else len(starts) - 1):
                if skip and node_histogram[starts[c], 2] == 0:
                    continue
                g, h, n = 0.0, 0.0, 0.0
                for b in range(starts[c] + skip, starts[c + 1]):
                    g += node_histogram[b, 0]
                    h += node_histogram[b, 1]
                    n += node_histogram[b, 2]
                    if min(n, N_q - n) < min_rows or min(h, H_q - h) < min_hessian:
                        continue
                    if c >= numeric and not cuts[q, b - starts[numeric]]:
                        continue
                    gain = g * g / (h + l2) + (G_q - g) * (G_q - g) / (H_q - h + l2)
                    if gain > best[q]:
                        best[q], at[q], right[q] = gain, b, skip == 1
                        sums[q, 0], sums[q, 1], sums[q, 2] = g, h, n


def _best_cuts(
    hist: np.ndarray,
    whole: np.ndarray,
    missing: np.ndarray,
    cuts: np.ndarray,
    bins: Bins,
    settings: Boosting,
    monotone: Monotone | None,
) -> tuple[np.ndarray, ...]:
    """Of each node the best cut's gain, its place, whether missing numbers go right, and the sums of what goes left."""
    left = np.ascontiguousarray(hist.transpose(2, 0, 1))
    # a column's codes come to the whole, which is taken off where the next one begins: exactly
    left[:, :, bins.starts[1:-1]] -= whole[..., None]
    np.cumsum(left, axis=2, out=left)
    gain = _gains(left, whole, bins, settings, monotone)
    gain[:, bins.ordered :][~cuts] = -np.inf
    every = np.arange(len(hist))
    at = gain.argmax(axis=1)
    best, sums, right = gain[every, at], left[:, every, at].T, np.zeros(len(hist), bool)
    if missing[N].any():
        numbers = Bins(bins.sizes[: bins.numeric], bins.numeric)
        other = left[:, :, : bins.ordered] - missing[:, :, numbers.column]
        gain = _gains(other, whole, numbers, settings, monotone)
        there = gain.argmax(axis=1)
        right = gain[every, there] > best
        at, best = np.where(right, there, at), np.where(right, gain[every, there], best)
        sums[right] = other[:, every[right], there[right]].T
    return best, at, right, sums


def _parent(whole: np.ndarray, settings: Boosting, monotone: Monotone | None) -> np.ndarray:
    if monotone is None:
        return _score(whole[G], whole[H], settings)
    value = leaf_values(whole.T, settings, monotone.bounds)
    return _bounded_score(whole[G], whole[H], value, settings)


def _score(g: np.ndarray, h: np.ndarray, settings: Boosting) -> np.ndarray:
    return g * g / (h + (settings.l2 + _TINY))


def _bounded_score(
    g: np.ndarray, h: np.ndarray, value: np.ndarray, settings: Boosting
) -> np.ndarray:
    """What a leaf of this value takes off the loss, times two: its score where the value is the best one."""
    return -2 * g * value - (h + settings.l2 + _TINY) * value**2


def _gains(
    left: np.ndarray,
    whole: np.ndarray,
    bins: Bins,
    settings: Boosting,
    monotone: Monotone | None,
) -> np.ndarray:
    """The two children's scores for every cut, (Q, B); -inf where a child is too small.  left: (3, Q, B)."""
    total = whole[..., None]
    fewest = np.minimum(left[N], total[N] - left[N]) >= settings.min_rows
    right_g, right_h = total[G] - left[G], total[H] - left[H]
    fewest &= np.minimum(left[H], right_h) >= settings.min_hessian
    if monotone is None:
        with np.errstate(divide="ignore", invalid="ignore"):  # of children that are too small
            gain = _score(left[G], left[H], settings)
            gain += _score(right_g, right_h, settings)
    else:
        low, high = monotone.bounds.T[..., None]
        a = np.clip(-left[G] / (left[H] + settings.l2 + _TINY), low, high)
        b = np.clip(-right_g / (right_h + settings.l2 + _TINY), low, high)
        fewest &= (b - a) * monotone.signs[:, bins.column] >= 0
        gain = _bounded_score(left[G], left[H], a, settings)
        gain += _bounded_score(right_g, right_h, b, settings)
    gain[~fewest] = -np.inf
    return gain


def _ordered_categories(
    hist: np.ndarray, bins: Bins, settings: Boosting
) -> tuple[np.ndarray, np.ndarray]:
    """The order of each column's categories by G / (H + smooth), (Q, B_c), as places among them; and after which ones,
    in this order, a split may come. Those that are rare in the node are taken as one."""
    block = hist[:, bins.ordered :]
    rare = block[..., N] < settings.min_rows
    begin = bins.starts[bins.numeric : -1] - bins.ordered
    column = bins.column[bins.ordered :]
    together = np.add.reduceat(np.where(rare[..., None], block, 0.0), begin, axis=1)
    merged = np.where(rare[..., None], together[:, column - bins.numeric], block)
    ratio = merged[..., G] / (merged[..., H] + settings.smooth + _TINY)
    order = np.lexsort((~rare, ratio, np.broadcast_to(column, ratio.shape)))  # lower codes first
    inside = np.take_along_axis(rare, order, axis=1)
    both = inside[:, :-1] & inside[:, 1:] & (column[:-1] == column[1:])
    return order, ~np.pad(both, ((0, 0), (0, 1)))


def _sets(order: np.ndarray, at: np.ndarray, none: np.ndarray, bins: Bins) -> np.ndarray:
    """Which codes go left, (Q, 256), of the nodes that split by categories."""
    sets = np.zeros((len(at), MAX_CODES), np.uint8)
    for q in np.flatnonzero((at >= bins.ordered) & ~none):
        start = bins.starts[bins.column[at[q]]]
        chosen = order[q, start - bins.ordered : at[q] + 1 - bins.ordered] + bins.ordered - start
        sets[q, chosen] = 1
    return sets


@dataclass(frozen=True)
class Growth:
    """Forests of M = heads * (folds + 1) models while they grow.

    ``done`` are each model's finished trees, ``now`` the one that is growing, to ``level``; -1 before the starts are
    known. sets: (M, 2^D - 1, 32), the codes that go left, of its categorical nodes.  count: (P, 2), model and node,
    within the level, of what is counted next.  parents: (P, B, 3), their parents' histograms.  bounds: (P, 2, 2), of
    the values of each pair of children, the counted one's sibling included.  loss: of every head after 0, 1, ...
    trees, summed out of fold.  gain: (M, C), what the splits by each column took off the loss.
    """

    bins: Bins
    settings: Boosting
    heads: int
    folds: int
    done: tuple[Forest, ...]
    now: tuple[Forest, ...]
    sets: np.ndarray
    level: int
    count: np.ndarray
    parents: np.ndarray
    bounds: np.ndarray
    loss: tuple[tuple[float, ...], ...]
    gain: np.ndarray

    @property
    def models(self) -> int:
        return self.heads * (self.folds + 1)

    @property
    def finished(self) -> bool:
        """Whether no head grows any more, and all trees are measured."""
        heads = range(self.heads)
        return self.level >= 0 and not any(growing(self, h) or _unmeasured(self, h) for h in heads)


def begin(bins: Bins, settings: Boosting, heads: int, folds: int) -> Growth:
    """Before anything is counted: the first request tells the starts."""
    M, nodes = heads * (folds + 1), 2**settings.depth - 1
    forests = tuple(empty(settings.depth) for _ in range(M))
    roots = np.stack([np.arange(M), np.zeros(M, int)], axis=1)
    return Growth(
        bins=bins,
        settings=settings,
        heads=heads,
        folds=folds,
        done=forests,
        now=_fresh(settings, M),
        sets=np.zeros((M, nodes, 32), np.uint8),
        level=-1,
        count=roots,
        parents=_no_parents(bins),
        bounds=np.zeros((0, 2, 2)),
        loss=((),) * heads,
        gain=np.zeros((M, len(bins.sizes))),
    )


def _fresh(settings: Boosting, models: int) -> tuple[Forest, ...]:
    return tuple(empty(settings.depth, trees=1) for _ in range(models))


def _no_parents(bins: Bins) -> np.ndarray:
    return np.zeros((0, int(bins.starts[-1]), 3))


def best_count(loss: tuple[float, ...]) -> int:
    """After how many trees the loss is lowest; the fewest of equals.

    >>> best_count((3.0, 2.0, 2.0, 2.5))
    1
    """
    return int(np.argmin(loss)) if loss else 0


def growing(growth: Growth, head: int) -> bool:
    """Whether a head's forests get another tree: while the loss out of fold falls, or there are no folds."""
    trees, settings = len(growth.done[head]), growth.settings
    if trees >= settings.trees:
        return False
    loss = growth.loss[head]
    return not growth.folds or len(loss) - 1 - best_count(loss) < settings.patience


def advance(growth: Growth, hist: np.ndarray, loss: np.ndarray) -> Growth:
    """After the counts of a request.  hist: (P, B, 3), of ``count``.  loss: (heads,), read where a tree begins."""
    if growth.level < 0:
        return _next_tree(_started(growth, totals(hist, growth.bins)))
    if growth.level == 0:
        heads = growth.count[:, 0] % growth.heads
        measured = (
            (*before, float(loss[h])) if h in heads else before
            for h, before in enumerate(growth.loss)
        )
        growth = replace(growth, loss=tuple(measured))
        keep = np.array([growing(growth, h) for h in heads])
        growth = replace(growth, count=growth.count[keep])
        if not len(growth.count):
            return growth
        hist, nodes = hist[keep], growth.count
        bounds = np.tile([-inf, inf], (len(nodes), 1))
    else:
        hist, nodes, bounds = _with_siblings(growth, hist)
    return _split(growth, nodes, hist, bounds)


def _started(growth: Growth, sums: np.ndarray) -> Growth:
    """The starts: the log odds of each model's targets, half a row of either label added."""
    starts = []
    for g, h, _ in sums:  # at margin 0 a row's gradient is 1/2 - t, and its Hessian 1/4
        share = (2 * h - g + 0.5) / (4 * h + 1)
        starts.append(float(np.float32(log(share / (1 - share)))))
    done = tuple(replace(f, start=s) for f, s in zip(growth.done, starts, strict=True))
    return replace(growth, done=done, level=0)


def _next_tree(growth: Growth) -> Growth:
    """The request for the roots of the next tree: of the heads that grow."""
    M = growth.models
    models = [m for m in range(M) if growing(growth, m % growth.heads) or _unmeasured(growth, m)]
    roots = np.stack([np.array(models, int), np.zeros(len(models), int)], axis=1)
    return replace(
        growth, now=_fresh(growth.settings, M), sets=np.zeros_like(growth.sets), level=0,
        count=roots, parents=_no_parents(growth.bins), bounds=np.zeros((0, 2, 2)),
    )  # fmt: skip


def _unmeasured(growth: Growth, model: int) -> bool:
    """Whether the loss after a head's last tree is not known yet."""
    head = model % growth.heads
    return bool(growth.folds) and len(growth.loss[head]) == len(growth.done[head])


def _with_siblings(growth: Growth, hist: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Histograms, nodes and bounds of the counted nodes and, by subtraction, of their siblings, in order."""
    model, node = growth.count.T
    both = np.empty((len(hist), 2, *hist.shape[1:]))
    side, every = node % 2, np.arange(len(hist))
    both[every, side] = hist
    both[every, 1 - side] = growth.parents - hist
    nodes = np.stack(
        [np.repeat(model, 2), (np.repeat(node & ~1, 2) + np.tile([0, 1], len(node)))], axis=1
    )
    return both.reshape(-1, *hist.shape[1:]), nodes, growth.bounds.reshape(-1, 2)


def _split(growth: Growth, nodes: np.ndarray, hist: np.ndarray, bounds: np.ndarray) -> Growth:
    """Split the nodes of a level, and say what to count next."""
    settings, bins, level = growth.settings, growth.bins, growth.level
    signs = _signs(growth, nodes[:, 0])
    monotone = None if signs is None else Monotone(bounds, signs)
    splits = best_splits(hist, bins, settings, monotone)
    whole = totals(hist, bins)
    if level == 0:
        _set_leaves(growth, nodes, whole, bounds, 0)
    good = np.flatnonzero(splits.column != LEAF)
    (model, node), first = nodes[good].T, 2**level - 1
    for m, k, q in zip(model, node, good, strict=True):
        tree = growth.now[m]
        tree.column[0, first + k] = splits.column[q]
        tree.threshold[0, first + k] = splits.threshold[q]
        tree.missing_right[0, first + k] = splits.missing_right[q]
        growth.sets[m, first + k] = np.packbits(splits.sets[q], bitorder="little")
    gain = growth.gain.copy()
    np.add.at(gain, (model, splits.column[good].astype(int)), splits.gain[good])
    sums = np.stack([splits.left[good], whole[good] - splits.left[good]], axis=1)
    inner = np.repeat(bounds[good][:, None], 2, axis=1)
    if signs is not None and len(good):
        inner = _child_bounds(sums, signs[good, splits.column[good]], inner, settings)
    children = np.stack([np.repeat(model, 2), (2 * node[:, None] + [0, 1]).ravel()], axis=1)
    _set_leaves(growth, children, sums.reshape(-1, 3), inner.reshape(-1, 2), level + 1)
    deeper = (sums[:, :, N] >= 2 * settings.min_rows).any(axis=1) & (level + 1 < settings.depth)
    small = (sums[:, 0, N] > sums[:, 1, N]).astype(int)
    count = np.stack([model, 2 * node + small], axis=1)[deeper]
    growth = replace(
        growth, level=level + 1, count=count, parents=hist[good[deeper]], bounds=inner[deeper], gain=gain,
    )  # fmt: skip
    return growth if len(count) else _next_tree(_finish(growth))


def _signs(growth: Growth, models: np.ndarray) -> np.ndarray | None:
    """The signs of all columns for each of these models, (k, C): zeros for all heads but the first; None for none."""
    if not growth.settings.monotone:
        return None
    return np.outer(models % growth.heads == 0, growth.settings.monotone)


def _child_bounds(
    sums: np.ndarray, sign: np.ndarray, inner: np.ndarray, settings: Boosting
) -> np.ndarray:
    """The bounds of both children, (k, 2, 2): on a monotone column they do not cross the middle of their values."""
    middle = leaf_values(sums, settings, inner).mean(axis=1)
    up, down = sign > 0, sign < 0
    inner[up, 0, 1] = inner[up, 1, 0] = middle[up]
    inner[down, 0, 0] = inner[down, 1, 1] = middle[down]
    return inner


def _set_leaves(
    growth: Growth, nodes: np.ndarray, sums: np.ndarray, bounds: np.ndarray, level: int
) -> None:
    """Write the nodes' values where rows end that go left from there on."""
    settings = growth.settings
    value = settings.rate * leaf_values(sums, settings, bounds)
    for (m, k), v in zip(nodes, value, strict=True):
        growth.now[m].value[0, k << (settings.depth - level)] = v


def current(growth: Growth) -> tuple[Forest, ...]:
    """The tree that is growing of every model, with the sets of its categorical nodes."""
    inside = (is_categorical(tree.column[0], growth.bins) for tree in growth.now)
    return tuple(
        replace(tree, sets=category_set[where])
        for tree, category_set, where in zip(growth.now, growth.sets, inside, strict=True)
    )


def _finish(growth: Growth) -> Growth:
    """The tree that is grown, added to the forests of the heads that it was grown for."""
    grown = current(growth)
    done = tuple(
        joined(forest, tree) if growing(growth, m % growth.heads) else forest
        for m, (forest, tree) in enumerate(zip(growth.done, grown, strict=True))
    )
    return replace(growth, done=done)


def result(growth: Growth) -> tuple[Forest, ...]:
    """The forests of all models: with folds, as many trees as were best out of fold."""
    if not growth.folds:
        return growth.done
    counts = [best_count(loss) for loss in growth.loss]
    return tuple(
        forest.first(counts[m % growth.heads], growth.bins) for m, forest in enumerate(growth.done)
    )
