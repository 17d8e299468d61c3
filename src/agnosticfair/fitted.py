"""A fit: the model, how it came about, and how to look at it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from agnosticfair.data.encoding import shown
from agnosticfair.errors import needing
from agnosticfair.mathematics import metrics
from agnosticfair.methods import Method
from agnosticfair.model import Model
from agnosticfair.protocol.questions import Named
from agnosticfair.server import named, solvers
from agnosticfair.server.plan import Start

COSTLY = 0.01
"""Accuracy that a limit may cost without a word."""

KEPT = 1e-3
"""A difference above tau by no more than this keeps it: decisions are steps."""


@dataclass(frozen=True)
class Calibrated:
    """A head's estimates in a subgroup.  surplus: observed less expected people.  z: in standard deviations."""

    subgroup: str
    head: str
    surplus: float
    z: float


@dataclass(frozen=True)
class Fit:
    """A fitted model and how it came about.

    Attributes
    ----------
    model : Model
        The classifier.
    method : Method
        As it was fitted.
    outcome : str
        'converged', or why it ended.
    rounds : int
    history : tuple of dict
        Every round's record.
    outcomes : mapping
        How often each numerical outcome of a round occurred.
    alpha : (M,) array
        The loss adversary's last reweighing.
    worst_surrogate, worst_difference : float
        The largest difference over the training rows and the adversary's set, of the surrogate and of the true
        decisions; nan for methods of local steps.
    seconds : float
    bytes_per_round : int
        Of a client's answer.
    events : tuple of dict
        The answers that did not come, and what was done about them.
    under_floor : tuple of str
        Groups that have the share ``floor`` of the mass under no reweighing, and are compared with none there.
    centres : (M, d) array or None
        Of the kernels, encoded.
    start : Start or None
        For a similar fit to begin where this one ended.
    named : Named or None
        The named set, where there is one.
    worst_parts : tuple of (str, float)
        Its parts in which decisions differ most, and by how much, of the training rows.
    not_compared : tuple of str
        Its parts in which a group is absent or under the floor.
    nearly_constant : bool
        Whether the training rows get hardly more than one answer (``metrics.nearly_constant``).
    smallest_tau : float or None
        The smallest worst difference that other decisions than nearly one answer had in any round.
    learner : str
        Of a rule: the learner that was taken.
    held_out : mapping of str to float
        Mean log loss, of all heads, of each learner that was tried, on rows that it was not trained on: the first one
        is taken unless another is better.
    calibration : tuple of Calibrated
        How the estimates agree with the rows in every subgroup, the worst first.
    notes : tuple of str
        Of a rule: what is to be said of how its subgroups were chosen, where there are too many.
    """

    model: Model
    method: Method
    outcome: str
    rounds: int
    history: tuple[dict, ...]
    outcomes: Mapping[str, int]
    alpha: np.ndarray
    worst_surrogate: float
    worst_difference: float
    seconds: float
    bytes_per_round: int
    events: tuple[dict, ...] = ()
    under_floor: tuple[str, ...] = ()
    centres: np.ndarray | None = None
    start: Start | None = field(default=None, repr=False)
    named: Named | None = field(default=None, repr=False)
    worst_parts: tuple[tuple[str, float], ...] = ()
    not_compared: tuple[str, ...] = ()
    nearly_constant: bool = False
    smallest_tau: float | None = None
    learner: str = ""
    held_out: Mapping[str, float] = field(default_factory=dict)
    calibration: tuple[Calibrated, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()

    @property
    def converged(self) -> bool:
        return self.outcome == "converged"

    @property
    def collapsed(self) -> str | None:
        """A sentence where tau is kept by nearly one answer for everybody only."""
        fairness = self.method.fairness
        if fairness is None or not self.nearly_constant:
            return None
        found = "no other decisions were met"
        if self.smallest_tau is not None:
            found = f"the smallest that other decisions had in a round is {self.smallest_tau:.3g}"
        if self.exceeds is None:
            return f"tau {fairness.tau:g} was kept by nearly one answer for everybody; {found}: raise tau."
        return (
            f"nearly everybody gets one answer, and tau {fairness.tau:g} is exceeded all the same; "
            f"{found}: take other columns."
        )

    @property
    def exceeds(self) -> str | None:
        """A sentence where decisions on the training rows differ by more than tau, with the part in which they do."""
        fairness = self.method.fairness
        if fairness is None or fairness.surrogate.kind == "covariance":
            return None
        if not self.worst_difference > fairness.tau + KEPT:
            return None
        where = f" ({self.worst_parts[0][0]})" if self.worst_parts else ""
        return (
            f"Decisions on the training rows differ by up to {self.worst_difference:.3f}{where}, above tau "
            f"{fairness.tau:g}."
        )

    @property
    def uncompared(self) -> str | None:
        """A sentence where there are named parts in which nothing is compared."""
        if not self.not_compared:
            return None
        return f"Not compared, for a group is absent there or below its floor: {shown(self.not_compared)}."

    @property
    def costs(self) -> str | None:
        """A sentence where the limit costs over a hundredth of the training rows, by what rounds without it had."""
        told = [entry["accuracy"] for entry in self.history if "accuracy" in entry]
        if self.method.fairness is None or self.method.network is not None:
            return None
        if len(told) < 2 or max(told) - told[-1] <= COSTLY:
            return None
        alone = "a limit on everybody alone (fairfl) costs less and lets parts differ, and "
        alone = "" if self.method.fairness.basis.kind == "constant" else alone
        return (
            f"The limit costs accuracy: a round without it was right on {max(told):.1%} of the training rows, the "
            f"model is on {told[-1]:.1%}; {alone}tune shows what a larger tau gives."
        )

    def to_frame(self) -> Any:
        """The rounds as a pandas frame, a line each."""
        with needing("audit", "a frame needs the package 'pandas'"):
            import pandas as pd

        return pd.DataFrame(list(self.history)).set_index("round")

    def plot(self) -> Any:
        """A figure: the named parts in which decisions differ most, and the loss by round."""
        # the report draws what this room finds, and is looked up only when somebody looks
        return import_module("agnosticfair.report.fitted").figure(self)

    def _repr_html_(self) -> str:
        """How the fit ended and its worst parts, in a notebook."""
        grids = import_module("agnosticfair.report.fitted").grids(self)
        return import_module("agnosticfair.report.tables").html(grids)


def of_rule(
    state: solvers.SolverState, model: Model, events: tuple[dict, ...], seconds: float
) -> Fit:
    """The record of a fit with a rule; its rounds are numbered through all stages."""
    inner, start = state.inner, state.solver.start_of(state.inner)
    if start is not None:
        start = replace(start, estimates=state.plan.task.estimates)
    history = tuple(
        {"stage": state.stage, **entry, "round": k} for k, entry in enumerate(state.history, 1)
    )
    return Fit(
        model,
        state.plan.method,
        inner.outcome,
        len(history),
        history,
        dict(Counter(outcome_of(entry) for entry in history)),
        inner.alpha,
        *state.solver.worst_cases(inner),
        seconds,
        state.nbytes,
        events,
        inner.under_floor,
        None,
        start,
        state.plan.task.named,
        *(named.ranked(state.plan, inner) if state.stage in solvers.SOLVERS else ((), ())),
        **ends_constant(state),
        learner=model.estimates.kind if model.estimates is not None else "",
        held_out={entry.learner: entry.held_out for entry in state.learned},
        calibration=calibrated(state),
        notes=state.notes,
    )


def calibrated(state: solvers.SolverState) -> tuple[Calibrated, ...]:
    """How every head's estimates agree with the rows, subgroup by subgroup, the worst first."""
    told, plan = state.calibration, state.plan
    if not told or plan.task.estimates is None:
        return ()
    names = (*(named.part_names(plan) if plan.task.named is not None else ()), "overall")
    found = [
        Calibrated(names[m], head.name, float(told["surplus"][h, m]), _z(told, h, m))
        for h, head in enumerate(plan.task.estimates.heads)
        for m in range(len(names))
    ]
    return tuple(sorted(found, key=lambda entry: -abs(entry.z)))


def _z(told: Mapping[str, np.ndarray], h: int, m: int) -> float:
    variance = float(told["variance"][h, m])
    return float(told["surplus"][h, m]) / variance**0.5 if variance > 0 else 0.0


def outcome_of(entry: Mapping[str, Any]) -> str:
    """The numerical outcome of one round, as a word."""
    if "lp" in entry:
        return f"lp {entry['lp']}"
    if "kept" not in entry:
        return "averaged"  # local steps, of any solver
    return "step kept" if entry["kept"] else "step rejected"


def ends_constant(state: solvers.SolverState) -> dict[str, Any]:
    """Whether a fit ended with nearly one answer, and the smallest worst difference that others had on the way."""
    base, history = state.plan.base_rate, state.inner.history
    majority = max(base, 1 - base)
    told = [
        (entry["worst"], metrics.nearly_constant(entry["accuracy"], majority, entry["positive"]))
        for entry in history
        if "positive" in entry
    ]
    others = [worst for worst, constant in told if worst > 0 and not constant]
    ended = bool(history) and "positive" in history[-1] and told[-1][1]
    return {"nearly_constant": ended, "smallest_tau": min(others, default=None)}
