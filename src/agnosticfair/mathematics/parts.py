"""Parts of the population that people can name: conjunctions of values of different columns.

Rows become integer codes Z of shape (n, C), one column per *axis*: a column of the table with its categories, or
with the bands of a number at agreed edges. A *part* is a conjunction ``((axis, value), ...)``, axes ascending, and the
empty one is everybody. With the I indicators of all values side by side, sums over all pairs of values are one Gram
matrix Z' diag(v) Z, whose diagonal has the single values: no matrix of rows times parts is ever made.

Sums are exact, and the same bits for any split of the rows, where v lies on a grid (``linear.on_grid``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from agnosticfair.errors import SettingsError
from agnosticfair.mathematics import crossed

DEEPEST = 3
EVERY = -1
"""Stands for everybody among the numbers of parts."""

SITE, FEATURES = "site", "*"
"""The axis whose values are the clients; and what stands for all features among the columns that name parts."""

Part = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Axis:
    """A column and its values.

    Parameters
    ----------
    name : str
        The column's name.
    values : tuple of str
        What its codes 0, 1, ... stand for; code -1 is none of them, and lies in no part of this axis.
    edges : tuple of float
        Of a number's bands, ascending: band k has the numbers x with edges[k - 1] <= x < edges[k].
    """

    name: str
    values: tuple[str, ...]
    edges: tuple[float, ...] = ()


def sizes_of(axes: Sequence[Axis]) -> tuple[int, ...]:
    """How many values each axis has."""
    return tuple(len(axis.values) for axis in axes)


def part_name(axes: Sequence[Axis], part: Part) -> str:
    """A part in words.

    >>> part_name((Axis("sex", ("F", "M")), Axis("job", ("a", "b"))), ((0, 1), (1, 0)))
    'sex = M and job = a'
    """
    named = (f"{axes[a].name} = {axes[a].values[v]}" for a, v in part)
    return " and ".join(named) or "everybody"


def members(codes: np.ndarray, part: Part) -> np.ndarray:
    """Which rows lie in the part, (n,) of bool.

    >>> members(np.array([[0, 1], [1, 1]]), ((0, 1), (1, 1)))
    array([False,  True])
    """
    inside = np.ones(len(codes), bool)
    for axis, value in part:
        inside &= codes[:, axis] == value
    return inside


def memberships(codes: np.ndarray, parts: Sequence[Part]) -> np.ndarray:
    """Which parts each row lies in, as kernels: (n, M).

    >>> memberships(np.array([[0], [1]]), [(), ((0, 1),)])
    array([[1., 0.],
           [1., 1.]])
    """
    return np.stack([members(codes, part) for part in parts], axis=1).astype(float)


def starts_of(sizes: Sequence[int]) -> np.ndarray:
    """Where each axis' indicators begin among all I of them, and I last: (C + 1,)."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, int))])


def gram(codes: np.ndarray, sizes: Sequence[int], v: np.ndarray) -> np.ndarray:
    """Sums of v over the rows of every pair of values: Z' diag(v) Z, (I, I), by counting and not by products.

    >>> gram(np.array([[0, 1], [1, 1]]), (2, 2), np.array([1.0, 2.0]))
    array([[1., 0., 0., 1.],
           [0., 2., 0., 2.],
           [0., 0., 0., 0.],
           [1., 2., 0., 3.]])
    """
    return crossed.gram(crossed.cross(codes, sizes), v)


def read(grams: np.ndarray, sizes: Sequence[int], parts: Sequence[Part]) -> np.ndarray:
    """The sums of parts of one or two values in Gram matrices (..., I, I): (..., M)."""
    return grams[(..., *places(sizes, parts))]


def places(sizes: Sequence[int], parts: Sequence[Part]) -> tuple[np.ndarray, np.ndarray]:
    """Where parts of one or two values stand in a Gram matrix: rows and columns, (M,) each."""
    starts = starts_of(sizes)
    ends = [(starts[part[0][0]] + part[0][1], starts[part[-1][0]] + part[-1][1]) for part in parts]
    rows, columns = np.array(ends, int).reshape(-1, 2).T
    return rows, columns


