"""Differentially private fits: few noisy totals under secure sums, and what they cost of a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, nan, prod, sqrt
from pathlib import Path
from statistics import NormalDist
from time import perf_counter
from typing import Any

import numpy as np

from agnosticfair.data.schema import Schema, under
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError
from agnosticfair.federation import Fit, in_process, model_of
from agnosticfair.methods import Method
from agnosticfair.methods import method as recipe
from agnosticfair.protocol.faults import Asker, Policy
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.privacy.accountant import check_budget, multiplier, spent
from agnosticfair.protocol.privacy.ledger import Ledger
from agnosticfair.protocol.privacy.questions import (
    PrivateCounts,
    PrivateDecisions,
    PrivateMoments,
    PrivateSlopes,
)
from agnosticfair.protocol.privacy.sensitivity import clip_of, deviations
from agnosticfair.protocol.privacy.site import PrivateSite, share_of
from agnosticfair.protocol.questions import Task
from agnosticfair.protocol.secure.rehearsal import rehearsed
from agnosticfair.server import plan as server
from agnosticfair.server.private import (
    ROUNDS,
    Problem,
    bounded,
    second_moment,
    stepped,
    temperature,
)
from agnosticfair.threads import one_thread

SHARES = {
    "private_counts": 0.02,
    "private_moments": 0.25,
    "private_slopes": 0.63,
    "private_decisions": 0.1,
}
"""How much of the budget goes to counts, the second moment, all rounds together, and the certificate."""

LEAST_RIDGE = 1e-4
PRIVATE = ("fl", "fairfl")


@dataclass(frozen=True)
class Budget:
    """epsilon, delta: for rows, of all answers together.  colluding: how many sites may pool what they know
    with the coordinator.  ledgers: a folder with a file for each client, kept over fits; None for this
    fit alone."""

    epsilon: float
    delta: float = 1e-5
    colluding: int = 1
    ledgers: Path | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        if self.colluding < 0:
            raise SettingsError(
                f"colluding is {self.colluding}: give the number of sites, 0 or more"
            )

    def multipliers(self, rounds: int) -> dict[str, float]:
        """The noise multiplier of each step, so that all of them together cost epsilon."""
        whole, times = multiplier(self.epsilon, self.delta), {"private_slopes": rounds}
        return {step: whole * sqrt(times.get(step, 1) / part) for step, part in SHARES.items()}


@dataclass
class Asking:
    """Asks for noisy totals, and knows the noise they have."""

    asker: Asker
    budget: Budget
    multipliers: Mapping[str, float]

    def total(self, kind: type[Any], round: int, task: Task, **more: Any) -> Mapping[str, Any]:
        """The noisy sums of a question of this kind.  more: its other fields."""
        asked = kind(z=self.multipliers[kind.step], sites=len(self.asker.keys), **more)
        return self.asker.total(Broadcast(round, task, asked)).sums

    def deviations(self, step: str, task: Task) -> dict[str, float]:
        """The standard deviations of a total's noise: where sites may collude, more than the budget's."""
        sites = len(self.asker.keys)
        more = sqrt(sites) * share_of(sites, self.budget.colluding)
        made = deviations(step, self.multipliers[step], clip_of(task))
        return {name: more * sigma for name, sigma in made.items()}


def fit_private(
    clients: Mapping[str, Table],
    method: str | Method = "fairfl",
    *,
    budget: Budget,
    schema: Schema,
    sensitive_features: str | tuple[str, ...] | None = None,
    positive: str | None = None,
    rounds: int = ROUNDS,
    confidence: float = 0.95,
) -> Fit:
    """Train one linear classifier of which no row shows: (epsilon, delta)-differentially private.

    Parameters
    ----------
    clients : a table per client; their sums are clipped, get noise and are masked.
    method : 'fl' or 'fairfl', or a recipe of one of them.
    budget : epsilon and delta, against whom, and where ledgers are kept.
    schema : agreed on, for ranges and categories taken from rows would show some of them.
    confidence : of what the certificate says of these rows under noise.
    """
    begin = perf_counter()
    method = recipe(method) if isinstance(method, str) else method
    _check_method(method)
    tables = {k: under(schema, rows, f"client {k!r}") for k, rows in clients.items()}
    asking = Asking(_asker(tables, budget, schema), budget, budget.multipliers(rounds))
    with one_thread():
        plan, groups = _plan(asking, method, schema, sensitive_features, positive)
        w, history = _rounds(asking, plan, groups, rounds)
        told = _certified(asking, plan, w, confidence)
    asked = PrivateSlopes(0.0, 0, 0.0, w)
    spent_now = spent(_all(asking.multipliers, rounds), budget.delta)
    about = {
        "epsilon": spent_now,
        "delta": budget.delta,
        "unit": "row",
        "colluding": budget.colluding,
    }
    return Fit(
        model_of(plan, w, "rounds", privacy={**about, **told}),
        method,
        "rounds",
        rounds,
        history,
        {"noisy step": rounds},
        np.ones(1),
        nan,
        told["worst_difference"],
        perf_counter() - begin,
        8 * sum(prod(shape) for shape in asked.shapes(plan.task).values()),
    )


def _check_method(method: Method) -> None:
    fairness = method.fairness
    uniform = method.basis.kind == "constant" == (fairness or method).basis.kind
    if not uniform or method.network or method.averaging or method.q:
        raise SettingsError(
            f"method {method.name!r} asks for more numbers than noise would leave of use: with epsilon take one "
            f"of {', '.join(PRIVATE)}"
        )
    if fairness is not None and fairness.notion != "demographic_parity":
        raise SettingsError(
            f"notion {fairness.notion!r} has no private step: with epsilon take demographic_parity"
        )


def _asker(tables: Mapping[str, Any], budget: Budget, schema: Schema) -> Asker:
    """Clients behind noise and masks; one client alone has nobody to hide from but those who see the model."""
    engine = in_process(tables)

    def ledger(key: str) -> Ledger:
        path = None if budget.ledgers is None else budget.ledgers / f"{key}.ledger.json"
        return Ledger(budget.epsilon, budget.delta, path=path)

    sites = {
        key: PrivateSite(key, answer, ledger(key), budget.colluding)
        for key, answer in engine.handlers.items()
    }
    engine, roster = replace(engine, handlers=sites), None
    if len(sites) > 1:
        engine, roster = rehearsed(engine, schema=schema)
    return Asker(engine, engine.clients(), Policy(), secure=roster)


def _plan(
    asking: Asking,
    method: Method,
    schema: Schema,
    sensitive_features: str | tuple[str, ...] | None,
    positive: str | None,
) -> tuple[server.Plan, np.ndarray]:
    """The plan, from the schema alone and a noisy n; and the noisy counts of the groups."""
    outline = schema.outline()
    groups = {name: dict.fromkeys(values, 1) for name, values in outline.groups.items()}
    imagined = replace(outline, n=1, labels=dict.fromkeys(outline.labels, 1), groups=groups)
    plan = server.plan(
        method,
        imagined,
        asking.asker.keys,
        sensitive_features=sensitive_features,
        positive=positive,
    )
    found = asking.total(PrivateCounts, 0, replace(plan.task, n=0))
    counts = np.maximum(found["groups"], 1.0)
    n = max(2, round(float(counts.sum())))
    return replace(plan, task=replace(plan.task, n=n), n=n), counts


def _rounds(
    asking: Asking, plan: server.Plan, groups: np.ndarray, rounds: int
) -> tuple[np.ndarray, tuple[dict, ...]]:
    """From the second moment to the last w, and what each round showed."""
    task, method = plan.task, plan.method
    upper = asking.total(PrivateMoments, 0, task)["moments"]
    S = second_moment(upper, asking.deviations("private_moments", task)["moments"])
    fair = method.fairness
    compared = replace(plan.compared, pairs=plan.compared.pairs if fair else ())
    tau, ridge = fair.tau if fair else inf, max(method.ridge, LEAST_RIDGE)
    problem = Problem(plan.n, groups, S, compared, tau, ridge)
    w, history = np.zeros(len(S)), []
    for k in range(1, rounds + 1):
        T = temperature(problem, w)
        sums = asking.total(PrivateSlopes, k, task, w=w, temperature=T)
        before, w = w, stepped(problem, w, sums, k)
        slope = float(np.linalg.norm(sums["gradient"])) / plan.n
        entry = {"round": k, "loss": nan, "worst": nan, "slope": slope}
        history.append({**entry, "step": float(np.abs(w - before).max())})
    return w, tuple(history)


def _certified(
    asking: Asking, plan: server.Plan, w: np.ndarray, confidence: float
) -> dict[str, float]:
    """What the model does on the training rows: as measured under noise, and at most."""
    sums = asking.total(PrivateDecisions, 0, plan.task, w=w)
    counts = 2 * len(plan.compared.parts)
    quantile = NormalDist().inv_cdf(1 - (1 - confidence) / (2 * counts))
    sigma = asking.deviations("private_decisions", plan.task)
    measured, at_most = bounded(sums, sigma, plan.compared, quantile)
    accuracy = float(sums["right"] / max(sums["groups"].sum(), 1.0))
    return {
        "worst_difference": measured,
        "at_most": at_most,
        "confidence": confidence,
        "accuracy": min(max(accuracy, 0.0), 1.0),
    }


def _all(multipliers: Mapping[str, float], rounds: int) -> list[float]:
    """The multiplier of every answer of a fit."""
    return [
        z
        for step, z in multipliers.items()
        for _ in range(rounds if step == "private_slopes" else 1)
    ]
