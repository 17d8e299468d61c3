"""Choosing tau: accuracy against the worst difference along a path of taus, cross-validated.

A fold's fits are of a coarse tolerance, and each begins where that of the next larger tau ended; folds go on side by
side.  Only the point that is picked is fitted on all rows, to its method's own tolerance.  Beside the path stand 'fl',
where it would end without a limit, and 'fairfl', which is fair on the rows as they are.  The module is not called
``frontier``: it would hide the package's function of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from agnosticfair.auditing.audit import audit
from agnosticfair.auditing.fits import compared, own_set
from agnosticfair.auditing.parts import asked_parts, own_axes, own_counts, searched
from agnosticfair.data.axes import codes_of
from agnosticfair.data.encoding import encode
from agnosticfair.data.table import Table, concatenate
from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.federation import Fit, fit
from agnosticfair.mathematics.basis import check_seed
from agnosticfair.mathematics.metrics import accuracy, positive_rate
from agnosticfair.mathematics.parts import memberships
from agnosticfair.methods import Method, method
from agnosticfair.model import Model
from agnosticfair.settings import TAUS
from agnosticfair.threads import chained

COARSE = 1e-3
"""Tolerance of the fits along the path; the one that is picked is fitted to its method's own."""

FEWER = 4
"""A network's points have its rounds divided by this."""

LEAST_FOLD = 10
"""Rows that a fold has at least."""

