"""Sums over all pairs of values of many columns in few passes over the rows.

Rows have codes Z of shape (n, C), one value per axis (``subgroups``). Axes are *crossed* into few blocks, so that one
number says the values on several axes, and rows are counted by pairs of blocks: with ten columns six passes tell what
45 pairs of columns would. From there to values it is products of small matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod

import numpy as np

MAX_CROSSED = 64
"""Combinations of a block, unless one axis alone has more: the counts of a pair of blocks stay in a core's cache."""

REMEMBERED = 1 << 25
"""Numbers that a table of rows by pairs of blocks may have to be remembered between rounds."""


@dataclass(frozen=True)
class Block:
    """Some axes crossed.

    Parameters
    ----------
    codes : (n,) array
        The combination of values that every row has.
    hot : (combinations, k) array
        1 where a combination has one of the block's k values.
    axes_slice : slice
        The block's values among those of all blocks.
    """

    codes: np.ndarray
    hot: np.ndarray
    axes_slice: slice


@dataclass(frozen=True)
class Crossed:
    """Rows by blocks.  order: (I,), the place among all axes' values of every block's, one block after the other."""

    blocks: tuple[Block, ...]
    order: np.ndarray

    def take(self, rows: slice) -> Crossed:
        """Some of the rows."""
        blocks = (Block(block.codes[rows], block.hot, block.axes_slice) for block in self.blocks)
        return Crossed(tuple(blocks), self.order)

    @cached_property
    def _both(self) -> dict[tuple[int, int], np.ndarray]:
        return {}

    def both(self, a: int, b: int) -> np.ndarray:
        """Which pair of combinations of two blocks each row has, (n,); remembered where there is room for it."""
        if (a, b) in self._both:
            return self._both[a, b]
        one, two = self.blocks[a], self.blocks[b]
        codes = one.codes * len(two.hot) + two.codes
        if (len(self._both) + 1) * len(codes) <= REMEMBERED:
            self._both[a, b] = codes
        return codes


@dataclass(frozen=True)
class Entries:
    """Some entries of a Gram matrix, all of the same two blocks.

    Parameters
    ----------
    a, b : int
        The blocks, a <= b.
    which : (m,) array
        The entries' numbers.
    i, j : (m,) arrays
        Their values among those of either block.
    """

    a: int
    b: int
    which: np.ndarray
    i: np.ndarray
    j: np.ndarray


def cross(codes: np.ndarray, sizes: Sequence[int], limit: int = MAX_CROSSED) -> Crossed:
    """Axes with so many values each, crossed.  codes: (n, C); -1 is none of an axis' values.

    >>> crossed = cross(np.array([[0, 1], [1, 1]]), (2, 2))
    >>> [(block.codes.tolist(), block.hot.shape) for block in crossed.blocks]
    [([1, 3], (4, 4))]
    """
    starts = np.concatenate([[0], np.cumsum(np.asarray(sizes, int))]).astype(int)
    room = [size + bool((codes[:, a] < 0).any()) for a, size in enumerate(sizes)]
    blocks: list[Block] = []
    order: list[int] = []
    for group in _groups(room, limit):
        shape = [room[a] for a in group]
        columns = [np.where(codes[:, a] < 0, sizes[a], codes[:, a]).astype(np.intp) for a in group]
        each = np.indices(shape).reshape(len(group), -1)
        hot = [v[:, None] == np.arange(sizes[a]) for a, v in zip(group, each, strict=True)]
        flat = np.ravel_multi_index(columns, shape) if len(codes) else np.zeros(0, np.intp)
        at = [place for a in group for place in range(starts[a], starts[a + 1])]
        own_places = slice(len(order), len(order) + len(at))
        blocks.append(Block(flat, np.hstack(hot).astype(float), own_places))
        order += at
    return Crossed(tuple(blocks), np.array(order, int))


def _groups(room: Sequence[int], limit: int) -> list[list[int]]:
    """Axes with so many values put together, the largest first, up to ``limit`` combinations."""
    groups: list[list[int]] = []
    for axis in sorted(range(len(room)), key=lambda a: -room[a]):
        fits = (g for g in groups if room[axis] * prod(room[a] for a in g) <= limit)
        group = next(fits, None)
        if group is None:
            groups.append([axis])
        else:
            group.append(axis)
    return groups


def totals(crossed: Crossed, v: np.ndarray) -> np.ndarray:
    """Sums of v over the rows of every value, Z' v, (I,).

    >>> totals(cross(np.array([[0, 1], [1, 1]]), (2, 2)), np.array([1.0, 2.0]))
    array([1., 2., 0., 3.])
    """
    forest = np.empty(len(crossed.order))
    for block in crossed.blocks:
        forest[crossed.order[block.axes_slice]] = (
            np.bincount(block.codes, v, len(block.hot)) @ block.hot
        )
    return forest


def gram(crossed: Crossed, V: np.ndarray) -> np.ndarray:
    """Sums of each v over the rows of every pair of values, Z' diag(v) Z, (..., I, I).  V: (..., n).

    Exact, and so the same bits for any split of the rows, where v lies on a grid (``linear.on_grid``).

    >>> gram(cross(np.array([[0, 1], [1, 1]]), (2, 2)), np.array([1.0, 2.0]))
    array([[1., 0., 0., 1.],
           [0., 2., 0., 2.],
           [0., 0., 0., 0.],
           [1., 2., 0., 3.]])
    """
    rows = V.reshape(prod(V.shape[:-1]), V.shape[-1])
    matrix = _grams(crossed, lambda codes, k: np.array([np.bincount(codes, v, k) for v in rows]))
    return matrix.reshape(*V.shape[:-1], *matrix.shape[1:])


