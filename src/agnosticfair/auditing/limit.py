"""A limit on decisions that is kept beyond the rows: the weakest constraint whose certificate stays within it.

Every client deals its rows to two folds by their content (``data.rows``), so nothing moves. A path of models
is fitted on one fold, of falling tau, each begun where its neighbour
ended, and put in the order of the bounds that the same fold foresees. Then they are certified on the
other fold, which no fit has seen.

**Theorem.** The models and their order hang on the first fold alone. Each is certified at the full confidence,
and the first one that fails ends the search (a fixed sequence of tests). The probability that any model before it
breaks the limit in some estimable subgroup is at most 1 - confidence, so that the most accurate of these may be chosen.

*Proof.* Given the first fold, models and order are fixed, and the second fold's rows are independent draws.
Let j be the first model of the sequence that breaks the limit in an estimable subgroup. For a model that breaks it to
be among those that passed, the search must have passed j; it passes j only if j's bounds fail, which has
probability at most 1 - confidence. []

Where the very first model fails, its own bound, which is above the limit, is what may be claimed. That costs no
further confidence: it is wrong only if the first model breaks the limit (j is the first) and its bounds fail, the
same event.

A constant decision keeps every limit and is no answer: models that decide nearly all rows alike are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from agnosticfair.auditing.audit import audit_clients, counting
from agnosticfair.auditing.certificate import Certificate, limit_sentence, violations
from agnosticfair.auditing.fits import as_content
from agnosticfair.auditing.repeats import WEIGHTED, one_of_each, one_of_each_note
from agnosticfair.data.rows import Fold, folds_by_features
from agnosticfair.data.schema import Schema
from agnosticfair.data.stream import Stream, of_fold
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError
from agnosticfair.federation import Fit, fit, in_process, knowing
from agnosticfair.mathematics.metrics import PARITY
from agnosticfair.methods import Method
from agnosticfair.methods import method as method_of
from agnosticfair.model import Model
from agnosticfair.protocol.engines import Engine
from agnosticfair.protocol.secure.keys import Roster
from agnosticfair.settings import CONFIDENCE, POSITIVE, require

METHOD = "rule"
WEAKEST = 2.0  # the first tau that is tried, as a multiple of the limit
STRICTEST = 0.005  # the smallest tau that is tried

MAX_FITS = 6  # fits of half of the rows, each begun where another one ended
MAX_WORK = 7
"""No fit is begun that would, if it took as long as the last, bring all to more than so many times the rounds of the
first, which had nothing to begin from. That is less than four single fits of all rows (benchmarks/limit.py)."""

SURE = 0.06  # a bound foreseen so far under the limit is nearly sure to be certified
LIKELY = 0.02  # one so far under it has a chance
LEAP = 8.0  # by what factor tau may fall at once
MENTIONED = 0.005  # foreseen bounds that differ by less are not told apart

NEARLY_CONSTANT = 0.01
"""A model that gives one of the two answers to fewer rows than this share is no answer to a limit."""

UNWEIGHTED = (
    "rows have weights, and no bound holds beyond weighted rows: leave out the weights or limit"
)

NOTHING: Mapping[str, Any] = {}


Foreseen = tuple[float, float, float]
"""What the rows that a model was fitted on foresee: the bound, about; the accuracy, and the share of positives."""


@dataclass(frozen=True)
class Candidate:
    """A model of the path, and what is ``Foreseen`` of it."""

    fit: Fit = field(repr=False)
    tau: float
    predicted: float
    accuracy: float
    positive: float

    @property
    def says_something(self) -> bool:
        """Whether its decisions are not nearly all alike."""
        return NEARLY_CONSTANT <= self.positive <= 1 - NEARLY_CONSTANT


@dataclass(frozen=True)
class CertifiedLimit:
    """What a fit under a limit may claim.

    holds: whether the limit is certified.  tried: how many models were certified, until one failed.  certificates: of
    the model that is given back, by sensitive feature.
    """

    limit: float
    holds: bool
    confidence: float
    tried: int
    certificates: Mapping[str, Certificate] = field(repr=False)

    @property
    def smallest(self) -> float:
        """The bound of that model: where the limit is not kept, the smallest that can be claimed."""
        return self.worst.upper

    @property
    def worst(self) -> Certificate:
        """The certificate of the largest bound."""
        return max(self.certificates.values(), key=lambda certificate: certificate.upper)

    @property
    def violations(self) -> tuple[str, ...]:
        """Where the limit is not kept, the subgroups above it, the worst first."""
        return () if self.holds else violations(self.limit, self.worst)

    def __str__(self) -> str:
        return limit_sentence(self.limit, self.holds, self.worst, self.confidence)


def stated_certificates(certified_limit: CertifiedLimit) -> dict[str, Certificate]:
    """The certificates of a limit, each with the sentence of what is kept.

    Where the limit is kept, it is the bound that is claimed over all subgroups: a smaller one is of a model that these
    rows have chosen.
    """
    stated = {}
    for name, certificate in certified_limit.certificates.items():
        claimed = certified_limit.limit if certified_limit.holds else certificate.upper
        sentence = limit_record(certified_limit, certificate)["sentence"]
        stated[name] = replace(certificate, upper=claimed, notes=(sentence, *certificate.notes))
    return stated


def limit_record(certified_limit: CertifiedLimit, certificate: Certificate) -> dict[str, Any]:
    """What is kept of a limit on the strength of one certificate, for its file."""
    sentence = limit_sentence(certified_limit.limit, certified_limit.holds, certificate)
    return {"limit": certified_limit.limit, "kept": certified_limit.holds, "sentence": sentence}


def limit_content(certified_limit: CertifiedLimit) -> dict[str, Any]:
    """The certificate of a limit as a run leaves it: the worst feature's, with what is kept and what the others say."""
    stated = stated_certificates(certified_limit)
    content = as_content(stated, {})
    return content | limit_record(certified_limit, stated[content["sensitive_feature"]])