REFERENCES = ("fairfl", "fl")
"""Methods that stand beside the path."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class FrontierPoint:
    """One tau, or a method beside the path: means over the held-out folds.

    worst: the largest difference over the method's set.  positive: the share of positive decisions.  spread: the
    standard error of accuracy and worst.  tau: None of a method that has none.
    """

    tau: float | None
    accuracy: float
    worst: float
    measured: float
    positive: float
    spread: tuple[float, float]


@dataclass(frozen=True)
class Frontier:
    """The points, by tau; ``knee`` is the place of the one where less fairness stops paying most.

    references: what 'fairfl' and 'fl' do on the same folds.
    """

    points: tuple[FrontierPoint, ...]
    knee: int
    notion: str
    folds: int
    references: Mapping[str, FrontierPoint]
    picked: Callable[[float], Any] = field(repr=False)

    def to_frame(self) -> Any:
        """The points as a pandas frame, a line each, and what accuracy they cost against 'fairfl' and 'fl'."""
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
class _Link:
    """A point of a fold's path: what is fitted, on what, what it is measured on, and where it begins.  taus: of the
    point and of those after it.  beside: methods that are fitted and measured there, too."""

    train: Mapping[str, Table]
    out: Mapping[str, Table]
    recipe: Method
    taus: tuple[float, ...]
    names: tuple[str, ...]
    how: Mapping[str, Any]
    beside: Sequence[Method]


@dataclass(frozen=True)
class _Ran:
    """The loss of a link's fit, infinite where it has none to compare by; what it does, and what those beside it do;
    and where the next one begins."""

    loss: float
    found: tuple[float, ...]
    beside: Sequence[tuple[float, ...]]
    begin: Mapping[str, Any]


def _ran(link: _Link) -> _Ran:
    plain = {k: v for k, v in link.how.items() if k not in ("centres", "start")}
    recipe = method(link.recipe, tau=link.taus[0])
    try:
        made = fit(link.train, recipe, **link.how)
    except SolverError:  # a start may be a bad one
        made = fit(link.train, recipe, **plain)
    others = [fit(link.train, recipe, **plain).model for recipe in link.beside]
    found, *beside = (
        held_out(model, link.out, link.names, made) for model in (made.model, *others)
    )
    begin: dict[str, Any] = {"start": made.start}
    if made.centres is not None:
        begin["centres"] = made.centres
    return _Ran(_loss(made) if made.converged else np.inf, found, beside, begin)


def _next(link: _Link, ran: _Ran) -> _Link | None:
    left = link.taus[1:]
    return replace(link, taus=left, how={**link.how, **ran.begin}, beside=()) if left else None


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
    links = _first_links(clients, recipe, path, folds, seed, names, how)
    seen = iter(range(1, folds * len(path) + 1))
    tell = (lambda _: on_progress(next(seen), folds * len(path))) if on_progress else None
    chains = chained(_ran, links, _next, jobs, tell)
    points = _means(np.array([_given_way(chain[::-1]) for chain in chains]), path)
    beside = np.array([chain[0].beside for chain in chains])
    means = dict(zip(REFERENCES, _means(beside, [None] * len(REFERENCES)), strict=True))
    place = knee(np.array([p.worst for p in points]), np.array([p.accuracy for p in points]))
    finish = picked or (lambda made: made)
    notion = recipe.fairness.notion if recipe.fairness is not None else ""
    return Frontier(
        points,
        place,
        notion,
        folds,
        means,
        lambda tau: finish(fit(clients, method(recipe, tau=tau), **how)),
    )


def _first_links(
    clients: Mapping[str, Table],
    recipe: Method,
    path: Sequence[float],
    folds: int,
    seed: int,
    names: tuple[str, ...],
    how: Mapping[str, Any],
) -> list[_Link]:
    """Of every fold the largest tau, which has the methods beside it: the nearest to the fit without a limit."""
    rng = np.random.default_rng(seed)
    parts = {key: rng.permutation(len(table)) % folds for key, table in clients.items()}
    coarse = _coarse(recipe)
    taus = tuple(sorted(path, reverse=True))
    made = []
    for k in range(folds):
        kept = {key: table.take(parts[key] != k) for key, table in clients.items()}
        train = {key: table for key, table in kept.items() if len(table)}  # one row is in one fold
        out = {key: table.take(parts[key] == k) for key, table in clients.items()}
        made.append(_Link(train, out, coarse, taus, names, how, _references(recipe)))
    return made


def _coarse(recipe: Method) -> Method:
    """The method of a point: to a coarse tolerance; a network, which begins anew, with a part of its rounds."""
    rounds = recipe.max_rounds if recipe.network is None else max(1, recipe.max_rounds // FEWER)
    tolerance = max(recipe.tolerance, COARSE)
    return replace(recipe, tolerance=tolerance, polish=False, max_rounds=rounds)


def _references(recipe: Method) -> list[Method]:
    """The methods beside the path, with the features, the notion and the network of its method."""
    assert recipe.fairness is not None, "check has looked"
    kept = ("ridge", "bands", "products", "network")
    same: dict[str, Any] = {name: getattr(recipe, name) for name in kept}
    beside = [method(name, **same) for name in REFERENCES]
    notion = {"notion": recipe.fairness.notion, "intersections": recipe.fairness.intersections}
    beside = [one if one.fairness is None else method(one, **notion) for one in beside]
    return beside if recipe.network is None else [_coarse(one) for one in beside]


def _given_way(path: Sequence[_Ran]) -> list[tuple[float, ...]]:
    """What the points of a fold do, the strictest first, each at least as good in training as those before it."""
    kept: list[_Ran] = []
    for ran in path:
        kept.append(kept[-1] if kept and kept[-1].loss < ran.loss else ran)
    return [ran.found for ran in kept]


def _means(found: np.ndarray, taus: Sequence[float | None]) -> tuple[FrontierPoint, ...]:
    """Points from what was found, (folds, points, 4)."""
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    lines = zip(taus, found.mean(axis=0).tolist(), error.tolist(), strict=True)
    return tuple(
        FrontierPoint(tau, mean[0], mean[1], mean[2], mean[3], (e[0], e[1]))
        for tau, mean, e in lines
    )


def check(recipe: Method, taus: Sequence[float], folds: int) -> None:
    if recipe.fairness is None:
        raise SettingsError(f"method {recipe.name!r} has no tau to choose: take 'agnosticfair'")
    if len(taus) < 2 or len({*taus}) < len(taus) or min(taus) <= 0:
        raise SettingsError(f"taus {list(taus)} make no path: give two or more positive ones")
    if folds < 2:
        raise SettingsError(f"folds is {folds}; it must be at least 2")


def held_out(
    model: Model, parts: Mapping[str, Table], names: Sequence[str], made: Fit
) -> tuple[float, float, float, float]:
    """Accuracy, worst difference, everybody's difference and positive rate on these rows, of the worst sensitive
    feature.  made: the fit whose set the worst one is over, to the audit's tolerance; named parts are those that are
    estimable."""
    fairness, table = made.method.fairness, concatenate([*parts.values()])
    assert fairness is not None, "check has looked"
    groups = compared(fairness, {name: table.column(name) for name in names}).values()
    y, y_hat = table.labels(model.positive).astype(int), model.predict(table)
    if made.named is not None and table.weights is None:
        asked = asked_parts(fairness.basis)
        axes = own_axes(table, asked)
        cells = [(((c.codes * 2 + y) * 2 + y_hat), len(c.categories)) for c in groups]
        counted = (own_counts(table, axes, *cell) for cell in cells)
        found = [searched(axes, asked, count).worst(fairness.notion) for count in counted]
    else:
        ask = _own_set(made, parts, table)
        ask |= {"bootstrap": 0, "held_out": False}  # nothing is stated beyond these rows
        every = (audit(model, table, sensitive_features=c.values(), **ask) for c in groups)
        found = [(one.worst_difference, one.difference) for one in every]
    worst, measured = np.max(found, axis=0)
    weights = table.weights
    return (
        accuracy(y, y_hat, weights),
        float(worst),
        float(measured),
        positive_rate(y_hat, weights),
    )


def _own_set(made: Fit, parts: Mapping[str, Table], table: Table) -> dict[str, Any]:
    """What ``audit`` is asked with for the set of a fit, on these rows."""
    fairness, K = made.method.fairness, table.kernels
    assert fairness is not None, "check has looked"
    if made.named is not None:
        axes, named = made.named.agreed
        codes = np.vstack([codes_of(rows, axes, client=key) for key, rows in parts.items()])
        K = memberships(codes, named)
    return own_set(fairness, encode(made.model.encoding, table), made.centres, K, table.weights)


def knee(worst: np.ndarray, accuracy: np.ndarray) -> int:
    """The point farthest above the line from the fairest to the most accurate end, both axes from 0 to 1.

    >>> knee(np.array([0.0, 0.1, 1.0]), np.array([0.5, 0.7, 0.75]))
    1
    """
    ends = (int(np.argmin(worst)), int(np.argmax(accuracy)))
    x, y = worst - worst[ends[0]], accuracy - accuracy[ends[0]]
    width, height = x[ends[1]], y[ends[1]]
    if width <= 0 or height <= 0:
        return ends[1]
    return int(np.argmax(y / height - x / width))
