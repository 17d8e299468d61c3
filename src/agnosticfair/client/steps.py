"""The steps that a client answers, in one table; ``register`` adds one.

``answer`` is a function of the rows and the request. What is kept between rounds (encoded rows,
kernels) is a cache that any later request rebuilds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from agnosticfair.client import answers, program, sums
from agnosticfair.client.client import Client
from agnosticfair.client.learning import fine_bins, learn, level
from agnosticfair.data.summary import SummaryStatistics
from agnosticfair.errors import DataError, FederationError
from agnosticfair.protocol.messages import Broadcast, Candidates, Reply, on_grid
from agnosticfair.protocol.requests import step_of

Answer = SummaryStatistics | Candidates | Reply

BATCHES = 2
"""Of a stream that are added up at a time: each time costs as much again as some thousands of rows."""


@dataclass(frozen=True)
class Step:
    """How one step is answered.  by_batch: a stream answers batch by batch, each as if it were a client:
    messages add; batches: so many at a time.  in_memory: it needs the rows in memory.  network: it trains or asks
    one."""

    name: str
    answer: Callable[[Client, Any], Answer]
    by_batch: bool = False
    batches: int = 1
    in_memory: bool = False
    network: bool = False


NETWORKS = "agnosticfair.client.networks"
PRIVACY = "agnosticfair.privacy.client"


def _from(module: str, name: str) -> Callable[[Client, Any], Answer]:
    """A function of a module that is imported at the first such request."""
    return lambda client, broadcast: getattr(import_module(module), name)(client, broadcast)


STEPS: dict[str, Step] = {
    step.name: step
    for step in (
        Step("statistics", answers.statistics, by_batch=True),
        Step("outline", answers.outline, by_batch=True),
        Step("counts", answers.counts, by_batch=True),
        Step("centres", answers.centres, by_batch=True),
        Step("clusters", answers.clusters, by_batch=True),
        Step("sums", sums.sums, by_batch=True),
        Step("trials", sums.trials, by_batch=True),
        Step("histograms", answers.histograms, by_batch=True),
        Step("subgroup_counts", answers.subgroup_counts, by_batch=True),
        Step("learn", learn, by_batch=True, batches=BATCHES),
        Step("fine_counts", fine_bins, by_batch=True),
        Step("level", level),
        Step("subgroup_masses", program.masses, by_batch=True),
        Step("calibration", program.calibration, by_batch=True),
        Step("program", program.program, by_batch=True, batches=BATCHES),
        Step("average", sums.average, in_memory=True),
        Step("decisions", answers.decisions, by_batch=True),
        Step("subgroup_decisions", answers.subgroup_decisions, by_batch=True),
        Step("moments", _from(NETWORKS, "moments"), in_memory=True, network=True),
        Step("train", _from(NETWORKS, "train"), in_memory=True, network=True),
        Step("private_plan", _from(PRIVACY, "plan"), in_memory=True),
        Step("private_counts", _from(PRIVACY, "counts"), in_memory=True),
        Step("private_moments", _from(PRIVACY, "moments"), in_memory=True),
        Step("private_gradients", _from(PRIVACY, "gradients"), in_memory=True),
        Step("private_heads", _from(PRIVACY, "heads"), in_memory=True),
        Step("private_rates", _from(PRIVACY, "rates"), in_memory=True),
        Step("private_decisions", _from(PRIVACY, "decisions"), in_memory=True),
    )
}


def register(step: Step) -> Step:
    """Know a step; its request is registered in ``protocol.requests``."""
    STEPS[step.name] = step
    return step


def answer(client: Client, step: str, broadcast: Broadcast[Any] | None) -> Answer:
    """The client's reply to one step of the protocol; the same request gets the same answer."""
    if step not in STEPS:
        raise FederationError(f"{client.who} knows no step {step!r}; it knows {', '.join(STEPS)}")
    if broadcast is not None and step_of(broadcast.request) != step:
        raise FederationError(
            f"{client.who} was asked for step {step!r} with a request of {step_of(broadcast.request)!r}: "
            "ask again"
        )
    if broadcast is not None and broadcast.task.fold is not None:
        client = client.of(broadcast.task.fold)
    entry = STEPS[step]
    if entry.network and broadcast is not None:
        _check_network(broadcast)
    if client.table.streamed and entry.in_memory:
        raise DataError(
            f"{client.who} streams its rows, and local steps draw theirs at random from all of them, in memory: take "
            "a linear model, which streams over the same subgroups and kernels, or rows of at most a gibibyte of "
            "values "
            "(rows x columns x 8 bytes), a sample of them for example"
        )
    if client.table.streamed and entry.by_batch:
        message = client.table.added_up(
            lambda table: entry.answer(Client(client.key, table), broadcast),
            client.threads,
            entry.batches,
        )
    else:
        message = entry.answer(client, broadcast)
    # masked or not, sums are integers of one unit: what is exact already keeps its bits
    if broadcast is None or not isinstance(message, Reply):
        return message
    return on_grid(message, broadcast.task)


def _check_network(broadcast: Broadcast[Any]) -> None:
    """Raise, in a sentence, where PyTorch is missing or the network is not known here."""
    from agnosticfair.networks import factory

    if broadcast.task.network is None:
        raise FederationError("the request is about a network and its task names none: ask again")
    factory(broadcast.task.network.name)
