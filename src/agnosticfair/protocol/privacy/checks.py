"""What a private site refuses before it looks at a row: questions that would get more than they pay for.

Nothing here reads a row, and every refusal is the same sentence: a refusal tells no more than that there was one.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from agnosticfair.errors import FederationError
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.privacy.sensitivity import places_of
from agnosticfair.protocol.questions import Task

LARGEST = 2.0**40
"""Of a weight and of the inverse of a temperature: with larger ones a row's numbers could become infinite."""


def check_private(broadcast: Broadcast[Any], site: str) -> None:
    """Raise unless the question of a private step is one that its noise covers."""
    if not covered(broadcast):
        raise FederationError(
            f"site {site!r} refuses the question: under noise it asks about all rows, about no part and no entry "
            "twice, with finite numbers"
        )


def covered(broadcast: Broadcast[Any]) -> bool:
    """Whether the noise of a private step covers its question."""
    asked, task = broadcast.asked, broadcast.task
    if task.fold is not None or not (isfinite(asked.z) and asked.z > 0):
        return False
    places, axes = places_of(task), () if task.named is None else task.named.axes
    known = {(a, value) for a, axis in enumerate(axes) for value in range(len(axis[1]))}
    if not ({*places[1:]} <= known and _once(places)):
        return False
    numbers = [getattr(asked, name) for name in ("w", "active") if hasattr(asked, name)]
    if not all(np.isfinite(value).all() for value in numbers):
        return False
    return _weights(asked, task) and _active(asked, len(places)) and _smoothed(asked)


def _once(values: list[Any]) -> bool:
    return len({*values}) == len(values)


def _weights(asked: Any, task: Task) -> bool:
    w = getattr(asked, "w", None)
    return w is None or (
        w.shape == (task.encoding.width + 1,) and bool((np.abs(w) < LARGEST).all())
    )


def _active(asked: Any, places: int) -> bool:
    """Whether the entries whose slopes are asked for are there, and none of them twice."""
    active = getattr(asked, "active", None)
    if active is None:
        return True
    whole = np.asarray(active, int)
    inside = (whole == active).all() and (whole >= 0).all() and (whole < places).all()
    return active.ndim == 1 and bool(inside) and _once(whole.tolist())


def _smoothed(asked: Any) -> bool:
    temperature = getattr(asked, "temperature", 1.0)
    return isfinite(temperature) and temperature > 1 / LARGEST
