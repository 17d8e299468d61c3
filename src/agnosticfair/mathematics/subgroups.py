"""Subgroups that people can name: conjunctions of values of different columns.

Rows become integer codes Z of shape (n, C), one column per *axis*: a column of the table with its categories, or
with the bins of a number at agreed edges. A *subgroup* is a conjunction ``((axis, value), ...)``, axes ascending, and
the empty one is overall. With the I indicators of all values side by side, sums over all pairs of values are one Gram
matrix Z' diag(v) Z, whose diagonal has the single values: no matrix of rows times subgroups is ever made.

Sums are exact, and the same bits for any split of the rows, where v lies on a grid (``linear.on_grid``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, combinations
from math import prod
from typing import Any

import numpy as np

from agnosticfair.errors import SettingsError

DEEPEST = 3
EVERY = -1
"""Stands for overall among the numbers of subgroups."""

SITE = "site"  # the axis whose values are the clients
FEATURES = "*"  # stands for all features among the columns that name subgroups

Subgroup = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Axis:
    """A column and its values: code -1 is none of them, and lies in no subgroup of this axis.

    Bin k of a number has the values x with edges[k - 1] <= x < edges[k].
    """

    name: str
    values: tuple[str, ...]
    edges: tuple[float, ...] = ()


def sizes_of(axes: Sequence[Axis]) -> tuple[int, ...]:
    return tuple(len(axis.values) for axis in axes)


def subgroup_name(axes: Sequence[Axis], subgroup: Subgroup) -> str:
    """A subgroup in words.

    >>> subgroup_name((Axis("sex", ("F", "M")), Axis("job", ("a", "b"))), ((0, 1), (1, 0)))
    'sex = M and job = a'
    """
    named = (f"{axes[a].name} = {axes[a].values[v]}" for a, v in subgroup)
    return " and ".join(named) or "overall"


def members(codes: np.ndarray, subgroup: Subgroup) -> np.ndarray:
    """Which rows lie in the subgroup, (n,) of bool.

    >>> members(np.array([[0, 1], [1, 1]]), ((0, 1), (1, 1)))
    array([False,  True])
    """
    inside = np.ones(len(codes), bool)
    for axis, value in subgroup:
        inside &= codes[:, axis] == value
    return inside


def memberships(codes: np.ndarray, subgroups: Sequence[Subgroup]) -> np.ndarray:
    """Which subgroups each row lies in, as kernels: (n, M).

    >>> memberships(np.array([[0], [1]]), [(), ((0, 1),)])
    array([[1., 0.],
           [1., 1.]])
    """
    return np.stack([members(codes, subgroup) for subgroup in subgroups], axis=1).astype(float)


def starts_of(sizes: Sequence[int]) -> np.ndarray:
    """Where each axis' indicators begin among all I of them, and I last: (C + 1,)."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, int))])


def read(grams: np.ndarray, sizes: Sequence[int], subgroups: Sequence[Subgroup]) -> np.ndarray:
    """The sums of subgroups of one or two values in Gram matrices (..., I, I): (..., M)."""
    return grams[(..., *places(sizes, subgroups))]


def places(sizes: Sequence[int], subgroups: Sequence[Subgroup]) -> tuple[np.ndarray, np.ndarray]:
    """Where subgroups of one or two values stand in a Gram matrix: rows and columns, (M,) each."""
    starts = starts_of(sizes)
    ends = [
        (starts[subgroup[0][0]] + subgroup[0][1], starts[subgroup[-1][0]] + subgroup[-1][1])
        for subgroup in subgroups
    ]
    rows, columns = np.array(ends, int).reshape(-1, 2).T
    return rows, columns


