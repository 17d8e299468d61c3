"""Sums over all pairs of values of many columns in few passes over the rows.

Rows have codes Z of shape (n, C), one value per axis (``parts``). Axes are *crossed* into few blocks, so that one
number says the values on several axes, and rows are counted by pairs of blocks: with ten columns six passes tell what
45 pairs of columns would. From there to values it is products of small matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

MOST = 64
"""Combinations of a block, unless one axis alone has more: the counts of a pair of blocks stay in a core's cache."""


@dataclass(frozen=True)
class Block:
    """Some axes crossed.

    Parameters
    ----------
    codes : (n,) array
        The combination of values that every row has.
    hot : (combinations, k) array
        1 where a combination has one of the block's k values.
    own : slice
        The block's values among those of all blocks.
    """

    codes: np.ndarray
    hot: np.ndarray
    own: slice


@dataclass(frozen=True)
class Crossed:
    """Rows by blocks.  order: (I,), the place among all axes' values of every block's, one block after the other."""

    blocks: tuple[Block, ...]
    order: np.ndarray

    def take(self, rows: slice) -> Crossed:
        """Some of the rows."""
        own = (Block(block.codes[rows], block.hot, block.own) for block in self.blocks)
        return Crossed(tuple(own), self.order)

    @cached_property
    def pairs(self) -> tuple[tuple[Block, Block, np.ndarray], ...]:
        """Every two blocks, and which pair of their combinations each row has."""
        both = ((a, b) for q, b in enumerate(self.blocks) for a in self.blocks[:q])
        return tuple((a, b, a.codes * len(b.hot) + b.codes) for a, b in both)


def cross(codes: np.ndarray, sizes: Sequence[int], most: int = MOST) -> Crossed:
    """Axes with so many values each, crossed.  codes: (n, C); -1 is none of an axis' values.

    >>> crossed = cross(np.array([[0, 1], [1, 1]]), (2, 2))
    >>> [(block.codes.tolist(), block.hot.shape) for block in crossed.blocks]
    [([1, 3], (4, 4))]
    """
    starts = np.concatenate([[0], np.cumsum(np.asarray(sizes, int))]).astype(int)
    room = [size + bool((codes[:, a] < 0).any()) for a, size in enumerate(sizes)]
    blocks: list[Block] = []
    order: list[int] = []
    for group in _groups(room, most):
        shape = [room[a] for a in group]
        own = [np.where(codes[:, a] < 0, sizes[a], codes[:, a]).astype(np.intp) for a in group]
        each = np.indices(shape).reshape(len(group), -1)
        hot = [v[:, None] == np.arange(sizes[a]) for a, v in zip(group, each, strict=True)]
        flat = np.ravel_multi_index(own, shape) if len(codes) else np.zeros(0, np.intp)
        at = [place for a in group for place in range(starts[a], starts[a + 1])]
        own_places = slice(len(order), len(order) + len(at))
        blocks.append(Block(flat, np.hstack(hot).astype(float), own_places))
        order += at
    return Crossed(tuple(blocks), np.array(order, int))


def _groups(room: Sequence[int], most: int) -> list[list[int]]:
    """Axes with so many values put together, the largest first, up to ``most`` combinations."""
    groups: list[list[int]] = []
    for axis in sorted(range(len(room)), key=lambda a: -room[a]):
        fits = (g for g in groups if room[axis] * prod(room[a] for a in g) <= most)
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
    found = np.empty(len(crossed.order))
    for block in crossed.blocks:
        found[crossed.order[block.own]] = np.bincount(block.codes, v, len(block.hot)) @ block.hot
    return found


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
    found = _grams(crossed, lambda codes, k: np.array([np.bincount(codes, v, k) for v in rows]))
    return found.reshape(*V.shape[:-1], *found.shape[1:])


def counts(crossed: Crossed, cells: np.ndarray, count: int) -> np.ndarray:
    """Rows of every pair of values in each cell, (count, I, I).  cells: (n,), each < count.

    >>> counts(cross(np.array([[0], [1]]), (2,)), np.array([0, 0]), 1)
    array([[[1., 0.],
            [0., 1.]]])
    """
    return _grams(
        crossed,
        lambda codes, k: (
            np.bincount(codes * count + cells, minlength=k * count)
            .reshape(k, count)
            .T.astype(float)
        ),
    )


def _grams(crossed: Crossed, tally: Callable[[np.ndarray, int], np.ndarray]) -> np.ndarray:
    """What is tallied by combinations of blocks, as Gram matrices of values, (k, I, I).  tally: from the rows'
    combinations and how many there are to (k, combinations)."""
    order, made = crossed.order, np.zeros((0, 0, 0))
    for block in crossed.blocks:
        counted = tally(block.codes, len(block.hot))
        made = made if len(made) else np.empty((len(counted), len(order), len(order)))
        made[:, block.own, block.own] = block.hot.T @ (counted[:, :, None] * block.hot)
    for a, b, both in crossed.pairs:
        shape = len(a.hot), len(b.hot)
        between = a.hot.T @ tally(both, prod(shape)).reshape(-1, *shape) @ b.hot
        made[:, a.own, b.own], made[:, b.own, a.own] = between, between.transpose(0, 2, 1)
    found = np.empty_like(made)
    found[:, order[:, None], order] = made
    return found


def quadratic(crossed: Crossed, W: np.ndarray) -> np.ndarray:
    """z' W z of every row's indicators z, (n,): what the pairs of its values weigh.  W: (I, I).

    >>> W = np.array([[5.0, 0.0, 0.0, 7.0], *np.zeros((3, 4))])
    >>> quadratic(cross(np.array([[0, 1], [1, 1]]), (2, 2)), W)
    array([12.,  0.])
    """
    W = (W + W.T)[crossed.order[:, None], crossed.order]
    found: Any = 0.0
    for block in crossed.blocks:
        own = ((block.hot @ W[block.own, block.own]) * block.hot).sum(axis=1) / 2
        found = found + own[block.codes]
    for a, b, both in crossed.pairs:
        found += (a.hot @ W[a.own, b.own] @ b.hot.T).ravel()[both]
    return found
