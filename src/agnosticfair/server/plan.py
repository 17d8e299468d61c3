"""The server's side: ``init`` plans a fit from the census, ``step`` goes from state to state.

It sees sums only, and never imports the client's side or an engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from types import ModuleType

import numpy as np

from agnosticfair.data.census import Census, check_census, encoding_of, positive_label
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.basis import Basis, at_client, median_distance, width
from agnosticfair.mathematics.fairness import Comparisons, comparisons, uses_labels
from agnosticfair.methods import Method, needs_groups
from agnosticfair.protocol.messages import Broadcast, Candidates, Reply, Task
from agnosticfair.server import averaging as printed
from agnosticfair.server import exact
from agnosticfair.server import saddle as local


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
    inner: exact.State | printed.State | local.State

    @property
    def done(self) -> bool:
        return self.inner.done

    @property
    def solver(self) -> ModuleType:
        if self.plan.method.local is not None:
            return printed
        return local if self.plan.method.network is not None else exact


def plan(
    method: Method,
    census: Census,
    clients: tuple[str, ...],
    *,
    sensitive_features: str | Sequence[str] | None = None,
    positive: str | None = None,
    scale: bool = True,
) -> Plan:
    """Agree on the encoding, the label and the groups, from what the clients' summaries add up to."""
    check_census(census)
    positive = positive_label(census, positive)
    others = [
        label for label, count in sorted(census.labels.items()) if count and label != positive
    ]
    names = sensitive_names(method, census, sensitive_features)
    features = [
        (name, tuple(sorted(g for g, c in census.groups[name].items() if c > 0))) for name in names
    ]
    fairness = exact.fairness_of(method)
    if fairness.surrogate.kind == "covariance" and len(names) != 1:
        raise SettingsError(
            f"surrogate 'covariance' looks at one sensitive feature, not {len(names)}"
        )
    compared = comparisons(features, fairness.notion, fairness.intersections)
    counts = census.groups[names[0]] if len(names) == 1 else {}
    groups = tuple(" & ".join(group) for group in product(*(values for _, values in features)))
    settings = {
        "encoding": encoding_of(census, scale).to_json(),
        "positive": positive,
        "negative": others[0] if len(others) == 1 else f"not {positive}",
        "sensitive_feature": " & ".join(names),
        "groups": groups if names else (),
        "sensitive_features": features,
        "by_label": uses_labels(fairness.notion),
        "cells": compared.parts.shape[1],
        "n": max(1, round(census.mass)),
        "clients": clients,
        "basis": asdict(method.basis),
        "fair_basis": asdict(exact.fairness_of(method).basis),
    }
    s_bar = sum(j * counts.get(g, 0) for j, g in enumerate(groups)) / census.n
    return Plan(method, Task.of(settings, {}), census.n, s_bar, compared)


def sensitive_names(
    method: Method, census: Census, sensitive_features: str | Sequence[str] | None
) -> tuple[str, ...]:
    """The sensitive features the groups come from; with one there is no choice to make, and a method without
    fairness needs none."""
    names = sorted(census.groups)
    if sensitive_features is None and (len(names) == 1 or not (names or needs_groups(method))):
        return tuple(names)
    wanted = (
        (sensitive_features,)
        if sensitive_features is None or isinstance(sensitive_features, str)
        else tuple(sensitive_features)
    )
    for name in wanted or (None,):
        if name not in census.groups:
            raise SettingsError(
                f"no sensitive feature {name!r}; there are: {', '.join(names) or 'none'}"
            )
    if len(wanted) > 1 and method.fairness is None and needs_groups(method):
        raise SettingsError(
            f"method {method.name!r} protects one sensitive feature, not {len(wanted)}: name one"
        )
    return tuple(str(name) for name in wanted)


KMEANS_ROUNDS, LEAST_ROWS = 6, 10
"""Steps of k-means, and the rows under which a cluster's mean would say too much of each: it stays put."""


def ranges_draw(plan: Plan, seed: int) -> np.ndarray:
    """Centres (M, d) that fill the space of the encoding evenly, and come from nobody's rows."""
    from scipy.stats import qmc

    settings = plan.task.settings["encoding"]
    numeric, categorical = settings["numeric"], settings["categorical"]
    wanted, columns = kernels_wanted(plan.method), len(numeric) + len(categorical)
    u = qmc.Halton(columns, rng=np.random.default_rng(seed)).random(wanted)
    low, high = np.array([entry[1:] for entry in numeric], float).reshape(-1, 2).T
    own = u[:, : len(numeric)]
    blocks = [own if settings["scale"] else low + own * (high - low)]
    for j, (_, values) in enumerate(categorical, len(numeric)):
        blocks.append(np.eye(len(values))[(u[:, j] * len(values)).astype(int)])
    return np.hstack(blocks)


