"""Clients in this very process, asked one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from agnosticfair.errors import AgnosticFairError
from agnosticfair.protocol.engines.seam import Answers, Failure, Keys

Handler = Callable[[str, Any], Any]


@dataclass
class InProcess:
    """handlers: for each client's key, a function from (step, payload) to its answer."""

    handlers: Mapping[str, Handler]

    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.handlers))

    def exchange(self, step: str, payload: Any, keys: Keys, deadline: float = inf) -> Answers:
        """There is nothing to wait for here, so no deadline can pass."""
        return {key: _send(self.handlers[key], step, payload) for key in keys}


def _send(handler: Handler, step: str, payload: Any) -> Any:
    try:
        return handler(step, payload)
    except AgnosticFairError as error:
        return Failure(str(error), final=True)
