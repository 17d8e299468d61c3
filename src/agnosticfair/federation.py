"""Assembly: run a method over an engine, from the census to the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from operator import add
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agnosticfair import server
from agnosticfair.client import Client, answer
from agnosticfair.data.census import merge
from agnosticfair.data.encoding import Encoding
from agnosticfair.data.table import Table
from agnosticfair.engines import Engine, Failure
from agnosticfair.engines.in_process import InProcess
from agnosticfair.errors import FederationError, SettingsError, SolverError
from agnosticfair.messages import Candidates, Reply, check_reply
from agnosticfair.methods import Method
from agnosticfair.methods import method as recipe
from agnosticfair.model import Model
from agnosticfair.solvers import exact
from agnosticfair.solvers.exact import Start


@dataclass(frozen=True)
class Fit:
    """A fitted model and how it came about.

    outcomes counts every round's numerical outcome.  worst_surrogate, worst_risk_difference: the
    largest difference over the training rows and the adversary's set, of the surrogate and of the
    true decisions (nan for methods of local steps).
    under_floor: groups that have the share ``floor`` of the mass under no reweighing, and are compared
    with none there.  centres: (M, d), of the kernels, encoded; None where there are none.  start: for a
    similar fit to begin where this one ended.
    """

    model: Model
    method: Method
    outcome: str
    rounds: int
    history: tuple[dict, ...]
    outcomes: Mapping[str, int]
    alpha: np.ndarray
    worst_surrogate: float
    worst_risk_difference: float
    seconds: float
    bytes_per_round: int
    under_floor: tuple[str, ...] = ()
    centres: np.ndarray | None = None
    start: Start | None = field(default=None, repr=False)

    @property
    def converged(self) -> bool:
        return self.outcome == "converged"


def in_process(tables: Mapping[str, Table]) -> InProcess:
    """An engine whose clients hold these tables."""
    if not tables:
        raise SettingsError("there are no clients: give at least one table")
    return InProcess({key: partial(answer, Client(key, table)) for key, table in tables.items()})


def fit(
    clients: Mapping[str, Table] | Engine,
    method: str | Method = "fl",
    *,
    attribute: str | Sequence[str] | None = None,
    positive: str | None = None,
    seed: int = 0,
    scale: bool = True,
    centres: ArrayLike | None = None,
    start: Start | None = None,
    strict: bool = False,
    on_round: Callable[[dict], None] | None = None,
    deadline: float | None = None,
) -> Fit:
    """Train one classifier over clients whose rows stay with them.

    clients: a table per client, or an engine.  method: a name from ``METHODS`` or a recipe.
    attribute: the sensitive attribute, or some of them, where the data has several.  seed: draws the kernel centres.
    scale: columns of numbers are scaled to [0, 1] by their range.  centres: (M, d) of the kernels,
    encoded, instead of those that the method would find.  start: another fit's, to begin there.
    strict: a fit that does not converge is an error.  on_round: called with each round's record.
    """
    begin = perf_counter()
    method = recipe(method) if isinstance(method, str) else method
    engine = in_process(clients) if isinstance(clients, Mapping) else clients
    keys = engine.clients()
    census = merge(gather(engine, "census", None, deadline))
    plan = server.plan(method, census, keys, attribute=attribute, positive=positive, scale=scale)
    plan = agree_on_centres(plan, engine, seed, deadline, centres)
    state, size = server.init(plan, start), 0
    while not state.done:
        step, broadcast = server.question(state)
        shapes = server.shapes(state)
        replies: dict[str, Reply] = {
            key: check_reply(reply, key, broadcast.round, shapes)
            for key, reply in gather(engine, step, broadcast, deadline).items()
        }
        total = reduce(add, replies.values())
        size = total.nbytes
        state = server.step(state, total)
        if on_round is not None:
            on_round(state.inner.history[-1])
    inner = state.inner
    if strict and inner.outcome != "converged" and method.local is None:
        last = inner.history[-1]
        raise SolverError(
            f"{method.name} did not converge in {inner.round} rounds (decrement "
            f"{last['decrement']:.2g}, worst difference {last['worst']:.4f}): allow more rounds or raise tau"
        )
    return Fit(
        model_of(state, seed),
        state.plan.method,
        inner.outcome,
        inner.round,
        inner.history,
        dict(Counter(outcome_of(entry) for entry in inner.history)),
        inner.alpha,
        *server.worst_cases(state),
        perf_counter() - begin,
        size,
        getattr(inner, "under_floor", ()),
        state.plan.task.arrays.get("centres"),
        exact.start_of(inner) if isinstance(inner, exact.State) else None,
    )


def agree_on_centres(
    plan: server.Plan,
    engine: Engine,
    seed: int = 0,
    deadline: float | None = None,
    centres: ArrayLike | None = None,
) -> server.Plan:
    """The plan with the kernels' centres, where its bases have any: given, or found as they say."""
    kind = server.centres_kind(plan.method)
    if kind is None:
        if centres is not None:
            raise SettingsError(f"method {plan.method.name!r} has no gaussian kernels to centre")
        return plan
    if centres is not None:
        return server.centred(plan, checked_centres(centres, server.features(plan)))
    if kind == "given":
        raise SettingsError("centres are 'given' and none were: give an array, (M, d)")
    if kind == "rows":
        return _sampled(plan, engine, seed, deadline)
    b = server.ranges_draw(plan, seed)
    for k in range(server.KMEANS_ROUNDS if kind == "kmeans" else 0):
        shapes: dict[str, tuple[int, ...]] = {"count": (len(b),), "total": b.shape}
        replies = gather(engine, "clusters", server.clusters_question(plan, b, k + 1), deadline)
        total = reduce(add, (check_reply(r, key, k + 1, shapes) for key, r in replies.items()))
        b = server.moved(b, total)
    return server.centred(plan, b)