def counts(crossed: Crossed, strata: np.ndarray, count: int) -> np.ndarray:
    """Rows of every pair of values in each cell, (count, I, I).  strata: (n,), each < count.

    >>> counts(cross(np.array([[0], [1]]), (2,)), np.array([0, 0]), 1)
    array([[[1., 0.],
            [0., 1.]]])
    """
    return _grams(
        crossed,
        lambda codes, k: (
            np.bincount(codes * count + strata, minlength=k * count)
            .reshape(k, count)
            .T.astype(float)
        ),
    )


def _grams(crossed: Crossed, tally: Callable[[np.ndarray, int], np.ndarray]) -> np.ndarray:
    """What is tallied by combinations of blocks, as Gram matrices of values, (k, I, I).  tally: from the rows'
    combinations and how many there are to (k, combinations)."""
    order, crossed_counts = crossed.order, np.zeros((0, 0, 0))
    for block in crossed.blocks:
        counted = tally(block.codes, len(block.hot))
        crossed_counts = (
            crossed_counts
            if len(crossed_counts)
            else np.empty((len(counted), len(order), len(order)))
        )
        crossed_counts[:, block.axes_slice, block.axes_slice] = block.hot.T @ (
            counted[:, :, None] * block.hot
        )
    for i, j in combinations(range(len(crossed.blocks)), 2):
        a, b = crossed.blocks[i], crossed.blocks[j]
        shape = len(a.hot), len(b.hot)
        between = a.hot.T @ tally(crossed.both(i, j), prod(shape)).reshape(-1, *shape) @ b.hot
        (
            crossed_counts[:, a.axes_slice, b.axes_slice],
            crossed_counts[:, b.axes_slice, a.axes_slice],
        ) = (
            between,
            between.transpose(0, 2, 1),
        )
    grams = np.empty_like(crossed_counts)
    grams[:, order[:, None], order] = crossed_counts
    return grams


def entries(crossed: Crossed, rows: np.ndarray, columns: np.ndarray) -> tuple[Entries, ...]:
    """The entries (rows, columns) of a Gram matrix, (M,) each, by blocks."""
    if not len(rows):
        return ()
    place = np.empty(len(crossed.order), int)
    place[crossed.order] = np.arange(len(crossed.order))
    starts = np.array([block.axes_slice.start for block in crossed.blocks], int)
    ends = np.sort(np.stack([place[rows], place[columns]]), axis=0)
    blocks = np.searchsorted(starts, ends, "right") - 1
    inside = ends - starts[blocks]
    _, first, kind = np.unique(
        blocks[0] * len(starts) + blocks[1], return_index=True, return_inverse=True
    )
    order = np.argsort(kind, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(kind, minlength=len(first)))[:-1])
    return tuple(
        Entries(int(blocks[0, k]), int(blocks[1, k]), group, inside[0, group], inside[1, group])
        for k, group in zip(first, groups, strict=True)
    )


def sums_at(crossed: Crossed, at: Sequence[Entries], V: np.ndarray, count: int) -> np.ndarray:
    """These entries of ``gram``, (m, count), without the matrix.  V: (m, n).

    >>> crossed = cross(np.array([[0, 1], [1, 1]]), (2, 2))
    >>> sums_at(crossed, entries(crossed, np.array([1, 1]), np.array([1, 2])), np.ones((1, 2)), 2)
    array([[1., 0.]])
    """
    totals = np.zeros((len(V), count))
    for block in at:
        a, b = crossed.blocks[block.a], crossed.blocks[block.b]
        if block.a == block.b:
            counted = np.array([np.bincount(a.codes, v, len(a.hot)) for v in V])
            totals[:, block.which] = counted @ (a.hot[:, block.i] * a.hot[:, block.j])
            continue
        both, size = crossed.both(block.a, block.b), len(a.hot) * len(b.hot)
        counted = np.array([np.bincount(both, v, size) for v in V])
        between = a.hot.T @ counted.reshape(-1, len(a.hot), len(b.hot)) @ b.hot
        totals[:, block.which] = between[:, block.i, block.j]
    return totals


def weighed_at(crossed: Crossed, at: Sequence[Entries], weights: np.ndarray, n: int) -> np.ndarray:
    """What the entries that a row lies in weigh together, (n,).  weights: (count,).

    >>> crossed = cross(np.array([[0, 1], [1, 1]]), (2, 2))
    >>> at = entries(crossed, np.array([0, 0]), np.array([0, 3]))
    >>> weighed_at(crossed, at, np.array([5.0, 7.0]), 2)
    array([12.,  0.])
    """
    totals = np.zeros(n)
    for block in at:
        if not weights[block.which].any():
            continue
        a, b = crossed.blocks[block.a], crossed.blocks[block.b]
        if block.a == block.b:
            totals += ((a.hot[:, block.i] * a.hot[:, block.j]) @ weights[block.which])[a.codes]
            continue
        W = np.zeros((a.hot.shape[1], b.hot.shape[1]))
        np.add.at(W, (block.i, block.j), weights[block.which])
        totals += (a.hot @ W @ b.hot.T).ravel()[crossed.both(block.a, block.b)]
    return totals