@dataclass(frozen=True)
class Places:
    """Which subgroups have up to two values, and where they stand in a Gram matrix of all values; others are deep.

    sizes: of all axes.  axes: of every subgroup.  place: of every subgroup among all combinations of values on its
    axes, of which each has one more, none of them.  wider: see ``wider_subgroups``."""

    shallow: np.ndarray
    deep: np.ndarray
    at: tuple[np.ndarray, np.ndarray]
    sizes: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    place: tuple[int, ...]
    wider: np.ndarray

    @property
    def values(self) -> int:
        return sum(self.sizes)

    def shape(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        """How many values these axes have, with none of them."""
        return tuple(self.sizes[axis] + 1 for axis in axes)


def all_places(sizes: Sequence[int], subgroups: Sequence[Subgroup]) -> Places:
    """Where subgroups of any depth stand.

    >>> all_places((2, 2), [((1, 1),), ((0, 1), (1, 1))]).at
    (array([3, 1]), array([3, 3]))
    """
    depth = np.array([len(subgroup) for subgroup in subgroups], int)
    shallow, deep = np.flatnonzero(depth <= 2), np.flatnonzero(depth > 2)
    at = places(sizes, [subgroup for subgroup in subgroups if len(subgroup) <= 2])
    axes = tuple(tuple([axis for axis, _ in subgroup]) for subgroup in subgroups)
    places_of = tuple(_place(sizes, subgroup) for subgroup in subgroups)
    return Places(shallow, deep, at, tuple(sizes), axes, places_of, wider_subgroups(subgroups))


@dataclass(frozen=True)
class SubgroupSet:
    """The named set that a task and a model agree on.  axes: name, values and edges of each.  values: (M, depth, 2) of
    axis and value, -1 where a subgroup has fewer values."""

    axes: tuple[tuple[str, tuple[str, ...], tuple[float, ...]], ...]
    values: np.ndarray

    @cached_property
    def agreed(self) -> tuple[tuple[Axis, ...], list[Subgroup]]:
        axes = tuple(Axis(*axis) for axis in self.axes)
        rows = np.asarray(self.values, int).tolist()
        return axes, [tuple((a, v) for a, v in subgroup if a >= 0) for subgroup in rows]

    @cached_property
    def places(self) -> Places:
        """Where the subgroups stand among all pairs of values: found once, for all clients and batches here."""
        axes, subgroups = self.agreed
        return all_places(sizes_of(axes), subgroups)


def checked_subgroups(axes: Any, subgroups: np.ndarray) -> SubgroupSet:
    """Subgroups that come from a file, if they are some: ValueError, TypeError or KeyError for what is none."""
    checked_axes = tuple(
        (str(name), tuple(map(str, values)), tuple(map(float, edges)))
        for name, values, edges in axes
    )
    codes = np.asarray(subgroups)
    shape = codes.ndim == 3 and codes.shape[1:] == (DEEPEST, 2) and np.isfinite(codes).all()
    if not shape or not (codes == np.floor(codes)).all():
        raise ValueError("the subgroups")
    subgroup_set = SubgroupSet(checked_axes, codes.astype(float))
    for subgroup in subgroup_set.agreed[1]:
        names = [axis for axis, _ in subgroup]
        inside = all(
            0 <= a < len(checked_axes) and 0 <= v < len(checked_axes[a][1]) for a, v in subgroup
        )
        if not subgroup or not inside or names != sorted({*names}):
            raise ValueError("the subgroups")
    return subgroup_set


def _place(sizes: Sequence[int], subgroup: Subgroup) -> int:
    place = 0
    for axis, value in subgroup:
        place = place * (sizes[axis] + 1) + value + 1
    return place


def wider_subgroups(subgroups: Sequence[Subgroup]) -> np.ndarray:
    """The numbers of the subgroups without the first, second and third of each subgroup's values, (M, 3): EVERY where
    none is left, less where it is not among them.

    >>> wider_subgroups([((0, 1),), ((0, 1), (1, 3))])
    array([[-1, -2, -2],
           [-2,  0, -2]])
    """
    numbers = {(): EVERY} | {subgroup: m for m, subgroup in enumerate(subgroups)}
    wider = np.full((len(subgroups), DEEPEST), EVERY - 1)
    for m, subgroup in enumerate(subgroups):
        wider[m, : len(subgroup)] = [
            numbers.get(subgroup[:k] + subgroup[k + 1 :], EVERY - 1) for k in range(len(subgroup))
        ]
    return wider


def subgroup_sums(codes: np.ndarray, subgroups: Sequence[Subgroup], v: np.ndarray) -> np.ndarray:
    """Sums of v over the rows of each subgroup, of any depth, (M,)."""
    return np.array([v[members(codes, subgroup)].sum() for subgroup in subgroups])


def conjunctions(
    counts: np.ndarray, sizes: Sequence[int], minimum: float, depth: int = 2
) -> list[Subgroup]:
    """All subgroups of at most ``depth`` <= 2 values whose count in the Gram matrix (I, I) is at least ``minimum``.

    Single values first, then pairs, each in the order of their axes and values.

    >>> conjunctions(gram(cross(np.array([[0, 1], [1, 1]]), (2, 2)), np.ones(2)), (2, 2), 2)
    [((1, 1),)]
    """
    check_depth(depth)
    starts = starts_of(sizes)
    which = [(a, v) for a, size in enumerate(sizes) for v in range(size)]
    at = {pair: int(starts[pair[0]]) + pair[1] for pair in which}
    ones = [one for one in which if counts[at[one], at[one]] >= max(minimum, 1)]
    subgroups: list[Subgroup] = [(one,) for one in ones]
    if depth > 1:
        subgroups += [
            (one, two)
            for one, two in combinations(ones, 2)
            if one[0] != two[0] and counts[at[one], at[two]] >= max(minimum, 1)
        ]
    return subgroups


def triples(subgroups: Sequence[Subgroup]) -> list[Subgroup]:
    """The conjunctions of three values all of whose pairs are among the subgroups: no other can be large enough.

    Their own sums are ``subgroup_sums``, or rows of Z' diag(v z_k) Z.
    """
    pairs = {subgroup for subgroup in subgroups if len(subgroup) == 2}
    after: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for one, two in sorted(pairs):
        after.setdefault(one, []).append(two)
    return [
        (one, two, three)
        for one, two in sorted(pairs)
        for three in after.get(two, ())
        if (one, three) in pairs
    ]


def check_depth(depth: int) -> None:
    """Raise unless subgroups can be conjunctions of that many values."""
    if isinstance(depth, bool) or depth not in (1, 2, 3):
        raise SettingsError(
            f"depth {depth!r} is not 1, 2 or {DEEPEST}: more values in one subgroup leave too few rows to judge"
        )


def large_subgroups(
    codes: np.ndarray, sizes: Sequence[int], minimum: float, depth: int = 2
) -> list[Subgroup]:
    """The subgroups, of up to three values, that hold at least the share ``minimum`` of rows that lie in one place.

    >>> large_subgroups(np.array([[0, 1], [1, 1]]), (2, 2), 0.6)
    [((1, 1),)]
    """
    check_depth(depth)
    ones = np.ones(len(codes))
    large = conjunctions(
        gram(cross(codes, sizes), ones), sizes, minimum * len(codes), min(depth, 2)
    )
    if depth == DEEPEST:
        deeper = triples(large)
        enough = subgroup_sums(codes, deeper, ones) >= max(minimum * len(codes), 1)
        large += [subgroup for subgroup, is_large in zip(deeper, enough, strict=True) if is_large]
    return large


def by_axes(subgroups: Sequence[Subgroup]) -> dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]]:
    """The subgroups' numbers and values, (k,) and (k, axes), of every set of axes that subgroups use.

    >>> by_axes([((1, 4),), ((1, 2),)])
    {(1,): (array([0, 1]), array([[4],
           [2]]))}
    """
    groups: dict[tuple[int, ...], tuple[list[int], list[list[int]]]] = {}
    for m, subgroup in enumerate(subgroups):
        numbers, values = groups.setdefault(tuple([axis for axis, _ in subgroup]), ([], []))
        numbers.append(m)
        values.append([value for _, value in subgroup])
    return {
        axes: (np.array(numbers), np.array(values, int).reshape(len(numbers), len(axes)))
        for axes, (numbers, values) in groups.items()
    }