@dataclass(frozen=True)
class Places:
    """Which parts have up to two values, and where they stand in a Gram matrix of all values; others are deep.

    sizes: of all axes.  axes: of every part.  place: of every part among all combinations of values on its axes, of
    which each has one more, none of them.  wider: see ``wider_parts``."""

    shallow: np.ndarray
    deep: np.ndarray
    at: tuple[np.ndarray, np.ndarray]
    sizes: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    place: tuple[int, ...]
    wider: np.ndarray

    @property
    def values(self) -> int:
        """Of all axes."""
        return sum(self.sizes)

    def shape(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        """How many values these axes have, with none of them."""
        return tuple(self.sizes[axis] + 1 for axis in axes)


def all_places(sizes: Sequence[int], parts: Sequence[Part]) -> Places:
    """Where parts of any depth stand.

    >>> all_places((2, 2), [((1, 1),), ((0, 1), (1, 1))]).at
    (array([3, 1]), array([3, 3]))
    """
    depth = np.array([len(part) for part in parts], int)
    shallow, deep = np.flatnonzero(depth <= 2), np.flatnonzero(depth > 2)
    at = places(sizes, [part for part in parts if len(part) <= 2])
    axes = tuple(tuple([axis for axis, _ in part]) for part in parts)
    own = tuple(_place(sizes, part) for part in parts)
    return Places(shallow, deep, at, tuple(sizes), axes, own, wider_parts(parts))


@dataclass(frozen=True)
class Named:
    """The named set that a task and a model agree on.  axes: name, values and edges of each.  parts: (M, depth, 2) of
    axis and value, -1 where a part has fewer values."""

    axes: tuple[tuple[str, tuple[str, ...], tuple[float, ...]], ...]
    parts: np.ndarray

    @cached_property
    def agreed(self) -> tuple[tuple[Axis, ...], list[Part]]:
        """Axes and parts as the mathematics has them."""
        axes = tuple(Axis(*axis) for axis in self.axes)
        rows = np.asarray(self.parts, int).tolist()
        return axes, [tuple((a, v) for a, v in part if a >= 0) for part in rows]

    @cached_property
    def places(self) -> Places:
        """Where the parts stand among all pairs of values: found once, for all clients and batches here."""
        axes, parts = self.agreed
        return all_places(sizes_of(axes), parts)


def checked_named(axes: Any, parts: np.ndarray) -> Named:
    """Subgroups that come from a file, if they are some: ValueError, TypeError or KeyError for what is none."""
    made = tuple(
        (str(name), tuple(map(str, values)), tuple(map(float, edges)))
        for name, values, edges in axes
    )
    codes = np.asarray(parts)
    shape = codes.ndim == 3 and codes.shape[1:] == (DEEPEST, 2) and np.isfinite(codes).all()
    if not shape or not (codes == np.floor(codes)).all():
        raise ValueError("the subgroups")
    found = Named(made, codes.astype(float))
    for part in found.agreed[1]:
        names = [axis for axis, _ in part]
        inside = all(0 <= a < len(made) and 0 <= v < len(made[a][1]) for a, v in part)
        if not part or not inside or names != sorted({*names}):
            raise ValueError("the subgroups")
    return found


def _place(sizes: Sequence[int], part: Part) -> int:
    found = 0
    for axis, value in part:
        found = found * (sizes[axis] + 1) + value + 1
    return found


def wider_parts(parts: Sequence[Part]) -> np.ndarray:
    """The numbers of the parts without the first, second and third of each part's values, (M, 3): EVERY where none is
    left, less where it is not among them.

    >>> wider_parts([((0, 1),), ((0, 1), (1, 3))])
    array([[-1, -2, -2],
           [-2,  0, -2]])
    """
    numbers = {(): EVERY} | {part: m for m, part in enumerate(parts)}
    found = np.full((len(parts), DEEPEST), EVERY - 1)
    for m, part in enumerate(parts):
        found[m, : len(part)] = [
            numbers.get(part[:k] + part[k + 1 :], EVERY - 1) for k in range(len(part))
        ]
    return found


def part_sums(codes: np.ndarray, parts: Sequence[Part], v: np.ndarray) -> np.ndarray:
    """Sums of v over the rows of each part, of any depth, (M,)."""
    return np.array([v[members(codes, part)].sum() for part in parts])


def conjunctions(
    counts: np.ndarray, sizes: Sequence[int], least: float, depth: int = 2
) -> list[Part]:
    """All parts of at most ``depth`` <= 2 values whose count in the Gram matrix (I, I) is at least ``least``.

    Single values first, then pairs, each in the order of their axes and values.

    >>> conjunctions(gram(np.array([[0, 1], [1, 1]]), (2, 2), np.ones(2)), (2, 2), 2)
    [((1, 1),)]
    """
    check_depth(depth)
    starts = starts_of(sizes)
    which = [(a, v) for a, size in enumerate(sizes) for v in range(size)]
    at = {pair: int(starts[pair[0]]) + pair[1] for pair in which}
    ones = [one for one in which if counts[at[one], at[one]] >= max(least, 1)]
    found: list[Part] = [(one,) for one in ones]
    if depth > 1:
        found += [
            (one, two)
            for one, two in combinations(ones, 2)
            if one[0] != two[0] and counts[at[one], at[two]] >= max(least, 1)
        ]
    return found


def triples(parts: Sequence[Part]) -> list[Part]:
    """The conjunctions of three values all of whose pairs are among the parts: no other can be large enough.

    Their own sums are ``part_sums``, or rows of Z' diag(v z_k) Z.
    """
    pairs = {part for part in parts if len(part) == 2}
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
    """Raise unless parts can be conjunctions of that many values."""
    if isinstance(depth, bool) or depth not in (1, 2, 3):
        raise SettingsError(
            f"depth {depth!r} is not 1, 2 or {DEEPEST}: more values in one part leave too few rows to judge"
        )


def named_parts(
    codes: np.ndarray, sizes: Sequence[int], least: float, depth: int = 2
) -> list[Part]:
    """The parts, of up to three values, that hold at least the share ``least`` of rows that lie in one place.

    >>> named_parts(np.array([[0, 1], [1, 1]]), (2, 2), 0.6)
    [((1, 1),)]
    """
    check_depth(depth)
    ones = np.ones(len(codes))
    found = conjunctions(gram(codes, sizes, ones), sizes, least * len(codes), min(depth, 2))
    if depth == DEEPEST:
        deeper = triples(found)
        enough = part_sums(codes, deeper, ones) >= max(least * len(codes), 1)
        found += [part for part, kept in zip(deeper, enough, strict=True) if kept]
    return found


def by_axes(parts: Sequence[Part]) -> dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]]:
    """The parts' numbers and values, (k,) and (k, axes), of every set of axes that parts use.

    >>> by_axes([((1, 4),), ((1, 2),)])
    {(1,): (array([0, 1]), array([[4],
           [2]]))}
    """
    found: dict[tuple[int, ...], tuple[list[int], list[list[int]]]] = {}
    for m, part in enumerate(parts):
        numbers, values = found.setdefault(tuple([axis for axis, _ in part]), ([], []))
        numbers.append(m)
        values.append([value for _, value in part])
    return {
        axes: (np.array(numbers), np.array(values, int).reshape(len(numbers), len(axes)))
        for axes, (numbers, values) in found.items()
    }


