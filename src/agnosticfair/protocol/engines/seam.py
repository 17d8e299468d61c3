"""The seam every engine serves, and the engine of clients in this very process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from agnosticfair.errors import AgnosticFairError, FederationError, plain

Keys = Sequence[str]
Answers = Mapping[str, Any]
Handler = Callable[[str, Any], Any]

HELLO = "hello"
"""The request who a site is, and what it runs on; clients in this process are not asked it."""


@dataclass(frozen=True)
class Failure:
    """What became of a request that got no answer: a sentence, never an exception in flight.

    final: the client itself declined, and would again, so that there is no use in asking again.  malformed: it
    answered, and not what was asked.
    """

    reason: str
    final: bool = False
    malformed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", plain(self.reason))


class RowsChanged(FederationError):
    """A client has other rows than before: nothing that is made of both is right."""

    declined = False


class Engine(Protocol):
    """Carries one request to all clients and brings back an answer, or a failure, from each."""

    def clients(self) -> tuple[str, ...]:
        """The clients' stable keys, sorted: the order in which replies are added."""
        ...

    def exchange(self, step: str, payload: Any, keys: Keys, deadline: float = inf) -> Answers:
        """Ask these clients; from each, in their order, a reply or a ``Failure`` within ``deadline``
        seconds. A retried request may come twice: the same request has the same answer."""
        ...


@dataclass
class InProcess:
    """Clients in this process, asked one after the other, so that no deadline can pass.  handlers: for each client's
    key, a function from (step, payload) to its answer."""

    handlers: Mapping[str, Handler]

    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.handlers))

    def exchange(self, step: str, payload: Any, keys: Keys, deadline: float = inf) -> Answers:
        return {key: _send(self.handlers[key], step, payload) for key in keys}


def _send(handler: Handler, step: str, payload: Any) -> Any:
    try:
        return handler(step, payload)
    except AgnosticFairError as error:
        return Failure(str(error), final=True)
