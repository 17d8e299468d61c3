"""Steps on a GPU, recorded once and launched as a whole: a small network waits for its launches, not for its sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch

from agnosticfair.networks import Flat

Step = Callable[[torch.Tensor | None], None]
PLAIN = (torch.nn.Sequential, torch.nn.Linear, torch.nn.SiLU)
"""Layers that draw nothing and do not ask the device for a value, so that a step can be recorded."""


def suits(net: Flat) -> bool:
    """Whether the steps of a network can be recorded: on a GPU, and not what a user's module does."""
    return net.values.is_cuda and all(type(part) in PLAIN for part in net.module.modules())


@contextmanager
def aside(where: torch.device) -> Iterator[None]:
    """On a GPU, work in a stream of its own, which a recording needs."""
    if where.type != "cuda":
        yield
        return
    own, usual = _stream(where), torch.cuda.current_stream(where)
    own.wait_stream(usual)
    with torch.cuda.stream(own):
        yield
    usual.wait_stream(own)


@cache
def _stream(where: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(where)


class Replayed:
    """A step that is taken as it is once, recorded the second time, and launched from then on: the same kernels."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.rows: torch.Tensor | None = None
        self.launch: Callable[[], None] | None = None
        self.warm = False

    def __call__(self, rows: torch.Tensor | None) -> None:
        if not self.warm:  # libraries make their handles and take their room
            self.warm = True
            self.step(rows)
            return
        if self.launch is None:
            self.rows = rows
            self.launch = recorded(self._once) or self._once
        elif self.rows is not None and rows is not None:
            self.rows.copy_(rows)
        self.launch()

    def _once(self) -> None:
        self.step(self.rows)


_LAST: list[torch.cuda.CUDAGraph] = []
"""The last recording, which keeps its room for the next one."""


def recorded(once: Callable[[], None]) -> Callable[[], None] | None:
    """What launches all that ``once`` does on the device, without doing it now; None where that has no room for it."""
    graph = torch.cuda.CUDAGraph()
    try:
        graph.capture_begin(pool=_LAST[0].pool() if _LAST else None)
        try:
            once()
        finally:
            graph.capture_end()
    except RuntimeError:
        return None
    _LAST[:] = [graph]
    return graph.replay
