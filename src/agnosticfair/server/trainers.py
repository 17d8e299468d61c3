"""Learners that train over clients, in one table.

A trainer is a solver (``server.solvers.Solver``) whose state ends with outcome 'learned' and a mean loss on rows that
its models were not trained on, ``held_out``; ``estimates_of`` is what it has learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agnosticfair.errors import SettingsError
from agnosticfair.learners.estimates import Estimates
from agnosticfair.protocol.messages import Reply
from agnosticfair.protocol.requests import Request
from agnosticfair.server import boosted, learning
from agnosticfair.server.plan import Beginning, Plan, Start

MARGIN = 1e-3
"""By how much of the mean log loss another learner must be better on held-out rows than the additive one, which can be
drawn and costs few rounds."""


class Trainer(Protocol):
    """A learner that trains over clients; see ``Solver`` for what is said of all solvers."""

    def init(self, plan: Plan, beginning: Beginning) -> Any: ...
    def request(self, state: Any) -> Request: ...
    def step(self, state: Any, reply: Reply) -> Any: ...
    def worst_cases(self, state: Any) -> tuple[float, float]: ...
    def start_of(self, state: Any) -> Start | None: ...

    def estimates_of(self, state: Any, plan: Plan) -> Estimates:
        """What was learned of ``plan.trained_heads``, in the heads' order."""
        ...


TRAINERS: dict[str, Trainer] = {"additive": learning, "linear": learning, "trees": boosted}
"""By the learner's name."""

CANDIDATES, TREES_FROM = ("additive", "trees"), 20_000
"""What 'auto' tries: trees from so many rows on. Below, trees were never better on held-out rows (seeds 0 to 4: COMPAS,
OULAD, law), and take fifty times the rounds."""


@dataclass(frozen=True)
class Learned:
    """What a learner came to.  held_out: mean log loss of all heads on rows that it was not trained on."""

    learner: str
    estimates: Estimates
    held_out: float
    rounds: int


def learners_to_try(plan: Plan) -> tuple[str, ...]:
    """The learners that are trained, of which the best on held-out rows is taken."""
    rule = plan.method.rule
    assert rule is not None
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
