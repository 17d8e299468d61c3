"""The private steps: their requests, how far one row or site can move their sums, and which requests are refused.

In a request, ``z`` is the noise multiplier that it is to be answered with; among how many sites the noise is shared a
site knows by its session, and no request says. ``max_rows`` are the rows that a site adds at most, where whole sites
are to be hidden; 0 where rows are. Decisions and rows are counted overall and, where the task has subgroups of single
values, for each of them.

Neighbours are two sets of rows of which one has a row more (*add or remove*). A row x enters clipped:
|x| <= C, its numbers truncated towards zero, so that no norm grows. It lies in one value of each axis of the
subgroups, so in at most q of a list of them, where q adds up, over the axes, how often the value that is listed most
is listed (``entries``); overall counts as an axis of one value. Of a list without repeats q is its number of
axes. What one row adds to a field, in the Euclidean norm over all entries of the field:

* ``groups`` (1 + M, G), rows of each group, everywhere and in each subgroup: 1 in at most q entries, so q^(1/2).
* ``moments`` (D (D + 1) / 2,), the upper triangle of x x^T: at most |x x^T|_F = |x|^2 <= C^2.
* ``gradient`` (D,), (p - y) x with p in (0, 1) and y in {0, 1}: at most |x| <= C.
* ``group_gradients`` (G, D), 4 g (1 - g) x in the block of the row's group, g in (0, 1): at most C.
* ``decided`` (G,), whether the row is decided positively, in its group's entry: at most 1.
* ``hat`` (1 + M, G), whether the row is decided positively, in its group's entries: at most q^(1/2).
* ``curve`` (), 4 p (1 - p) with p in (0, 1): at most 1.
* ``right`` (), whether the row is decided rightly: at most 1.
* ``gradients`` (H, D), (p_h - t_h) x of every head, p_h in (0, 1) and t_h in {0, 1}: the blocks are each at most
  |x| <= C, so H^(1/2) C.
* ``curves`` (H,), 4 p_h (1 - p_h): H^(1/2).
* ``rates`` (1 + M, C), d pi_c with d in [0, 1], in at most q places. The probabilities pi_c that one head and its
  complement have, or the heads of one sensitive feature that are normalised together, are at least 0 and add up to at
  most 1, and so do their squares: with F of these (``normalised``) (q F)^(1/2).
* ``rates_hessian`` (a (a + 1) / 2,), the upper triangle of k v v^T with k in [0, 1] and |v_e| <= 1 in the directions
  e of places that the row lies in, and 0 elsewhere: at most |v|^2 <= q, with q of the list of these directions' places.

Where a whole site is to be hidden, it adds at most m of its rows: by the triangle inequality at most m times as much.

``tests/privacy`` adds and removes every row of small tables, and whole sites, and measures these norms.

A step with fields f of sensitivities D_f and shares a_f adds discrete Gaussian noise of standard deviation
sigma_f = z D_f (sum a^2)^(1/2) / a_f to every entry of f. Then sum_f (D_f / sigma_f)^2 = 1 / z^2, so that
the step is (1 / (2 z^2))-zCDP (Canonne, Kamath and Steinke, 2020, for integers and any scale per
coordinate), as one Gaussian of multiplier z is.

Refusals are decided before a row is looked at, and are one and the same sentence: they tell no more than that there
was one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from typing import Any

import numpy as np

from agnosticfair.errors import FederationError, existing
from agnosticfair.learners.estimates import Head, strata
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.requests import Shapes, Task, request, step_of


def places(task: Task) -> int:
    """Overall, and every subgroup."""
    return 1 + (0 if task.subgroups is None else len(task.subgroups.values))


@request("private_plan", reserved="that the site has room for the plan in its budget")
class PrivatePlan:
    """The noise multipliers of all requests of a fit, for which a site reserves room before the first of them.
    fit: a digest of the fit, which tells one plan from another.  ends: whether the fit is over, and the site takes
    back what was reserved and not asked."""

    fit: str
    ends: bool
    multipliers: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {"reserved": ()}


@request("private_counts")
class PrivateCounts:
    """How many rows each group has, everywhere and in each subgroup."""

    z: float
    max_rows: int

    def shapes(self, task: Task) -> Shapes:
        return {"groups": (places(task), task.strata)}


@request("private_moments")
class PrivateMoments:
    """The second moment of the clipped rows, its upper triangle."""

    z: float
    max_rows: int

    def shapes(self, task: Task) -> Shapes:
        D = task.encoding.width + 1
        return {"moments": (D * (D + 1) // 2,)}


@request("private_gradients")
class PrivateGradients:
    """The loss's gradient at w, and per group decisions and their gradient, smoothed at this temperature."""

    z: float
    max_rows: int
    temperature: float
    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        D, G = len(self.w), task.strata
        return {"gradient": (D,), "group_gradients": (G, D), "decided": (G,), "hessian": ()}


@request("private_heads")
class PrivateHeads:
    """The gradient of every head's logistic regression at w, (H, D), and its mean curvature."""

    z: float
    max_rows: int
    heads: tuple[Head, ...]
    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {"gradients": self.w.shape, "curves": (len(self.heads),)}


