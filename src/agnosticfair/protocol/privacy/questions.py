"""The questions of private steps.  z: the noise multiplier that each of them is to be answered with, shared by
``sites``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from agnosticfair.protocol.questions import Shapes, Task, register


@register
@dataclass(frozen=True)
class PrivateCounts:
    """How many rows each group has."""

    step: ClassVar[str] = "private_counts"
    z: float
    sites: int

    def shapes(self, task: Task) -> Shapes:
        return {"groups": (task.cells,)}


@register
@dataclass(frozen=True)
class PrivateMoments:
    """The second moment of the clipped rows, its upper triangle."""

    step: ClassVar[str] = "private_moments"
    z: float
    sites: int

    def shapes(self, task: Task) -> Shapes:
        D = task.encoding.width + 1
        return {"moments": (D * (D + 1) // 2,)}


@register
@dataclass(frozen=True)
class PrivateSlopes:
    """The loss's gradient at w, and per group decisions and their slope, smoothed at this temperature."""

    step: ClassVar[str] = "private_slopes"
    z: float
    sites: int
    temperature: float
    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        D, G = len(self.w), task.cells
        return {"gradient": (D,), "slopes": (G, D), "hat": (G,), "curve": ()}


@register
@dataclass(frozen=True)
class PrivateDecisions:
    """Rows and decisions under w, for the certificate."""

    step: ClassVar[str] = "private_decisions"
    z: float
    sites: int
    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {"groups": (task.cells,), "hat": (task.cells,), "right": ()}
