"""What a private site refuses before it looks at a row: questions that would get more than they pay for.

Nothing here reads a row, and every refusal is the same sentence: a refusal tells no more than that there was one.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from agnosticfair.errors import FederationError
from agnosticfair.learners.heads import strata
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.privacy.sensitivity import places_of
from agnosticfair.protocol.questions import Task

RULE = ("A", "directions", "eps", "shift", "prices")
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
    numbers = [getattr(asked, name) for name in ("w", "active", *RULE) if hasattr(asked, name)]
    if not all(np.isfinite(value).all() and (np.abs(value) < LARGEST).all() for value in numbers):
        return False
    good = _weights(asked, task) and _active(asked, len(places)) and _smoothed(asked)
    return good and (not hasattr(asked, "A") or _rates(asked, task, len(places)))


def _once(values: list[Any]) -> bool:
    return len({*values}) == len(values)


def _weights(asked: Any, task: Task) -> bool:
    w, width = getattr(asked, "w", None), task.encoding.width + 1
    if w is None:
        return True
    if hasattr(asked, "heads"):
        return len(asked.heads) > 0 and w.shape == (len(asked.heads), width)
    return w.shape == ((width,) if task.rule is None else (0,))


def _rates(asked: Any, task: Task, places: int) -> bool:
    """Whether the coefficients are the task's, and every direction is one, of weights from 0 to 1."""
    if task.estimates is None or asked.eps < 0 or not all(price > 0 for price in asked.prices):
        return False
    C, at = len(strata(task.estimates.heads)), asked.directions
    if asked.A.shape != (places, C) or at.ndim != 2 or at.shape[1] != 5:
        return False
    of = at[:, :3]
    inside = (of == np.rint(of)).all() and (of >= 0).all() and (of < [places, C, C]).all()
    return bool(inside and ((at[:, 3:] >= 0) & (at[:, 3:] <= 1)).all())


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
