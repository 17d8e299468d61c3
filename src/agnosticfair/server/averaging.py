"""Local training and a plain average: Algorithm 1, and Algorithm 2 as printed.

Kept exactly, including what does not work: the fairness inequality binds the *adversary's* alpha
(eq. federated_learning_optimize_alpha), phi_C lags alpha by a round, the square pulls C towards
+tau from both sides, and local minimisers are averaged with equal weight. See the README for what
that does to the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.mathematics.ambiguity import Ambiguity, Outcome, Worst, worst_linear_subject_to
from agnosticfair.methods import Averaging, Method
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import Average
from agnosticfair.server.plan import Beginning, Plan, Start


@dataclass(frozen=True)
class AveragingState:
    """All of the solver between two rounds.  phi_C: the gradient of C."""

    method: Method
    averaging: Averaging
    n: float
    s_bar: float
    w: np.ndarray
    alpha: np.ndarray
    phi_C: np.ndarray
    round: int = 0
    outcome: str = "running"
    history: tuple[dict, ...] = field(default_factory=tuple)
    under_floor: tuple[str, ...] = ()


def suits(method: Method) -> bool:
    return method.averaging is not None


def before(plan: Plan) -> Broadcast | None:
    """Nothing is asked before the first round."""


def init(plan: Plan, beginning: Beginning) -> AveragingState:
    """w^0 = 0, alpha^0 = 1 / M each (a first round without weights known to mean one), phi_C^0 = 0."""
    method, width, M = plan.method, plan.features + 1, plan.kernels[0]
    if beginning.start is not None:
        raise SettingsError(f"method {method.name!r} begins at zero: leave out start")
    return AveragingState(
        method,
        method.averaging or Averaging(),
        plan.n,
        plan.s_bar,
        np.zeros(width),
        np.full(M, 1.0 / M),
        np.zeros(width),
    )


def request(state: AveragingState) -> Average:
    how = state.averaging
    return Average(
        steps=how.steps,
        rate=how.rate,
        penalty=how.penalty or 0.0,
        tau=how.tau,
        ridge=state.method.ridge,
        n=state.n,
        s_bar=state.s_bar,
        w=state.w,
        alpha=state.alpha,
        phi_C=state.phi_C,
    )


def worst_cases(state: AveragingState) -> tuple[float, float]:
    return float("nan"), float("nan")


def start_of(state: AveragingState) -> Start | None:
    """None: a fit begins at zero."""
    return None


def adversary(state: AveragingState, sums: Mapping[str, np.ndarray]) -> Worst:
    """max L(alpha) over A subject to |C(alpha)| <= tau (eq. federated_learning_optimize_alpha)."""
    return worst_linear_subject_to(
        Ambiguity(sums["psi_theta"], state.n, state.method.bound),
        sums["psi_L"],
        A_ub=np.array([sums["psi_C"], -sums["psi_C"]]),
        b_ub=np.full(2, state.averaging.tau * state.n),
    )


def step(state: AveragingState, reply: Reply) -> AveragingState:
    """Algorithm 2, server side: the LP for alpha, the average for w."""
    sums = reply.sums
    w = sums["w"] / sums["clients"]
    if not np.isfinite(w).all() or np.abs(w).max() > 1e6:
        raise SolverError(
            f"the fit diverged in round {reply.round}: a weight reached {np.abs(w).max():.3g}; "
            "lower the rate of the local steps or raise ridge"
        )
    alpha, lp = state.alpha, {}
    if state.averaging.penalty is not None:
        worst = adversary(state, sums)
        lp = {"lp": str(worst.outcome)}
        # An infeasible LP has no best alpha: the clients go on with the last one, scaled to a mean
        # weight of one (at the start: uniform), and the outcome is counted.
        alpha = state.alpha * (state.n / (state.alpha @ sums["psi_theta"]))
        alpha = worst.alpha if worst.outcome is Outcome.OPTIMAL else alpha
    entry = {
        "round": reply.round,
        **lp,
        "loss": float(alpha @ sums["psi_L"]) / state.n,
        "worst": float(abs(alpha @ sums["psi_C"])) / state.n,
        "step": float(np.abs(w - state.w).max()),
        "kernels": int((alpha > 1e-9).sum()),
        "accuracy": float(sums["correct"]) / state.n,
    }
    last = reply.round >= state.method.max_rounds
    return replace(
        state,
        w=w,
        alpha=alpha,
        phi_C=sums["phi_C"],
        round=reply.round,
        outcome="rounds" if last else "running",
        history=(*state.history, entry),
    )
