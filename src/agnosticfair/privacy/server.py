"""Models from few noisy totals: a linear model by noisy gradients, a rule by noisy steps in the dual of its program.

**A linear model**, by one noisy second moment, then some steps:

    min_w  mean loss + ridge |w|^2 / 2   subject to   |rate_j - rate_k| <= tau  for the groups compared,

overall.

Noise goes furthest on few numbers. The curvature of the logistic loss is at most a quarter of the second
moment of the rows, and on average a fraction of it that one number per round tells: so the moment is asked
for once, and a round sends D gradients of the loss, a gradient and a count for each group. A step minimises

    gradient . p + p . H p / 2   subject to   |r + J p| <= tau,   H = (1 + slack) curve S / n + ridge

with r the difference of the *decisions'* rates and J its gradient, smoothed by a sigmoid as wide as the scores'
standard deviation, which S and w tell.

**A rule**: logistic heads by noisy gradients, then the dual of its program,

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
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.errors import SettingsError, existing
from agnosticfair.learners.decisions import Decision
from agnosticfair.learners.estimates import Estimates
from agnosticfair.learners.linear import WEIGHT_BITS
from agnosticfair.mathematics.ambiguity import Outcome
from agnosticfair.mathematics.fairness import Comparisons
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.multipliers import Coordinates, RateLimits, coordinates
from agnosticfair.mathematics.quadratic import lasso_step, minimise
from agnosticfair.privacy.ledger import check_budget, multiplier, share_of
from agnosticfair.privacy.requests import (
    PrivateGradients,
    PrivateHeads,
    PrivatePlan,
    PrivateRates,
    deviations,
)
from agnosticfair.protocol.faults import Coordinator
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.requests import Task, step_of
from agnosticfair.server.plan import Plan, heads_of
from agnosticfair.server.program import OVERALL

ROUNDS = 8
"""More rounds share the same noise: each then tells less."""

SLACK = 0.3
"""By how much the curvature of the loss is taken for larger than it is, so that noise in it overshoots no step."""

MIN_HESSIAN = 0.02
"""The least mean curvature, of 1/4 at most: a smaller one is noise."""

MIN_TEMPERATURE = 0.1
"""The least width of the sigmoid that decisions are smoothed by: at w = 0 scores do not vary."""

FAR = 20.0
"""By how many deviations of noise a group's rows must exceed it."""

FIRST_STEP = 2.0
"""How far the scores may move in the first round, which begins at zero, as a root mean square."""

LATER_STEP = 1.0
"""The same in later rounds."""


BUDGET_SHARES = {
    "private_counts": 0.02,
    "private_moments": 0.25,
    "private_gradients": 0.63,
    "private_decisions": 0.1,
}
"""How much of the budget goes to counts, the second moment, all rounds together, and the certificate."""

SHARES_OF_RULE = {
    "private_counts": 0.05,
    "private_moments": 0.15,
    "private_heads": 0.4,
    "private_rates": 0.3,
    "private_decisions": 0.1,
}
"""The same of a rule, whose counts are of fewer rows each: its heads, and its program."""


@dataclass(frozen=True)
class Budget:
    """epsilon, delta: of all answers together.  colluding: how many sites may pool what they know with the
    coordinator.  ledgers: a folder of ledgers, one for each client's rows, kept over fits (``ledger_folder()`` is the
    standard one); None for ledgers in memory, of this fit alone.
    max_rows: 0 to hide rows; to hide whole sites, the rows of which a site adds no more."""

    epsilon: float
    delta: float = 1e-5
    colluding: int = 1
    ledgers: Path | None = None
    max_rows: int = 0

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        if self.colluding < 0:
            raise SettingsError(
                f"colluding is {self.colluding}: give the number of sites, 0 or more"
            )
        if self.max_rows < 0:
            raise SettingsError(
                f"max_rows is {self.max_rows}: give the rows that a site adds at most, or 0 to hide rows"
            )

    @property
    def unit(self) -> str:
        """Who is hidden: a row, or a site."""
        return "site" if self.max_rows else "row"

    def multipliers(self, rounds: int, rule: bool = False) -> dict[str, float]:
        """The noise multiplier of each step, so that all of them together cost epsilon."""
        whole, times = multiplier(self.epsilon, self.delta), how_often(rounds)
        shares = SHARES_OF_RULE if rule else BUDGET_SHARES
        return {step: whole * sqrt(times.get(step, 1) / share) for step, share in shares.items()}


