"""A rule from few noisy totals: logistic heads by noisy gradients, then some noisy steps in the dual of its program.

    min_x  E[eps softplus(score / eps)] + sum_e tau_e |x_e|,   score = c - sum_e x_e u_e     (``mathematics.program``)

over overall and single values. A round tells how many expected people of each group are decided positively in each of
them, which is the gradient, and the Hessian of the few active multipliers. No step is judged by another request: eps
goes down a path, steps in the second half of the rounds grow shorter, and the last multipliers are averaged, as in
stochastic approximation. In a single value tau is wider by the standard deviation of what noise shows there, so that
noise is not chased. Everything here is post-processing of noisy totals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from agnosticfair.learners.decisions import Decision
from agnosticfair.learners.estimates import Estimates
from agnosticfair.learners.linear import WEIGHT_BITS
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.multipliers import Coordinates, RateLimits, coordinates
from agnosticfair.mathematics.quadratic import lasso_step
from agnosticfair.protocol.privacy.requests import PrivateHeads, PrivateRates
from agnosticfair.protocol.requests import Task
from agnosticfair.server.plan import Plan
from agnosticfair.server.private import Problem, loss_model, moved
from agnosticfair.server.program import OVERALL
from agnosticfair.server.trainers import heads_of

PATH = (0.3, 0.2, 0.1, 0.05, 0.05, 0.03)
"""Smoothing of decisions from round to round; the last one stays."""

MAX_ACTIVE, JOINING, AVERAGED = 6, 2, 3
"""Multipliers whose Hessian a round asks for, at most; how many may join in a round; and how many of the last rounds'
multipliers are averaged."""

DAMPING, HIDDEN = 0.02, 0.1
"""Of the largest that the Hessian's diagonal can be; and the deviation of a difference's noise from which on it is left
alone."""


class NoisyTotals(Protocol):
    """Asks all sites for noisy totals, and knows their noise."""

    def total(self, kind: type[Any], round: int, task: Task, **more: Any) -> Mapping[str, Any]: ...
    def request(self, kind: type[Any], **more: Any) -> Any: ...
    def deviations(self, request: Any, task: Task) -> dict[str, float]: ...


@dataclass(frozen=True)
class Dual:
    """Between two rounds.  at: the multipliers there are, overall's first.  on: those whose Hessian is asked for.
    n: noisy, of all rows."""

    at: Coordinates
    n: float
    x: np.ndarray
    on: np.ndarray
    last: tuple[np.ndarray, ...] = ()

    @property
    def directions(self) -> np.ndarray:
        """Of the Hessian, (a, 5)."""
        at = self.at.directions(self.on)
        return np.column_stack([at.k, at.j, at.other, at.first, at.second]).astype(float)

    @property
    def averaged(self) -> np.ndarray:
        """The coefficients that the fit ends with."""
        return self.at.coefficients(np.mean(self.last[-AVERAGED:], axis=0))


def trained(
    coordinator_for: NoisyTotals,
    plan: Plan,
    problem: Problem,
    times: tuple[int, int],
    noted: Callable[..., None],
) -> Plan:
    """The plan whose task has estimates and a rule.  times: rounds of the heads and of the program.  noted: is told of
    each."""
    rule, heads = plan.method.rule, heads_of(plan)
    assert rule is not None
    w, error_costs = np.zeros((len(heads), len(problem.S))), rule.error_costs(plan.base_rate)
    for k in range(1, times[0] + 1):
        sums = coordinator_for.total(PrivateHeads, k, plan.task, heads=heads, w=w)
        before, w = w, heads_stepped(problem, w, sums, k)
        noted(step=float(np.abs(w - before).max()))
    kind = "additive" if plan.task.encoding.bins else "linear"
    estimates = Estimates(kind, heads, 0, 0, {"w": on_grid(w[None], WEIGHT_BITS)})
    task = replace(plan.task, estimates=estimates)
    state = _begun(coordinator_for, replace(plan, task=task), problem)
    for k in range(1, times[1] + 1):
        eps, A = PATH[min(k, len(PATH)) - 1], state.at.coefficients(state.x)
        at = {"eps": eps, "shift": 0.0, "A": A, "directions": state.directions}
        sums = coordinator_for.total(PrivateRates, k, task, error_costs=error_costs, **at)
        state = stepped(state, sums, eps, k, times[1])
        noted(multipliers=int((state.x != 0).sum()))
    named = task.subgroups if task.subgroups is not None and len(task.subgroups.values) else None
    decision = Decision(error_costs, np.roll(state.averaged, -1, axis=0), 0.0, named)
    return replace(plan, task=replace(task, rule=decision))


def binned(plan: Plan, bins: Mapping[str, Sequence[float]]) -> Plan:
    """The plan; with a rule its features have these bins, too."""
    if plan.method.rule is None:
        return plan
    edges = tuple((name, tuple(cuts)) for name, cuts in sorted(bins.items()) if cuts)
    encoding = replace(plan.task.encoding, bins=edges)
    return replace(plan, task=replace(plan.task, encoding=encoding))


def _begun(coordinator_for: NoisyTotals, plan: Plan, problem: Problem) -> Dual:
    """Before the program's first round: expected people are those of a rule that decides positively for all."""
    rule, compared, task = plan.method.rule, plan.compared, plan.task
    assert rule is not None
    error_costs = rule.error_costs(plan.base_rate)
    overall = {"error_costs": error_costs, "eps": 0.0, "shift": -2.0 * sum(error_costs)}
    none = {
        "A": np.zeros((len(problem.groups), len(compared.names))),
        "directions": np.zeros((0, 5)),
    }
    off = coordinator_for.deviations(
        coordinator_for.request(PrivateRates, **overall, **none), task
    )["rates"]
    mass = coordinator_for.total(PrivateRates, 0, task, **overall, **none)["rates"]
    tau = np.full(len(mass), problem.tau)
    tau[0] *= 1.0 if len(tau) == 1 else OVERALL
    tau[0] = tau[0] if rule.overall is None else rule.overall
    pairs = tuple((j, k) for j, k in compared.pairs if k is not None and j < k)
    return dual(mass, problem.n, pairs, tau, off)


