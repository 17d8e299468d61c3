"""Deployments that no method saw, each as weights over the test rows, and what a decision does there.

One definition for every experiment. Some are inside the set that a method was trained for, most are
not: a method trained over kernels meets subgroups, one trained over pairs meets triples, tilts and
columns that are no features.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from agnosticfair.data.axes import axes_of_table, codes_of
from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError
from agnosticfair.mathematics.basis import gaussian_kernel
from agnosticfair.mathematics.subgroups import (
    Axis,
    Subgroup,
    large_subgroups,
    members,
    sizes_of,
    subgroup_name,
    triples,
)
from agnosticfair_research.datasets import Shift
from agnosticfair_research.splits import Split

Row = dict[str, Any]
KINDS = ("test set", "natural", "single value", "pair", "triple", "kernel tilt", "mixture")
MIN_ROWS = 400  # of a deployment; of a weighted one, the effective number
MIN_SHARE = 0.05  # of every group in it
MAXIMUM = {
    "pair": 400,
    "triple": 150,
    "kernel tilt": 40,
    "mixture": 40,
}  # drawn where there are more
MIXED = 5  # subgroups in a mixture, at most
WIDTH = 1.0  # of a tilt's kernel, in the encoded space
BEYOND = 2.0  # standard errors over a limit that are no accident


@dataclass(frozen=True)
class Suite:
    """names, kinds: of each of D deployments.  weights: (D, n) over the rows, not negative, sparse; a
    subgroup's are 0 and 1."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    weights: csr_array

    def __len__(self) -> int:
        return len(self.names)


def deployments(
    test: Table,
    encoding: Encoding,
    seed: int,
    sensitive_feature: str,
    natural: Mapping[str, np.ndarray] | None = None,
) -> Suite:
    """All deployments of a test set that are large enough and hold every group of ``sensitive_feature``.

    The test set itself; the ``natural`` ones (see ``natural_subgroups``); single values, pairs and triples of
    values of all columns, features or not, numbers in four bins; tilts around random rows; mixtures of
    single values and pairs. The seed draws the tilts, the mixtures, and which pairs and triples where there
    are more than MOST.
    """
    rng, s, n = np.random.default_rng(seed), test.column(sensitive_feature).codes, len(test)
    candidates = {"test set": Deployment(KINDS[0], np.arange(n))}
    candidates |= {
        k: Deployment(KINDS[1], np.flatnonzero(rows)) for k, rows in (natural or {}).items()
    }
    if not candidates["test set"].large_enough(s):
        raise DataError(
            f"the {n} test rows are fewer than {MIN_ROWS}, or lack a group: no deployment can be measured"
        )
    subgroups = _Subgroups.of(test, sensitive_feature)
    mixable = subgroups.large(subgroups.shallow)
    for kind in KINDS[2:4]:
        of_kind = [name for name, weighed in mixable.items() if weighed.kind == kind]
        candidates = {
            name: mixable[name] for name in _drawn(of_kind, MAXIMUM.get(kind), rng)
        } | candidates
    deep = triples([*subgroups.shallow])
    order = (deep[k] for k in rng.permutation(len(deep)))
    candidates |= subgroups.large(order, MAXIMUM["triple"])
    X = encode(encoding, test)
    centres = rng.choice(n, min(MAXIMUM["kernel tilt"], n), replace=False)
    K = gaussian_kernel(X, X[centres], WIDTH)
    for i, k in zip(centres, K.T, strict=True):
        candidates[f"tilt to row {i}"] = Deployment(KINDS[5], np.arange(n), k)
    mixed = [weighed.rows for weighed in mixable.values()]
    for k in range(MAXIMUM["mixture"] if len(mixed) > 1 else 0):
        candidates[f"mixture {k + 1}"] = _mixture(mixed, n, rng)
    large = {name: weighed for name, weighed in candidates.items() if weighed.large_enough(s)}
    return _suite(
        {name: large[name] for name in sorted(large, key=lambda k: KINDS.index(large[k].kind))}, n
    )


def named_suite(table: Table, sensitive_feature: str) -> Suite:
    """All of these rows, and the single values and pairs of values among them that are large enough."""
    subgroups = _Subgroups.of(table, sensitive_feature)
    overall = {"all rows": Deployment(KINDS[0], np.arange(len(table)))}
    return _suite(overall | subgroups.large(subgroups.shallow), len(table))


def natural_subgroups(split: Split, shift: Shift) -> dict[str, np.ndarray]:
    """The test rows (n,) of the values that the shift trains less on, or holds back; and of all others."""
    column = split.test.column(shift.column)
    groups = {name: split.test_piece == k for k, name in enumerate(split.pieces)}
    for code in np.unique(column.codes[split.test_piece == 1]):
        groups[f"{shift.column} = {column.categories[code]}"] = column.codes == code
    return groups


@dataclass(frozen=True)
class Deployment:
    """A deployment: the rows in it, and what they weigh; one each unless said."""

    kind: str
    rows: np.ndarray
    weights: np.ndarray | None = None

    def large_enough(self, s: np.ndarray) -> bool:
        """Whether the rows are worth MIN_ROWS and every group in s (n,) has MIN_SHARE of their weight.

        >>> both = Deployment("pair", np.arange(400))
        >>> both.large_enough(np.array([0, 1] * 200)), both.large_enough(np.array([0] * 399 + [1]))
        (True, False)
        """
        w = np.ones(len(self.rows)) if self.weights is None else self.weights
        total = w.sum()
        if total <= 0 or total**2 < MIN_ROWS * (1 - 1e-9) * (w @ w):
            return False
        mass = np.bincount(s[self.rows], w, s.max() + 1)[np.unique(s)]
        return bool(mass.min() >= MIN_SHARE * total)


