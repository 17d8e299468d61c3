"""Clients in this very process, asked one after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from agnosticfair.engines.seam import Failure
from agnosticfair.errors import AgnosticFairError


@dataclass(frozen=True)
class InProcess:
    """handlers: for each client's key, a function from (step, payload) to its answer."""

    handlers: Mapping[str, Callable[[str, Any], Any]]

    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.handlers))

    def exchange(
        self,
        step: str,
        payload: Any,
        deadline: float | None = None,
        only: Collection[str] | None = None,
    ) -> dict[str, Any]:
        """Ask in the order of the keys. There is nothing to wait for here, so no deadline can pass."""
        keys = self.clients() if only is None else sorted(only)
        return {key: _ask(self.handlers[key], step, payload) for key in keys}


def _ask(handler: Callable[[str, Any], Any], step: str, payload: Any) -> Any:
    try:
        return handler(step, payload)
    except AgnosticFairError as error:
        return Failure(str(error))
