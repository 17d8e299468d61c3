"""Differentially private fits: few noisy totals under secure sums, and what they cost of a budget."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf, nan, prod
from statistics import NormalDist
from time import perf_counter
from typing import Any

import numpy as np

from agnosticfair.data.axes import bin_axis
from agnosticfair.data.rows import digest_of
from agnosticfair.data.schema import Schema, applied
from agnosticfair.data.summary import SummaryStatistics
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError, existing
from agnosticfair.federation import Fit, in_process, model_of
from agnosticfair.mathematics.basis import subgroups
from agnosticfair.mathematics.metrics import PARITY
from agnosticfair.mathematics.subgroups import Axis
from agnosticfair.methods import Method, Rule
from agnosticfair.methods import method as build_method
from agnosticfair.privacy.client import check_unweighted
from agnosticfair.privacy.ledger import Ledger, PrivateSite, ledger_of, spent
from agnosticfair.privacy.requests import (
    PrivateCounts,
    PrivateDecisions,
    PrivateMoments,
)
from agnosticfair.privacy.server import (
    ROUNDS,
    PrivateCoordinator,
    Problem,
    answers_of,
    binned,
    bounded,
    comparable,
    linear,
    ruled,
    second_moment,
)
from agnosticfair.privacy.server import Budget as Budget
from agnosticfair.protocol.engines import Engine
from agnosticfair.protocol.faults import Coordinator, Policy, policy
from agnosticfair.protocol.secure.keys import Roster
from agnosticfair.server import plan as server
from agnosticfair.server.subgroup_axes import single_values, subgroup_names, with_subgroup_set
from agnosticfair.site.guard import Quiet, guarded, rehearsal_policy, rehearsed
from agnosticfair.threads import one_thread

MIN_RIDGE = 1e-4
MIN_SUBGROUP = 0.05
"""The share of the rows that a subgroup has, or noise would hide what is in it."""

PRIVATE = ("fl", "fairfl", "rule")


def fit_private(
    clients: Mapping[str, Table] | Engine,
    method: str | Method = "fairfl",
    *,
    budget: Budget,
    schema: Schema,
    sensitive_features: str | Sequence[str] | None = None,
    positive: str | None = None,
    rounds: int = ROUNDS,
    confidence: float = 0.95,
    secure: Roster | None = None,
    deadline: float | None = None,
    on_failure: str | Policy = "stop",
    on_round: Callable[[dict], None] | None = None,
) -> Fit:
    """Train a linear classifier, or a rule, of which no row shows: (epsilon, delta)-differentially private.

    Over tables, each client's sums are clipped, get noise and are masked; over an engine the sites do that
    themselves, each within a budget of its own, and ``secure`` has their long-term public keys. ``method`` is 'fl',
    'fairfl', 'agnosticfair' or 'rule', whose set is then one of single values. The schema is agreed on, for ranges
    and categories taken from rows would show some of them. ``confidence`` is of what the certificate says of these
    rows under noise.
    """
    begin = perf_counter()
    method = private_method(build_method(method) if isinstance(method, str) else method)
    if policy(on_failure).then == "drop":
        raise SettingsError(
            "a private fit drops no site: a total without one, taken from a total with it, would have that site's "
            "share of the noise alone; take on_failure 'wait' or 'stop'"
        )
    if isinstance(clients, Mapping):
        clients, secure = rehearsed_sites(clients, budget, schema)
    plain_coordinator = Coordinator(
        clients, clients.clients(), policy(on_failure), deadline, secure=secure
    )
    coordinator = PrivateCoordinator(
        plain_coordinator, budget, budget.multipliers(rounds, method.rule is not None)
    )
    whom: dict[str, Any] = {"sensitive_features": sensitive_features, "positive": positive}
    with one_thread():
        server.check_missing(method, imagined(schema))
        begun = server.plan(method, imagined(schema), plain_coordinator.keys, **whom)
        begun = binned(begun, schema.bins)
        about_fit = [begun.task.id, schema.digest, rounds, repr(begun.method)]
        fit = hashlib.sha256(
            json.dumps(about_fit).encode()
        ).hexdigest()  # which tells it from others
        coordinator.reserve(fit, rounds, begun.task)
        plan, groups = _plan(coordinator, begun, schema)
        problem, history = _problem(coordinator, plan, groups), list[dict]()
        noted = partial(_noted, on_round, history)
        if method.rule is None:
            w = linear(coordinator, plan.task, problem, rounds, noted)
        else:
            plan, w = ruled(coordinator, plan, problem, rounds, noted), np.zeros(0)
        report = _certified(coordinator, plan, w, confidence)
        coordinator.reserve(fit, rounds, begun.task, ends=True)
    cost = spent(answers_of(coordinator.multipliers, rounds), budget.delta)
    about = {"epsilon": cost, "delta": budget.delta, "unit": budget.unit}
    about |= {"colluding": budget.colluding, "max_rows": budget.max_rows, **report}
    task, request = plan.task, coordinator.request(PrivateMoments)
    return Fit(
        model=model_of(plan, w, "rounds", privacy=about, estimates=task.estimates, rule=task.rule),
        method=plan.method,
        outcome="rounds",
        rounds=len(history),
        history=tuple(history),
        outcomes={"noisy step": len(history)},
        alpha=np.ones(1),
        worst_surrogate=nan,
        trained_difference=max(difference for _, _, difference, _ in report["subgroups"]),
        seconds=perf_counter() - begin,
        bytes_per_round=8 * sum(prod(shape) for shape in request.shapes(plan.task).values()),
        events=tuple(plain_coordinator.events),
        subgroups=plan.task.subgroups,
    )


def private_method(method: Method) -> Method:
    """The method as it is under noise: a rule over single values, for noise goes furthest on few numbers."""
    fairness = method.fairness
    if method.rule is not None:
        method = replace(method, rule=_private_rule(method))
        if fairness is not None and fairness.basis.kind == "subgroups":
            basis = fairness.basis
            single = subgroups(basis.columns, 1, max(MIN_SUBGROUP, basis.min_share))
            method = replace(method, fairness=replace(fairness, basis=single))
    kinds = {method.basis.kind, server.fairness_of(method).basis.kind}
    if method.network or method.averaging or (method.rule is None and kinds != {"constant"}):
        raise SettingsError(
            f"method {method.name!r} asks for more numbers than noise would leave of use: with epsilon take one "
            f"of {', '.join(PRIVATE)}, without a network"
        )
    if fairness is not None and fairness.metric != PARITY.name:
        raise SettingsError(
            f"metric {fairness.metric!r} has no private step: with epsilon take {PARITY.name}"
        )
    return method


def _private_rule(method: Method) -> Rule:
    """The rule as it is under noise: its heads are logistic regressions of all rows, without folds."""
    rule, fairness = existing(method.rule), server.fairness_of(method)
    if rule.learner == "trees":
        raise SettingsError(
            "trees are not grown under noise: a level has thousands of sums, and noise that hides a row in all of them "
            "leaves nothing of use; take a linear or additive learner"
        )
    other = {
        "learner": rule.learner not in ("auto", "linear", "additive") or not method.fairness,
        "probability": bool(rule.probability),
        "aware": rule.aware,
        "agnostic": rule.agnostic,
        "positive_rate": rule.positive_rate is not None,
        "costs": isinstance(rule.costs, str),
        "basis": fairness.basis.kind not in ("constant", "subgroups") or not fairness.each,
    }
    if unknown := [name for name, is_so in other.items() if is_so]:
        raise SettingsError(
            f"under noise a rule limits differences overall and in single values, by a linear or additive learner: it "
            f"has no {' and no '.join(unknown)} as given; leave that out, or epsilon"
        )
    return replace(rule, learner="linear")


def rehearsed_sites(
    clients: Mapping[str, Table], budget: Budget, schema: Schema
) -> tuple[Engine, Roster | None]:
    """Clients behind noise and masks, and their keys; one client alone has nobody to hide from but those who see the
    model."""
    tables = {k: applied(schema, rows, f"client {k!r}") for k, rows in clients.items()}
    for key, table in tables.items():
        check_unweighted(table, f"client {key!r}")
    engine = in_process(tables)
    sites = {
        key: PrivateSite(
            key,
            Quiet(key, answer),
            _ledger(clients[key], budget),
            colluding=budget.colluding,
            max_rows=budget.max_rows,
            rows=digest_of([clients[key]])[:32],
        )
        for key, answer in engine.handlers.items()
    }
    engine, how = replace(engine, handlers=sites), (schema, budget.epsilon, budget.max_rows)
    if len(sites) > 1:
        return rehearsed(engine, False, (), *how, {key: site.rows for key, site in sites.items()})
    (key,) = sites
    alone = guarded(replace(rehearsal_policy((key,), *how), site=key), sites[key])
    return replace(engine, handlers={key: alone}), None


def _ledger(rows: Table, budget: Budget) -> Ledger:
    """The ledger of a client's rows: in the budget's folder, or in memory."""
    if budget.ledgers is None:
        return Ledger(budget.epsilon, budget.delta, unit=budget.unit)
    return ledger_of(rows, budget.epsilon, budget.delta, budget.unit, budget.ledgers)


def _plan(
    coordinator: PrivateCoordinator, plan: server.Plan, schema: Schema
) -> tuple[server.Plan, np.ndarray]:
    """The plan, from the schema alone and noisy counts; and these counts, by subgroup and group."""
    method = plan.method
    basis = server.fairness_of(method).basis
    if basis.kind == "subgroups":
        axes = schema_axes(schema, basis.columns)
        every = single_values(axes)
        plan = with_subgroup_set(plan, axes, every)
    task = replace(plan.task, n=0)
    counts = np.maximum(coordinator.total(PrivateCounts, 0, task)["groups"], 1.0)
    if basis.kind == "subgroups":
        off = coordinator.deviations(coordinator.request(PrivateCounts), task)["groups"]
        floor = server.fairness_of(method).floor
        enough_rows = comparable(counts, plan.compared, off, basis.min_share, floor)
        plan = with_subgroup_set(
            plan, axes, [subgroup for subgroup, k in zip(every, enough_rows, strict=True) if k]
        )
        counts = counts[np.r_[True, enough_rows]]
    n = max(2, round(float(counts[0].sum())))
    return replace(plan, task=replace(plan.task, n=n), n=n), counts


def imagined(schema: Schema) -> SummaryStatistics:
    """Summary statistics of nobody's rows, with one of every label and group that the schema declares."""
    outline = schema.outline()
    groups = {name: dict.fromkeys(values, 1) for name, values in outline.groups.items()}
    return replace(outline, n=1, labels=dict.fromkeys(outline.labels, 1), groups=groups)


