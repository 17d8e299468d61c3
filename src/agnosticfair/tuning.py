"""Choosing tau: accuracy against the worst difference along a path of taus, cross-validated.

A fold's fits are of a coarse tolerance, and each begins where that of the next larger tau ended; rows are counted,
encoded and sorted once, and folds go on side by side.  Only the point that is picked is fitted on all rows, to its
method's own tolerance.  Beside the path stand 'fl', where it would end without a limit, and 'fairfl', which is fair on
the rows as they are.  The module is not called ``frontier``: it would hide the package's function of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from agnosticfair.auditing.audit import audit
from agnosticfair.auditing.fits import compared, kernels_on
from agnosticfair.auditing.parts import asked_parts, searched
from agnosticfair.data.axes import codes_of, own_axes
from agnosticfair.data.encoding import encode
from agnosticfair.data.table import Column, Table, concatenate
from agnosticfair.errors import SettingsError, needing
from agnosticfair.federation import Fit, fit, fit_along, in_process
from agnosticfair.mathematics.basis import check_seed, is_apart
from agnosticfair.mathematics.metrics import accuracy, nearly_constant, positive_rate
from agnosticfair.mathematics.parts import Part, counting, memberships, sizes_of
from agnosticfair.methods import Fairness, Method, method
from agnosticfair.model import Model
from agnosticfair.server.plan import Start
from agnosticfair.settings import TAUS
from agnosticfair.threads import walked

COARSE = 4e-3
"""Tolerance of the fits along the path; the one that is picked is fitted to its method's own."""

FEWER = 4
"""A network's points have its rounds divided by this."""

LEAST_FOLD = 10
"""Rows that a fold has at least."""

REFERENCES = ("fairfl", "fl")
"""Methods that stand beside the path."""

