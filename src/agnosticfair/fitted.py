"""A fit: the model, how it came about, and how to look at it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import nan
from typing import Any, cast

import numpy as np

from agnosticfair.data.encoding import shown
from agnosticfair.learners.decisions import names_of, threshold_shifts
from agnosticfair.mathematics import scoring
from agnosticfair.mathematics.program import Optimum, cost_sentences, optimality
from agnosticfair.methods import Method
from agnosticfair.model import Model
from agnosticfair.protocol.requests import SubgroupSet
from agnosticfair.server import program, rule, solvers, subgroup_axes
from agnosticfair.server.plan import Plan, Start

COSTLY = 0.01
"""Accuracy that a limit may cost without a word."""

OVERALL = "overall"
"""The name of the weight function that is 1 everywhere."""

TOLERANCE = 1e-3
"""A difference above tau by no more than this keeps it: decisions are steps."""


@dataclass(frozen=True)
class Calibrated:
    """A head's estimates in a subgroup.  surplus: observed less expected people.  z: in standard deviations."""

    subgroup: str
    head: str
    surplus: float
    z: float


@dataclass(frozen=True)
class Multiplier:
    """What a subgroup's limit costs.  lowered, raised: the groups that it takes positive decisions from and gives them
    to.  shadow_price: utility that a limit larger by 1 there would gain.  lowered_shift, raised_shift: by how much the
    threshold on the probability of the positive label rises for a row of the subgroup that is surely of the group."""

    subgroup: str
    lowered: str
    raised: str
    shadow_price: float
    lowered_shift: float
    raised_shift: float


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
        The loss adversary's last reweighting.
    worst_surrogate, trained_difference : float
        The largest difference that training saw over its own set, of what it limits (losses, decisions, a rule's
        smoothed decisions) and of decisions, by estimates where it is a rule; nan for methods of local steps. What
        is counted is in the certificate (``auditing.fits.certificates``).
    seconds : float
    bytes_per_round : int
        Of a client's answer.
    events : tuple of dict
        The answers that did not come, and what was done about them.
    under_floor : tuple of str
        Groups that have the share ``floor`` of the mass under no reweighting, and are compared with none there.
    centres : (M, d) array or None
        Of the kernels, encoded.
    start : Start or None
        For a similar fit to begin where this one ended.
    subgroups : Named or None
        The named set, where there is one.
    trained_subgroups : tuple of (str, float)
        Its subgroups in which decisions differ most, and by how much, of the training rows.
    not_compared : tuple of str
        Its subgroups in which a group is absent or under the floor.
    nearly_constant : bool
        Whether the training rows get hardly more than a constant decision (``scoring.nearly_constant``).
    smallest_tau : float or None
        The smallest worst difference that other decisions than a nearly constant decision had in any round.
    learner : str
        Of a rule: the learner that was taken.
    held_out : mapping of str to float
        Mean log loss, of all heads, of each learner that was tried, on rows that it was not trained on: the first one
        is taken unless another is better.
    calibration : tuple of Calibrated
        How the estimates agree with the rows in every subgroup, the worst first.
    multipliers : tuple of Multiplier
        Where a rule had to act, the dearest first.
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
    trained_difference: float
    seconds: float
    bytes_per_round: int
    events: tuple[dict, ...] = ()
    under_floor: tuple[str, ...] = ()
    centres: np.ndarray | None = None
    start: Start | None = field(default=None, repr=False)
    subgroups: SubgroupSet | None = field(default=None, repr=False)
    trained_subgroups: tuple[tuple[str, float], ...] = ()
    not_compared: tuple[str, ...] = ()
    nearly_constant: bool = False
    smallest_tau: float | None = None
    learner: str = ""
    held_out: Mapping[str, float] = field(default_factory=dict)
    calibration: tuple[Calibrated, ...] = field(default=(), repr=False)
    multipliers: tuple[Multiplier, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()

    @property
    def converged(self) -> bool:
        return self.outcome == "converged"

    @property
    def optimum(self) -> Optimum | None:
        """How good a rule is among those that keep its limits; None of a fit without a rule, or that is not done."""
        last = self.history[-1] if self.history else {}
        names = [entry.name for entry in fields(Optimum)]
        return Optimum(**{name: last[name] for name in names}) if {*names} <= {*last} else None

    @property
    def statements(self) -> tuple[str, ...]:
        """What is to be said of a rule: its learner, what its limits cost, and how near to the best it is."""
        optimum, fairness = self.optimum, self.method.fairness
        if self.method.rule is None:
            return ()
        if optimum is None or fairness is None:
            return (*self._of_learner(), *self.notes)
        alike = self.method.rule.costs is None and not self.method.rule.agnostic
        costed = cost_sentences(optimum, fairness.tau)
        sentences = *self._of_learner(), *self.notes, self._compared(optimum, alike)
        return (*sentences, *costed, optimality(optimum, alike))

    def _of_learner(self) -> tuple[str, ...]:
        """Which learner was taken, and why."""
        if self.learner == "given":
            return ("Probabilities are those of the columns that were named.",)
        losses = ", ".join(f"{name} {loss:.4f}" for name, loss in self.held_out.items())
        name = self.learner.removeprefix("local:").partition("-")[0]
        if not self.held_out:  # another fit on the same rows learned it
            return (f"Learner {name}.",)
        if len(self.held_out) == 1:
            return (f"Learner {name}: mean log loss {losses.split()[-1]} on rows out of fold.",)
        return (f"Learner {name} was taken by mean log loss on rows out of fold: {losses}.",)

    def _compared(self, optimum: Optimum, alike: bool) -> str:
        """The utility of the rule, of the learner's own decisions and of a constant decision, in a sentence."""
        if not alike:
            return (
                f"Utility, estimated: the rule {optimum.utility:.4f}, the learner's own decisions "
                f"{optimum.learner_utility:.4f}, a "
                f"constant decision {optimum.constant:.4f}."
            )
        right = 1.0 - self.history[-1]["loss"]
        learner_utility, one = (
            right + value - optimum.utility for value in (optimum.learner_utility, optimum.constant)
        )
        return (
            f"Right, estimated: the rule on {right:.1%} of the rows, the learner's own decisions on "
            f"{learner_utility:.1%}, a "
            f"constant decision on {one:.1%}."
        )

    @property
    def price_of_limit(self) -> str | None:
        """What the limit costs, a rule beside the learner's own decisions, and at which tau less; None where little."""
        said, rule = self.optimum, self.method.rule
        if said is None or rule is None or self.method.fairness is None:
            return self.costs
        compared = self._compared(said, rule.costs is None and not rule.agnostic)
        return " ".join((compared, *cost_sentences(said, self.method.fairness.tau)))

    @property
    def collapsed(self) -> str | None:
        """A sentence where tau is kept by a nearly constant decision only."""
        fairness = self.method.fairness
        if fairness is None or not self.nearly_constant:
            return None
        if (optimum := self.optimum) is not None:
            rule = self.method.rule
            if optimum.unchanged and rule is not None and rule.costs is not None:
                return None  # so the costs ask for
            if optimum.unchanged:
                return (
                    "nearly all decisions are the same, by the learner's own decisions, which no limit changes: costs "
                    "'balanced' weighs both labels alike."
                )
            return " ".join(
                (
                    f"tau {fairness.tau:g} is kept by a nearly constant decision.",
                    *cost_sentences(optimum, fairness.tau),
                )
            )
        text = "no other decisions were met"
        if self.smallest_tau is not None:
            text = f"the smallest that other decisions had in a round is {self.smallest_tau:.3g}"
        if self.exceeds is None:
            return (
                f"tau {fairness.tau:g} was kept by a nearly constant decision; {text}: raise tau."
            )
        return (
            f"nearly all decisions are the same, and tau {fairness.tau:g} is exceeded all the same; "
            f"{text}: take other columns."
        )

    @property
    def exceeds(self) -> str | None:
        """A sentence where decisions on the training rows differ by more than tau, with the subgroup in which they do;
        of a rule by its estimates."""
        fairness = self.method.fairness
        if fairness is None:
            return None
        if not self.trained_difference > fairness.tau + TOLERANCE:
            return None
        if (optimum := self.optimum) is not None:
            return self._exceeds_of_rule(optimum, fairness.tau)
        where = f" ({self.trained_subgroups[0][0]})" if self.trained_subgroups else ""
        return (
            f"Decisions on the training rows differ by up to {self.trained_difference:.4f}{where}, above tau "
            f"{fairness.tau:g}."
        )

    def _exceeds_of_rule(self, optimum: Optimum, tau: float) -> str:
        """By how much whole decisions miss tau, in people; and whether the rule that randomises near the threshold
        does."""
        where = f" ({self.trained_subgroups[0][0]})" if self.trained_subgroups else ""
        first = (
            f"By the estimates decisions differ by up to {self.trained_difference:.4f}{where} where tau is {tau:g}: at "
            f"most {max(optimum.people, 0.1):.1f} expected people of the smaller group too many or too few in any "
            "subgroup."
        )
        excess = max(optimum.smoothed_excess, 0.0)
        if excess > TOLERANCE:
            return f"{first} Before decisions are made whole the excess is {excess:.4f}: more rounds may lower it."
        return f"{first} Decisions are whole; drawn at random near the threshold they keep tau to {TOLERANCE:g}."

    @property
    def estimated(self) -> dict[str, Any] | None:
        """The largest difference on the training rows by a rule's own estimates, and whether that keeps tau but for
        decisions being whole; None without a rule's limit."""
        optimum = self.optimum
        if self.method.fairness is None or optimum is None:
            return None
        kept = self.converged and optimum.smoothed_excess <= TOLERANCE
        return {"difference": self.trained_difference, "kept": kept}

    @property
    def uncompared(self) -> str | None:
        """A sentence where there are subgroups in which nothing is compared."""
        fairness, rule = self.method.fairness, self.method.rule
        if (
            fairness is not None
            and fairness.basis.kind == "subgroups"
            and rule
            and self.subgroups is None
        ):
            return (
                f"No subgroup has {rule.min_people:g} expected people of each group (min_people): the difference "
                "overall alone is limited."
            )
        if not self.not_compared:
            return None
        return f"Not compared, for a group is absent there or below its floor: {shown(self.not_compared)}."

    @property
    def costs(self) -> str | None:
        """A sentence where the limit costs over a hundredth of the training rows, by what rounds without it had."""
        accuracies = [entry["accuracy"] for entry in self.history if "accuracy" in entry]
        if self.method.fairness is None or self.method.network is not None:
            return None
        if self.method.rule is not None:
            return None  # ``statements`` has it
        if len(accuracies) < 2 or max(accuracies) - accuracies[-1] <= COSTLY:
            return None
        alone = "a limit overall alone (fairfl) costs less and lets subgroups differ, and "
        alone = "" if self.method.fairness.basis.kind == "constant" else alone
        return (
            f"The limit costs accuracy: a round without it was right on {max(accuracies):.1%} of the training "
            f"rows, the "
            f"model is on {accuracies[-1]:.1%}; {alone}tune shows what a larger tau gives."
        )


def fit_of(
    state: solvers.SolverState, model: Model, events: tuple[dict, ...], seconds: float
) -> Fit:
    """The record of a fit; the rounds of a rule are numbered through all stages."""
    plan, inner, solver = state.plan, state.inner, cast(Any, state.solver)
    start, worst = None, (nan, nan)
    if state.stage not in solvers.TRAINERS:  # a learner limits nothing
        start, worst = solver.start_of(inner), solver.worst_cases(inner)
    history = inner.history
    ranked: tuple[tuple[tuple[str, float], ...], tuple[str, ...]] = ((), ())
    if plan.method.rule is not None:
        rounds = enumerate(state.history, 1)
        history = tuple({"stage": state.stage, **entry, "round": k} for k, entry in rounds)
        start = start and replace(start, estimates=plan.task.estimates)
        if state.stage == rule.PROGRAM:
            ranked = subgroup_axes.ranked(plan, inner)
    ended, smallest_tau = nearly_constant(state)
    return Fit(
        model=model,
        method=plan.method,
        outcome=inner.outcome,
        rounds=len(history),
        history=history,
        outcomes=dict(Counter(outcome_of(entry) for entry in history)),
        alpha=inner.alpha,
        worst_surrogate=worst[0],
        trained_difference=worst[1],
        seconds=seconds,
        bytes_per_round=state.nbytes,
        events=events,
        under_floor=inner.under_floor,
        centres=plan.task.centres,
        start=start,
        subgroups=plan.task.subgroups,
        trained_subgroups=ranked[0],
        not_compared=ranked[1],
        nearly_constant=ended,
        smallest_tau=smallest_tau,
        learner=model.estimates.kind if model.estimates is not None else "",
        held_out={entry.learner: entry.held_out for entry in state.learned},
        calibration=calibrated(state),
        multipliers=acted(state),
        notes=state.notes,
    )


def acted(state: solvers.SolverState) -> tuple[Multiplier, ...]:
    """Where a rule had to act: the comparisons with a multiplier, the dearest first."""
    if state.stage != rule.PROGRAM or state.inner.outcome == "running":
        return ()
    plan, decision = state.plan, rule.model_fields(state)["rule"]
    subgroups, groups = subgroup_names(plan), plan.compared.names
    shifts = threshold_shifts(decision)
    multipliers, inner = [], cast(program.ProgramState, state.inner)
    for k, j, other, x in zip(*program.multipliers_of(inner), strict=True):
        lowered, helped = (j, other) if x > 0 else (other, j)
        multipliers.append(
            Multiplier(
                subgroups[k],
                groups[lowered],
                groups[helped],
                abs(float(x)),
                float(shifts[k, lowered]),
                float(shifts[k, helped]),
            )
        )
    return tuple(multipliers)


def subgroup_names(plan: Plan) -> tuple[str, ...]:
    """The weight functions of a program in words, overall last."""
    if plan.task.subgroups is not None:
        return (*subgroup_axes.subgroup_names(plan), OVERALL)
    kernels = rule.kernels_of(plan)
    return (*(() if kernels is None else names_of(kernels)), OVERALL)


def calibrated(state: solvers.SolverState) -> tuple[Calibrated, ...]:
    """How every head's estimates agree with the rows, subgroup by subgroup, the worst first."""
    sums, plan = state.calibration, state.plan
    if not sums or plan.task.estimates is None:
        return ()
    names = (
        *(subgroup_axes.subgroup_names(plan) if plan.task.subgroups is not None else ()),
        OVERALL,
    )
    records = [
        Calibrated(names[m], head.name, float(sums["surplus"][h, m]), _z(sums, h, m))
        for h, head in enumerate(plan.task.estimates.heads)
        for m in range(len(names))
    ]
    return tuple(sorted(records, key=lambda entry: -abs(entry.z)))


def _z(sums: Mapping[str, np.ndarray], h: int, m: int) -> float:
    variance = float(sums["variance"][h, m])
    return float(sums["surplus"][h, m]) / variance**0.5 if variance > 0 else 0.0


def outcome_of(entry: Mapping[str, Any]) -> str:
    """The numerical outcome of one round, as a word."""
    if "lp" in entry:
        return f"lp {entry['lp']}"
    if "kept" not in entry:
        return "averaged"  # local steps, of any solver
    return "step kept" if entry["kept"] else "step rejected"


def nearly_constant(state: solvers.SolverState) -> tuple[bool, float | None]:
    """Whether a fit ended with a nearly constant decision, and the smallest worst difference that others had."""
    base, history = state.plan.base_rate, state.inner.history
    majority = max(base, 1 - base)
    rates = [
        (entry["worst"], scoring.nearly_constant(entry["accuracy"], majority, entry["positive"]))
        for entry in history
        if "positive" in entry
    ]
    others = [worst for worst, constant in rates if worst > 0 and not constant]
    ended = bool(history) and "positive" in history[-1] and rates[-1][1]
    return ended, min(others, default=None)