def heads_stepped(
    problem: Problem, w: np.ndarray, sums: Mapping[str, np.ndarray], number: int
) -> np.ndarray:
    """Every head's weights after round ``number``, (H, D)."""
    stepped = np.empty_like(w)
    for h, weights in enumerate(w):
        totals = sums["gradients"][h], float(sums["curves"][h])
        H, gradient = loss_model(problem, weights, *totals, number)
        stepped[h] = moved(problem, weights, -np.linalg.solve(H, gradient), number == 1)
    return stepped


def dual(
    mass: np.ndarray, n: float, pairs: tuple[tuple[int, int], ...], tau: np.ndarray, off: float
) -> Dual:
    """Before the first round.  mass: (1 + M, C), noisy, of deviation ``off``.  tau: (1 + M,)."""
    mass = np.maximum(mass, 1.0)
    at = coordinates({"mass": mass.T}, n, RateLimits(tau, pairs))
    shown = off * np.hypot(1 / mass[at.k, at.j], 1 / mass[at.k, at.other])
    wider = np.where(at.k > 0, np.where(shown < HIDDEN, shown, np.inf), 0.0)
    limits = np.append(tau[at.k] + wider, np.inf)
    at = replace(at, up=limits, down=limits)
    return Dual(at, n, at.zero(), np.flatnonzero(at.k == 0))


def stepped(
    state: Dual, sums: Mapping[str, np.ndarray], eps: float, number: int, rounds: int
) -> Dual:
    """The multipliers after round ``number`` of ``rounds``."""
    at, on, x = state.at, state.on, state.x
    r = np.append(at.differences(sums["rates"].T / state.n), 0.0)
    H = np.zeros((len(on), len(on)))
    H[np.triu_indices(len(on))] = sums["rates_hessian"]
    scales = at.scales(on)
    H = (H + np.triu(H, 1).T) / (4 * eps * state.n) / scales[:, None] / scales
    values, vectors = np.linalg.eigh(H)
    k, j, other = at.k[on], at.j[on], at.other[on]
    maximum = (1 / at.mass[k, j] + 1 / at.mass[k, other]) / (4 * eps)
    H = (vectors * np.maximum(values, 0.0)) @ vectors.T + DAMPING * np.diag(maximum)
    late = number - rounds // 2
    length = 1.0 if late <= 0 else 2.0 / (late + 2)
    x = x.copy()
    x[on] += length * (lasso_step(H, -r[on], x[on], at.up[on], at.down[on]) - x[on])
    return replace(state, x=x, on=_active(at, x, r), last=(*state.last, x))


def _active(at: Coordinates, x: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Overall's multipliers, those that are not 0, and the few whose differences exceed their limits most."""
    first = np.flatnonzero((at.k == 0) | (x[:-1] != 0))
    excess = (np.abs(r) - at.up)[:-1]
    excess[first] = -np.inf
    order = np.argsort(-excess, kind="stable")
    more = [e for e in order.tolist() if excess[e] > 0][:JOINING]
    return np.sort(np.append(first, more)[: max(MAX_ACTIVE, int((at.k == 0).sum()))].astype(int))
