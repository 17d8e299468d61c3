"""The solver of rules: ``mathematics.program`` over clients' sums, with estimates that are settled.

Its weight functions are the task's subgroups, or clients, or kernels, and overall as the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from typing import Any

import numpy as np

from agnosticfair.errors import SettingsError, existing
from agnosticfair.mathematics import program
from agnosticfair.mathematics.basis import width
from agnosticfair.mathematics.metrics import metric_of
from agnosticfair.mathematics.multipliers import (
    At,
    Coordinates,
    Mixtures,
    RateLimits,
    WorstUtility,
    unsettled,
)
from agnosticfair.mathematics.program import (
    Optimum,
    State,
    cost_sentences,
    next_scale,
    optimality,
    optimum,
)
from agnosticfair.methods import Method
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import ProgramSums
from agnosticfair.server.plan import Beginning, Plan, Start, fairness_of

MAX_SHARE = 0.9
"""Of the weight that the adversary of an agnostic rule moves: by the rest rows are decided that it leaves."""

MAX_ROUNDS = 45
"""Rounds after which no program is begun that would only say what other limits cost."""

OVERALL = 0.5  # the limit of the difference overall, as a share of tau, unless it is set
SETTLED = 2e-3  # converged, whatever the rounds: differences are so near to the optimum's
CHARGE = 0.15  # of differences within the limits (``RateLimits.spend``), where both errors cost 1


@dataclass(frozen=True)
class ProgramState:
    """The program between two rounds.  names: of the compared groups.  error_costs: of a false positive and a false
    negative.  aside: once the rule is found, a program with limits ``scale`` times as large, which says what they would
    cost; further: what those before had.  w: none; alpha: overall alone."""

    inner: State
    error_costs: tuple[float, float]
    names: tuple[str, ...]
    round: int = 0
    outcome: str = "running"
    history: tuple[dict, ...] = ()
    aside: State | None = None
    scale: float = 1.0
    further: tuple[tuple[float, float], ...] = ()
    w: np.ndarray = field(default_factory=lambda: np.zeros(0))
    alpha: np.ndarray = field(default_factory=lambda: np.ones(1))

    @property
    def under_floor(self) -> tuple[str, ...]:
        """The groups that are compared with none: they have too few expected people."""
        at = self.inner.at
        if at is None:
            return ()
        there = {*at.j.tolist(), *at.other.tolist()}
        return tuple(name for p, name in enumerate(self.names) if p not in there)

    @property
    def decided(self) -> tuple[Coordinates, At]:
        """What is compared, and the point that the rule decides by."""
        return existing(self.inner.at), existing(self.inner.hard or self.inner.here)


def suits(method: Method) -> bool:
    """Never by itself: a rule's learners come before it (``server.rule``)."""
    return False


def before(plan: Plan) -> Broadcast[Any] | None:
    """Nothing is asked before the first round."""


def weight_functions(plan: Plan) -> int:
    if plan.task.subgroups is not None:
        return len(plan.task.subgroups.values) + 1
    basis = plan.task.fair_basis
    return 1 if basis.kind == "constant" else width(basis, plan.clients) + 1


def limits_of(plan: Plan) -> RateLimits:
    fairness, rule = fairness_of(plan.method), existing(plan.method.rule)
    if metric_of(fairness.metric).bounds:
        raise SettingsError(
            f"a rule limits differences of rates, not {fairness.metric!r}: take demographic_parity, "
            "equal_opportunity or equalized_odds"
        )
    if plan.task.fair_basis.kind == "function":
        raise SettingsError(
            "a rule decides by what its model file holds, which no function is: take subpopulations(), gaussian() or "
            "by_client()"
        )
    K = weight_functions(plan)
    tau = np.full(K, fairness.tau if fairness.each else inf)
    alone = K == 1 or fairness.tau >= 1  # which no difference exceeds
    usual = fairness.tau if alone else OVERALL * fairness.tau
    tau[-1] = min(usual, fairness.nominal) if rule.overall is None else rule.overall
    mixtures = None
    if not fairness.each and K > 1:
        bound = fairness.bound if isfinite(fairness.bound) else None
        mixtures = Mixtures(fairness.tau, bound, fairness.floor, fairness.trust)
    error_costs = rule.error_costs(plan.base_rate)
    pairs = tuple((j, k) for j, k in plan.compared.pairs if k is not None and j < k)
    return RateLimits(
        tau,
        pairs,
        spend=CHARGE * sum(error_costs) / 2 if fairness.each and not rule.agnostic else 0.0,
        positive_rate=rule.positive_rate,
        min_people=rule.min_people if K > 1 else min(rule.min_people, 1.0),
        max_rounds=plan.method.max_rounds,
        mixtures=mixtures,
        worst=WorstUtility(min(plan.method.share, MAX_SHARE), error_costs)
        if rule.agnostic
        else None,
    )


def init(plan: Plan, beginning: Beginning) -> ProgramState:
    """Before the first round; or at the multipliers with which a similar program ended."""
    rule = existing(plan.method.rule)
    start = None if beginning.start is None else beginning.start.w
    inner = program.init(limits_of(plan), float(plan.task.n), len(plan.compared.names), start)
    return ProgramState(inner, rule.error_costs(plan.base_rate), plan.compared.names)


def request(state: ProgramState) -> ProgramSums:
    return ProgramSums(state.error_costs, program.request(state.aside or state.inner))