def how_often(rounds: int) -> dict[str, int]:
    """How often each step is requested that is not requested once; a rule's people are counted before its rounds."""
    return {"private_gradients": rounds, "private_heads": 2 * rounds, "private_rates": rounds + 1}


@dataclass
class PrivateCoordinator:
    """Asks for noisy totals, and knows the noise they have."""

    coordinator: Coordinator
    budget: Budget
    multipliers: Mapping[str, float]

    def reserve(self, fit: str, rounds: int, task: Task, ends: bool = False) -> None:
        """Have every site keep room for all requests of this fit, or give back what was not needed."""
        every = np.zeros(0) if ends else np.array(answers_of(self.multipliers, rounds))
        self.coordinator.total(Broadcast(int(ends), task, PrivatePlan(fit, ends, every)))

    def total(self, kind: type[Any], round: int, task: Task, **more: Any) -> Mapping[str, Any]:
        """The noisy sums of a request of this kind.  more: its other fields."""
        request = self.request(kind, **more)
        return self.coordinator.total(Broadcast(round, task, request)).sums

    def request(self, kind: type[Any], **more: Any) -> Any:
        z = self.multipliers[step_of(kind)]
        return kind(z=z, max_rows=self.budget.max_rows, **more)

    def deviations(self, request: Any, task: Task) -> dict[str, float]:
        """The standard deviations of a total's noise: where sites may collude, more than the budget's."""
        sites = len(self.coordinator.keys)
        shared = share_of(sites, self.budget.colluding) if self.coordinator.secure else 1.0
        more = sqrt(sites) * shared
        return {name: more * sigma for name, sigma in deviations(request, task).items()}


def answers_of(multipliers: Mapping[str, float], rounds: int) -> list[float]:
    return [z for step, z in multipliers.items() for _ in range(how_often(rounds).get(step, 1))]


@dataclass(frozen=True)
class Problem:
    """n, groups: noisy counts, of all rows, and by subgroup and stratum, (1 + M, G), overall first.  S: (D, D), the
    noisy second moment, a sum, made positive definite.  compared: the groups and their pairs; tau: what is
    allowed between them."""

    n: float
    groups: np.ndarray
    S: np.ndarray
    compared: Comparisons
    tau: float
    ridge: float


def second_moment(upper: np.ndarray, deviation: float) -> np.ndarray:
    """S from its noisy upper triangle: without negative eigenvalues, and damped by twice the noise's
    standard deviation, under which a direction is noise.

    >>> second_moment(np.array([4.0, 0.0, -1.0]), 0.5)
    array([[5., 0.],
           [0., 1.]])
    """
    D = int(np.sqrt(2 * len(upper)))
    S = np.zeros((D, D))
    S[np.triu_indices(D)] = upper
    values, vectors = np.linalg.eigh(S + np.triu(S, 1).T)
    return (vectors * (np.maximum(values, 0.0) + 2 * deviation)) @ vectors.T


def temperature(problem: Problem, w: np.ndarray) -> float:
    """The scores' standard deviation under w, by the noisy moments; the intercept's column holds the means."""
    mean, square = problem.S[-1] @ w / problem.n, w @ problem.S @ w / problem.n
    return float(max(np.sqrt(max(square - mean * mean, 0.0)), MIN_TEMPERATURE))


def stepped(
    problem: Problem, w: np.ndarray, sums: Mapping[str, np.ndarray], number: int
) -> np.ndarray:
    """w after round ``number``; the first one looks at the loss alone, for at w = 0 all decisions are equal.
    From the second on steps in the loss grow shorter, as those of stochastic approximation do, while what
    the constraint asks for is done in full."""
    first = number == 1
    H, gradient = loss_model(problem, w, sums["gradient"], float(sums["hessian"]), number)
    p = -np.linalg.solve(H, gradient)
    if not first and problem.compared.pairs:
        r, J = differences(problem, w, sums)
        ends = np.concatenate([problem.tau - r, problem.tau + r])
        solution = minimise(H, gradient, np.vstack([J, -J]), ends)
        p = solution.x if solution.outcome is Outcome.OPTIMAL else p
    return moved(problem, w, p, first)


