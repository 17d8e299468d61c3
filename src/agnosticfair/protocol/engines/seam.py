"""The seam every engine serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from agnosticfair.errors import FederationError, plain

Keys = Sequence[str]
Answers = Mapping[str, Any]

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
