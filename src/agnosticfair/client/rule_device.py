"""The rule's sums on a GPU, or any other device of PyTorch: rounds of the program, and histograms of trees.

The formulas are those of ``mathematics.scores`` and ``mathematics.boosting``, in float64 and on the same grids: sums
are exact here, too, and differ from numpy's at most where a device's exponential rounds a row's value another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from agnosticfair.client.networks import is_full
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics import boosting, scores
from agnosticfair.mathematics.boosting import GRADIENT_BITS, CodedRows, Way
from agnosticfair.mathematics.scores import Estimated, Points
from agnosticfair.mathematics.subgroups import Subgroup, starts_of
from agnosticfair.mathematics.trees import LEAF, MAX_CODES, Bins, Forest, goes_right, ranks
from agnosticfair.networks import device as device_of

PIECE = 1 << 20  # rows whose indicators exist at a time
STACK = 1 << 12  # rows in one product
COUNTED = 1 << 20  # rows that are counted at a time
SHIFT = 21  # bits that hold their number


@contextmanager
def room_for(what: str) -> Iterator[None]:
    """Where the device has no room, a sentence."""
    try:
        yield
    except RuntimeError as error:
        if not is_full(error):
            raise
        raise SettingsError(f"the device has no room for {what}: name device 'cpu'") from None


def ends_of(sizes: Sequence[int], subgroups: Sequence[Subgroup]) -> np.ndarray:
    """The places of every subgroup's values among all axes', (3, K), overall's as the last; where it has fewer than
    three, the place after all of them, which every row has.

    >>> ends_of((2, 2), [((0, 1), (1, 0))])
    array([[1, 4],
           [2, 4],
           [4, 4]])
    """
    starts = starts_of(sizes)
    ends = np.full((3, len(subgroups) + 1), starts[-1])
    for k, subgroup in enumerate(subgroups):
        ends[: len(subgroup), k] = [starts[axis] + value for axis, value in subgroup]
    return ends


@dataclass(frozen=True)
class Memberships:
    """Membership of subgroups, and overall, of rows on a device (``scores.Weights``).

    Z: (n, I + 1), 1 where a row has a value, and a column of ones.  ends: (3, K), see ``ends_of``.
    """

    Z: Any
    ends: np.ndarray
    xp: ClassVar[Any] = torch

    @property
    def size(self) -> int:
        return self.ends.shape[1]

    def _deep(self, a: np.ndarray) -> np.ndarray:
        return np.flatnonzero((self.ends[2] < self.Z.shape[1] - 1) & (a != 0))

    def weigh(self, a: np.ndarray) -> Any:
        (i, j, _), deep = self.ends, self._deep(a)
        shallow = np.setdiff1d(np.flatnonzero(a), deep)
        W = np.zeros((self.Z.shape[1],) * 2)
        W[i[shallow], j[shallow]] = a[shallow]
        weights = ((self.Z @ torch.asarray(W)) * self.Z).sum(1)
        return weights + torch.asarray(a[deep]) @ self.columns(deep) if len(deep) else weights

    def add(self, V: Any) -> np.ndarray:
        i, j, _ = self.ends
        forest = np.stack([gram(self.Z, v).cpu().numpy()[i, j] for v in V])
        deep = self._deep(np.ones(self.size))
        if len(deep):
            forest[:, deep] = (V @ self.columns(deep).T).cpu().numpy()
        return forest

    def columns(self, which: np.ndarray, rows: Any = slice(None)) -> Any:
        Z, (i, j, k) = self.Z[rows], self.ends[:, which]
        return (Z[:, i] * Z[:, j] * Z[:, k]).T


def indicators(codes: Any, sizes: Sequence[int]) -> Any:
    """Z of ``Memberships``, from every row's value on every axis, (axes, n), -1 for none."""
    starts = starts_of(sizes)
    at = codes.long() + torch.asarray(starts[:-1])[:, None]
    at[codes < 0] = int(starts[-1]) + 1
    Z = torch.zeros((codes.shape[1], int(starts[-1]) + 2), dtype=torch.float64)
    Z.scatter_(1, at.T, 1.0)
    Z[:, -2] = 1.0
    return Z[:, :-1]


def gram(Z: Any, v: Any) -> Any:
    """Z' diag(v) Z, as a stack of products: one of so many rows would keep little of a device busy."""
    whole = len(Z) // STACK * STACK
    V = Z * v[:, None]
    stacks = (x[:whole].reshape(-1, STACK, x.shape[1]) for x in (V, Z))
    return torch.einsum("kni,knj->kij", *stacks).sum(0) + V[whole:].T @ Z[whole:]


@dataclass(frozen=True)
class RuleRows:
    """Rows on a device, as the program sees them: values on the axes, (axes, n), estimates and labels."""

    codes: Any
    sizes: tuple[int, ...]
    ends: np.ndarray
    rows: Estimated
    y: Any


