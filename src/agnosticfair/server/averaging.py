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

from agnosticfair.errors import SolverError
from agnosticfair.mathematics.ambiguity import Ambiguity, Outcome, Worst, worst_linear_subject_to
from agnosticfair.methods import Local, Method
from agnosticfair.protocol.messages import Reply

WHOLE = 100
"""Local steps of a network where a linear model is minimised in full."""


@dataclass(frozen=True)
class State:
    """All of the solver between two rounds. phi_C: of a linear model the slope of C, of a network C itself
    at the last round's start, ``before``.  decay: (P,), ridge of a network's weights."""

    method: Method
    local: Local
    n: float
    s_bar: float
    w: np.ndarray
    alpha: np.ndarray
    phi_C: np.ndarray
    decay: np.ndarray | None = None
    before: Mapping[str, np.ndarray] = field(default_factory=dict)
    round: int = 0
    outcome: str = "running"
    history: tuple[dict, ...] = field(default_factory=tuple)

    @property
    def done(self) -> bool:
        return self.outcome != "running"


def init(method: Method, n: float, s_bar: float, width: int, M: int) -> State:
    """w^0 = 0, alpha^0 = 1 / M each (a first round without weights known to mean one), phi_C^0 = 0."""
    local = method.local or Local()
    return State(method, local, n, s_bar, np.zeros(width), np.full(M, 1.0 / M), np.zeros(width))


def question(state: State) -> tuple[str, dict, dict]:
    """The step, settings and arrays of the next broadcast."""
    settings = {
        "steps": state.local.steps,
        "rate": state.local.rate,
        "penalty": state.local.penalty or 0.0,
        "tau": state.local.tau,
        "ridge": state.method.ridge,
        "n": state.n,
        "s_bar": state.s_bar,
    }
    network = state.method.network
    if network is not None and state.decay is not None:
        own = {"steps": state.local.steps or WHOLE, "rate": network.rate, "device": network.device}
        arrays = {"w": state.w, "alpha": state.alpha, "ridge": state.decay, **state.before}
        return "average", {**settings, **own, "C": float(state.phi_C[0])}, arrays
    return "local", settings, {"w": state.w, "alpha": state.alpha, "phi_C": state.phi_C}


def shapes(state: State) -> dict[str, tuple[int, ...]]:
    """What every client's answer must look like."""
    D, M = len(state.w), len(state.alpha)
    kernels = dict.fromkeys(("psi_L", "psi_theta", "psi_C"), (M,))
    slope: dict[str, tuple[int, ...]] = {"phi_C": (D,)} if state.decay is None else {"C": ()}
    return {"w": (D,), "clients": (), **slope, "correct": (), **kernels}


def adversary(state: State, sums: Mapping[str, np.ndarray]) -> Worst:
    """max L(alpha) over A subject to |C(alpha)| <= tau (eq. federated_learning_optimize_alpha)."""
    return worst_linear_subject_to(
        Ambiguity(sums["psi_theta"], state.n, state.method.bound),
        sums["psi_L"],
        A_ub=np.array([sums["psi_C"], -sums["psi_C"]]),
        b_ub=np.full(2, state.local.tau * state.n),
    )


def step(state: State, reply: Reply) -> State:
    """Algorithm 2, server side: the LP for alpha, the average for w."""
    sums = reply.sums
    w = sums["w"] / sums["clients"]
    if not np.isfinite(w).all() or np.abs(w).max() > 1e6:
        raise SolverError(
            f"the fit diverged in round {reply.round}: a weight reached {np.abs(w).max():.3g}; "
            "lower the rate of the local steps or raise ridge"
        )
    alpha, lp = state.alpha, {}
    if state.local.penalty is not None:
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
        phi_C=sums["phi_C"] if state.decay is None else np.array([float(sums["C"])]),
        before={"w_before": state.w, "alpha_before": state.alpha},
        round=reply.round,
        outcome="rounds" if last else "running",
        history=(*state.history, entry),
    )
