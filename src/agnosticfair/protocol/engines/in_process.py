"""Clients in this very process, asked one after the other, or dealt to a few worker processes."""

from __future__ import annotations

import multiprocessing
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from multiprocessing.connection import Connection
from typing import Any

from agnosticfair.errors import AgnosticFairError, SettingsError
from agnosticfair.protocol.engines.seam import Answers, Failure, Keys
from agnosticfair.threads import one_thread

Handler = Callable[[str, Any], Any]


@dataclass
class InProcess:
    """handlers: for each client's key, a function from (step, payload) to its answer.  workers:
    processes that answer; a client stays with its worker, so what it keeps between rounds stays."""

    handlers: Mapping[str, Handler]
    workers: int = 1
    _pool: list[tuple[Connection, frozenset[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise SettingsError(f"{self.workers} workers: ask for at least one")

    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.handlers))

    def exchange(self, step: str, payload: Any, keys: Keys, deadline: float = inf) -> Answers:
        """There is nothing to wait for here, so no deadline can pass."""
        if self.workers == 1 or len(self.handlers) == 1:
            return {key: _send(self.handlers[key], step, payload) for key in keys}
        if not self._pool:
            self._start()
        for pipe, handlers in self._pool:
            with suppress(OSError):  # a worker that died is found below
                pipe.send((step, payload, [key for key in keys if key in handlers]))
        answers: dict[str, Any] = {}
        for pipe, handlers in self._pool:
            try:
                answers |= pipe.recv()
            except (EOFError, OSError):
                answers |= {k: Failure("its worker process died") for k in keys if k in handlers}
        return {key: answers[key] for key in keys}

    def _start(self) -> None:
        """Deal the clients to the workers; they end with this engine."""
        # spawned, not forked: a fork would copy the state of BLAS's threads but not the threads
        context, keys = multiprocessing.get_context("spawn"), self.clients()
        for number in range(min(self.workers, len(keys))):
            handlers = {key: self.handlers[key] for key in keys[number :: self.workers]}
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(there, handlers), daemon=True)
            process.start()
            there.close()
            weakref.finalize(self, _end, here, process)
            self._pool.append((here, frozenset(handlers)))


def _send(handler: Handler, step: str, payload: Any) -> Any:
    try:
        return handler(step, payload)
    except AgnosticFairError as error:
        return Failure(str(error), final=True)


def _work(pipe: Connection, handlers: Mapping[str, Handler]) -> None:
    """Answer for some clients until the pipe is closed. It is the caller's own process at the other
    end, so what comes through it is trusted."""
    while True:
        try:
            step, payload, keys = pipe.recv()
        except EOFError:
            return
        with one_thread():
            answers = {key: _send(handlers[key], step, payload) for key in keys}
        pipe.send(answers)


def _end(pipe: Connection, process: Any) -> None:
    pipe.close()
    process.join(timeout=10)