def rule_rows(
    codes: np.ndarray,
    sizes: Sequence[int],
    subgroups: Sequence[Subgroup],
    rows: Estimated,
    y: np.ndarray,
    name: str,
) -> RuleRows:
    """Copy rows to the device of this name."""
    device = device_of(name)
    with room_for(f"the estimates of {len(y)} rows"):
        c, pi, weights, labels = (
            None if v is None else torch.asarray(v, dtype=torch.float64, device=device)
            for v in (rows.c, rows.pi, rows.weights, y)
        )
        at = torch.asarray(codes, dtype=torch.int16, device=device)
    ends = ends_of(sizes, subgroups)
    return RuleRows(at, tuple(sizes), ends, Estimated(c, pi, weights), labels)


@torch.inference_mode()
def evaluate(device_rows: RuleRows, points: Points, n: int, bits: int) -> dict[str, np.ndarray]:
    """``scores.evaluate`` on the rows' device, PIECE rows at a time."""
    totals: dict[str, np.ndarray] = {}
    rows, room = device_rows.rows, room_for(f"the subgroups of {PIECE} rows")
    with device_rows.y.device, room:
        for first in range(0, max(len(device_rows.y), 1), PIECE):
            part = slice(first, first + PIECE)
            b = Memberships(
                indicators(device_rows.codes[:, part], device_rows.sizes), device_rows.ends
            )
            weights = None if rows.weights is None else rows.weights[part]
            piece = Estimated(rows.c[part], rows.pi[:, part], weights)
            sums = scores.evaluate(piece, b, device_rows.y[part], points, n, bits)
            totals = {k: totals.get(k, 0.0) + v for k, v in sums.items()}
    return totals


def coded_rows(rows: CodedRows, name: str) -> CodedOnDevice:
    """Copy rows to the device of this name, on which trees grow over them."""
    device = device_of(name)
    with room_for(f"the codes of {len(rows.fold)} rows"):
        arrays = {k: v for k, v in vars(rows).items() if isinstance(v, np.ndarray)}
        there = {k: torch.asarray(v, device=device) for k, v in arrays.items() if k != "columns"}
    return CodedOnDevice(**(vars(rows) | there))


@torch.inference_mode()
def level_sums(rows: Any, forests: Any, level: int, count: np.ndarray) -> dict[str, np.ndarray]:
    with rows.codes.device, room_for(f"the trees of {len(rows.fold)} rows"):
        return boosting.level_sums(rows, forests, level, count)


@dataclass(frozen=True)
class CodedOnDevice(CodedRows):
    """``CodedRows`` whose arrays are tensors."""

    codes: Any
    xp: ClassVar[Any] = torch

    def margins(self, forest: Forest) -> Any:
        margin = torch.full((len(self.fold),), forest.start, dtype=torch.float64)
        for tree in range(len(forest)):
            one = forest.only(tree, self.bins)
            place = self.descend(self.places(), one, 0, one.depth)
            margin += self.leaf_values(place, one)
        return margin

    def places(self) -> Any:
        return torch.zeros(len(self.fold), dtype=torch.uint8)

    def descend(self, place: Any, tree: Forest, start: int, end: int) -> Any:
        columns, tables = (torch.asarray(v) for v in _tables(tree, self.bins))
        for level in range(start, end):
            node = place.long() + (2**level - 1)
            code = self.codes.gather(1, columns[node][:, None])[:, 0]
            place = 2 * place + tables[node * MAX_CODES + code]
        return place

    def leaf_values(self, place: Any, tree: Forest) -> Any:
        return torch.asarray(tree.value[0].astype(float))[place.long()]

    def histogram(self, way: Way, slots: np.ndarray) -> np.ndarray:
        S, B, unit = int(slots.max()) + 1, int(self.bins.starts[-1]), 2.0**GRADIENT_BITS
        starts, to = torch.asarray(self.bins.starts[:-1]), torch.asarray(slots.astype(np.int64))
        slot, total = to[way.place.long()], np.zeros((3, S * B))
        slot[way.apart] = -1
        for first in range(0, len(slot), COUNTED):
            here = slot[first : first + COUNTED]
            at = torch.where(here >= 0)[0]
            keys = (here[at] * B)[:, None] + starts + self.codes[first : first + COUNTED][at]
            g, h = (v[first : first + COUNTED][at].double() * unit for v in (way.g, way.h))
            added = torch.zeros((2, S * B), dtype=torch.int64)
            for sums, v in zip(added, (g.long(), (h.long() << SHIFT) + 1), strict=True):
                sums.scatter_add_(0, keys.ravel(), v[:, None].expand(keys.shape).reshape(-1))
            one, both = added.cpu().numpy()
            total += [one / unit, (both >> SHIFT) / unit, both & ((1 << SHIFT) - 1)]
        return np.ascontiguousarray(total.T).reshape(S, B, 3)


def _tables(tree: Forest, bins: Bins) -> tuple[np.ndarray, np.ndarray]:
    """Of a forest's first tree: the column of every node, and for its codes whether they go right, one after the
    other, uint8."""
    every = np.broadcast_to(np.arange(MAX_CODES, dtype=np.uint8), (len(bins.sizes), MAX_CODES))
    columns, rank = tree.column[0].astype(np.int64), ranks(tree, bins)
    tables = np.zeros((len(columns), MAX_CODES), np.uint8)
    for node in np.flatnonzero(columns != LEAF).tolist():
        tables[node] = goes_right(tree, bins, every, 0, node, int(rank[0, node]))
    return np.where(columns == LEAF, 0, columns), tables.ravel()