def schema_axes(schema: Schema, columns: Sequence[str] | None = None) -> tuple[Axis, ...]:
    """The axes that a schema declares: its categories, and the bins of its numbers, where it has any."""
    known_axes = {name: Axis(name, tuple(values)) for name, values in schema.categorical.items()}
    known_axes |= {
        name: bin_axis(name, edges, name in schema.dates)
        for name, edges in schema.bins.items()
        if edges
    }
    for name in columns or ():
        if name not in known_axes:
            raise SettingsError(
                f"column {name!r} names no subgroup under noise: the schema declares neither categories nor bins of it"
            )
    axes = tuple(
        known_axes[name]
        for name in (columns or sorted(known_axes))
        if len(known_axes[name].values) > 1
    )
    if not axes:
        raise SettingsError(
            "the schema declares no categories and no bins to name subgroups by: add 'bins', or take fairfl"
        )
    return axes


OnRound = Callable[[dict], None] | None


def _problem(coordinator: PrivateCoordinator, plan: server.Plan, groups: np.ndarray) -> Problem:
    """What is known before the first round: the second moment, once."""
    task, fair = plan.task, plan.method.fairness
    upper = coordinator.total(PrivateMoments, 0, task)["moments"]
    S = second_moment(
        upper, coordinator.deviations(coordinator.request(PrivateMoments), task)["moments"]
    )
    compared = replace(plan.compared, pairs=plan.compared.pairs if fair else ())
    tau, ridge = fair.tau if fair else inf, max(plan.method.ridge, MIN_RIDGE)
    return Problem(plan.n, groups, S, compared, tau, ridge)


