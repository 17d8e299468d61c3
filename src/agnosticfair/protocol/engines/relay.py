"""Regions that add up before the server: an engine whose clients are engines.

A region is asked as one client is. It asks all of its own and passes on their sum, so that the server's
work, and what it receives, depends on the number of regions and not on the number of clients. Sums lie on
the grid, where the order of additions does not matter: the model has the bits that it has without relays. Under masks
it adds up what is masked: its sites share masks with those of other relays too, so that its sum is random to itself.
Methods that treat clients one by one (``afl``'s mixture, plain averages) see regions instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from agnosticfair.errors import AgnosticFairError, SettingsError
from agnosticfair.protocol.engines.seam import Answers, Engine, Failure, Keys
from agnosticfair.protocol.messages import together


@dataclass(frozen=True)
class Relay:
    """regions: an engine per region, of clients or of further regions."""

    regions: Mapping[str, Engine]

    def __post_init__(self) -> None:
        if empty := [key for key, engine in self.regions.items() if not engine.clients()]:
            raise SettingsError(f"region {empty[0]!r} has no clients: leave it out")

    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.regions))

    def exchange(self, step: str, payload: Any, keys: Keys, deadline: float = inf) -> Answers:
        """Ask the regions, each for the sum over its own; one that lacks an answer has none."""
        return {key: self._region(key, step, payload, deadline) for key in keys}

    def _region(self, key: str, step: str, payload: Any, deadline: float) -> Any:
        region = self.regions[key]
        answers = region.exchange(step, payload, region.clients(), deadline)
        failed = {k: answer for k, answer in answers.items() if isinstance(answer, Failure)}
        if failed:
            (first, failure), more = next(iter(failed.items())), len(failed) - 1
            also = f" (and {more} more)" if more else ""
            return Failure(f"its client {first!r}{also}: {failure.reason}", failure.final)
        try:
            return together(answers, key)
        except (AgnosticFairError, ValueError) as error:
            return Failure(f"its clients do not add up: {error}", final=True)