def counted(
    codes: np.ndarray,
    sizes: Sequence[int],
    subgroups: Sequence[Subgroup],
    strata: np.ndarray,
    count: int,
) -> np.ndarray:
    """Rows of every subgroup by cell, (M, count).

    >>> counted(np.array([[0, 1], [1, 1]]), (2, 2), [(), ((1, 1),), ((0, 1), (1, 1))], np.array([0, 1]), 2)
    array([[1, 1],
           [1, 1],
           [0, 1]])
    """
    return counting(codes, sizes, subgroups)(strata, count)


def counting(
    codes: np.ndarray, sizes: Sequence[int], subgroups: Sequence[Subgroup]
) -> Callable[[np.ndarray, int], np.ndarray]:
    """``counted`` of cells that are not known yet: one pass over the rows for each set of axes that subgroups use, so
    that memory does not grow with the pairs of values that nobody asks for."""
    together = by_axes(subgroups)
    columns = np.ascontiguousarray(codes.T, np.int64)
    gaps = np.array([(column < 0).any() for column in columns], bool)

    def count_by(strata: np.ndarray, count: int) -> np.ndarray:
        strata = np.asarray(strata, np.int64)
        counts = np.zeros((len(subgroups), count), np.int64)
        for axes, (members, values) in together.items():
            shape, columns_here = tuple(sizes[axis] for axis in axes), columns[list(axes)]
            cells = strata
            if gaps[list(axes)].any():
                inside = (columns_here >= 0).all(axis=0)
                columns_here, cells = columns_here[:, inside], strata[inside]
            flat = _flat(columns_here, shape) * count + cells
            tallied = np.bincount(flat, minlength=prod(shape) * count).reshape(-1, count)
            counts[members] = tallied[_flat(values.T, shape)]
        return counts

    return count_by


