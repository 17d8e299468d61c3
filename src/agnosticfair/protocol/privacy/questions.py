"""The questions of private steps.  z: the noise multiplier that each of them is to be answered with, shared by
``sites``."""

from __future__ import annotations

import numpy as np

from agnosticfair.protocol.questions import Shapes, Task, question


@question("private_counts")
class PrivateCounts:
    """How many rows each group has."""

    z: float
    sites: int

    def shapes(self, task: Task) -> Shapes:
        return {"groups": (task.cells,)}


@question("private_moments")
class PrivateMoments:
    """The second moment of the clipped rows, its upper triangle."""

    z: float
    sites: int

    def shapes(self, task: Task) -> Shapes:
        D = task.encoding.width + 1
        return {"moments": (D * (D + 1) // 2,)}


@question("private_slopes")
class PrivateSlopes:
    """The loss's gradient at w, and per group decisions and their slope, smoothed at this temperature."""

    z: float
    sites: int
    temperature: float
    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        D, G = len(self.w), task.cells
        return {"gradient": (D,), "slopes": (G, D), "hat": (G,), "curve": ()}


@question("private_decisions")
class PrivateDecisions:
    """Rows and decisions under w, for the certificate."""

    z: float
    sites: int
    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {"groups": (task.cells,), "hat": (task.cells,), "right": ()}