@dataclass(frozen=True)
class _Subgroups:
    """The conjunctions of values of some rows. shallow: those of one or two values with enough rows."""

    axes: Sequence[Axis]
    codes: np.ndarray
    s: np.ndarray
    shallow: Sequence[Subgroup]

    @classmethod
    def of(cls, table: Table, sensitive_feature: str) -> _Subgroups:
        names = {*table.numeric, *table.categorical, *table.sensitive_features, *table.other}
        axes = axes_of_table(table, sorted(names - {sensitive_feature}))
        codes = codes_of(table, axes)
        shallow = large_subgroups(codes, sizes_of(axes), MIN_ROWS / len(table))
        return cls(axes, codes, table.column(sensitive_feature).codes, shallow)

    def large(
        self, subgroups: Iterable[Subgroup], maximum: int | None = None
    ) -> dict[str, Deployment]:
        """The first ``maximum`` of the subgroups that are large enough, by name."""
        deployments: dict[str, Deployment] = {}
        for subgroup in subgroups:
            if len(deployments) == maximum:
                break
            rows = np.flatnonzero(members(self.codes, subgroup))
            if len(rows) >= MIN_ROWS:
                weighed = Deployment(KINDS[1 + len(subgroup)], rows)
                if weighed.large_enough(self.s):
                    deployments[subgroup_name(self.axes, subgroup)] = weighed
        return deployments


def _drawn(names: list[str], maximum: int | None, rng: np.random.Generator) -> list[str]:
    if maximum is None or len(names) <= maximum:
        return names
    return [names[k] for k in np.sort(rng.choice(len(names), maximum, replace=False))]


def _mixture(subgroups: Sequence[np.ndarray], n: int, rng: np.random.Generator) -> Deployment:
    """Rows of some subgroups, drawn, each subgroup with a share of its own."""
    count = int(rng.integers(2, min(MIXED, len(subgroups)) + 1))
    mixed = np.zeros(n)
    chosen = rng.choice(len(subgroups), count, replace=False)
    for share, k in zip(rng.dirichlet(np.ones(count)), chosen, strict=True):
        mixed[subgroups[k]] += share / len(subgroups[k])
    rows = np.flatnonzero(mixed)
    return Deployment(KINDS[6], rows, mixed[rows] / mixed.max())


def _suite(deployments: Mapping[str, Deployment], n: int) -> Suite:
    ends = np.cumsum([0, *(len(weighed.rows) for weighed in deployments.values())])
    rows = np.concatenate([weighed.rows for weighed in deployments.values()])
    weights = [
        np.ones(len(f.rows)) if f.weights is None else f.weights for f in deployments.values()
    ]
    matrix = csr_array((np.concatenate(weights), rows, ends), shape=(len(deployments), n))
    return Suite(
        tuple(deployments), tuple(weighed.kind for weighed in deployments.values()), matrix
    )


MEASURES = ("risk_difference", "accuracy", "balanced_accuracy", "positive_rate")


def measure_all(suite: Suite, y: np.ndarray, p: np.ndarray, s: np.ndarray) -> dict[str, np.ndarray]:
    """MEASURES on every deployment, (D,) each, and under ``<name>_error`` their standard errors.

    The rows are taken for a sample of what a deployment weighs: the variance of a weighted mean m of
    v is sum w^2 (v - m)^2 / (sum w)^2.
    """
    W, squares = suite.weights, suite.weights.power(2)

    def mean(v: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean of v over the rows inside, and its variance; nan where there are none."""
        mass = W @ inside
        with np.errstate(divide="ignore", invalid="ignore"):
            m = (W @ (inside * v)) / mass
            ends = squares @ (inside * v**2) - 2 * m * (squares @ (inside * v))
            return m, np.maximum(ends + m**2 * (squares @ inside), 0.0) / mass**2

    right, every = 1.0 - np.abs(y - p), np.ones(len(p))
    rates, spread = map(
        np.array, zip(*(mean(p, (s == g) * 1.0) for g in np.unique(s)), strict=True)
    )
    high, low, at = rates.argmax(axis=0), rates.argmin(axis=0), np.arange(len(suite))
    recalls, loose = map(np.array, zip(*(mean(right, (y == k) * 1.0) for k in (0, 1)), strict=True))
    known = (~np.isnan(recalls)).sum(axis=0)
    (accuracy, a), (positives, b) = mean(right, every), mean(p, every)
    measured = {
        "risk_difference": (rates[high, at] - rates[low, at], spread[high, at] + spread[low, at]),
        "accuracy": (accuracy, a),
        "balanced_accuracy": (np.nanmean(recalls, axis=0), np.nansum(loose, axis=0) / known**2),
        "positive_rate": (positives, b),
    }
    values = {name: value for name, (value, _) in measured.items()}
    return values | {f"{name}_error": np.sqrt(variance) for name, (_, variance) in measured.items()}
