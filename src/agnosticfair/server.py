"""The server's side: ``init`` plans a fit from the census, ``step`` goes from state to state.

It sees sums only, and never imports the client's side or an engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from types import ModuleType

import numpy as np

from agnosticfair.basis import width
from agnosticfair.data.census import Census, check_census, encoding_of, positive_label
from agnosticfair.errors import SettingsError
from agnosticfair.fairness import Comparisons, comparisons, uses_labels
from agnosticfair.messages import Broadcast, Candidates, Reply, Task
from agnosticfair.methods import Method, needs_groups
from agnosticfair.solvers import exact, printed


@dataclass(frozen=True)
class Plan:
    """What the census settles: the task every client works on, and how many rows there are."""

    method: Method
    task: Task
    n: int
    s_bar: float
    compared: Comparisons

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(self.task.settings["clients"])


@dataclass(frozen=True)
class State:
    """A plan and its solver's state."""

    plan: Plan
    inner: exact.State | printed.State

    @property
    def done(self) -> bool:
        return self.inner.done

    @property
    def solver(self) -> ModuleType:
        return printed if self.plan.method.local is not None else exact


def plan(
    method: Method,
    census: Census,
    clients: tuple[str, ...],
    *,
    attribute: str | Sequence[str] | None = None,
    positive: str | None = None,
    scale: bool = True,
) -> Plan:
    """Agree on the encoding, the label and the groups, from what the clients' summaries add up to."""
    check_census(census)
    positive = positive_label(census, positive)
    others = [
        label for label, count in sorted(census.labels.items()) if count and label != positive
    ]
    names = sensitive_attributes(method, census, attribute)
    attributes = [
        (name, tuple(sorted(g for g, c in census.groups[name].items() if c > 0))) for name in names
    ]
    fairness = exact.fairness_of(method)
    if fairness.surrogate.kind == "covariance" and len(names) != 1:
        raise SettingsError(f"surrogate 'covariance' looks at one attribute, not {len(names)}")
    compared = comparisons(attributes, fairness.notion, fairness.intersections)
    counts = census.groups[names[0]] if len(names) == 1 else {}
    groups = tuple(" & ".join(group) for group in product(*(values for _, values in attributes)))
    settings = {
        "encoding": encoding_of(census, scale).to_json(),
        "positive": positive,
        "negative": others[0] if len(others) == 1 else f"not {positive}",
        "attribute": " & ".join(names),
        "groups": groups if names else (),
        "attributes": attributes,
        "by_label": uses_labels(fairness.notion),
        "cells": compared.parts.shape[1],
        "clients": clients,
        "basis": asdict(method.basis),
        "fair_basis": asdict(exact.fairness_of(method).basis),
    }
    s_bar = sum(j * counts.get(g, 0) for j, g in enumerate(groups)) / census.n
    return Plan(method, Task.of(settings, {}), census.n, s_bar, compared)


def sensitive_attributes(
    method: Method, census: Census, attribute: str | Sequence[str] | None
) -> tuple[str, ...]:
    """The attributes the groups come from; with one there is no choice to make, and a method without
    fairness needs none."""
    names = sorted(census.groups)
    if attribute is None and (len(names) == 1 or not (names or needs_groups(method))):
        return tuple(names)
    wanted = (attribute,) if attribute is None or isinstance(attribute, str) else tuple(attribute)
    for name in wanted or (None,):
        if name not in census.groups:
            raise SettingsError(
                f"no sensitive attribute {name!r}; there are: {', '.join(names) or 'none'}"
            )
    if len(wanted) > 1 and method.fairness is None and needs_groups(method):
        raise SettingsError(
            f"method {method.name!r} protects one attribute, not {len(wanted)}: name one"
        )
    return tuple(str(name) for name in wanted)


def centres_question(plan: Plan, seed: int, share: float = 0.0) -> Broadcast | None:
    """Ask for candidate centres; None where no basis needs any.

    The first share is about half more than are needed if all rows differ. Equal rows count once, so
    where too few came back (``enough``) the same question is asked again with four times the share.
    """
    wanted = kernels_wanted(plan.method)
    if not wanted:
        return None
    share = min(1.0, 4 * share or (1.5 * wanted + 20) / plan.n)
    return Broadcast(0, plan.task, {"seed": seed, "share": share})


def enough(plan: Plan, ask: Broadcast, offered: Candidates) -> bool:
    """Whether there are centres enough, or no more to be had."""
    return ask.settings["share"] >= 1.0 or len(
        offered.lowest(kernels_wanted(plan.method))
    ) == kernels_wanted(plan.method)


def kernels_wanted(method: Method) -> int:
    """How many Gaussian centres the method's bases use."""
    bases = (method.basis, exact.fairness_of(method).basis)
    return max((b.kernels for b in bases if b.kind == "gaussian"), default=0)


def with_centres(plan: Plan, offered: Candidates) -> Plan:
    """The plan with its centres drawn; fewer distinct rows than kernels means fewer kernels."""
    method, settings = plan.method, dict(plan.task.settings)
    centres = offered.lowest(kernels_wanted(method))
    fairness = method.fairness
    for name in ("basis", "fair_basis"):
        if settings[name]["kind"] == "gaussian":
            settings[name] = {
                **settings[name],
                "kernels": min(settings[name]["kernels"], len(centres)),
            }
    if method.basis.kind == "gaussian":
        method = replace(method, basis=replace(method.basis, kernels=settings["basis"]["kernels"]))
    if fairness is not None and fairness.basis.kind == "gaussian":
        basis = replace(fairness.basis, kernels=settings["fair_basis"]["kernels"])
        method = replace(method, fairness=replace(fairness, basis=basis))
    return replace(plan, method=method, task=Task.of(settings, {"centres": centres}))


def init(plan: Plan) -> State:
    """The state before the first round."""
    method, settings = plan.method, plan.task.settings
    d = len(settings["encoding"]["numeric"]) + sum(
        len(c) for _, c in settings["encoding"]["categorical"]
    )
    M = width(method.basis, plan.clients)
    F = width(exact.fairness_of(method).basis, plan.clients)
    if method.local is not None:
        return State(plan, printed.init(method, plan.n, plan.s_bar, d + 1, M))
    inner = exact.init(method, plan.n, plan.s_bar, plan.clients, plan.compared, d + 1, M, F)
    return State(plan, inner)


def question(state: State) -> tuple[str, Broadcast]:
    """The step and the broadcast of the next round."""
    step, settings, arrays = state.solver.question(state.inner)
    return step, Broadcast(state.inner.round + 1, state.plan.task, settings, arrays)


def shapes(state: State) -> Mapping[str, tuple[int, ...]]:
    """What every client's answer to the next question must look like."""
    return state.solver.shapes(state.inner)


def step(state: State, total: Reply) -> State:
    """One round, from the sum of all replies."""
    return replace(state, inner=state.solver.step(state.inner, total))


def weights(state: State) -> np.ndarray:
    """w, the intercept last."""
    return state.inner.w
