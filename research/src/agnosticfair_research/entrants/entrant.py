"""What an entrant of the benchmark is, and all that it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec

import numpy as np

from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.summary import encoding_of, merge, summary_statistics
from agnosticfair.data.table import Table

Decide = Callable[[Table], np.ndarray]


@dataclass(frozen=True)
class Coded:
    """Encoded rows. X: (n, d) without intercept.  y, s: (n,), label and group code."""

    X: np.ndarray
    y: np.ndarray
    s: np.ndarray


@dataclass(frozen=True)
class Train:
    """Training rows by client, in tables or, for those who want arrays, encoded; and nothing of the test."""

    clients: Mapping[str, Table]
    positive: str
    sensitive_features: str
    seed: int

    @cached_property
    def encoding(self) -> Encoding:
        return encoding_of(
            merge({k: summary_statistics(t, who=k) for k, t in self.clients.items()})
        )

    def rows(self, table: Table) -> Coded:
        """A table as arrays; label 0 where it has none."""
        y = table.labels(self.positive) if table.target is not None else np.zeros(len(table))
        s = table.column(self.sensitive_features).codes
        return Coded(encode(self.encoding, table), y.astype(np.int64), s)

    @cached_property
    def encoded(self) -> Sequence[Coded]:
        """The rows of every client."""
        return [self.rows(table) for table in self.clients.values()]

    @cached_property
    def pooled(self) -> Coded:
        """All rows in one place, which no federated method sees."""
        return Coded(
            *(np.concatenate([getattr(c, name) for c in self.encoded]) for name in ("X", "y", "s"))
        )


@dataclass(frozen=True)
class Entrant:
    """A method in the benchmark.

    fit: from training rows and the largest difference that is asked for to a decision: (n,), the
    probability that each row of a table is decided positively.  asks: whether what is asked for changes
    the fit.  sees: whether it looks at the sensitive feature when it decides.  pooled: whether it needs all
    rows in one place.  packages: what must be installed.  ours: whether it is a method of this package.
    """

    name: str
    fit: Callable[[Train, float], Decide]
    note: str
    asks: bool = True
    sees: bool = False
    pooled: bool = False
    packages: tuple[str, ...] = ()
    ours: bool = False

    @property
    def installed(self) -> bool:
        return all(find_spec(name) is not None for name in self.packages)


def linear_decision(train: Train, w: np.ndarray) -> Decide:
    """[x . w > 0], the intercept last in w (d + 1,)."""
    return lambda table: (train.rows(table).X @ w[:-1] + w[-1] > 0).astype(float)
