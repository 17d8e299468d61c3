"""Forests of complete binary trees over codes of one byte: what they are, how they are packed, what they predict.

A column's code 0 is for missing values (a column of numbers) or for every other value (a column of categories); 1, 2,
... are its bins or its categories. A node sends codes up to its threshold to the left, or the codes of its set; a code
0 of numbers goes the way that the node says. Nodes are in heap order: the children of k are 2k + 1 and 2k + 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

MAX_CODES = 256
"""Codes of a column, the one of missing values among them: they fit in a byte."""

MAX_DEPTH = 7
"""A row's place in a tree of this depth fits in a byte, beside one that says nowhere."""

LEAF = 0xFFFF
"""The column of a node that splits nothing."""

CHUNK = 1 << 15
"""Rows that are sent through the trees at a time: their codes stay in a core's cache."""


@dataclass(frozen=True)
class Bins:
    """How many codes each column has, code 0 included; the first ``numeric`` columns are ordered.

    >>> Bins((4, 3), 1).starts
    array([0, 4, 7])
    """

    sizes: tuple[int, ...]
    numeric: int

    def __post_init__(self) -> None:
        if not self.sizes or max(self.sizes) > MAX_CODES or min(self.sizes) < 1:
            raise ValueError(f"columns have 1 to {MAX_CODES} codes each, not {self.sizes}")

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each column's codes begin among those of all columns, and where the last ones end, (C + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @property
    def ordered(self) -> int:
        return int(self.starts[self.numeric])

    @property
    def set_bytes(self) -> int:
        """Bytes that hold a bit for each code of a column of categories."""
        return -(-max(self.sizes[self.numeric :], default=0) // 8)

    @cached_property
    def column(self) -> np.ndarray:
        """The column of every code, (B,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


@dataclass(frozen=True)
class Forest:
    """T trees of one depth D.

    column: (T, 2^D - 1), what a node looks at; LEAF where it splits nothing, and rows go left.  threshold: the last
    code that goes left.  missing_right: 1 where code 0 goes right.  sets: (K, 32), of the nodes of categorical
    columns, in their order: bit c is 1 where code c goes left.  value: (T, 2^D), what the leaves add.  start: the
    margin before the first tree.
    """

    column: np.ndarray
    threshold: np.ndarray
    missing_right: np.ndarray
    sets: np.ndarray
    value: np.ndarray
    start: float = 0.0

    @property
    def depth(self) -> int:
        return int(self.value.shape[1]).bit_length() - 1

    def __len__(self) -> int:
        return len(self.value)

    def first(self, trees: int, bins: Bins) -> Forest:
        head = self.column[:trees]
        sets = self.sets[: int(is_categorical(head, bins).sum())]
        flags = self.threshold[:trees], self.missing_right[:trees]
        return Forest(head, *flags, sets, self.value[:trees], self.start)

    def only(self, tree: int, bins: Bins) -> Forest:
        to = self.first(tree + 1, bins)
        begin = int(is_categorical(self.column[:tree], bins).sum())
        flags = to.threshold[tree:], to.missing_right[tree:]
        return Forest(to.column[tree:], *flags, to.sets[begin:], to.value[tree:], self.start)


def empty(depth: int, start: float = 0.0, trees: int = 0) -> Forest:
    """A forest of that many trees that add nothing.

    >>> len(empty(3)), empty(3).depth
    (0, 3)
    """
    nodes = (trees, 2**depth - 1)
    flat = np.zeros(nodes, np.uint8)
    sets = np.zeros((0, MAX_CODES // 8), np.uint8)
    leaves = np.zeros((trees, 2**depth), np.float32)
    return Forest(np.full(nodes, LEAF, np.uint16), flat, flat.copy(), sets, leaves, start)


def joined(one: Forest, other: Forest) -> Forest:
    """The trees of both, in order; the start is the first one's."""
    column, threshold, missing_right, sets, value = (
        np.concatenate([getattr(one, k), getattr(other, k)])
        for k in ("column", "threshold", "missing_right", "sets", "value")
    )
    return Forest(column, threshold, missing_right, sets, value, one.start)


def is_categorical(column: np.ndarray, bins: Bins) -> np.ndarray:
    return (column != LEAF) & (column >= bins.numeric)


def pack(forests: Sequence[Forest], bins: Bins) -> np.ndarray:
    """The forests as bytes, (b,) uint8.

    >>> bins = Bins((3,), 1)
    >>> [forest.start for forest in unpack(pack([empty(2, 0.5, trees=1), empty(2)], bins), bins)]
    [0.5, 0.0]
    """
    return np.concatenate([_packed(forest, bins.set_bytes) for forest in forests])


def _packed(forest: Forest, set_bytes: int) -> np.ndarray:
    head = np.array([len(forest), forest.depth, len(forest.sets)], "<u4").tobytes()
    head += np.array([forest.start], "<f8").tobytes()
    kinds = ("<u2", "u1", "u1", "<f4", "u1")
    sets = forest.sets[:, :set_bytes]
    arrays = forest.column, forest.threshold, forest.missing_right, forest.value, sets
    body = (np.ascontiguousarray(a, k).tobytes() for a, k in zip(arrays, kinds, strict=True))
    return np.frombuffer(head + b"".join(body), np.uint8)


def unpack(content: np.ndarray, bins: Bins) -> list[Forest]:
    """The inverse of ``pack``; ValueError where the bytes are no forests over these bins."""
    if content.dtype != np.uint8 or content.ndim != 1:
        raise ValueError("packed forests are a row of bytes")
    return [*_unpacked(content.tobytes(), bins)]


@lru_cache(maxsize=2)
def _unpacked(data: bytes, bins: Bins) -> tuple[Forest, ...]:
    """Of the last two contents: most requests name the same finished trees as the one before."""
    at, forests = 0, []
    while at < len(data):
        if len(data) - at < 20:
            raise ValueError("packed forests end too early")
        trees, depth, sets = np.frombuffer(data, "<u4", 3, at).tolist()
        if not 1 <= depth <= MAX_DEPTH:
            raise ValueError(f"trees of depth {depth} are not of 1 to {MAX_DEPTH}")
        start = float(np.frombuffer(data, "<f8", 1, at + 12)[0])
        shapes = [(trees, 2**depth - 1)] * 3 + [(trees, 2**depth), (sets, bins.set_bytes)]
        arrays, at = [], at + 20
        for kind, shape in zip(("<u2", "u1", "u1", "<f4", "u1"), shapes, strict=True):
            size = shape[0] * shape[1]
            if at + size * np.dtype(kind).itemsize > len(data):
                raise ValueError("packed forests end before their trees do")
            arrays.append(np.frombuffer(data, kind, size, at).reshape(shape))
            at += arrays[-1].nbytes
        column, threshold, missing_right, value, left = arrays
        all_sets = np.zeros((sets, MAX_CODES // 8), np.uint8)
        all_sets[:, : bins.set_bytes] = left
        forest = Forest(column, threshold, missing_right, all_sets, value, start)
        _check(forest, bins)
        forests.append(forest)
    return tuple(forests)


def _check(forest: Forest, bins: Bins) -> None:
    column = forest.column
    if ((column != LEAF) & (column >= len(bins.sizes))).any():
        raise ValueError("a forest looks at a column that is not there")
    if int(is_categorical(column, bins).sum()) != len(forest.sets):
        raise ValueError("a forest has not a set for each split by categories")
    if not (np.isfinite(forest.value).all() and np.isfinite(forest.start)):
        raise ValueError("a forest's values are not finite")


def number_codes(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Codes of numbers, (n,) uint8: 0 where NaN, k + 1 where k edges are at or below; infinities lie in the outer bins.

    >>> number_codes(np.array([np.nan, -np.inf, 1.0, 5.0, np.inf]), np.array([1.0, 6.0]))
    array([0, 1, 2, 2, 3], dtype=uint8)
    """
    codes = np.searchsorted(edges, values, "right").astype(np.uint8) + np.uint8(1)
    codes[np.isnan(values)] = 0
    return codes


def goes_right(
    forest: Forest, bins: Bins, columns: np.ndarray, tree: int, node: int, rank: int
) -> np.ndarray:
    """Which rows a node that splits sends right, (n,) uint8 of 0 and 1.

    columns: (C, n) codes.  rank: of the node among those that have a set.
    """
    c = int(forest.column[tree, node])
    codes = columns[c]
    if c >= bins.numeric:
        left = np.unpackbits(forest.sets[rank], bitorder="little")
        return (1 - left)[codes]
    threshold = forest.threshold[tree, node]
    if forest.missing_right[tree, node]:  # 0 - 1 is 255 here: to the right of every threshold
        return (
            (codes - np.uint8(1) > threshold - np.uint8(1)).view(np.uint8)
            if threshold
            else np.ones_like(codes)
        )
    return (codes > threshold).view(np.uint8)


def ranks(forest: Forest, bins: Bins) -> np.ndarray:
    """The rank of every node among those that have a set, (T, 2^D - 1)."""
    inside = is_categorical(forest.column, bins)
    return (np.cumsum(inside.ravel()) - inside.ravel()).reshape(inside.shape)


def leaves(
    forest: Forest, bins: Bins, columns: np.ndarray, tree: int, rank: np.ndarray
) -> np.ndarray:
    """The leaf of every row in one tree, (n,) uint8.

    All nodes are compared for all rows, many rows to an instruction: cheaper than a row's way from node to node.
    """
    first = 2**forest.depth - 1

    def below(node: int) -> np.ndarray | np.uint8:
        if node >= first:
            return np.uint8(node - first)
        left = below(2 * node + 1)
        if forest.column[tree, node] == LEAF:
            return left
        right = below(2 * node + 2)
        moved = goes_right(forest, bins, columns, tree, node, int(rank[tree, node]))
        np.multiply(moved, right - left, out=moved)  # modulo 256
        moved += left
        return moved

    reached = below(0)
    return reached if isinstance(reached, np.ndarray) else np.full(columns.shape[1], reached)


def margins(forest: Forest, bins: Bins, columns: np.ndarray) -> np.ndarray:
    """The log odds of every row, (n,): the start and its leaves' values, added in the order of the trees.

    columns: (C, n) uint8.

    >>> bool(margins(empty(2, 0.5), Bins((3,), 1), np.zeros((1, 1), np.uint8))[0] == 0.5)
    True
    """
    total = np.full(columns.shape[1], forest.start)
    rank, values = ranks(forest, bins), forest.value.astype(float)
    for a in range(0, len(total), CHUNK):
        piece, totals = columns[:, a : a + CHUNK], total[a : a + CHUNK]
        for tree in range(len(forest)):
            totals += values[tree].take(leaves(forest, bins, piece, tree, rank))
    return total
