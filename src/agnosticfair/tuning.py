"""Choosing tau: accuracy against the certified worst case along a path of fits, cross-validated.

The path goes from the tightest tau to the loosest; every fit begins where the last ones point to, so
that ten points cost less than four fits.  The module is not called ``frontier``: it would hide the
package's function of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from agnosticfair.auditing.audit import audit
from agnosticfair.data.encoding import encode
from agnosticfair.data.table import Table, concatenate, intersected
from agnosticfair.errors import SettingsError
from agnosticfair.federation import Fit, fit, in_process
from agnosticfair.mathematics.basis import (
    around,
    check_seed,
    comes_with_rows,
    design,
    is_apart,
    is_centred,
)
from agnosticfair.mathematics.metrics import accuracy
from agnosticfair.methods import Method, method
from agnosticfair.protocol.engines import Engine
from agnosticfair.settings import TAUS

COARSE = 3e-4
"""Tolerance of the fits along the path; the one that is picked is fitted to its method's own."""

LEAST_FOLD = 10
"""Rows that a fold has at least."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Point:
    """One tau: means over the held-out folds. worst: the certified worst difference there.  spread: the
    standard error of accuracy and worst.  fit: on all rows."""

    tau: float
    accuracy: float
    worst: float
    measured: float
    spread: tuple[float, float]
    fit: Fit = field(repr=False)


@dataclass(frozen=True)
class Frontier:
    """The points, by tau; ``knee`` is the place of the one where less fairness stops paying most."""

    points: tuple[Point, ...]
    knee: int
    notion: str
    folds: int
    picked: Callable[[Fit], Any] = field(repr=False)

    def to_frame(self) -> Any:
        """The points as a pandas frame, a line each."""
        import pandas as pd

        lines = [
            {k: v for k, v in vars(p).items() if k not in ("fit", "spread")} for p in self.points
        ]
        return pd.DataFrame(lines).assign(knee=[k == self.knee for k in range(len(lines))])

    def _repr_html_(self) -> str:
        """The points as a table, in a notebook."""
        head = ("tau", "accuracy", "certified at most", "measured", "")
        lines = [
            (
                f"{p.tau:g}",
                f"{p.accuracy:.4f}",
                f"{p.worst:.4f}",
                f"{p.measured:.4f}",
                "knee" * (k == self.knee),
            )
            for k, p in enumerate(self.points)
        ]
        rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
        return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{rows}</table>"

    def pick(self, tau: float | None = None) -> Any:
        """The estimator (or the fit) of the point of that tau, by default of the knee."""
        if tau is None:
            return self.picked(self.points[self.knee].fit)
        near = min(self.points, key=lambda point: abs(point.tau - tau))
        if abs(near.tau - tau) > 1e-9:
            raise SettingsError(
                f"no point has tau {tau:g}; there are: {', '.join(f'{p.tau:g}' for p in self.points)}"
            )
        return self.picked(near.fit)


def fit_path(
    clients: Mapping[str, Table] | Engine, recipe: Method, taus: Sequence[float], **how: Any
) -> Iterator[Fit]:
    """A fit for every tau, tightest first. One that loses more than the one before it, which keeps the looser
    limit, too, gives way to that: so the loss never rises along the path."""
    engine = in_process(clients) if isinstance(clients, Mapping) else clients
    coarse = replace(recipe, tolerance=max(recipe.tolerance, COARSE), polish=False)
    last = None
    for tau in sorted(taus):
        if last is not None:
            how["centres"] = last.centres
        made = fit(engine, method(coarse, tau=tau), **how)
        if last is not None and last.converged and _loss(last) < _loss(made):
            made = replace(last, method=made.method)
        last = made
        yield made


def _loss(fitted: Fit) -> float:
    return float(fitted.history[-1].get("loss", 0.0))


def trace(
    clients: Mapping[str, Table],
    recipe: Method,
    *,
    sensitive_features: str | Sequence[str],
    taus: Sequence[float] = TAUS,
    folds: int = 3,
    seed: int = 0,
    on_progress: Progress | None = None,
    picked: Callable[[Fit], Any] | None = None,
    **how: Any,
) -> Frontier:
    """The frontier of a method over clients: a path on all rows, and one without each fold.

    Every client deals its own rows to the folds at random. On the held-out rows, pooled, accuracy is
    measured and the worst difference certified over the set of the fit.  on_progress: called with
    (done, total).
    """
    check(recipe, taus, folds)
    check_seed(seed)
    if folds > (rows := sum(map(len, clients.values()))) // LEAST_FOLD:
        raise SettingsError(
            f"folds is {folds} for {rows} rows; each needs {LEAST_FOLD} rows: take fewer"
        )
    names = (
        (sensitive_features,) if isinstance(sensitive_features, str) else tuple(sensitive_features)
    )
    how = {"sensitive_features": sensitive_features, "seed": seed, **how}
    total, done, found = (folds + 1) * len(taus), 0, np.zeros((folds, len(taus), 3))

    def tell() -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(done, total)

    rng = np.random.default_rng(seed)
    parts = {key: rng.permutation(len(table)) % folds for key, table in clients.items()}
    for k in range(folds):
        kept = {key: table.take(parts[key] != k) for key, table in clients.items()}
        train = {key: table for key, table in kept.items() if len(table)}  # one row is in one fold
        out = [table.take(parts[key] == k) for key, table in clients.items()]
        for j, made in enumerate(fit_path(train, recipe, taus, **how)):
            found[k, j] = held_out(made, out, names)
            tell()
    fits = []
    for made in fit_path(clients, recipe, taus, **how):
        fits.append(made)
        tell()
    means, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(folds)
    points = tuple(
        Point(tau, mean[0], mean[1], mean[2], (e[0], e[1]), made)
        for tau, mean, e, made in zip(
            sorted(taus), means.tolist(), error.tolist(), fits, strict=True
        )
    )
    place = knee(means[:, 1], means[:, 0])
    notion = recipe.fairness.notion if recipe.fairness is not None else ""

    def polished(made: Fit) -> Fit:
        exact = replace(made.method, tolerance=recipe.tolerance, polish=recipe.polish)
        return fit(clients, exact, **{**how, "start": made.start, "centres": made.centres})

    finish = picked or (lambda made: made)
    return Frontier(points, place, notion, folds, lambda made: finish(polished(made)))


def check(recipe: Method, taus: Sequence[float], folds: int) -> None:
    if recipe.fairness is None:
        raise SettingsError(f"method {recipe.name!r} has no tau to choose: take 'agnosticfair'")
    if len(taus) < 2 or len({*taus}) < len(taus) or min(taus) <= 0:
        raise SettingsError(f"taus {list(taus)} make no path: give two or more positive ones")
    if folds < 2:
        raise SettingsError(f"folds is {folds}; it must be at least 2")


def held_out(made: Fit, parts: Sequence[Table], names: Sequence[str]) -> tuple[float, float, float]:
    """Accuracy, certified worst difference and measured difference on these rows, of the worst sensitive feature."""
    fairness = made.method.fairness
    assert fairness is not None
    # who held a row is not known here: kernels are not split, and for by_client it is the audit's own set
    fairness = replace(fairness, basis=replace(fairness.basis, split=False))
    certificates = []
    table = concatenate(parts)
    ask: dict[str, Any] = {"bound": fairness.bound, "floor": fairness.floor}
    ask |= {"bootstrap": 0, "held_out": False}  # nothing is stated beyond these rows
    b = None if made.centres is None else made.centres[: fairness.basis.kernels]
    if is_apart(fairness.basis):
        pass
    elif comes_with_rows(fairness.basis) or table.weights is not None or fairness.trust > 0:
        K = table.kernels
        if K is None:
            K = design(fairness.basis, encode(made.model.encoding, table), b, "", ("",))
        K = around(K, table.weights, fairness.trust)
        ask["basis"] = lambda _: K
    else:
        ask["basis"] = fairness.basis
        if is_centred(fairness.basis):
            ask["centres"] = b
    compared = {name: table.column(name) for name in names}
    if fairness.intersections and len(names) > 1:
        compared = {" & ".join(names): intersected(compared)}
    for column in compared.values():
        certificates.append(
            audit(
                made.model,
                table,
                sensitive_features=column.values(),
                notion=fairness.notion,
                **ask,
            )
        )
    y, y_hat = table.labels(made.model.positive), made.model.predict(table)
    return (
        accuracy(y, y_hat, table.weights),
        max(one.worst_difference for one in certificates),
        max(one.difference for one in certificates),
    )


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
