"""The server's side: ``init`` plans a fit from the census, ``step`` goes from state to state.

It sees sums only, and never imports the client's side or an engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import ModuleType

import numpy as np

from agnosticfair.basis import width
from agnosticfair.data.census import Census, check_census, encoding_of, positive_label
from agnosticfair.errors import SettingsError
from agnosticfair.messages import Broadcast, Candidates, Reply, Task
from agnosticfair.methods import Method
from agnosticfair.solvers import exact, printed


@dataclass(frozen=True)
class Plan:
    """What the census settles: the task every client works on, and how many rows there are."""

    method: Method
    task: Task
    n: int
    s_bar: float

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
    attribute: str | None = None,
    positive: str | None = None,
) -> Plan:
    """Agree on the encoding, the label and the groups, from what the clients' summaries add up to."""
    check_census(census)
    positive = positive_label(census, positive)
    others = [
        label for label, count in sorted(census.labels.items()) if count and label != positive
    ]
    attribute = sensitive_attribute(census, attribute)
    counts = {g: c for g, c in census.groups[attribute].items() if c > 0}
    groups = tuple(sorted(counts))
    settings = {
        "encoding": encoding_of(census).to_json(),
        "positive": positive,
        "negative": others[0] if len(others) == 1 else f"not {positive}",
        "attribute": attribute,
        "groups": groups,
        "n": census.n,
        "clients": clients,
        "basis": asdict(method.basis),
        "fair_basis": asdict(exact.fairness_of(method).basis),
    }
    s_bar = sum(j * counts[g] for j, g in enumerate(groups)) / census.n
    return Plan(method, Task.of(settings, {}), census.n, s_bar)


def sensitive_attribute(census: Census, attribute: str | None) -> str:
    """The attribute the groups come from; with one there is no choice to make."""
    names = sorted(census.groups)
    if attribute is None and len(names) == 1:
        attribute = names[0]
    if attribute is None or attribute not in census.groups:
        raise SettingsError(
            f"no sensitive attribute {attribute!r}; there are: {', '.join(names) or 'none'}"
        )
    return attribute


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
    G = len(settings["groups"])
    return State(plan, exact.init(method, plan.n, plan.s_bar, plan.clients, d + 1, G, M, F))


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


def worst_cases(state: State) -> tuple[float, float]:
    """The worst difference over the set, of the surrogate and of the true decisions."""
    if isinstance(state.inner, exact.State) and state.inner.here is not None:
        return state.inner.here.worst, exact.worst_decisions(state.inner)
    return float("nan"), float("nan")


def weights(state: State) -> np.ndarray:
    """w, the intercept last."""
    return state.inner.w
