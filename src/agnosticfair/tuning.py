"""Choosing tau: accuracy against the worst difference in any subgroup along a path of taus, cross-validated.

A fold's fits are of a coarse tolerance, and each begins where that of the next larger tau ended; folds go on side by
side.  Only the point that is picked is fitted on all rows, to its method's own tolerance.  Beside the path stand 'fl',
which has no limit, and 'fairfl', which limits the overall difference alone.  The module is not called ``frontier``: it
would hide the package's function of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from agnosticfair.auditing.fits import compared
from agnosticfair.auditing.subgroups import searched, subgroups_in
from agnosticfair.data.axes import axes_of_table, codes_of
from agnosticfair.data.encoding import encode
from agnosticfair.data.table import Column, Table, concatenate
from agnosticfair.errors import SettingsError, needing
from agnosticfair.federation import Fit, fit, fit_along
from agnosticfair.mathematics.basis import check_seed
from agnosticfair.mathematics.scoring import accuracy, nearly_constant, positive_rate
from agnosticfair.mathematics.subgroups import Subgroup, counting, sizes_of
from agnosticfair.methods import Fairness, Method, method
from agnosticfair.model import Model
from agnosticfair.settings import TAUS
from agnosticfair.threads import walked

COARSE = 4e-3
"""Tolerance of the fits along the path; the one that is picked is fitted to its method's own."""

FEWER = 4
"""A network's points have its rounds divided by this."""

MIN_FOLD = 10
"""Rows that a fold has at least."""

REFERENCES = ("fairfl", "fl")
"""Methods that stand beside the path."""