def _sampled(plan: server.Plan, engine: Engine, seed: int, deadline: float | None) -> server.Plan:
    """The plan with distinct rows of the clients as centres, drawn by their content and the seed."""
    ask = server.centres_question(plan, seed)
    while ask is not None:
        offered: Candidates = reduce(add, gather(engine, "centres", ask, deadline).values())
        if server.enough(plan, ask, offered):
            return server.with_centres(plan, offered)
        ask = server.centres_question(plan, seed, ask.settings["share"])
    return plan


def checked_centres(centres: ArrayLike, d: int) -> np.ndarray:
    """Centres as an array (M, d), or the sentence that says why they are not."""
    b = np.asarray(centres, float)
    if b.ndim != 2 or b.shape[1] != d or not len(b) or not np.isfinite(b).all():
        raise SettingsError(
            f"centres have shape {b.shape} where X has {d} columns: give finite numbers, (M, {d})"
        )
    return b


def gather(engine: Engine, step: str, payload: Any, deadline: float | None) -> dict[str, Any]:
    """Every client's answer, in the order of the keys. A missing one would silently change the problem,
    so it is an error."""
    answers = engine.exchange(step, payload, deadline)
    for key in engine.clients():
        reply = answers.get(key, Failure("it gave no answer"))
        if isinstance(reply, Failure):
            raise FederationError(f"step {step!r} failed at client {key!r}: {reply.reason}")
    return {key: answers[key] for key in engine.clients()}


def outcome_of(entry: Mapping[str, Any]) -> str:
    """The numerical outcome of one round, as a word."""
    if "lp" in entry:
        return f"lp {entry['lp']}"
    if "kept" not in entry:
        return "averaged"
    return "step kept" if entry["kept"] else "step rejected"


def model_of(state: server.State, seed: int) -> Model:
    """The model with all that is needed to use it and to know where it came from."""
    settings = state.plan.task.settings
    return Model(
        w=server.weights(state),
        encoding=Encoding.from_json(settings["encoding"]),
        positive=settings["positive"],
        negative=settings["negative"],
        attribute=settings["attribute"],
        groups=tuple(settings["groups"]),
        method=asdict(state.plan.method),
        seed=seed,
        rows=state.plan.n,
        clients=len(state.plan.clients),
        outcome=state.inner.outcome,
    )
