"""Models from few noisy totals: a linear model by noisy gradients, a rule by noisy steps in the dual of its program.

**A linear model**, by one noisy second moment, then some steps:

    min_w  mean loss + ridge |w|^2 / 2   subject to   |rate_j - rate_k| <= tau  for the groups compared,

everywhere and, where there are subgroups, in each of them as far as noise lets it be seen: there tau is wider by
what noise alone would show, and gradients are asked for in the few subgroups that differ most.

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
from typing import Any, Protocol

import numpy as np

from agnosticfair.learners.decisions import Decision
from agnosticfair.learners.estimates import Estimates
from agnosticfair.learners.linear import WEIGHT_BITS
from agnosticfair.mathematics.ambiguity import Outcome
from agnosticfair.mathematics.fairness import Comparisons
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.multipliers import Coordinates, RateLimits, coordinates
from agnosticfair.mathematics.quadratic import lasso_step, minimise
from agnosticfair.privacy.requests import PrivateHeads, PrivateRates
from agnosticfair.protocol.requests import Task
from agnosticfair.server.plan import Plan, heads_of
from agnosticfair.server.program import OVERALL

ROUNDS = 8
SLACK, MIN_HESSIAN, MIN_TEMPERATURE = 0.3, 0.02, 0.1
MAX_ACTIVE, FAR = 3, 20.0
"""Subgroups whose gradients a round asks for, at most; and by how many deviations of noise a group's rows must exceed
it."""

FIRST_STEP, LATER_STEP = 2.0, 1.0
"""How far the scores may move in a round, as a root mean square: the first step begins at zero."""


@dataclass(frozen=True)
class Problem:
    """n, groups: noisy counts, of all rows, and by subgroup and stratum, (1 + M, G), overall first.  S: (D, D), the
    noisy second moment, a sum, made positive definite.  compared: the groups and their pairs; tau: what is
    allowed between them.  off: the standard deviation of the noise of a count of decisions."""

    n: float
    groups: np.ndarray
    S: np.ndarray
    compared: Comparisons
    tau: float
    ridge: float
    off: float = 0.0


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
    problem: Problem, w: np.ndarray, sums: Mapping[str, np.ndarray], number: int, active: np.ndarray
) -> np.ndarray:
    """w after round ``number``; the first one looks at the loss alone, for at w = 0 all decisions are equal.
    From the second on steps in the loss grow shorter, as those of stochastic approximation do, while what
    the constraint asks for is done in full.  active: the subgroups of which ``sums`` has gradients."""
    first, D = number == 1, len(w)
    H, gradient = loss_model(problem, w, sums["gradient"], float(sums["hessian"]), number)
    p = -np.linalg.solve(H, gradient)
    if not first and problem.compared.pairs:
        r, J = (
            differences(problem, sums["hat"][active], active),
            _gradients(problem, w, sums, active),
        )
        r, J = r.ravel(), J.reshape(-1, D)
        tau = allowed(problem, active).ravel()
        solution = minimise(H, gradient, np.vstack([J, -J]), np.concatenate([tau - r, tau + r]))
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


def _ends(compared: Comparisons) -> tuple[np.ndarray, np.ndarray]:
    first, second = (np.array(side, int) for side in zip(*compared.pairs, strict=True))
    return first, second


def _rows(problem: Problem, active: np.ndarray) -> np.ndarray:
    """Rows of each group in each of these subgroups, (K, P)."""
    return np.maximum(problem.groups[active] @ problem.compared.members.T, 1.0)


def differences(problem: Problem, hat: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Differences of the rates of decisions, (K, pairs).  hat: (K, G), of these subgroups."""
    first, second = _ends(problem.compared)
    rates = hat @ problem.compared.members.T / _rows(problem, active)
    return rates[:, first] - rates[:, second]


def _gradients(
    problem: Problem, w: np.ndarray, sums: Mapping[str, np.ndarray], active: np.ndarray
) -> np.ndarray:
    """The gradients of these differences, (K, pairs, D)."""
    first, second = _ends(problem.compared)
    by_group = np.einsum("pg,kgd->kpd", problem.compared.members, sums["group_gradients"])
    by_group = by_group / (4 * temperature(problem, w)) / _rows(problem, active)[..., None]
    return by_group[:, first] - by_group[:, second]


def allowed(problem: Problem, active: np.ndarray) -> np.ndarray:
    """The difference that is allowed, (K, pairs): tau overall, and in a subgroup as much more as the
    standard deviation of what noise shows there, so that noise is not chased."""
    first, second = _ends(problem.compared)
    scales = np.sqrt(problem.compared.members.sum(axis=1))
    off = problem.off * scales / _rows(problem, active)
    wider = np.sqrt(off[:, first] ** 2 + off[:, second] ** 2)
    return problem.tau + np.where(active[:, None] > 0, wider, 0.0)


def next_active(problem: Problem, hat: np.ndarray) -> np.ndarray:
    """Whose gradients to ask for: overall's, and those of the subgroups that exceed what is allowed most."""
    every = np.arange(len(hat))
    if not problem.compared.pairs or len(every) == 1:
        return np.zeros(1, int)
    excess = np.abs(differences(problem, hat, every)) - allowed(problem, every)
    worst = excess.max(axis=1)
    order = [int(m) for m in np.argsort(-worst[1:], kind="stable") + 1 if worst[m] > 0]
    return np.array([0, *order[:MAX_ACTIVE]])


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

MAX_MULTIPLIERS, JOINING, AVERAGED = 6, 2, 3
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
    totals: NoisyTotals,
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
        sums = totals.total(PrivateHeads, k, plan.task, heads=heads, w=w)
        before, w = w, heads_stepped(problem, w, sums, k)
        noted(step=float(np.abs(w - before).max()))
    kind = "additive" if plan.task.encoding.bins else "linear"
    estimates = Estimates(kind, heads, 0, 0, {"w": on_grid(w[None], WEIGHT_BITS)})
    task = replace(plan.task, estimates=estimates)
    state = _begun(totals, replace(plan, task=task), problem)
    for k in range(1, times[1] + 1):
        eps, A = PATH[min(k, len(PATH)) - 1], state.at.coefficients(state.x)
        at = {"eps": eps, "shift": 0.0, "A": A, "directions": state.directions}
        sums = totals.total(PrivateRates, k, task, error_costs=error_costs, **at)
        state = dual_stepped(state, sums, eps, k, times[1])
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


def _begun(totals: NoisyTotals, plan: Plan, problem: Problem) -> Dual:
    """Before the program's first round: expected people are those of a rule that decides positively for all."""
    rule, compared, task = plan.method.rule, plan.compared, plan.task
    assert rule is not None
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
    """Every head's weights after round ``number``, (H, D)."""
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