def _noted(on_round: OnRound, history: list[dict], **shown: Any) -> None:
    """A round is over; what is not shown is not known."""
    entry = {"round": len(history) + 1, "loss": nan, "worst": nan, "accuracy": nan, **shown}
    history.append(entry)
    if on_round is not None:
        on_round(entry)


def _certified(
    coordinator: PrivateCoordinator, plan: server.Plan, w: np.ndarray, confidence: float
) -> dict[str, Any]:
    """What the model does on the training rows: overall and of every subgroup its name, rows and difference as
    measured under noise, and what that is at most, at once for all of them."""
    sums = coordinator.total(PrivateDecisions, 0, plan.task, w=w)
    counts = 2 * len(plan.compared.members) * len(sums["groups"])
    quantile = NormalDist().inv_cdf(1 - (1 - confidence) / (2 * counts))
    sigma = coordinator.deviations(coordinator.request(PrivateDecisions, w=w), plan.task)
    measured, at_most = bounded(sums, sigma, plan.compared, quantile)
    accuracy = float(sums["right"] / max(sums["groups"][0].sum(), 1.0))
    names = ("overall", *(subgroup_names(plan) if plan.task.subgroups is not None else ()))
    rows = np.rint((sums["groups"] @ plan.compared.members.T).sum(axis=1))
    lines = zip(names, rows.tolist(), measured.tolist(), at_most.tolist(), strict=True)
    return {
        "confidence": confidence,
        "accuracy": min(max(accuracy, 0.0), 1.0),
        "subgroups": [list(line) for line in lines],
    }