def loss_model(
    problem: Problem, w: np.ndarray, gradient: np.ndarray, curve: float, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """The Hessian and the gradient of the mean loss with its ridge, from noisy totals; from the second round on the
    Hessian grows, and steps with it grow shorter."""
    n, D = problem.n, len(w)
    share = np.clip((1 + SLACK) * curve / 4 / n, MIN_HESSIAN, 0.25)
    H = max(1, number - 1) * share * problem.S / n + problem.ridge * np.eye(D)
    return H, gradient / n + problem.ridge * w


def moved(problem: Problem, w: np.ndarray, p: np.ndarray, first: bool) -> np.ndarray:
    """w + p, or as much of it as lets scores move."""
    length = np.sqrt(max(p @ problem.S @ p / problem.n, 0.0))
    return w + p * min(1.0, (FIRST_STEP if first else LATER_STEP) / max(length, 1e-12))


def linear(
    totals: PrivateCoordinator,
    task: Task,
    problem: Problem,
    rounds: int,
    noted: Callable[..., None],
) -> np.ndarray:
    """The weights of a linear model.  noted: is called after each round."""
    w = np.zeros(len(problem.S))
    for k in range(1, rounds + 1):
        sums = totals.total(PrivateGradients, k, task, w=w, temperature=temperature(problem, w))
        before, w = w, stepped(problem, w, sums, k)
        norm = float(np.linalg.norm(sums["gradient"])) / problem.n
        noted(gradient=norm, step=float(np.abs(w - before).max()))
    return w


def differences(
    problem: Problem, w: np.ndarray, sums: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Differences of the rates of decisions, (pairs,), and their gradients, (pairs, D)."""
    first, second = (np.array(side, int) for side in zip(*problem.compared.pairs, strict=True))
    members = problem.compared.members
    rows = np.maximum(members @ problem.groups[0], 1.0)
    rates = members @ sums["decided"] / rows
    J = members @ sums["group_gradients"] / (4 * temperature(problem, w)) / rows[:, None]
    return rates[first] - rates[second], J[first] - J[second]


def comparable(
    groups: np.ndarray, compared: Comparisons, off: float, minimum: float, floor: float
) -> np.ndarray:
    """Which subgroups, of the noisy counts (1 + M, G), are kept: those that hold the share ``minimum`` of all rows, and
    of which every group compared has the share ``floor`` and far more rows than noise has, (M,) of bool."""
    rows, whole = groups[1:] @ compared.members.T, groups[1:].sum(axis=1)
    used = sorted({j for pair in compared.pairs for j in pair if j is not None})
    fewest = rows[:, used].min(axis=1) if used else whole
    return (whole >= minimum * groups[0].sum()) & (fewest >= np.maximum(floor * whole, FAR * off))


def bounded(
    sums: Mapping[str, np.ndarray],
    deviations: Mapping[str, float],
    compared: Comparisons,
    quantile: float,
) -> tuple[np.ndarray, np.ndarray]:
    """By subgroup, overall first, (1 + M,): the largest difference of rates as measured, and what it is at most on
    these rows: every noisy count may be off by ``quantile`` standard deviations, in whichever direction is worst."""
    members = compared.members
    scales = np.sqrt(members.sum(axis=1))
    off_rows, off_hat = (quantile * deviations[name] * scales for name in ("groups", "hat"))
    rows, hat = sums["groups"] @ members.T, sums["hat"] @ members.T
    rates = np.clip(hat / np.maximum(rows, 1.0), 0.0, 1.0)
    high = np.clip((hat + off_hat) / np.maximum(rows - off_rows, 1.0), 0.0, 1.0)
    low = np.clip((hat - off_hat) / np.maximum(rows + off_rows, 1.0), 0.0, 1.0)
    pairs = [(j, k) for j, k in compared.pairs if k is not None]
    measured, at_most = np.zeros(len(rows)), np.zeros(len(rows))
    for j, k in pairs:
        measured = np.maximum(measured, np.abs(rates[:, j] - rates[:, k]))
        at_most = np.maximum(at_most, np.maximum(high[:, j] - low[:, k], high[:, k] - low[:, j]))
    return measured, at_most


PATH = (0.3, 0.2, 0.1, 0.05, 0.05, 0.03)
"""Smoothing of decisions from round to round; the last one stays."""

MAX_MULTIPLIERS = 6
"""Of which a round asks for the Hessian: its noise grows with their number."""

JOINING = 2
"""Multipliers that may join in a round."""

AVERAGED = 3
"""Of the last rounds' multipliers, which noise moves to and fro."""

DAMPING = 0.02
"""A share of the largest that the Hessian's diagonal can be."""

HIDDEN = 0.1
"""The deviation of a difference's noise from which on it is left alone."""


@dataclass(frozen=True)
class Dual:
    """Between two rounds.  at: the multipliers there are, overall's first.  on: those whose Hessian is requested.
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
        return self.at.coefficients(np.mean(self.last[-AVERAGED:], axis=0))


def ruled(
    totals: PrivateCoordinator,
    plan: Plan,
    problem: Problem,
    rounds: int,
    noted: Callable[..., None],
) -> Plan:
    """The plan whose task has estimates and a rule.  rounds: of the program.  noted: is called after each round."""
    rule, heads = existing(plan.method.rule), heads_of(plan)
    w, error_costs = np.zeros((len(heads), len(problem.S))), rule.error_costs(plan.base_rate)
    for k in range(1, how_often(rounds)["private_heads"] + 1):
        sums = totals.total(PrivateHeads, k, plan.task, heads=heads, w=w)
        before, w = w, heads_stepped(problem, w, sums, k)
        noted(step=float(np.abs(w - before).max()))
    kind = "additive" if plan.task.encoding.bins else "linear"
    estimates = Estimates(kind, heads, 0, 0, {"w": on_grid(w[None], WEIGHT_BITS)})
    task = replace(plan.task, estimates=estimates)
    state = _begun(totals, replace(plan, task=task), problem)
    for k in range(1, rounds + 1):
        eps, A = PATH[min(k, len(PATH)) - 1], state.at.coefficients(state.x)
        at = {"eps": eps, "shift": 0.0, "A": A, "directions": state.directions}
        sums = totals.total(PrivateRates, k, task, error_costs=error_costs, **at)
        state = dual_stepped(state, sums, eps, k, rounds)
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


def _begun(totals: PrivateCoordinator, plan: Plan, problem: Problem) -> Dual:
    """Before the program's first round: expected people are those of a rule that decides positively for all."""
    rule, compared, task = existing(plan.method.rule), plan.compared, plan.task
    error_costs = rule.error_costs(plan.base_rate)
    overall = {"error_costs": error_costs, "eps": 0.0, "shift": -2.0 * sum(error_costs)}
    none = {
        "A": np.zeros((len(problem.groups), len(compared.names))),
        "directions": np.zeros((0, 5)),
    }
    off = totals.deviations(totals.request(PrivateRates, **overall, **none), task)["rates"]
    mass = totals.total(PrivateRates, 0, task, **overall, **none)["rates"]
    tau = np.full(len(mass), problem.tau)
    tau[0] *= 1.0 if len(tau) == 1 else OVERALL
    tau[0] = tau[0] if rule.overall is None else rule.overall
    pairs = tuple((j, k) for j, k in compared.pairs if k is not None and j < k)
    return dual(mass, problem.n, pairs, tau, off)


def heads_stepped(
    problem: Problem, w: np.ndarray, sums: Mapping[str, np.ndarray], number: int
) -> np.ndarray:
    new = np.empty_like(w)
    for h, weights in enumerate(w):
        totals = sums["gradients"][h], float(sums["curves"][h])
        H, gradient = loss_model(problem, weights, *totals, number)
        new[h] = moved(problem, weights, -np.linalg.solve(H, gradient), number == 1)
    return new


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


def dual_stepped(
    state: Dual, sums: Mapping[str, np.ndarray], eps: float, number: int, rounds: int
) -> Dual:
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
    return replace(state, x=x, on=_next_multipliers(at, x, r), last=(*state.last, x))


def _next_multipliers(at: Coordinates, x: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Overall's multipliers, those that are not 0, and the few whose differences exceed their limits most."""
    first = np.flatnonzero((at.k == 0) | (x[:-1] != 0))
    excess = (np.abs(r) - at.up)[:-1]
    excess[first] = -np.inf
    order = np.argsort(-excess, kind="stable")
    more = [e for e in order.tolist() if excess[e] > 0][:JOINING]
    return np.sort(
        np.append(first, more)[: max(MAX_MULTIPLIERS, int((at.k == 0).sum()))].astype(int)
    )
