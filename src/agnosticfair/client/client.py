"""One client: its rows, and what the present task makes of them. Never imports the server's side."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from agnosticfair.data.encoding import encode
from agnosticfair.data.rows import Fold
from agnosticfair.data.stream import Stream, of_fold
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError
from agnosticfair.protocol.requests import Task

CHUNK = 4096
"""Rows that are worked on at a time: small enough to stay in a core's cache."""

MAX_CACHED = 24
"""Arrays of a task, and folds, that a client holds at a time: a request may name any number of them."""

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class Rows:
    """Encoded rows, sorted by stratum. X: (n, d + 1) with the intercept.  s: stratum codes, a group's each
    where nothing else is requested.  starts: where each stratum begins, (G + 1,).  weights: None for ones.
    kernels: K as the holder of the rows made it, if any.  order: of these rows in the table."""

    X: np.ndarray
    y: np.ndarray
    s: np.ndarray
    starts: np.ndarray
    weights: np.ndarray | None = None
    kernels: np.ndarray | None = None
    order: np.ndarray | None = None

    def chunks(self) -> Iterator[tuple[int, slice]]:
        """(stratum, rows) pieces of at most CHUNK rows, each within one stratum."""
        for j in range(len(self.starts) - 1):
            for first in range(self.starts[j], self.starts[j + 1], CHUNK):
                yield j, slice(first, min(first + CHUNK, self.starts[j + 1]))


@dataclass
class Cache:
    """What the task of this id makes of a client's rows, by the function that makes it."""

    task: str = ""
    values: dict[Hashable, Any] = field(default_factory=dict)


@dataclass
class Client:
    """One client: its key, its rows, and a cache.  threads: that add up a stream.  device: of PyTorch, on which a
    rule's rows are added up; None for here.  folds: what it is of some of its rows."""

    key: str
    table: Table | Stream
    threads: int = 1
    device: str | None = None
    cache: Cache = field(default_factory=Cache)
    folds: dict[Fold, Client] = field(default_factory=dict, repr=False)

    @property
    def who(self) -> str:
        """How errors name this client."""
        return f"client {self.key!r}"

    @property
    def rows(self) -> Table:
        """The rows in memory: a stream is asked batch by batch."""
        return cast(Table, self.table)

    def of(self, fold: Fold) -> Client:
        """The client of one fold's rows, which is kept."""
        if fold not in self.folds:
            dealt = of_fold(self.table, fold)
            if not len(dealt):
                raise DataError(f"{self.who} has no row in one of {fold.of} folds: leave it out")
            _make_room(self.folds)
            self.folds[fold] = replace(self, table=dealt, cache=Cache(), folds={})
        return self.folds[fold]

    def cached(
        self,
        task: Task,
        make: Callable[Concatenate[Client, Task, P], T],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """``make(client, task, ...)``, made once for a task; forgotten with it, or when MAX_CACHED others were used
        since, and then made anew."""
        if self.cache.task != task.id:
            self.cache = Cache(task.id)
        key, cached = (make, arguments), self.cache.values
        if key in cached:
            cached[key] = cached.pop(key)  # the last one used
        else:
            value = make(self, task, *arguments, **named)
            _make_room(cached)
            cached[key] = value
        return cast(T, cached[key])

    def prepare(self, task: Task) -> Rows:
        """The rows as this task encodes them."""
        return self.cached(task, encoded)


def _make_room(cached: dict[Any, Any]) -> None:
    """Forget what was used longest ago."""
    for key in list(cached)[: 1 - MAX_CACHED]:
        del cached[key]


def encoded(client: Client, task: Task) -> Rows:
    """The rows of a table as the task encodes them, sorted by stratum (``fairness.comparisons``)."""
    table = client.rows
    y, s = table.labels(task.positive), strata_of(client, table, task)
    order = np.argsort(s, kind="stable")
    X, places = np.empty((len(table), task.encoding.width + 1)), np.empty_like(order)
    X[:, -1], places[order] = 1.0, np.arange(len(order))
    encode(task.encoding, table, client.who, X[:, :-1], places)
    starts = np.searchsorted(s[order], np.arange(task.strata + 1))
    weights = None if table.weights is None else table.weights[order]
    kernels = None if table.kernels is None else table.kernels[order]
    return Rows(X, y[order], s[order], starts, weights, kernels, order)


def strata_of(client: Client, table: Table, task: Task) -> np.ndarray:
    """The stratum of every row, (n,): its groups and, where the task says so, its label."""
    s = np.zeros(len(table), np.int64)
    for name, groups in task.sensitive_features:
        codes = table.column(name).aligned(groups)
        if (codes < 0).any():
            raise DataError(
                f"{client.who} has groups of {name!r} that were not in its summary statistics"
            )
        s = s * len(groups) + codes
    return 2 * s + (table.labels(task.positive) > 0) if task.by_label else s
