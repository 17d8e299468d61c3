"""How far one row, or one site, can move each field of a private step, and what noise each field gets.

Neighbours are two sets of rows of which one has a row more (*add or remove*). A row x enters clipped:
|x| <= C, its numbers truncated towards zero, so that no norm grows. It lies in one value of each axis of the
subgroups, so in at most q of a list of them, where q adds up, over the axes, how often the value that is listed most
is listed (``entries``); everybody counts as an axis of one value. Of a list without repeats q is its number of
axes. What one row adds to a field, in the Euclidean norm over all entries of the field:

* ``groups`` (1 + M, G), rows of each group, everywhere and in each subgroup: 1 in at most q entries, so q^(1/2).
* ``moments`` (D (D + 1) / 2,), the upper triangle of x x^T: at most |x x^T|_F = |x|^2 <= C^2.
* ``gradient`` (D,), (p - y) x with p in (0, 1) and y in {0, 1}: at most |x| <= C.
* ``gradients`` (K, G, D), 4 g (1 - g) x in the block of the row's group, g in (0, 1), of every active entry that it
  lies in: at most q^(1/2) C, with q of the list of active entries.
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

``tests/protocol/privacy`` adds and removes every row of small tables, and whole sites, and measures these norms.

A step with fields f of sensitivities D_f and shares a_f adds discrete Gaussian noise of standard deviation
sigma_f = z D_f (sum a^2)^(1/2) / a_f to every entry of f. Then sum_f (D_f / sigma_f)^2 = 1 / z^2, so that
the step is (1 / (2 z^2))-zCDP (Canonne, Kamath and Steinke, 2020, for integers and any scale per
coordinate), as one Gaussian of multiplier z is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np

from agnosticfair.errors import FederationError
from agnosticfair.learners.estimates import Head
from agnosticfair.protocol.requests import Task, step_of

NUMERIC = 0.2
"""What a scaled number adds to the squared norm that rows are clipped to; each category adds one."""

SHARES: Mapping[str, Mapping[str, float]] = {
    "private_counts": {"groups": 1.0},
    "private_moments": {"moments": 1.0},
    "private_gradients": {"gradient": 1.0, "group_gradients": 0.35, "hat": 1.0, "hessian": 0.2},
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
    """Axis and value of everybody, (-1, 0), and of every subgroup; subgroups of more than one value have no bound
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
    of_row = {"moments": clip**2, "gradient": clip, "hat": lies, "groups": lies}
    if field == "group_gradients":
        of_row[field] = clip * sqrt(entries([places[k] for k in np.asarray(request.active, int)]))
    if field in ("gradients", "curves"):
        of_row[field] = sqrt(len(request.heads)) * (clip if field == "gradients" else 1.0)
    if field in ("rates", "rates_hessian"):
        assert task.estimates is not None
        on = [places[k] for k in request.directions[:, 0].astype(int)]
        of_row |= {
            "rates": lies * sqrt(normalised(task.estimates.heads)),
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
