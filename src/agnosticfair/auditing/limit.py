"""A limit on decisions that is kept beyond the rows: the weakest constraint whose certificate stays within it.

Every client deals its rows to two folds by their content (``data.rows``), so nothing moves. A path of models
is fitted on one fold, from the strongest price on differences to weaker ones, each begun where the last one
ended, and put in the order of the bounds that the same fold would give. Then they are certified on the other
fold, which no fit has seen.

**Theorem.** The models and their order hang on the first fold alone. Each is certified at the full confidence,
and the first one that fails ends the search (a fixed sequence of tests). The chosen one is the last that passed. The
probability that the chosen model breaks the limit in some estimable part is at most 1 - confidence.

*Proof.* Given the first fold, models and order are fixed, and the second fold's rows are independent draws.
Let j be the first model of the sequence that breaks the limit in an estimable part. To choose a model that
breaks it, the search must have passed j; it passes j only if j's bounds fail, which has probability at most 1
- confidence. []

A constant decision keeps every limit and is no answer: models that decide nearly all rows alike are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from agnosticfair.auditing.audit import audit_clients
from agnosticfair.auditing.certificate import Certificate, upper
from agnosticfair.auditing.parts import CONFIDENCE
from agnosticfair.data.rows import folds_of
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError
from agnosticfair.federation import Fit, fit
from agnosticfair.methods import Method
from agnosticfair.methods import method as recipe_of
from agnosticfair.settings import POSITIVE, Kind, require

METHOD = "agnosticfair-named"
STRENGTHS = (
    *((3.0, 0.03), (1.0, 0.03), (1.0, 0.05), (0.6, 0.05), (0.4, 0.05), (0.28, 0.05)),
    *(
        (0.2, 0.05),
        (0.14, 0.05),
        (0.1, 0.05),
        (0.07, 0.05),
        (0.05, 0.05),
        (0.03, 0.05),
        (0.01, 0.05),
    ),
)
"""Spread and tau of the models tried, the strongest first."""

NEARLY_CONSTANT = 0.01
"""A model that gives one of the two answers to fewer rows than this share is no answer to a limit."""

PATIENCE = 1
"""Models that are still certified where the first one fails, to tell which limit could be kept; none is chosen."""

BEYOND = 0.08
"""By how much predicted bounds must exceed a limit for the path to end."""

LIMIT = Kind("a number above 0 and below 1", lambda v: 0 < v < 1)


@dataclass(frozen=True)
class Candidate:
    """A model of the path: the bound and accuracy that the rows it was fitted on would give, and its share of
    positives."""

    fit: Fit = field(repr=False)
    strength: tuple[float, float]
    predicted: float
    accuracy: float
    positive: float

    @property
    def says_something(self) -> bool:
        """Whether its decisions are not nearly all alike."""
        return NEARLY_CONSTANT <= self.positive <= 1 - NEARLY_CONSTANT


@dataclass(frozen=True)
class Trial:
    """A candidate on the rows held out: its accuracy, worst measured difference and the bound."""

    strength: tuple[float, float]
    predicted: float
    accuracy: float
    worst: float
    upper: float


@dataclass(frozen=True)
class Promise:
    """What a fit under a limit may claim.

    kept: whether the limit is certified.  smallest: the least bound of the models tried, all of them taken
    into account. certificates: of the model that is given back, by sensitive feature.  in_the_way: where it is
    not kept, the parts above it, and whether for a measured difference or for want of rows.
    """

    limit: float
    kept: bool
    confidence: float
    smallest: float
    trials: tuple[Trial, ...]
    in_the_way: tuple[str, ...]
    certificates: Mapping[str, Certificate] = field(repr=False)

    def __str__(self) -> str:
        level = f"{self.confidence:.0%} confidence"
        if self.kept:
            found = max(made.upper for made in self.certificates.values())
            able = sum(part.estimable for made in self.certificates.values() for part in made.parts)
            where = f"in each of {able:,} estimable parts (at most {upper(found)})"
            return f"Keeps the limit {self.limit:g} with {level} {where}."
        way = f" In the way: {'; '.join(self.in_the_way[:3])}." if self.in_the_way else ""
        least = f"the smallest that can is {upper(self.smallest)}"
        return f"The limit {self.limit:g} cannot be claimed with {level}: {least}.{way}"


@dataclass(frozen=True)
class Asked:
    """What is asked for, whoever holds the rows, but for the limit."""

    confidence: float
    precision: float
    parts: Any
    features: tuple[str, ...]

    def __post_init__(self) -> None:
        require(CONFIDENCE, confidence=self.confidence)
        require(POSITIVE, precision=self.precision)

    def certified(
        self, model: Any, rows: Mapping[str, Table], tests: int = 1
    ) -> dict[str, Certificate]:
        """A certificate per sensitive feature, which share 1 - confidence, and ``tests`` of such sets."""
        delta = (1 - self.confidence) / (tests * len(self.features))
        fairness = model.method.get("fairness") or {}
        notion = fairness.get("notion", "demographic_parity")
        ask = {"parts": self.parts, "precision": self.precision, "notion": notion}
        return {
            name: audit_clients(model, rows, sensitive_features=name, confidence=1 - delta, **ask)
            for name in self.features
        }


def fit_within(
    clients: Mapping[str, Table],
    method: str | Method = METHOD,
    *,
    limit: float,
    sensitive_features: str | Sequence[str],
    confidence: float = 0.95,
    precision: float = 0.1,
    parts: Any = None,
    seed: int = 0,
    strengths: Sequence[tuple[float, float]] | None = None,
    on_trial: Callable[[Trial], None] | None = None,
    **how: Any,
) -> tuple[Fit, Promise]:
    """The most accurate model of a path whose worst difference of decisions is certified to be within the limit.

    Parameters
    ----------
    clients : mapping
        A table per client. Half of the rows, by their content, fit; the others certify.
    limit : float
        The largest difference in any estimable part.
    confidence, precision, parts
        As in ``audit``: parts whose interval is wider than +- precision do not count towards the limit.
    strengths : sequence of (spread, tau)
        The path, strongest first.

    Returns
    -------
    Fit, Promise
        The model, and what may be claimed of it. Where nothing can be, the model of the smallest bound.
    """
    require(LIMIT, limit=limit)
    names = (sensitive_features,) if isinstance(sensitive_features, str) else (*sensitive_features,)
    asked = Asked(confidence, precision, parts, names)
    fitting, held = dealt_apart(clients, seed)
    how = {"sensitive_features": names, "seed": seed, **how}
    path: list[Candidate] = []
    for one in walked(asked, fitting, recipe_of(method), strengths or STRENGTHS, **how):
        path.append(one)
        if beyond(path, limit):
            break
    return answered(path, limit, asked.confidence, partial(asked.certified, rows=held), on_trial)


def within(recipe: Method, tau: float | None, **changes: Any) -> Method:
    """The recipe that a limit is kept by: the one over named parts where the default is asked for."""
    if tau is not None:
        raise SettingsError(
            f"tau is {tau:g} and there is a limit: give one of them, the limit finds the other"
        )
    return recipe_of(METHOD, **changes) if recipe.name == "agnosticfair" else recipe


def beyond(path: Sequence[Candidate], limit: float) -> bool:
    """Whether the last two models are so far above the limit that weaker ones need not be tried."""
    return len(path) > 1 and all(one.predicted > limit + BEYOND for one in path[-2:])


def dealt_apart(
    clients: Mapping[str, Table], seed: int
) -> tuple[dict[str, Table], dict[str, Table]]:
    """The rows that fit and those that certify, of every client."""
    for key, table in clients.items():
        if not isinstance(table, Table):
            raise SettingsError(
                f"client {key!r} streams its rows, and a limit needs them in memory: leave out limit"
            )
        if table.weights is not None:
            raise SettingsError(
                f"client {key!r} has weighted rows, for which no bound holds beyond them: leave out the weights "
                f"or limit"
            )
    folds = {key: folds_of(table, 2, seed) for key, table in clients.items()}
    both = [
        {
            key: table.take(folds[key] == k)
            for key, table in clients.items()
            if (folds[key] == k).any()
        }
        for k in (0, 1)
    ]
    return both[0], both[1]


def walked(
    asked: Asked,
    fitting: Mapping[str, Table],
    recipe: Method,
    strengths: Sequence[tuple[float, float]] = STRENGTHS,
    **how: Any,
) -> Iterator[Candidate]:
    """The models of the path, each begun where the last one ended."""
    if recipe.fairness is None or recipe.fairness.spread is None:
        raise SettingsError(
            f"method {recipe.name!r} has no price on named parts by which a limit could be kept: take {METHOD!r}"
        )
    for spread, tau in strengths:
        made = fit(fitting, recipe_of(recipe, spread=spread, tau=tau), **how)
        how["start"] = made.start
        own = asked.certified(replace(made.model, trained_on=""), fitting)  # for the order alone
        decided = np.concatenate([made.model.predict(table) for table in fitting.values()])
        accuracy = next(iter(own.values())).accuracy
        bound = max(one.upper for one in own.values())
        yield Candidate(made, (spread, tau), bound, accuracy, float(decided.mean()))


def answered(
    path: Sequence[Candidate],
    limit: float,
    level: float,
    certify: Callable[..., Mapping[str, Certificate]],
    on_trial: Callable[[Trial], None] | None = None,
) -> tuple[Fit, Promise]:
    """The model of the path that a limit gives, and what may be claimed of it.

    certify: from a model, and how many tests share 1 - confidence, to certificates on rows held out.
    """
    order = sorted((c for c in path if c.says_something), key=lambda c: c.predicted) or [*path]
    trials: list[Trial] = []
    kept: tuple[Fit, Mapping[str, Certificate]] | None = None
    for one in order:
        certificates = certify(one.fit.model)
        trials.append(_trial(one, certificates))
        if on_trial is not None:
            on_trial(trials[-1])
        if trials[-1].upper > limit or not one.says_something:
            if kept is not None or len(trials) > PATIENCE:
                break
            continue
        if len(trials) > 1 and kept is None:  # one before it failed: no more than told of
            continue
        kept = one.fit, certificates
    if kept is not None:
        bound = max(made.upper for made in kept[1].values())
        return kept[0], Promise(limit, True, level, bound, tuple(trials), (), kept[1])
    least = min(range(len(trials)), key=lambda k: trials[k].upper)
    certificates = certify(order[least].fit.model, tests=len(trials))
    bound = max(made.upper for made in certificates.values())
    way = tuple(_in_the_way(certificates, limit))
    return order[least].fit, Promise(limit, False, level, bound, tuple(trials), way, certificates)


def _trial(one: Candidate, certificates: Mapping[str, Certificate]) -> Trial:
    made = [*certificates.values()]
    worst, bound = max(c.worst_difference for c in made), max(c.upper for c in made)
    return Trial(one.strength, one.predicted, made[0].accuracy, worst, bound)


def _in_the_way(certificates: Mapping[str, Certificate], limit: float) -> Iterator[str]:
    """The parts above the limit, the worst first: a difference that was measured, or too few rows to know."""
    parts = [part for made in certificates.values() for part in made.parts if part.estimable]
    if not parts:
        yield "no part has rows enough for the precision asked for"
    for part in sorted(parts, key=lambda part: -part.high):
        if part.high > limit and isfinite(part.difference):
            real = part.difference > limit
            why = (
                f"shows {part.difference:.3f}"
                if real
                else f"shows {part.difference:.3f}, with too few rows to know"
            )
            yield f"{part.name} ({part.rows:,} rows) {why}"