Progress = Callable[[int, int], None]
Counting = Callable[[np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class FrontierPoint:
    """One tau, or a method beside the path: means over the held-out folds.

    accuracy: errors weigh what they cost, where a rule has costs.  worst: the largest difference over the method's set.
    positive: the share of positive decisions.  spread: the standard error of accuracy and worst.  tau: None of a method
    that has none.  one_answer: decisions are hardly more than one answer to everybody.
    """

    tau: float | None
    accuracy: float
    worst: float
    measured: float
    positive: float
    spread: tuple[float, float]
    one_answer: bool = False


@dataclass(frozen=True)
class Frontier:
    """The points, by tau; ``knee`` is the place of the strictest one after which less fairness stops paying, never one
    that gives one answer to everybody unless all do.

    references: what 'fairfl' and 'fl' do on the same folds; none where rows lack numbers.
    """

    points: tuple[FrontierPoint, ...]
    knee: int
    notion: str
    folds: int
    references: Mapping[str, FrontierPoint]
    picked: Callable[[float], Any] = field(repr=False)

    def to_frame(self) -> Any:
        """The points as a pandas frame, a line each, and what accuracy they cost against 'fairfl' and 'fl'."""
        with needing("audit", "a frame needs the package 'pandas'"):
            import pandas as pd

        lines = [{k: v for k, v in vars(p).items() if k != "spread"} for p in self.points]
        made = pd.DataFrame(lines).assign(knee=[k == self.knee for k in range(len(lines))])
        for name, other in self.references.items():
            made[f"cost against {name}"] = other.accuracy - made["accuracy"]
        return made

    def plot(self) -> Any:
        """A figure: accuracy over the worst difference, a point for every tau."""
        # the report draws what this room finds, and is looked up only when somebody looks
        return import_module("agnosticfair.report.frontier").figure(self)

    def _repr_html_(self) -> str:
        """The points as a table, in a notebook."""
        grid = import_module("agnosticfair.report.frontier").grid(self)
        return import_module("agnosticfair.report.tables").html([grid])

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
    recipes: Sequence[Method]
    names: tuple[str, ...]
    how: Mapping[str, Any]
    beside: Sequence[Method]


@dataclass(frozen=True)
class _Ran:
    """The loss of a point's fit, infinite where it has none to compare by; and what it does.  beside: with the first
    point, what the methods beside the path do."""

    loss: float
    found: tuple[float, ...]
    beside: Sequence[tuple[float, ...]] = ()


def _walked(fold: _Fold) -> Iterator[_Ran]:
    """The points of a fold, one after the other."""
    examine: Callable[[Model], tuple[float, ...]] | None = None
    for made in fit_along(fold.train, fold.recipes, **fold.how):
        beside: list[tuple[float, ...]] = []
        if examine is None:
            examine = examiner(fold.out, fold.names, made)
            beside = [examine(model) for model in _beside(fold, made)]
        yield _Ran(_loss(made) if made.converged else np.inf, examine(made.model), beside)


def _beside(fold: _Fold, made: Fit) -> list[Model]:
    """The models beside the path, as ``REFERENCES`` are named: 'fl' begins where the fit without a limit to speak of
    ended, 'fairfl' where 'fl' did; a rule has no weights to begin at."""
    engine, start = in_process(fold.train), None if made.method.rule is not None else made.start
    if not fold.beside:
        return []
    fairfl, fl = fold.beside
    plain = {k: v for k, v in fold.how.items() if k != "centres"}
    free = fit(engine, fl, **plain, start=None if start is None else Start(start.w))
    if start is not None:
        start = Start(free.model.w, metric=start.metric)
    return [fit(engine, fairfl, **plain, start=start).model, free.model]


def _loss(fitted: Fit) -> float:
    return float(fitted.history[-1].get("loss", 0.0))


def trace(
    clients: Mapping[str, Table],
    recipe: Method,
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
    measured and the worst difference certified over the set of the fit. A point that loses more in training than
    a stricter one, which keeps its limit, too, gives way to that.  jobs: processes.  on_progress: called with
    (done, total).
    """
    check(recipe, taus, folds)
    check_seed(seed)
    if folds > (rows := sum(map(len, clients.values()))) // LEAST_FOLD:
        raise SettingsError(
            f"folds is {folds} for {rows} rows; each needs {LEAST_FOLD} rows: take fewer"
        )
    alone = isinstance(sensitive_features, str)
    names = (str(sensitive_features),) if alone else tuple(sensitive_features)
    how = {"sensitive_features": sensitive_features, "seed": seed, **how}
    path = sorted(taus)
    dealt = _dealt(clients, recipe, path, folds, seed, names, how)
    seen = iter(range(1, folds * len(path) + 1))
    tell = (lambda _: on_progress(next(seen), folds * len(path))) if on_progress else None
    chains = walked(_walked, dealt, jobs, tell)
    points = _means(np.array([_given_way(chain[::-1]) for chain in chains]), path)
    beside = np.array([chain[0].beside for chain in chains])
    means = _means(beside, [None] * len(REFERENCES)) if beside.size else []
    references = dict(zip(REFERENCES, means, strict=False))
    place = picked_place(points)
    finish = picked or (lambda made: made)
    notion = recipe.fairness.notion if recipe.fairness is not None else ""
    return Frontier(
        points,
        place,
        notion,
        folds,
        references,
        lambda tau: finish(fit(clients, method(recipe, tau=tau), **how)),
    )


def _dealt(
    clients: Mapping[str, Table],
    recipe: Method,
    path: Sequence[float],
    folds: int,
    seed: int,
    names: tuple[str, ...],
    how: Mapping[str, Any],
) -> list[_Fold]:
    """The folds, with the largest tau first: it is the nearest to the fit without a limit."""
    rng = np.random.default_rng(seed)
    parts = {key: rng.permutation(len(table)) % folds for key, table in clients.items()}
    coarse, beside = _coarse(recipe), _references(recipe)
    if any(np.isnan(v).any() for table in clients.values() for v in table.numeric.values()):
        beside = []  # they need every number
    recipes = [method(coarse, tau=tau) for tau in sorted(path, reverse=True)]
    made = []
    for k in range(folds):
        kept = {key: table.take(parts[key] != k) for key, table in clients.items()}
        train = {key: table for key, table in kept.items() if len(table)}  # one row is in one fold
        out = {key: table.take(parts[key] == k) for key, table in clients.items()}
        made.append(_Fold(train, out, recipes, names, how, beside))
    return made


def _coarse(recipe: Method) -> Method:
    """The method of a point: to a coarse tolerance; a network, which begins anew, with a part of its rounds."""
    rounds = recipe.max_rounds if recipe.network is None else max(1, recipe.max_rounds // FEWER)
    tolerance = max(recipe.tolerance, COARSE)
    return replace(recipe, tolerance=tolerance, polish=False, max_rounds=rounds)


def _references(recipe: Method) -> list[Method]:
    """The methods beside the path, with the features, the notion and the network of its method."""
    assert recipe.fairness is not None, "check has looked"
    kept = ("ridge", "network")
    same: dict[str, Any] = {name: getattr(recipe, name) for name in kept}
    beside = [method(name, **same) for name in REFERENCES]
    notion = {"notion": recipe.fairness.notion, "intersections": recipe.fairness.intersections}
    beside = [one if one.fairness is None else method(one, **notion) for one in beside]
    return [_coarse(one) for one in beside]


def _given_way(path: Sequence[_Ran]) -> list[tuple[float, ...]]:
    """What the points of a fold do, the strictest first, each at least as good in training as those before it."""
    kept: list[_Ran] = []
    for ran in path:
        kept.append(kept[-1] if kept and kept[-1].loss < ran.loss else ran)
    return [ran.found for ran in kept]


def _means(found: np.ndarray, taus: Sequence[float | None]) -> tuple[FrontierPoint, ...]:
    """Points from what was found, (folds, points, 5)."""
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    lines = zip(taus, found.mean(axis=0).tolist(), error.tolist(), strict=True)
    return tuple(
        FrontierPoint(tau, m[0], m[1], m[2], m[3], (e[0], e[1]), nearly_constant(m[0], m[4], m[3]))
        for tau, m, e in lines
    )


def check(recipe: Method, taus: Sequence[float], folds: int) -> None:
    if recipe.fairness is None:
        raise SettingsError(f"method {recipe.name!r} has no tau to choose: take 'agnosticfair'")
    if len(taus) < 2 or len({*taus}) < len(taus) or min(taus) <= 0:
        raise SettingsError(f"taus {list(taus)} make no path: give two or more positive ones")
    if folds < 2:
        raise SettingsError(f"folds is {folds}; it must be at least 2")


def examiner(
    parts: Mapping[str, Table], names: Sequence[str], made: Fit
) -> Callable[[Model], tuple[float, ...]]:
    """From a model to its accuracy, worst difference, everybody's difference and positive rate on these rows, of the
    worst sensitive feature; and the accuracy of one answer to everybody.  Where a rule has costs, errors weigh these.

    made: the fit whose set the worst one is over, to the audit's tolerance; named parts are those that are estimable.
    """
    fairness, table = made.method.fairness, concatenate([*parts.values()])
    assert fairness is not None, "check has looked"
    groups = [*compared(fairness, {name: table.column(name) for name in names}).values()]
    y, encoding = table.labels(made.model.positive).astype(int), made.model.encoding
    X, weights = encode(encoding, table), table.weights
    by_name = fairness.basis.kind == "named" or is_apart(fairness.basis)
    if by_name and weights is None:
        differences = _over_parts(table, groups, y, fairness)
    else:
        ask = _own_set(made, parts, table)
        differences = partial(_over_kernels, table, groups, ask)

    priced = _priced(made, y, weights)
    one = max(accuracy(y, np.full(len(y), answer), priced) for answer in (0, 1))

    def examine(model: Model) -> tuple[float, ...]:
        known = model.encoding == encoding
        own = model.rule is None and (X if known else encode(model.encoding, table))
        d = model.decision(table) if own is False else model.scores(own)
        y_hat = (d > 0).astype(int)
        worst, measured = np.max(differences(model, y_hat), axis=0)
        told = accuracy(y, y_hat, priced), positive_rate(y_hat, weights)
        return told[0], float(worst), float(measured), told[1], one

    return examine


def _priced(made: Fit, y: np.ndarray, weights: np.ndarray | None) -> np.ndarray | None:
    """What being right about each row weighs, (n,): its weight, times the cost of an error where a rule has costs."""
    own = made.method.rule
    if own is None or own.costs is None or made.model.rule is None:
        return weights
    return np.asarray(made.model.rule.prices)[y] * (1.0 if weights is None else weights)


def _over_kernels(
    table: Table, groups: Sequence[Column], ask: Mapping[str, Any], model: Model, y_hat: np.ndarray
) -> list[tuple[float, float]]:
    """Of each sensitive feature the worst difference over a set and everybody's."""
    how = {**ask, "parts": (), "held_out": False}  # nothing is stated beyond these rows
    every = (audit(model, table, sensitive_features=column.values(), **how) for column in groups)
    return [
        (one.difference if one.kernels is None else one.kernels.worst_difference, one.difference)
        for one in every
    ]


def _over_parts(
    table: Table, groups: Sequence[Column], y: np.ndarray, fairness: Fairness
) -> Callable[[Model, np.ndarray], list[tuple[float, float]]]:
    """The same over named parts: which parts there are does not hang on decisions, and is found once."""
    asked = asked_parts(fairness.basis if fairness.basis.kind == "named" else None)
    axes = own_axes(table, asked.columns, asked.bands)
    codes, sizes = codes_of(table, axes), sizes_of(axes)

    def counts(column: Column, y_hat: np.ndarray, count: Counting) -> np.ndarray:
        cells, G = (column.codes * 2 + y) * 2 + y_hat, len(column.categories)
        return count(cells, 4 * G).reshape(-1, G, 2, 2)

    def ask(column: Column, some: Sequence[Part]) -> np.ndarray:
        return counts(column, y, counting(codes, sizes, some))

    found = [searched(axes, asked, partial(ask, own)) for own in groups]
    known = [
        (own, f, counting(codes, sizes, f.parts)) for own, f in zip(groups, found, strict=True)
    ]

    def differences(model: Model, y_hat: np.ndarray) -> list[tuple[float, float]]:
        anew = (replace(f, counts=counts(own, y_hat, count)) for own, f, count in known)
        return [f.worst(fairness.notion) for f in anew]

    return differences


def _own_set(made: Fit, parts: Mapping[str, Table], table: Table) -> dict[str, Any]:
    """What ``audit`` is asked with for the set of a fit, on these rows."""
    fairness, K = made.method.fairness, table.kernels
    assert fairness is not None, "check has looked"
    if fairness.basis.kind == "named":
        K = np.ones((len(table), 1))  # overall, where no subgroup has people enough
    if made.named is not None:
        axes, named = made.named.agreed
        codes = np.vstack([codes_of(rows, axes, client=key) for key, rows in parts.items()])
        K = memberships(codes, named)
    X, options = encode(made.model.encoding, table), {"notion": fairness.notion}
    over = kernels_on(fairness, X, made.centres, K, table.weights)
    return {**options, "floor": fairness.floor, **over}


def picked_place(points: Sequence[FrontierPoint]) -> int:
    """The place of the knee among the points that do not give one answer to everybody; among all where every one does.

    >>> path = [(0.1, 0.75, 0.0, True), (0.2, 0.78, 0.1, False), (0.3, 0.8, 0.3, False)]
    >>> picked_place([FrontierPoint(t, a, w, w, 0.1, (0.0, 0.0), one) for t, a, w, one in path])
    1
    """
    some = [k for k, point in enumerate(points) if not point.one_answer] or [*range(len(points))]
    drawn = np.array([(points[k].worst, points[k].accuracy, *points[k].spread) for k in some])
    return some[knee(drawn[:, 0], drawn[:, 1], drawn[:, 2:])]


def knee(worst: np.ndarray, accuracy: np.ndarray, spread: np.ndarray) -> int:
    """The strictest of the points farthest above the line from the fairest to the most accurate end, both axes from 0
    to 1: of those within one standard error of the farthest, for between them chance alone would choose.

    spread: standard errors of accuracy and worst, (n, 2).

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
    error = np.hypot(spread[far, 0] / height, spread[far, 1] / width)
    return int(np.argmax(above >= above[far] - error))