@dataclass(frozen=True)
class Half:
    """Who answers for one half of the rows: the tables of it, or an engine whose clients deal their own.  how: they
    are asked, as ``fit`` and ``audit_clients`` have it."""

    clients: Mapping[str, Table | Stream] | Engine
    fold: Fold | None = None
    how: Mapping[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments by which it is asked."""
        return {"clients": self.clients, "fold": self.fold, **self.how}


@dataclass(frozen=True)
class LimitAudit:
    """What is requested, whoever holds the rows, but for the limit.  notes: about the rows that certify."""

    confidence: float
    precision: float
    subgroups: Any
    features: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(CONFIDENCE, confidence=self.confidence)
        require(POSITIVE, precision=self.precision)

    def certified(self, model: Model, rows: Half) -> dict[str, Certificate]:
        """A certificate per sensitive feature, which share 1 - confidence."""
        level = 1 - (1 - self.confidence) / len(self.features)
        options = {
            "subgroups": self.subgroups,
            "precision": self.precision,
            "metric": metric_in(model),
        }
        certificates = {
            name: audit_clients(
                model, sensitive_features=name, confidence=level, **options, **rows.options
            )
            for name in self.features
        }
        if any(WEIGHTED in one.notes for one in certificates.values()):
            raise SettingsError(UNWEIGHTED)
        return {
            name: replace(one, notes=(*self.notes, *one.notes))
            for name, one in certificates.items()
        }

    def foreseen(self, model: Model, rows: Half) -> Callable[[Model], Foreseen]:
        """A function from a model of the path to what its own rows foresee of its certificates."""
        level = 1 - (1 - self.confidence) / len(self.features)
        options = {"subgroups": self.subgroups, "confidence": level, **rows.options}
        counts = [counting(model, sensitive_features=name, **options) for name in self.features]
        metric = metric_in(model)

        def look(other: Model) -> Foreseen:
            counted = [count(other) for count in counts]
            bound = max(one.foreseen(metric, self.precision, 1 - level) for one in counted)
            strata = counted[0].counts[0]  # (G, label, decision)
            right = np.trace(strata, axis1=1, axis2=2).sum()
            return bound, float(right / strata.sum()), float(strata[..., 1].sum() / strata.sum())

        return look


def metric_in(model: Model) -> str:
    """The metric that a model was held to."""
    return (model.method.get("fairness") or {}).get("metric", PARITY.name)


def fit_within(
    clients: Mapping[str, Table | Stream] | Engine,
    method: str | Method = METHOD,
    *,
    limit: float,
    sensitive_features: str | Sequence[str],
    confidence: float = 0.95,
    precision: float = 0.1,
    subgroups: Any = None,
    cluster: str | None = None,
    seed: int = 0,
    deadline: float | None = None,
    secure: bool | Roster = False,
    schema: Schema | None = None,
    **how: Any,
) -> tuple[Fit, CertifiedLimit]:
    """The most accurate model of a path whose worst difference of decisions is certified to be within the limit.

    Half of the rows, by their content, fit, the others certify; a ``cluster`` goes to one half whole. ``limit`` is of
    any estimable subgroup: subgroups whose interval is wider than +- ``precision`` do not count. ``how`` is for
    ``fit``. Where the limit cannot be kept, the model is the one foreseen nearest to it.
    """
    require(CONFIDENCE, limit=limit)
    names = (sensitive_features,) if isinstance(sensitive_features, str) else (*sensitive_features,)
    options = {"deadline": deadline, "secure": secure, "schema": schema}
    notes: tuple[str, ...] = ()
    if cluster is None:
        fitting, held_out = split_halves(clients, seed, options)
    else:
        fitting, held_out, notes = dealt_by_cluster(clients, cluster, seed, options)
    limit_audit = LimitAudit(confidence, precision, subgroups, names, notes)
    how = {"sensitive_features": names, "seed": seed, **how}
    path = [*walked(limit_audit, fitting, method_of(method), limit, **how)]
    return answered(path, limit, confidence, partial(limit_audit.certified, rows=held_out))


def within(method: Method, tau: float | None, **changes: Any) -> Method:
    """The method that a limit is kept by: the one over subgroups where the default is requested."""
    if tau is not None:
        raise SettingsError(
            f"tau is {tau:g} and there is a limit: give one of them, the limit finds the other"
        )
    return method_of(METHOD, **changes) if method.name == "agnosticfair" else method


def check_certified_limit(
    limit: float, confidence: float, precision: float, *, epsilon: float | None, drop: bool
) -> None:
    """Raise where sites could not be held to a limit, before they are asked for anything."""
    require(CONFIDENCE, limit=limit)
    LimitAudit(confidence, precision, None, ("",))
    if epsilon is not None:
        raise SettingsError("no limit is searched under noise: leave out --limit or --epsilon")
    if drop:
        raise SettingsError(
            "a limit is certified for the rows of all sites, and --on-failure drop goes on without some: take wait"
        )


def next_tau(path: Sequence[Candidate], limit: float) -> float | None:
    """The tau to try next, from what is foreseen of the others; None where nothing is worth another fit.

    Taus fall until a bound is surely within the limit or decisions are nearly constant, by a secant step on the
    logarithm; then the widest gap between bounds near the limit is halved.
    """
    rounds = [one.fit.rounds for one in path]
    if len(path) >= MAX_FITS or (path and sum(rounds) + rounds[-1] > MAX_WORK * rounds[0]):
        return None
    if not path:
        return min(WEAKEST * limit, 1.0)
    order = sorted(path, key=lambda one: -one.tau)
    last, sure = order[-1], limit - SURE
    moves = len(order) < 2 or last.predicted < order[-2].predicted - MENTIONED
    if moves and last.predicted > sure and last.says_something and last.tau > STRICTEST:
        return max(last.tau / _leap(order, sure), STRICTEST)
    gaps = []
    for weak, strict in pairwise(order):
        a, b = (min(max(one.predicted, sure), limit - LIKELY) for one in (weak, strict))
        alone = weak.predicted - strict.predicted > MENTIONED and not strict.says_something
        if weak.says_something:
            gaps.append((alone and weak.predicted > sure, a - b, np.sqrt(weak.tau * strict.tau)))
    alone, width, tau = max(gaps, default=(False, 0.0, 0.0))
    return float(tau) if alone or width > MENTIONED else None


def _leap(order: Sequence[Candidate], aim: float) -> float:
    """By what factor the smallest tau falls for the foreseen bound to come to ``aim``, by the last two."""
    if len(order) < 2:
        return 2.0
    before, last = order[-2:]
    rate = (before.predicted - last.predicted) / np.log(before.tau / last.tau)
    leap = np.exp((last.predicted - aim) / rate) if rate > 0 else LEAP
    return float(np.clip(leap, 1.5, LEAP))


def split_halves(
    clients: Mapping[str, Table | Stream] | Engine, seed: int, how: Mapping[str, Any] = NOTHING
) -> tuple[Half, Half]:
    """The rows that fit and those that certify, of every client."""
    folds = Fold(0, 2, seed), Fold(1, 2, seed)
    if not isinstance(clients, Mapping):
        return Half(clients, folds[0], how), Half(clients, folds[1], how)
    if any(isinstance(rows, Table) and rows.weights is not None for rows in clients.values()):
        raise SettingsError(UNWEIGHTED)
    fitting, held_out = ({k: of_fold(rows, fold) for k, rows in clients.items()} for fold in folds)
    return Half(_with_rows(fitting), None, how), Half(_with_rows(held_out), None, how)


def dealt_by_cluster(
    clients: Mapping[str, Table | Stream] | Engine, cluster: str, seed: int, how: Mapping[str, Any]
) -> tuple[Half, Half, tuple[str, ...]]:
    """The rows of half of the clusters, which fit; one row of each of the others, drawn at random, which certify; and
    the note that says so."""
    fitting, held, rows = {}, {}, 0
    for key, table in clients.items() if isinstance(clients, Mapping) else ():
        if not isinstance(table, Table) or cluster not in table.other:
            raise SettingsError(f"client {key!r} has no rows in memory with a column {cluster!r}")
        who = table.other[cluster]
        alone = Table({}, {cluster: who}, None, {})
        first = folds_by_features(alone, 2, seed) == 0
        bare = replace(table, other={k: v for k, v in table.other.items() if k != cluster})
        rest = bare.take(~first)
        fitting[key], rows = bare.take(first), rows + len(rest)
        held[key] = rest.take(one_of_each(who.values()[~first], len(rest), seed))
    if not fitting:
        raise SettingsError("clusters are dealt where rows lie in memory: leave out cluster")
    note = one_of_each_note(sum(map(len, held.values())), rows)
    return Half(_with_rows(fitting), None, how), Half(_with_rows(held), None, how), (note,)


def _with_rows(clients: Mapping[str, Table | Stream]) -> dict[str, Table | Stream]:
    return {key: rows for key, rows in clients.items() if len(rows)}


def walked(
    limit_audit: LimitAudit, fitting: Half, method: Method, limit: float, **how: Any
) -> Iterator[Candidate]:
    """The models of the path, each begun where its laxer neighbour ended: estimates are learned once."""
    if method.rule is None:
        raise SettingsError(
            f"method {method.name!r} has no rule by which a limit could be kept: take {METHOD!r}"
        )
    look: Callable[[Model], Foreseen] | None = None
    path: list[Candidate] = []
    tables, rows = fitting.clients, fitting
    if isinstance(tables, Mapping):  # what one fit has made of the rows is kept for the next
        rows = replace(fitting, clients=in_process(tables))
    while (tau := next_tau(path, limit)) is not None:
        chosen = method_of(method, tau=tau)
        laxer = min((one for one in path if one.tau > tau), key=lambda o: o.tau, default=None)
        start = None if laxer is None else laxer.fit.start
        fitted = fit(method=chosen, start=start, **rows.options, **how)
        fitted = replace(fitted, model=knowing(fitted.model, fitting.clients))
        look = look or limit_audit.foreseen(fitted.model, fitting)
        path.append(Candidate(fitted, tau, *look(fitted.model)))
        yield path[-1]


def answered(
    path: Sequence[Candidate],
    limit: float,
    level: float,
    certify: Callable[[Model], Mapping[str, Certificate]],
) -> tuple[Fit, CertifiedLimit]:
    """The model of the path that a limit gives, and what may be claimed of it.

    certify: from a model to certificates on rows held out.
    """
    order = sorted((c for c in path if c.says_something), key=lambda c: c.predicted) or [*path]
    tried: list[tuple[Fit, Mapping[str, Certificate]]] = []
    passed = 0
    for one in order:
        certificates = certify(one.fit.model)
        tried.append((one.fit, certificates))
        bound = max(certificate.upper for certificate in certificates.values())
        if bound > limit or not one.says_something:
            break
        passed += 1

    def accuracy(one: tuple[Fit, Mapping[str, Certificate]]) -> float:
        return next(iter(one[1].values())).accuracy

    fitted, certificates = max(tried[: max(passed, 1)], key=accuracy)
    return fitted, CertifiedLimit(limit, passed > 0, level, len(tried), certificates)