def clusters_question(plan: Plan, centres: np.ndarray, step: int) -> Broadcast:
    """Ask which rows are near which centre, as sums."""
    return Broadcast(step, plan.task, {}, {"centres": centres})


def moved(centres: np.ndarray, total: Reply) -> np.ndarray:
    """The means of the clusters; a small one's centre stays where it is."""
    count = total.sums["count"][:, None]
    return np.where(count >= LEAST_ROWS, total.sums["total"] / np.maximum(count, 1), centres)


def centres_kind(method: Method) -> str | None:
    """Where the method's centres come from; None where it has none."""
    bases = (method.basis, exact.fairness_of(method).basis)
    kinds = {b.centres for b in bases if b.kind == "gaussian"}
    if len(kinds) > 1:
        raise SettingsError(f"both bases share centres, of one kind: not {' and '.join(kinds)}")
    return next(iter(kinds), None)


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
    """The plan with its centres drawn from the rows that clients offered."""
    return centred(plan, offered.lowest(kernels_wanted(plan.method)))


def centred(plan: Plan, centres: np.ndarray) -> Plan:
    """The plan with its centres, (M, d); fewer distinct rows than kernels means fewer kernels."""
    method, fairness = plan.method, plan.method.fairness
    sigma = median_distance(centres)

    def settled(basis: Basis) -> Basis:
        if basis.kind != "gaussian":
            return basis
        width = sigma if basis.sigma == "median" else basis.sigma
        return replace(basis, kernels=min(basis.kernels, len(centres)), sigma=width)

    method = replace(method, basis=settled(method.basis))
    if fairness is not None:
        method = replace(method, fairness=replace(fairness, basis=settled(fairness.basis)))
    settings = {
        **plan.task.settings,
        "basis": asdict(method.basis),
        "fair_basis": asdict(exact.fairness_of(method).basis),
    }
    return replace(plan, method=method, task=Task.of(settings, {"centres": centres}))


def features(plan: Plan) -> int:
    """d, without the intercept."""
    encoding = plan.task.settings["encoding"]
    return len(encoding["numeric"]) + sum(len(c) for _, c in encoding["categorical"])


def init(plan: Plan, start: exact.Start | None = None) -> State:
    """The state before the first round; ``start``: where a similar fit ended."""
    method, d = plan.method, features(plan)
    M = width(method.basis, plan.clients)
    F = width(exact.fairness_of(method).basis, plan.clients)
    if method.local is not None:
        if start is not None:
            raise SettingsError(f"method {method.name!r} begins at zero: leave out start")
        return State(plan, printed.init(method, plan.n, plan.s_bar, d + 1, M))
    inner = exact.init(method, plan.n, plan.s_bar, plan.clients, plan.compared, d + 1, M, F)
    return State(plan, inner if start is None else exact.warm(inner, start))


@dataclass(frozen=True)
class Drawn:
    """A network before the first round.  w: (P,).  pulled: (P,), where ridge holds.  seed: for the clients'
    batches."""

    w: np.ndarray
    pulled: np.ndarray
    seed: int


def with_network(plan: Plan) -> Plan:
    """The plan whose task names the network, for the clients to build."""
    network = plan.method.network
    assert network is not None
    settings = {"name": network.name, "hidden": network.hidden}
    task = Task.of({**plan.task.settings, "network": settings}, plan.task.arrays)
    return replace(plan, task=task)


def moments_question(plan: Plan) -> tuple[Broadcast, dict[str, tuple[int, ...]]]:
    """Ask for the moments of features and kernels; and what the answer must look like."""
    basis, d = exact.fairness_of(plan.method).basis, (features(plan),)
    M = width(at_client(basis), ())
    gram = (plan.compared.parts.shape[1], width(basis, plan.clients) // M, M + 1, M + 1)
    shapes = {"mass": (), "x": d, "x_squares": d, "gram": gram}
    return Broadcast(0, plan.task), shapes


def init_network(plan: Plan, moments: Reply, drawn: Drawn) -> State:
    """The state before the first round of a network."""
    method, d = plan.method, features(plan)
    M = width(method.basis, plan.clients)
    F = width(exact.fairness_of(method).basis, plan.clients)
    game = exact.init(method, plan.n, plan.s_bar, plan.clients, plan.compared, d + 1, M, F)
    inner = local.init(game, moments.sums, drawn.w, drawn.pulled, drawn.seed)
    if method.local is None:
        return State(plan, inner)
    averaged = printed.init(method, plan.n, plan.s_bar, len(inner.w), M)
    return State(plan, replace(averaged, w=inner.w, decay=inner.decay))


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
    game = state.inner.game if isinstance(state.inner, local.State) else state.inner
    if isinstance(game, exact.State) and game.here is not None:
        return game.here.worst, exact.worst_decisions(game)
    return float("nan"), float("nan")


def weights(state: State) -> np.ndarray:
    """w, the intercept last; of a network, all its weights in one vector."""
    return state.inner.w
