"""Solvers, and learners that train over clients, in two tables: each goes from state to state, and never imports the
client's side or an engine.

A solver is a module, or any object, that meets ``Solver``; ``register`` makes one known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from agnosticfair.errors import SettingsError, existing
from agnosticfair.learners.estimates import Estimates
from agnosticfair.methods import Method
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import Request
from agnosticfair.server import averaging, boosted, exact, learning, program, saddle
from agnosticfair.server.plan import Beginning, Plan, Start


class Inner(Protocol):
    """What may be read of a solver between two rounds.  outcome: 'running' until it is done.
    under_floor: groups that are compared with none."""

    @property
    def w(self) -> np.ndarray: ...
    @property
    def alpha(self) -> np.ndarray: ...
    @property
    def round(self) -> int: ...
    @property
    def outcome(self) -> str: ...
    @property
    def history(self) -> tuple[dict, ...]: ...
    @property
    def under_floor(self) -> tuple[str, ...]: ...


class Steps(Protocol):
    """What is requested of clients round by round, from state to state, which are frozen dataclasses."""

    def init(self, plan: Plan, beginning: Beginning) -> Any:
        """The state before the first round: an ``Inner``."""
        ...

    def request(self, state: Any) -> Request:
        """What the next round asks of every client."""
        ...

    def step(self, state: Any, reply: Reply) -> Any:
        """One round, from the sum of all replies."""
        ...


class Solver(Steps, Protocol):
    """How a method is solved."""

    def suits(self, method: Method) -> bool:
        """Whether it solves this method."""
        ...

    def before(self, plan: Plan) -> Broadcast[Any] | None:
        """What is requested before the first round, if anything."""
        ...

    def worst_cases(self, state: Any) -> tuple[float, float]:
        """The worst difference over the set, of what is limited and of decisions; nan if unknown."""
        ...

    def start_of(self, state: Any) -> Start | None:
        """Where a similar fit may begin."""
        ...


class Trainer(Steps, Protocol):
    """A learner that trains over clients: its state ends with outcome 'learned' and with ``held_out``, a mean loss on
    rows that its models were not trained on."""

    def estimates_of(self, state: Any, plan: Plan) -> Estimates:
        """What was learned of ``plan.trained_heads``, in the heads' order."""
        ...


SOLVERS: dict[str, Solver] = {
    "averaging": averaging,
    "saddle": saddle,
    "program": program,
    "exact": exact,
}
"""By name; the first that suits a method solves it."""


TRAINERS: dict[str, Trainer] = {"additive": learning, "linear": learning, "trees": boosted}
"""By the learner's name."""


def register(name: str, solver: Solver) -> None:
    """Know a solver, which is asked before all others whether it suits a method."""
    known = {k: v for k, v in SOLVERS.items() if k != name}
    SOLVERS.clear()
    SOLVERS.update({name: solver, **known})


def solver_of(method: Method) -> Solver:
    """The solver of a method."""
    return next(solver for solver in SOLVERS.values() if solver.suits(method))


MARGIN = 1e-3
"""By how much of the mean log loss another learner must be better on held-out rows than the additive one, which can be
drawn and costs few rounds."""

CANDIDATES = ("additive", "trees")  # what 'auto' tries
TREES_FROM = 20_000
"""Rows from which on it tries trees. Below, they were never better on held-out rows (seeds 0 to 4: COMPAS, OULAD, law),
and take fifty times the rounds."""


@dataclass(frozen=True)
class Learned:
    """What a learner came to.  held_out: mean log loss of all heads on rows that it was not trained on."""

    learner: str
    estimates: Estimates
    held_out: float
    rounds: int


def learners_to_try(plan: Plan) -> tuple[str, ...]:
    """The learners that are trained, of which the best on held-out rows is taken."""
    rule = existing(plan.method.rule)
    if rule.learner == "auto":
        return CANDIDATES if plan.n >= TREES_FROM else CANDIDATES[:1]
    name = "additive" if rule.learner == "given" else rule.learner
    if name not in TRAINERS:
        raise SettingsError(
            f"learner {name!r} does not train over clients; there are: {', '.join(TRAINERS)}"
        )
    return (name,)


def choose(losses: Mapping[str, float]) -> str:
    """The learner to take: the first one, unless another is better on held-out rows by more than MARGIN.

    >>> choose({"additive": 0.585, "trees": 0.570}), choose({"additive": 0.585, "trees": 0.5848})
    ('trees', 'additive')
    """
    first, *_ = losses
    best = min(losses, key=lambda name: losses[name])
    return best if losses[best] < losses[first] - MARGIN else first


@dataclass(frozen=True)
class SolverState:
    """A plan and its solver's state.

    stage: of a method with a rule, the learner that trains, or 'program'.  learned: the learners that have been
    trained.  earlier: the rounds of the stages before.  seed: of the folds.  nbytes: of the largest total so far.
    calibration: of the estimates in every subgroup (``server.rule``).  notes: how subgroups were chosen.
    """

    plan: Plan
    inner: Inner
    stage: str = ""
    learned: tuple[Learned, ...] = ()
    earlier: tuple[dict, ...] = ()
    seed: int = 0
    nbytes: int = 0
    calibration: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def solver(self) -> Solver | Trainer:
        if self.stage in TRAINERS:
            return TRAINERS[self.stage]
        return SOLVERS[self.stage] if self.stage else solver_of(self.plan.method)

    @property
    def history(self) -> tuple[dict, ...]:
        """All rounds, of all stages."""
        return (*self.earlier, *self.inner.history)

    @property
    def last(self) -> dict[str, Any]:
        """The last round, numbered through all stages."""
        entry = self.history[-1]
        return {**entry, "round": len(self.history)} if self.stage else entry

    @property
    def done(self) -> bool:
        return self.inner.outcome != "running"


def init(plan: Plan, beginning: Beginning | None = None) -> SolverState:
    """The state before the first round; of a method with a rule, of the first learner."""
    beginning = beginning or Beginning()
    if plan.method.rule is None:
        inner = solver_of(plan.method).init(plan, beginning)
        return SolverState(plan, inner, seed=beginning.seed)
    stage, *_ = learners_to_try(plan)
    return SolverState(plan, TRAINERS[stage].init(plan, beginning), stage, seed=beginning.seed)


def request(state: SolverState) -> Broadcast[Any]:
    """The broadcast of the next round."""
    return Broadcast(state.inner.round + 1, state.plan.task, state.solver.request(state.inner))


def step(state: SolverState, total: Reply) -> SolverState:
    """One round, from the sum of all replies."""
    nbytes = max(state.nbytes, total.nbytes)
    return replace(state, inner=state.solver.step(state.inner, total), nbytes=nbytes)
