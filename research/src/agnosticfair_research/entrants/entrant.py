"""What an entrant of the benchmark is, and all that it is given."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np

from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.summary import encoding_of, merge, summary_statistics
from agnosticfair.data.table import Table

Decide = Callable[[Table], np.ndarray]
Shared = TypeVar("Shared")


@dataclass(frozen=True)
class Coded:
    """Encoded rows. X: (n, d) without intercept.  y, s: (n,), label and group code."""

    X: np.ndarray
    y: np.ndarray
    s: np.ndarray


@dataclass(frozen=True)
class Train:
    """Training rows by client, in tables or, for those who want arrays, encoded; and nothing of the test.

    positive_rate: the share of positives that is wanted, where it is fixed.  balanced: whether both labels weigh
    alike, else all rows do.  cache: what entrants share on these rows, by name: estimates are learned once for all
    settings; a name that is a tuple is of a path of settings, each of which begins where the one before ended.
    """

    clients: Mapping[str, Table]
    positive: str
    sensitive_features: str
    seed: int
    positive_rate: float | None = None
    balanced: bool = True
    cache: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def shared(self, name: Hashable, make: Callable[[], Shared]) -> Shared:
        """What ``make`` gives, made once for these rows."""
        if name not in self.cache:
            self.cache[name] = make()
        value: Shared = self.cache[name]
        return value

    def begin_path(self) -> None:
        """Forget where the setting before ended, so that what follows does not depend on it."""
        for name in [name for name in self.cache if isinstance(name, tuple)]:
            del self.cache[name]

    @property
    def encoding(self) -> Encoding:
        return self.shared(
            "encoding",
            lambda: encoding_of(
                merge({k: summary_statistics(t, who=k) for k, t in self.clients.items()})
            ),
        )

    def rows(self, table: Table) -> Coded:
        """A table as arrays; label 0 where it has none."""
        y = table.labels(self.positive) if table.target is not None else np.zeros(len(table))
        s = table.column(self.sensitive_features).codes
        return Coded(encode(self.encoding, table), y.astype(np.int64), s)

    @property
    def encoded(self) -> Sequence[Coded]:
        """The rows of every client."""
        return self.shared("encoded", lambda: [self.rows(t) for t in self.clients.values()])

    @property
    def pooled(self) -> Coded:
        """All rows in one place, which no federated method sees."""
        names = ("X", "y", "s")
        return self.shared(
            "pooled",
            lambda: Coded(*(np.concatenate([getattr(c, k) for c in self.encoded]) for k in names)),
        )

    @property
    def costs(self) -> tuple[float, float]:
        """Of a false positive and a false negative."""
        share = float(self.pooled.y.mean()) if self.balanced else 0.5
        return 2.0 * share, 2.0 * (1.0 - share)

    def weights(self, y: np.ndarray) -> np.ndarray:
        """The same costs as weights (n,) of rows with labels y."""
        return np.array(self.costs)[np.asarray(y, np.int64)]


@dataclass(frozen=True)
class Entrant:
    """A method in the benchmark.

    fit: from training rows and the largest difference that is asked for to a decision: (n,), the probability that each
    row of a table is decided positively.  rates: whether it keeps to ``Train.positive_rate``.  asks: whether what is
    asked for changes the fit.  sees: whether it looks at the sensitive feature when it decides.  pooled: whether it
    needs all rows in one place.  packages: what must be installed.  ours: whether it is a method of this package.
    """

    name: str
    fit: Callable[[Train, float], Decide]
    note: str
    rates: bool = False
    asks: bool = True
    sees: bool = False
    pooled: bool = False
    packages: tuple[str, ...] = ()
    ours: bool = False

    @property
    def installed(self) -> bool:
        return all(find_spec(name) is not None for name in self.packages)


def above(score: Decide, threshold: float = 0.0) -> Decide:
    """The decision where a score is above a threshold, 0 or 1."""
    return lambda table: (score(table) > threshold).astype(float)
