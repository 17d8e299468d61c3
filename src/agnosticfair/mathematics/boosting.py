"""Gradient boosting from histograms that are sums over rows: which splits, and what their leaves add.

Gradients and Hessians of the logistic loss are multiples of a power of two, so that a histogram is the same to the
last bit in whatever order and in however many pieces its rows are added up: the trees of pooled rows are those of any
split of them. A sibling's histogram is its parent's less the other child's, exactly.

Ties are broken by the lowest column, then the lowest code, with missing values to the left first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agnosticfair.compiled import compiled
from agnosticfair.mathematics.linear import log_loss, sigmoid
from agnosticfair.mathematics.trees import LEAF, MAX_CODES, Bins

GRADIENT_BITS = 20
"""Gradients are multiples of 2^-20 where the number of rows allows it."""

G, H, N = range(3)
"""What a histogram holds of a code's rows: the sum of gradients, of Hessians, and how many there are."""

_TINY, _MINIMUM = 1e-12, 1e-9
"""Added to Hessians; and the share of a node's score that a split must add."""

_ROWS = 1 << 15
"""Rows that are counted at a time: what is gathered of them stays in a core's cache."""

_CODES = 1 << 16
"""Sums that are added to together: they stay in a core's cache."""

_COUNT_BITS = 22
"""Bits of a count that is added up together with Hessians."""

_AT_ONCE = 16
"""Nodes that are looked at together: their sums stay in a core's cache."""


@dataclass(frozen=True)
class Boosting:
    """How trees are grown.

    Parameters
    ----------
    trees : int
        At most so many.
    depth : int
    rate : float
        Shrinkage of every tree.
    l2 : float
        Added to a leaf's Hessian.
    min_rows : int
        Rows of a leaf; a category with fewer in a node is split off together with the other rare ones.
    min_bin : int
        Rows of a bin, or of a category with a code of its own.
    min_hessian : float
        Of a leaf.
    smooth : float
        Added to the Hessian by which categories are ordered for a split.
    patience : int
        Trees without a lower loss out of fold after which no more are grown.
    monotone : tuple of int
        Of every column: 1 where the first head's margin may not fall with it, -1 where it may not rise; empty for none.
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


def gradient_bits(n: int, columns: int) -> int:
    """Bits after the point of gradients, so that n rows of up to eight, in so many columns, are added up exactly.

    >>> gradient_bits(10**6, 20), gradient_bits(10**9, 300)
    (20, 11)
    """
    return min(GRADIENT_BITS, 50 - int(n).bit_length() - int(columns).bit_length())


def gradients(
    margin: np.ndarray, target: np.ndarray, bits: int, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and Hessian of each row's logistic loss in its margin, multiples of 2^-bits, which float32 holds.

    >>> gradients(np.zeros(1), np.ones(1), 20)
    (array([-0.5], dtype=float32), array([0.25], dtype=float32))
    """
    p, unit = sigmoid(margin), 2.0**bits
    g, h = np.rint((p - target) * unit) / unit, np.rint(p * (1.0 - p) * unit) / unit
    if weights is not None:  # rounded before, too: a row that weighs 2 counts as the row twice
        g, h = np.rint(g * weights * unit) / unit, np.rint(h * weights * unit) / unit
    return g.astype(np.float32), h.astype(np.float32)


def losses(
    margin: np.ndarray, target: np.ndarray, bits: int, weights: np.ndarray | None = None
) -> np.ndarray:
    """Each row's logistic loss, a multiple of 2^-bits."""
    loss, unit = log_loss(margin, target), 2.0**bits
    return np.rint((loss if weights is None else loss * weights) * unit) / unit


def histogram(
    codes: np.ndarray, slot: np.ndarray, g: np.ndarray, h: np.ndarray, slots: int, bins: Bins
) -> np.ndarray:
    """Sums by slot, column and code, (slots, B, 3).

    Parameters
    ----------
    codes : (n, C) uint8
    slot : (n,) int16
        Where a row is counted; -1 for nowhere.
    g, h : (n,) arrays
    slots : int
    bins : Bins

    Examples
    --------
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


@dataclass(frozen=True)
class Splits:
    """The best split of each of Q nodes.

    Parameters
    ----------
    column : (Q,) int
        LEAF where no split is any good.
    threshold, missing_right : (Q,) uint8
    sets : (Q, 256) uint8
        1 where a code goes left; of categorical columns.
    gain : (Q,) array
        What the split takes off the loss, times two; 0 for none.
    left : (Q, 3) array
        G, H and N of the rows that go left.
    """

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
    """The fields of ``Splits``, for some nodes."""
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
        scan(
            hist,
            bins.starts,
            bins.numeric,
            cuts,
            *limits,
            best,
            at,
            right,
            sums := np.zeros((Q, 3)),
        )
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
            G_q, H_q, N_q = (
                G_q + node_histogram[b, 0],
                H_q + node_histogram[b, 1],
                N_q + node_histogram[b, 2],
            )
        for skip in range(2):  # missing numbers to the left, then to the right
            for c in range(numeric if skip else len(starts) - 1):
                if skip and node_histogram[starts[c], 2] == 0:
                    continue
                g, h, n = 0.0, 0.0, 0.0
                for b in range(starts[c] + skip, starts[c + 1]):
                    g, h, n = (
                        g + node_histogram[b, 0],
                        h + node_histogram[b, 1],
                        n + node_histogram[b, 2],
                    )
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
    """The score of the nodes as they are."""
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