@request("private_rates")
class PrivateRates:
    """Expected people of every stratum that the rule with coefficients A, (1 + M, C), decides positively, overall and
    in each subgroup; and the upper triangle of the dual's Hessian.

    error_costs: of a false positive and a false negative.  eps: smooths decisions; 0 decides.  shift: taken off every
    score. directions: (a, 5) of place, stratum, stratum, and what the strata's probabilities are multiplied with, 0 to
    1."""

    z: float
    max_rows: int
    error_costs: tuple[float, float]
    eps: float
    shift: float
    A: np.ndarray
    directions: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        a, C = len(self.directions), len(strata(existing(task.estimates).heads))
        return {"rates": (places(task), C), "rates_hessian": (a * (a + 1) // 2,)}


@request("private_decisions")
class PrivateDecisions:
    """Rows and decisions under w, or under the task's rule, for the certificate."""

    z: float
    max_rows: int
    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {
            "groups": (places(task), task.strata),
            "hat": (places(task), task.strata),
            "right": (),
        }


NUMERIC = 0.2
"""What a scaled number adds to the squared norm that rows are clipped to; each category adds one."""

SHARES: Mapping[str, Mapping[str, float]] = {
    "private_counts": {"groups": 1.0},
    "private_moments": {"moments": 1.0},
    "private_gradients": {"gradient": 1.0, "group_gradients": 0.35, "decided": 1.0, "hessian": 0.2},
    "private_heads": {"gradients": 1.0, "curves": 0.2},
    "private_rates": {"rates": 1.0, "rates_hessian": 0.5},
    "private_decisions": {"hat": 1.0, "right": 1.0, "groups": 1.0},
}
"""The private steps, their fields, and how much of a step's privacy goes to each."""


def clip_of(task: Task) -> float:
    """C, the norm that rows are clipped to, from the agreed encoding alone: an intercept, one for each
    category and bin, and a little for each number."""
    encoding = task.encoding
    indicators = len(encoding.categorical) + len(encoding.bins)
    return sqrt(1 + indicators + NUMERIC * len(encoding.numeric))


def places_of(task: Task) -> list[tuple[int, int]]:
    """Axis and value of overall, (-1, 0), and of every subgroup; subgroups of more than one value have no bound
    here."""
    subgroups = [] if task.subgroups is None else task.subgroups.agreed[1]
    if any(len(subgroup) != 1 for subgroup in subgroups):
        raise FederationError("private steps have subgroups of single values only: take depth 1")
    return [(-1, 0), *(subgroup[0] for subgroup in subgroups)]


def entries(places: Sequence[tuple[int, int]]) -> int:
    """In how many of these (axis, value) a row can lie at most: it has one value on each axis.

    >>> entries([(-1, 0), (0, 1), (0, 2)]), entries([(-1, 0), (0, 1), (0, 1)])
    (2, 3)
    """
    maximum: dict[int, int] = {}
    for (axis, _), times in Counter(places).items():
        maximum[axis] = max(maximum.get(axis, 0), times)
    return sum(maximum.values())


def normalised(heads: Sequence[Head]) -> int:
    """How many sets of strata there are whose probabilities add up to at most 1 (``heads.joint``).

    >>> normalised([Head("label"), Head("group:M", ("sex",), ("M",), None, ("F",))])
    1
    """
    alone = sum(bool(head.other) for head in heads)
    return alone + len({(h.features, h.label) for h in heads if h.features and not h.other})


def sensitivity(field: str, request: Any, task: Task) -> float:
    """How far one row, or one site, can move a field, in the Euclidean norm.  request: the request."""
    clip, places = clip_of(task), places_of(task)
    lies = sqrt(entries(places))
    of_row = {"moments": clip**2, "gradient": clip, "group_gradients": clip, "hat": lies}
    of_row["groups"] = lies
    if field in ("gradients", "curves"):
        of_row[field] = sqrt(len(request.heads)) * (clip if field == "gradients" else 1.0)
    if field in ("rates", "rates_hessian"):
        on = [places[k] for k in request.directions[:, 0].astype(int)]
        of_row |= {
            "rates": lies * sqrt(normalised(existing(task.estimates).heads)),
            "rates_hessian": max(entries(on), 1),
        }
    return of_row.get(field, 1.0) * max(1, request.max_rows)


def deviations(request: Any, task: Task) -> dict[str, float]:
    """The standard deviation of each field's noise, so that the step costs as one Gaussian of multiplier z."""
    shares = SHARES[step_of(request)]
    whole = sqrt(sum(a * a for a in shares.values()))
    return {
        field: request.z * sensitivity(field, request, task) * whole / a
        for field, a in shares.items()
    }


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
    numbers = [getattr(request, name) for name in ("w", *RULE) if hasattr(request, name)]
    if not all(np.isfinite(value).all() and (np.abs(value) < LARGEST).all() for value in numbers):
        return False
    good = _weights(request, task) and _smoothed(request)
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


def _smoothed(request: Any) -> bool:
    temperature = getattr(request, "temperature", 1.0)
    return isfinite(temperature) and temperature > 1 / LARGEST