def counted(
    codes: np.ndarray, sizes: Sequence[int], parts: Sequence[Part], cells: np.ndarray, count: int
) -> np.ndarray:
    """Rows of every part by cell, (M, count).

    >>> counted(np.array([[0, 1], [1, 1]]), (2, 2), [(), ((1, 1),), ((0, 1), (1, 1))], np.array([0, 1]), 2)
    array([[1, 1],
           [1, 1],
           [0, 1]])
    """
    return counting(codes, sizes, parts)(cells, count)


def counting(
    codes: np.ndarray, sizes: Sequence[int], parts: Sequence[Part]
) -> Callable[[np.ndarray, int], np.ndarray]:
    """``counted`` of cells that are not known yet: crossed axes tell of one and two values, and deeper parts take one
    pass over the rows for each set of columns that they use."""
    depth = np.array([len(part) for part in parts], int)
    shallow, deep = (np.flatnonzero(own) for own in ((depth > 0) & (depth < 3), depth > 2))
    rows = crossed.cross(codes, sizes) if len(shallow) else None
    at = places(sizes, [parts[m] for m in shallow.tolist()])
    together = by_axes([parts[m] for m in deep.tolist()])
    columns = np.ascontiguousarray(codes.T, np.int64)

    def count_by(cells: np.ndarray, count: int) -> np.ndarray:
        cells = np.asarray(cells, np.int64)
        found = np.zeros((len(parts), count), np.int64)
        found[depth == 0] = np.bincount(cells, minlength=count)
        if rows is not None:
            found[shallow] = crossed.counts(rows, cells, count)[:, *at].T
        for axes, (members, values) in together.items():
            shape, own = tuple(sizes[axis] for axis in axes), columns[list(axes)]
            inside = (own >= 0).all(axis=0)
            flat = _flat(own[:, inside], shape) * count + cells[inside]
            tallied = np.bincount(flat, minlength=prod(shape) * count).reshape(-1, count)
            found[deep[members]] = tallied[_flat(values.T, shape)]
        return found

    return count_by


def _flat(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Values along each axis, (A, n), as one number each."""
    found = np.zeros(values.shape[1], np.int64)
    for value, size in zip(values, shape, strict=True):
        found = found * size + value
    return found
