"""What a private site refuses before it looks at a row: requests that would get more than they pay for.

Nothing here reads a row, and every refusal is the same sentence: a refusal tells no more than that there was one.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from agnosticfair.errors import FederationError
from agnosticfair.learners.estimates import strata
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.privacy.sensitivity import places_of
from agnosticfair.protocol.requests import Task

RULE = ("A", "directions", "eps", "shift", "error_costs")
LARGEST = 2.0**40
"""Of a weight and of the inverse of a temperature: with larger ones a row's numbers could become infinite."""


def check_private(broadcast: Broadcast[Any], site: str) -> None:
    """Raise unless the request of a private step is one that its noise covers."""
    if not covered(broadcast):
        raise FederationError(
            f"site {site!r} refuses the request: under noise it asks about all rows, about no subgroup and no entry "
            "twice, with finite numbers"
        )


def covered(broadcast: Broadcast[Any]) -> bool:
    """Whether the noise of a private step covers its request."""
    request, task = broadcast.request, broadcast.task
    if task.fold is not None or not (isfinite(request.z) and request.z > 0):
        return False
    places, axes = places_of(task), () if task.subgroups is None else task.subgroups.axes
    known = {(a, value) for a, axis in enumerate(axes) for value in range(len(axis[1]))}
    if not ({*places[1:]} <= known and _once(places)):
        return False
    numbers = [getattr(request, name) for name in ("w", "active", *RULE) if hasattr(request, name)]
    if not all(np.isfinite(value).all() and (np.abs(value) < LARGEST).all() for value in numbers):
        return False
    good = _weights(request, task) and _active(request, len(places)) and _smoothed(request)
    return good and (not hasattr(request, "A") or _rates(request, task, len(places)))


def _once(values: list[Any]) -> bool:
    return len({*values}) == len(values)


def _weights(request: Any, task: Task) -> bool:
    w, width = getattr(request, "w", None), task.encoding.width + 1
    if w is None:
        return True
    if hasattr(request, "heads"):
        return len(request.heads) > 0 and w.shape == (len(request.heads), width)
    return w.shape == ((width,) if task.rule is None else (0,))


def _rates(request: Any, task: Task, places: int) -> bool:
    """Whether the coefficients are the task's, and every direction is one, of weights from 0 to 1."""
    if (
        task.estimates is None
        or request.eps < 0
        or not all(price > 0 for price in request.error_costs)
    ):
        return False
    C, at = len(strata(task.estimates.heads)), request.directions
    if request.A.shape != (places, C) or at.ndim != 2 or at.shape[1] != 5:
        return False
    of = at[:, :3]
    inside = (of == np.rint(of)).all() and (of >= 0).all() and (of < [places, C, C]).all()
    return bool(inside and ((at[:, 3:] >= 0) & (at[:, 3:] <= 1)).all())


def _active(request: Any, places: int) -> bool:
    """Whether the entries whose gradients are asked for are there, and none of them twice."""
    active = getattr(request, "active", None)
    if active is None:
        return True
    whole = np.asarray(active, int)
    inside = (whole == active).all() and (whole >= 0).all() and (whole < places).all()
    return active.ndim == 1 and bool(inside) and _once(whole.tolist())


def _smoothed(request: Any) -> bool:
    temperature = getattr(request, "temperature", 1.0)
    return isfinite(temperature) and temperature > 1 / LARGEST