Progress = Callable[[int, int], None]
NONE: Mapping[str, Any] = MappingProxyType({})
Counting = Callable[[np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class FrontierPoint:
    """One tau, or a method beside the path: means over the held-out folds.

    accuracy: errors weigh what they cost, where a rule has costs.  worst: the largest difference in a subgroup with
    rows enough.  measured: the overall difference.  positive: the share of positive decisions.  standard_errors: of
    accuracy and worst.  tau: None of a method that has none.  one_answer: nearly all decisions are the same.
    """

    tau: float | None
    accuracy: float
    worst: float
    measured: float
    positive: float
    standard_errors: tuple[float, float]
    one_answer: bool = False

    def dominates(self, other: FrontierPoint) -> bool:
        """Whether it is more accurate, and its worst difference smaller."""
        return self.accuracy > other.accuracy and self.worst < other.worst


@dataclass(frozen=True)
class Frontier:
    """The points, by tau; ``knee`` is the place of the strictest one after which less fairness stops paying
    (``picked_place``).

    references: what 'fairfl' and 'fl' do on the same folds; none where rows lack numbers.
    """

    points: tuple[FrontierPoint, ...]
    knee: int
    metric: str
    folds: int
    references: Mapping[str, FrontierPoint]
    picked: Callable[[float], Any] = field(repr=False)

    def to_frame(self) -> Any:
        """The points as a pandas frame, a line each, and what accuracy they cost against 'fairfl' and 'fl'."""
        with needing("audit", "a frame needs the package 'pandas'"):
            import pandas as pd

        lines = [{k: v for k, v in vars(p).items() if k != "standard_errors"} for p in self.points]
        frame = pd.DataFrame(lines).assign(knee=[k == self.knee for k in range(len(lines))])
        for name, other in self.references.items():
            frame[f"cost against {name}"] = other.accuracy - frame["accuracy"]
        return frame

    def plot(self) -> Any:
        """A figure: accuracy over the worst difference, a point for every tau."""
        # the report draws what this room finds, and is looked up only when somebody looks
        return import_module("agnosticfair.report.figures").frontier_figure(self)

    def pick(self, tau: float | None = None) -> Any:
        """The estimator (or the fit) of the point of that tau, by default of the knee."""
        taus = [point.tau for point in self.points if point.tau is not None]
        wanted = taus[self.knee] if tau is None else tau
        near = min(taus, key=lambda one: abs(one - wanted))
        if abs(near - wanted) > 1e-9:
            raise SettingsError(
                f"no point has tau {wanted:g}; there are: {', '.join(f'{one:g}' for one in taus)}"
            )
        return self.picked(near)


@dataclass(frozen=True)
class _Fold:
    """A fold: what is fitted on the rows without it, one method after the other; what all are measured on, and the
    methods beside the path."""

    train: Mapping[str, Table]
    out: Mapping[str, Table]
    methods: Sequence[Method]
    names: tuple[str, ...]
    how: Mapping[str, Any]
    beside: Sequence[Method]


def _walked(fold: _Fold) -> Iterator[list[tuple[float, ...]]]:
    """What the points of a fold do, one after the other; with the first, what the methods beside the path do."""
    examine: Callable[[Model], tuple[float, ...]] | None = None
    for fitted in fit_along(fold.train, fold.methods, **fold.how):
        beside: list[Fit] = []
        if examine is None:
            examine = examiner(fold.out, fold.names, fitted)
            beside = [fit(fold.train, one, **fold.how) for one in fold.beside]
        yield [examine(one.model) for one in (fitted, *beside)]


def trace(
    clients: Mapping[str, Table],
    chosen_method: Method,
    *,
    sensitive_features: str | Sequence[str],
    taus: Sequence[float] = TAUS,
    folds: int = 2,
    seed: int = 0,
    jobs: int = 1,
    on_progress: Progress | None = None,
    picked: Callable[[Fit], Any] | None = None,
    **how: Any,
) -> Frontier:
    """The frontier of a method over clients.

    Every client deals its own rows to the folds at random. On the held-out rows, pooled, accuracy is
    measured, and the worst difference in any subgroup with rows enough.  jobs: processes.  on_progress: called with
    (done, total).
    """
    check(chosen_method, taus, folds)
    check_seed(seed)
    if folds > (rows := sum(map(len, clients.values()))) // MIN_FOLD:
        raise SettingsError(
            f"folds is {folds} for {rows} rows; each needs {MIN_FOLD} rows: take fewer"
        )
    alone = isinstance(sensitive_features, str)
    names = (str(sensitive_features),) if alone else tuple(sensitive_features)
    how = {"sensitive_features": sensitive_features, "seed": seed, **how}
    path = sorted(taus)
    dealt = _dealt(clients, chosen_method, path, folds, seed, names, how)
    seen = iter(range(1, folds * len(path) + 1))
    tell = (lambda _: on_progress(next(seen), folds * len(path))) if on_progress else None
    chains = walked(_walked, dealt, jobs, tell)
    points = _means(np.array([[ran[0] for ran in chain[::-1]] for chain in chains]), path)
    beside = np.array([chain[0][1:] for chain in chains])
    means = _means(beside, [None] * len(REFERENCES)) if beside.size else []
    references = dict(zip(REFERENCES, means, strict=False))
    place = picked_place(points, references)
    finish = picked or (lambda fitted: fitted)
    metric = chosen_method.fairness.metric if chosen_method.fairness is not None else ""
    return Frontier(
        points,
        place,
        metric,
        folds,
        references,
        lambda tau: finish(fit(clients, method(chosen_method, tau=tau), **how)),
    )


def _dealt(
    clients: Mapping[str, Table],
    chosen_method: Method,
    path: Sequence[float],
    folds: int,
    seed: int,
    names: tuple[str, ...],
    how: Mapping[str, Any],
) -> list[_Fold]:
    """The folds, with the largest tau first: it is the nearest to the fit without a limit."""
    rng = np.random.default_rng(seed)
    folds_of = {key: rng.permutation(len(table)) % folds for key, table in clients.items()}
    coarse, beside = _coarse(chosen_method), _references(chosen_method)
    if any(np.isnan(v).any() for table in clients.values() for v in table.numeric.values()):
        beside = []  # they need every number
    methods = [method(coarse, tau=tau) for tau in sorted(path, reverse=True)]
    folds_dealt = []
    for k in range(folds):
        training = {key: table.take(folds_of[key] != k) for key, table in clients.items()}
        train = {key: table for key, table in training.items() if len(table)}  # of one row: none
        out = {key: table.take(folds_of[key] == k) for key, table in clients.items()}
        folds_dealt.append(_Fold(train, out, methods, names, how, beside))
    return folds_dealt


def _coarse(method: Method) -> Method:
    """The method of a point: to a coarse tolerance; a network, which begins anew, with a quarter of its rounds."""
    rounds = method.max_rounds if method.network is None else max(1, method.max_rounds // FEWER)
    tolerance = max(method.tolerance, COARSE)
    return replace(method, tolerance=tolerance, max_rounds=rounds)


def _references(chosen_method: Method) -> list[Method]:
    """The methods beside the path, with the features, the metric and the network of its method."""
    assert chosen_method.fairness is not None, "check has looked"
    carried = ("ridge", "network")
    same: dict[str, Any] = {name: getattr(chosen_method, name) for name in carried}
    beside = [method(name, **same) for name in REFERENCES]
    metric = {
        "metric": chosen_method.fairness.metric,
        "intersections": chosen_method.fairness.intersections,
    }
    beside = [one if one.fairness is None else method(one, **metric) for one in beside]
    return [_coarse(one) for one in beside]


def _means(values: np.ndarray, taus: Sequence[float | None]) -> tuple[FrontierPoint, ...]:
    """Points from the values of every fold, (folds, points, 5)."""
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    lines = zip(taus, values.mean(axis=0).tolist(), error.tolist(), strict=True)
    return tuple(
        FrontierPoint(tau, m[0], m[1], m[2], m[3], (e[0], e[1]), nearly_constant(m[0], m[4], m[3]))
        for tau, m, e in lines
    )


def check(method: Method, taus: Sequence[float], folds: int) -> None:
    if method.fairness is None:
        raise SettingsError(f"method {method.name!r} has no tau to choose: take 'agnosticfair'")
    if len(taus) < 2 or len({*taus}) < len(taus) or min(taus) <= 0:
        raise SettingsError(f"taus {list(taus)} make no path: give two or more positive ones")
    if folds < 2:
        raise SettingsError(f"folds is {folds}; it must be at least 2")


def examiner(
    tables: Mapping[str, Table], names: Sequence[str], fitted: Fit
) -> Callable[[Model], tuple[float, ...]]:
    """From a model to its accuracy, worst difference, overall difference and positive rate on these rows, of the worst
    sensitive feature; and the accuracy of one answer for all.  Where a rule has costs, errors weigh these.

    fitted: the fit that says which subgroups and which metric; subgroups are those that are estimable.
    """
    fairness, table = fitted.method.fairness, concatenate([*tables.values()])
    assert fairness is not None, "check has looked"
    groups = [*compared(fairness, {name: table.column(name) for name in names}).values()]
    y, encoding = table.labels(fitted.model.positive).astype(int), fitted.model.encoding
    X, weights = encode(encoding, table), table.weights
    differences = _over_subgroups(table, groups, y, fairness)
    errors = _error_costs(fitted, y, weights)
    one = max(accuracy(y, np.full(len(y), answer), errors) for answer in (0, 1))

    def examine(model: Model) -> tuple[float, ...]:
        if model.rule is not None:
            d = model.decision(table)
        else:
            d = model.scores(X if model.encoding == encoding else encode(model.encoding, table))
        y_hat = (d > 0).astype(int)
        worst, measured = np.max(differences(y_hat), axis=0)
        scores = accuracy(y, y_hat, errors), positive_rate(y_hat, weights)
        return scores[0], float(worst), float(measured), scores[1], one

    return examine


def _error_costs(fitted: Fit, y: np.ndarray, weights: np.ndarray | None) -> np.ndarray | None:
    """What being right about each row weighs, (n,): its weight, times the cost of an error where a rule has costs."""
    rule = fitted.method.rule
    if rule is None or rule.costs is None or fitted.model.rule is None:
        return weights
    return np.asarray(fitted.model.rule.error_costs)[y] * (1.0 if weights is None else weights)


def _over_subgroups(
    table: Table, groups: Sequence[Column], y: np.ndarray, fairness: Fairness
) -> Callable[[np.ndarray], list[tuple[float, float]]]:
    """From decisions to each sensitive feature's worst difference in a subgroup, and overall. Subgroups are searched
    once: they do not depend on decisions."""
    request = subgroups_in(fairness.basis if fairness.basis.kind == "subgroups" else None)
    axes = axes_of_table(table, request.columns, request.bins)
    codes, sizes = codes_of(table, axes), sizes_of(axes)

    def counts(column: Column, y_hat: np.ndarray, count: Counting) -> np.ndarray:
        strata, G = (column.codes * 2 + y) * 2 + y_hat, len(column.categories)
        return count(strata, 4 * G).reshape(-1, G, 2, 2)

    def count_subgroups(column: Column, some: Sequence[Subgroup]) -> np.ndarray:
        return counts(column, y, counting(codes, sizes, some))

    counted = [searched(axes, request, partial(count_subgroups, feature)) for feature in groups]
    known = [
        (feature, f, counting(codes, sizes, f.subgroups))
        for feature, f in zip(groups, counted, strict=True)
    ]

    def differences(y_hat: np.ndarray) -> list[tuple[float, float]]:
        anew = (replace(f, counts=counts(feature, y_hat, count)) for feature, f, count in known)
        return [f.worst(fairness.metric) for f in anew]

    return differences


def picked_place(
    points: Sequence[FrontierPoint], references: Mapping[str, FrontierPoint] = NONE
) -> int:
    """The place of the knee among the points that do not give one answer to nearly all and are not worse than 'fairfl'
    on both axes; of all where none is left.

    >>> path = [(0.1, 0.75, 0.0, True), (0.2, 0.78, 0.1, False), (0.3, 0.8, 0.3, False)]
    >>> picked_place([FrontierPoint(t, a, w, w, 0.1, (0.0, 0.0), one) for t, a, w, one in path])
    1
    """
    several = [k for k, p in enumerate(points) if not p.one_answer] or [*range(len(points))]
    better = references.get("fairfl")
    some = [k for k in several if better is None or not better.dominates(points[k])] or several
    drawn = np.array(
        [(points[k].worst, points[k].accuracy, *points[k].standard_errors) for k in some]
    )
    return some[knee(drawn[:, 0], drawn[:, 1], drawn[:, 2:])]


def knee(worst: np.ndarray, accuracy: np.ndarray, standard_errors: np.ndarray) -> int:
    """The strictest of the points farthest above the line from the fairest to the most accurate end, both axes from 0
    to 1: of those within one standard error of the farthest, for between them chance alone would choose.

    standard_errors: standard errors of accuracy and worst, (n, 2).

    >>> knee(np.array([0.0, 0.1, 0.2, 1.0]), np.array([0.5, 0.7, 0.73, 0.75]), np.zeros((4, 2)))
    2
    >>> knee(np.array([0.0, 0.1, 0.2, 1.0]), np.array([0.5, 0.7, 0.73, 0.75]), np.full((4, 2), 0.01))
    1
    """
    ends = (int(np.argmin(worst)), int(np.argmax(accuracy)))
    x, y = worst - worst[ends[0]], accuracy - accuracy[ends[0]]
    width, height = x[ends[1]], y[ends[1]]
    if width <= 0 or height <= 0:
        return ends[1]
    above = y / height - x / width
    far = int(np.argmax(above))
    error = np.hypot(standard_errors[far, 0] / height, standard_errors[far, 1] / width)
    return int(np.argmax(above >= above[far] - error))
