"""Clients, or subgroups of one client's rows, as actors of a Ray cluster: each keeps its rows where it is.

What travels is the wire form of messages. An actor that is lost, or whose machine is, is made anew from its
files, perhaps elsewhere, and asked again: the same request has the same answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from agnosticfair.errors import AgnosticFairError, FederationError, SettingsError, needing
from agnosticfair.protocol.engines.in_process import Handler
from agnosticfair.protocol.engines.seam import Answers, Failure, Keys
from agnosticfair.protocol.messages import pack, unpack
from agnosticfair.threads import one_thread


@dataclass
class RayEngine:
    """makers: for each client's key, what makes its function from (step, payload) to an answer, called where
    the actor is.  cpus: processors that an actor asks for.  rebuilds: how often a lost one is made anew for
    one request.  rebuilt: the keys of actors that were, in order.  address: the cluster's; Ray's own choice where
    empty (RAY_ADDRESS, or a cluster of this machine)."""

    makers: Mapping[str, Callable[[], Handler]]
    cpus: float = 1.0
    rebuilds: int = 2
    address: str = ""
    rebuilt: list[str] = field(default_factory=list)
    _actors: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rebuilds < 0 or self.cpus < 0:
            raise SettingsError(
                f"rebuilds ({self.rebuilds}) and cpus ({self.cpus}) must not be negative"
            )
        ray = _ray()
        if self.address and not ray.is_initialized():
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
            except (ConnectionError, ValueError, RuntimeError):
                raise SettingsError(
                    f"no Ray cluster answers at {self.address!r}: start it, or name another ray-address"
                ) from None

    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.makers))

    def exchange(self, step: str, payload: Any, keys: Keys, deadline: float = inf) -> Answers:
        """Ask all actors at once, and those that are lost again."""
        end = time.monotonic() + deadline
        content = None if payload is None else pack(payload)
        answers: dict[str, Any] = {}
        for _ in range(1 + self.rebuilds):
            left = [key for key in keys if key not in answers]
            sent = {key: self._actor(key).send.remote(step, content) for key in left}
            for key, reference in sent.items():
                if (answer := self._answer(key, reference, end)) is not None:
                    answers[key] = answer
            if len(answers) == len(keys):
                break
        lost = Failure(f"its actor was lost {1 + self.rebuilds} times: look at the Ray cluster")
        return {key: answers.get(key, lost) for key in keys}

    def _answer(self, key: str, reference: Any, end: float) -> Any:
        """What an actor answered; nothing if it is lost, and then another takes its place."""
        ray = _ray()
        try:
            wait = None if end == inf else max(end - time.monotonic(), 0.0)
            good, content = ray.get(reference, timeout=wait)
        except ray.exceptions.GetTimeoutError:
            return Failure("it gave no answer in time: give it longer by the deadline")
        except ray.exceptions.RayActorError:
            self.rebuilt.append(key)
            self._actors.pop(key, None)
            return None
        except ray.exceptions.RayTaskError as error:
            return Failure(f"{type(error.cause).__name__} in its actor: look at Ray's log")
        if not good:
            return Failure(str(content), final=True)
        try:
            return unpack(content, f"client {key!r}")
        except FederationError as error:
            return Failure(str(error))

    def _actor(self, key: str) -> Any:
        if key not in self._actors:
            options = {"num_cpus": self.cpus, "scheduling_strategy": "SPREAD", "max_restarts": 0}
            self._actors[key] = _ray().remote(Actor).options(**options).remote(self.makers[key])
        return self._actors[key]

    def close(self) -> None:
        """Let the actors go."""
        for actor in self._actors.values():
            _ray().kill(actor)
        self._actors.clear()


class Actor:
    """An actor: one client's function, in a process of its own."""

    def __init__(self, make: Callable[[], Handler]) -> None:
        self.make = make
        self.handler: Handler | None = None

    def send(self, step: str, content: bytes | None) -> tuple[bool, Any]:
        """The answer in the wire form, or the sentence that says why there is none."""
        try:
            with one_thread():
                if self.handler is None:
                    self.handler = self.make()
                return True, pack(self.handler(step, None if content is None else unpack(content)))
        except AgnosticFairError as error:
            return False, str(error)


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it calls nobody
    with needing("ray", "Ray is not here"):
        import ray
    return ray