def _flat(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Values along each axis, (A, n), as one number each."""
    codes_flat = np.zeros(values.shape[1], np.int64)
    for value, size in zip(values, shape, strict=True):
        codes_flat = codes_flat * size + value
    return codes_flat


MAX_CROSSED = 64
"""Combinations of a block, unless one axis alone has more: the counts of a pair of blocks stay in a core's cache."""

REMEMBERED = 1 << 25
"""Numbers that a table of rows by pairs of blocks may have to be remembered between rounds."""


@dataclass(frozen=True)
class Block:
    """Some axes crossed.

    codes: (n,), every row's combination of values.  hot: (combinations, k), 1 where a combination has one of the
    block's k values, which stand at ``axes_slice`` among those of all blocks.
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
    """Some entries of a Gram matrix, all of the same two blocks a <= b.

    which: (m,), the entries' numbers.  i, j: (m,), their values among those of either block.
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
        places = slice(len(order), len(order) + len(at))
        blocks.append(Block(flat, np.hstack(hot).astype(float), places))
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
    rows, order = V.reshape(prod(V.shape[:-1]), V.shape[-1]), crossed.order
    sums = np.empty((len(rows), len(order), len(order)))

    def tallied(codes: np.ndarray, k: int) -> np.ndarray:
        return np.array([np.bincount(codes, v, k) for v in rows])

    for block in crossed.blocks:
        inside = block.hot.T @ (tallied(block.codes, len(block.hot))[:, :, None] * block.hot)
        sums[:, block.axes_slice, block.axes_slice] = inside
    for i, j in combinations(range(len(crossed.blocks)), 2):
        a, b = crossed.blocks[i], crossed.blocks[j]
        shape = len(a.hot), len(b.hot)
        between = a.hot.T @ tallied(crossed.both(i, j), prod(shape)).reshape(-1, *shape) @ b.hot
        sums[:, a.axes_slice, b.axes_slice] = between
        sums[:, b.axes_slice, a.axes_slice] = between.transpose(0, 2, 1)
    grams = np.empty_like(sums)
    grams[:, order[:, None], order] = sums
    return grams.reshape(*V.shape[:-1], *grams.shape[1:])


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


@dataclass(frozen=True)
class Overlaps:
    """Where the sums over rows that two subgroups share stand, in tables by the values on up to four axes.

    room: how many values each axis has, with none of them where a row has none.  sets: axes of the tables that rows are
    counted in, none a subset of another.  smaller: further tables, of which one each is a sum, and over which of its
    axes.  place: (M, M), of every pair of subgroups among all tables' entries; the last, 0, where they share no row.
    """

    room: tuple[int, ...]
    sets: list[tuple[int, ...]]
    smaller: list[tuple[int, tuple[int, ...]]]
    place: np.ndarray

    def sums(self, codes: np.ndarray, which: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Sums of each v over the rows that pairs of these subgroups share, (m, a, a).  codes: (C, n); V: (m, n)."""
        room = self.room
        columns = [
            np.where(column < 0, values - 1, column).astype(np.intp)
            for column, values in zip(codes, room, strict=True)
        ]
        pairs: dict[tuple[int, ...], np.ndarray] = {(): np.zeros(codes.shape[1], np.intp)}
        pairs |= {(axis,): column for axis, column in enumerate(columns)}
        shapes = [tuple(room[axis] for axis in axes) for axes in self.sets]
        tables = []
        for axes, shape in zip(self.sets, shapes, strict=True):
            for part in (axes[:2], axes[2:]):
                if part not in pairs:
                    pairs[part] = columns[part[0]] * room[part[1]] + columns[part[1]]
            key, size = pairs[axes[:2]] * prod(shape[2:]) + pairs[axes[2:]], prod(shape)
            tables.append(np.array([np.bincount(key, v, size) for v in V]))
        for of, away in self.smaller:
            table = tables[of].reshape(-1, *shapes[of]).sum(axis=tuple(axis + 1 for axis in away))
            tables.append(table.reshape(len(V), -1))
        each = np.concatenate([*tables, np.zeros((len(V), 1))], axis=1)
        return each[:, self.place[np.ix_(which, which)]]


@lru_cache(maxsize=2)
def overlaps(room: tuple[int, ...], subgroups: tuple[Subgroup, ...]) -> Overlaps:
    """Of subgroups of at most two values, of axes with so many values, none of them included where a row has none.

    >>> codes = np.array([[0, 1, 1], [1, 1, 0]])
    >>> shared = overlaps((2, 2), (((0, 1),), ((0, 1), (1, 1)), ()))
    >>> shared.sums(codes, np.arange(3), np.array([[1.0, 2.0, 4.0]])).tolist()
    [[[6.0, 2.0, 6.0], [2.0, 2.0, 2.0], [6.0, 2.0, 7.0]]]
    """
    groups = by_axes(subgroups)
    number = {axes: k for k, axes in enumerate(groups)}
    unions = {(a, b): tuple(sorted({*a, *b})) for a in groups for b in groups}
    sets: list[tuple[int, ...]] = []
    whole: dict[tuple[int, ...], int] = {}  # the table that a smaller one is a sum of
    for axes in sorted({*unions.values()}, key=lambda axes: (-len(axes), axes)):
        if axes not in whole:
            parts = chain.from_iterable(combinations(axes, k) for k in range(len(axes) + 1))
            whole |= {part: len(sets) for part in parts if part not in whole}
            sets.append(axes)
    within = sorted({*unions.values()} - {*sets})
    smaller = [
        (whole[part], tuple(k for k, axis in enumerate(sets[whole[part]]) if axis not in part))
        for part in within
    ]
    tables = [*sets, *within]
    ends = np.cumsum([prod([room[axis] for axis in axes]) for axes in tables])
    strides = np.zeros((len(tables), len(room)), int)
    for row, axes in zip(strides, tables, strict=True):
        row[list(axes)] = [prod([room[other] for other in axes[k + 1 :]]) for k in range(len(axes))]
    known = {axes: k for k, axes in enumerate(tables)}
    table_of = np.array([[known[unions[a, b]] for b in groups] for a in groups])
    values, group = np.full((len(subgroups), len(room)), -1), np.empty(len(subgroups), int)
    for axes, (members_here, codes_here) in groups.items():
        values[members_here[:, None], list(axes)], group[members_here] = codes_here, number[axes]
    table = table_of[np.ix_(group, group)]
    own = np.maximum(values, 0) @ strides.T
    place = own[np.arange(len(subgroups))[:, None], table]
    place = place + place.T + np.append(0, ends[:-1])[table]
    for axis, column in enumerate(values.T):  # counted twice, or another value
        on = np.flatnonzero(column >= 0)
        here, v = np.ix_(on, on), column[on]
        twice = v[:, None] * strides[table[here], axis]
        place[here] = np.where(v[:, None] == v, place[here] - twice, ends[-1] + (1 << 40))
    return Overlaps(room, sets, smaller, np.minimum(place, ends[-1]))