def step(state: ProgramState, reply: Reply) -> ProgramState:
    if state.aside is not None:
        return _with_optimum(replace(state, round=reply.round), reply)
    inner = program.step(state.inner, reply.sums)
    accepted = inner.here is not state.inner.here or inner.stage == "done"
    state = replace(state, inner=inner, round=reply.round)
    state = replace(state, history=(*state.history, entry(state, accepted)))
    return _ended(state) if inner.stage == "done" else state


def _with_optimum(state: ProgramState, reply: Reply) -> ProgramState:
    """One round of a program with larger limits."""
    aside = program.step(existing(state.aside), reply.sums)
    if aside.stage == "done":
        bounds = optimum(aside)
        more = (state.scale, min(bounds.utility, bounds.bound))
        state = replace(state, further=(*state.further, more))
    state = replace(state, aside=aside)
    state = replace(state, history=(*state.history, entry(state, False)))
    return _ended(state) if aside.stage == "done" else state


def _ended(state: ProgramState) -> ProgramState:
    """The last state; or the one before a program that says what larger limits would cost, where rounds are left."""
    inner = state.inner
    late = inner.round >= inner.limits.max_rounds
    smooth = inner.level < len(inner.limits.path) - 1 and not _unchanged(inner)
    outcome = "rounds" if late and (smooth or remaining(inner) > SETTLED) else "converged"
    scale = next_scale(optimum_of(state))
    limits = inner.limits
    simple = limits.mixtures is None and limits.positive_rate is None
    if scale is None or not simple or state.round + program.FURTHER > MAX_ROUNDS:
        return replace(state, outcome=outcome, aside=None)
    return replace(state, aside=program.rescaled(inner, scale), scale=scale)


def remaining(inner: State) -> float:
    """How far the smoothed rule's differences are from the optimum's."""
    at, here = existing(inner.at), existing(inner.here)
    of = inner.hard if inner.hard is not None and _unchanged(inner) else here
    return unsettled(at, of)


def _unchanged(inner: State) -> bool:
    at, hard = inner.at, inner.hard
    return at is not None and hard is not None and bool((hard.x == at.zero()).all())


def entry(state: ProgramState, accepted: bool) -> dict[str, Any]:
    """A round's record: of the accepted point, and at the end of the rule as it decides."""
    inner, (at, of) = state.inner, state.decided
    false_positive, false_negative = state.error_costs
    positives = (inner.totals[0] + false_positive) / (false_negative + false_positive)
    fields = {
        "round": state.round,
        "kept": bool(accepted),
        "loss": -of.utility if at.worst else float(false_negative * positives - of.utility),
        "worst": worst(inner, of),
        "accuracy": of.right,
        "positive": of.positive,
        "eps": of.eps,
        "objective": of.value,
        "remaining": remaining(inner),
        "multipliers": int((of.x != 0).sum()),
    }
    if at.worst is not None:
        fields |= {"mean_loss": float(of.losses[-1]), "worst_loss": float(of.losses.max())}
    if inner.stage != "done":
        return fields
    optimum = optimum_of(state)
    return {**fields, **vars(optimum), "retained": optimum.retained}


def worst(inner: State, point: At) -> float:
    """The largest difference of two groups' rates; at the end over every mixture, where they are limited."""
    difference = float(np.abs(point.differences).max(initial=0.0))
    return (
        max(difference, program.worst_mixture(inner, point))
        if inner.stage == "done"
        else difference
    )


def worst_cases(state: ProgramState) -> tuple[float, float]:
    """The largest estimated difference over all weight functions, of the smoothed rule and of what it decides."""
    inner = state.inner
    if inner.here is None:
        return nan, nan
    return worst(inner, inner.here), worst(inner, inner.hard or inner.here)


def start_of(state: ProgramState) -> Start | None:
    """The multipliers, for a program with other limits and the same estimates."""
    inner = state.inner
    if inner.here is None or inner.at is None or len(inner.at.mixed):
        return None
    return Start(inner.here.x)


def optimum_of(state: ProgramState) -> Optimum:
    return replace(optimum(state.inner), further=state.further)


def statements(state: ProgramState) -> tuple[str, ...]:
    """What is to be said of the rule: how far from the best it is, and what its limits cost."""
    optimum, limits = optimum_of(state), state.inner.limits
    tau = limits.tau[0] if limits.mixtures is None else limits.mixtures.tau
    return (optimality(optimum), *cost_sentences(optimum, float(tau)))


def coefficients_of(state: ProgramState) -> tuple[np.ndarray, float]:
    """A, (K, P), and the shift of the positive rate: what a model decides by."""
    at, of = state.decided
    return at.coefficients(of.x), float(of.x[-1])


def weights_of(state: ProgramState) -> np.ndarray | None:
    """How much each weight function's utility counts, (K,); None for the mean."""
    at, of = state.decided
    return at.weights(of.x)


def multipliers_of(state: ProgramState) -> tuple[np.ndarray, ...]:
    """The weight function, both groups, and the multiplier of every comparison that the rule pays for, the most
    first; a positive one holds the first group back."""
    at, of = state.decided
    x = of.x[: len(at.k)]
    order = np.argsort(-np.abs(x), kind="stable")[: int((x != 0).sum())]
    return at.k[order], at.j[order], at.other[order], x[order]


def by_subgroup(state: ProgramState) -> np.ndarray:
    """The largest estimated difference of decisions in every weight function but overall, (K - 1,); -inf where nothing
    can be compared."""
    at, of = state.decided
    differences = np.full(len(state.inner.limits.tau), -np.inf)
    np.maximum.at(differences, at.k, np.abs(of.differences[: len(at.k)]))
    return differences[:-1]
