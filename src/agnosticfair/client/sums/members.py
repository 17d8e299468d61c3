"""The rows of named parts, and sums over them from as few rows as will do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from agnosticfair.mathematics.parts import EVERY, Places


class Members:
    """The rows that lie in each part, sorted out by one set of columns after the other, as they are asked for."""

    def __init__(self, codes: np.ndarray, at: Places):
        self._codes, self._at = np.ascontiguousarray(codes.T + 1), at
        self._sorted: dict[tuple[int, ...], tuple[np.ndarray, list[int]]] = {}
        self._outside: dict[tuple[int, int], np.ndarray] = {}

    def __getitem__(self, part: int) -> np.ndarray:
        (order, starts), place = self._by(self._at.axes[part]), self._at.place[part]
        return order[starts[place] : starts[place + 1]]

    def _by(self, axes: tuple[int, ...]) -> tuple[np.ndarray, list[int]]:
        """The rows sorted by their values on these axes, and where each combination starts."""
        if axes not in self._sorted:
            shape = self._at.shape(axes)
            # the shorter sorts in one pass
            kind: Any = np.uint16 if prod(shape) < 1 << 16 else np.int64
            flat = self._codes[axes[0]].astype(kind)
            for axis, size in zip(axes[1:], shape[1:], strict=True):
                flat = flat * kind(size) + self._codes[axis].astype(kind)
            ends = np.cumsum(np.bincount(flat, minlength=prod(shape)))
            order = np.argsort(flat, kind="stable").astype(np.int32)
            self._sorted[axes] = order, [0, *ends.tolist()]
        return self._sorted[axes]

    def outside(self, part: int, k: int) -> np.ndarray:
        """The rows that have all values of a part but its k-th."""
        if (part, k) not in self._outside:
            axes, place = self._at.axes[part], self._at.place[part]
            (order, starts), shape = self._by(axes), self._at.shape(axes)
            apart = prod(shape[k + 1 :])
            first = place - place // apart % shape[k] * apart
            others = (c for c in range(first, first + apart * shape[k], apart) if c != place)
            rows = np.concatenate([order[starts[c] : starts[c + 1]] for c in others])
            self._outside[part, k] = rows
        return self._outside[part, k]

    def add_up(
        self,
        parts: Sequence[int],
        without: np.ndarray,
        add: Callable[[Sequence[np.ndarray]], np.ndarray],
    ) -> np.ndarray:
        """Sums over the rows of every part and, last, of all, (parts + 1, ...).

        add: those of given rows and, last, of all, which must be exact: then a part may be had, to the last bit, as
        what a wider one has without the rows outside.  without: see ``fewest``, (M,).
        """
        wanted, rows, taken = [*dict.fromkeys(parts)], [], []
        places = {m: row for row, m in enumerate(wanted)}
        for m in wanted:  # to which wider parts are added
            k = int(without[m])
            rows.append(self[m] if k < 0 else self.outside(m, k))
            if k < 0:
                continue
            wider = int(self._at.wider[m, k])
            taken.append((len(self._at.axes[m]), m, wider))
            if wider != EVERY and wider not in places:
                places[wider] = len(wanted)
                wanted.append(wider)
        found, places[EVERY] = add(rows), -1
        for _, m, wider in sorted(taken):  # single values first: a pair may be had from one
            found[places[m]] = found[places[wider]] - found[places[m]]
        return found[[places[m] for m in (*parts, EVERY)]]


def fewest(at: Places, counts: np.ndarray) -> np.ndarray:
    """Which of a part's values to do without, (M,), so that the rows of the wider part that lie outside are fewer than
    its own; -1 where they are not.  counts: (M + 1,), the rows of every part and, last, of all."""
    outside = np.where(at.wider < EVERY, np.inf, counts[at.wider] - counts[:-1, None])
    return np.where(outside.min(axis=1) < counts[:-1], outside.argmin(axis=1), -1)
