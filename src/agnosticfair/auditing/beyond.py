"""From what was measured to what holds beyond the rows: the bounds of a certificate, and the sums that prove them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import inf, isfinite
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import Certificate, not_estimable
from agnosticfair.auditing.parts import (
    Asked,
    Found,
    PartRecord,
    checked_groups,
    listed,
    records,
    searched,
    upper_of,
    worst_of,
)
from agnosticfair.auditing.proof import mixtures_of, sums_of
from agnosticfair.auditing.question import Wanted
from agnosticfair.data.encoding import shown
from agnosticfair.data.rows import digest_of, in_common, sketch_of
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError
from agnosticfair.mathematics import reweighed
from agnosticfair.mathematics.parts import Axis
from agnosticfair.model import Model

UNTOLD = (
    "Whether these are rows of the fit nobody can tell: what knows them again (NAME.trained-on.json) is not beside the \
model. The bounds hold for rows held out from the fit."
)
"""Of a model of ours that came alone."""

WEIGHTED = (
    "The rows' weights are left out: what is measured and bounded counts every row once, and no bound holds for \
weighted rows."
)

SHARED = r"Clients '[^']*' and '[^']*' have about [\d,]+ rows in common, [a-z ]+: bounds hold only if [a-z ]+\."
REPEATED = r"[\d,]+ of the [\d,]+ rows repeat another one, which [a-z ]+\. Bounds hold only if [a-z :()-]+\."
CLUSTERED = r"One row of each of [\d,]+ clusters among [\d,]+ rows[a-z ,:]+\."
"""Notes about the rows themselves, which no sums show, as regular expressions."""

FEW_CLIENTS = 64
"""Up to so many, rows in common are looked for with a finer sketch."""


def bounded(
    made: Certificate,
    wanted: Wanted,
    psi: np.ndarray,
    axes: Sequence[Axis] = (),
    ask: Asked | None = None,
    model: Model | None = None,
) -> Certificate:
    """The certificate with its bounds.  psi: (4 G, M + 1), the sums of kernels.  ask: for the counts of parts."""
    made = replace(made, precision=wanted.precision, share=wanted.share)
    if wanted.kernels:
        made = _over_kernels(made, psi)
    if wanted.parts is None or ask is None:
        return made
    delta = wanted.share * (1 - made.confidence)
    found = searched(axes, wanted.parts, ask, delta)
    checked_groups(found, tuple(made.groups), made.notion)
    mixed = _mixed(made, found) if wanted.mixtures else None
    whose = {} if model is None else {"model": model.digest}
    duals = {} if mixed is None else {"duals": [edges.tolist() for edges in mixed.duals]}
    sums = sums_of(found, axes, wanted.parts.depth, ask) | whose | duals
    made = over_parts(made, found, None if mixed is None else mixed.value)
    return replace(made, sums=sums)


def over_parts(made: Certificate, found: Found, mixtures: float | None) -> Certificate:
    """The certificate with what its parts' counts give.  mixtures: the bound over mixtures, where it is asked for."""
    groups = tuple(made.groups)
    told = records(found, groups, made.notion, made.confidence, made.precision, made.share)
    uppers = [upper_of(told), *([made.upper] if isfinite(made.upper) else [])]
    uppers += [] if mixtures is None else [mixtures]
    worst = worst_of(told)
    measured = (worst or told[0]).difference
    pair = made.pair
    if made.kernels is not None:
        measured = np.fmax(made.worst_difference, measured).item()
    elif worst is not None:
        pair = (worst.pair[0], worst.pair[-1])
    return replace(
        made,
        parts=told,
        upper=max(uppers),
        mixtures=mixtures,
        worst_difference=measured,
        pair=pair,
        notes=(*made.notes, *notes_of(told)),
    )


def _mixed(made: Certificate, found: Found) -> reweighed.Proved:
    return mixtures_of(found, made.notion, made.confidence, made.precision, made.share, made.floor)


def looked_at(made: Certificate, wanted: Wanted, axes: Sequence[Axis], ask: Asked) -> Certificate:
    """The certificate with what its parts show on the rows of the fit: measured, and nothing of it bounded.

    Where the fit was held to parts of its own, it is measured on these, whatever number of rows they have.
    """
    assert wanted.parts is not None
    groups, agreed = tuple(made.groups), wanted.parts.agreed
    if agreed is not None:
        found = listed(axes, agreed.parts, ask, 0.0)
    else:
        found = searched(axes, wanted.parts, ask, 1 - made.confidence)
    checked_groups(found, groups, made.notion)
    told = records(found, groups, made.notion, made.confidence, wanted.precision, bounded=False)
    if agreed is not None:
        told = tuple(replace(part, estimable=isfinite(part.difference)) for part in told)
    made = replace(made, parts=told, precision=wanted.precision)
    if wanted.kernels:
        return made
    worst = worst_of(told) or told[0]
    pair = (worst.pair[0], worst.pair[-1]) if worst.pair else made.pair
    return replace(made, worst_difference=worst.difference, pair=pair)


def _over_kernels(made: Certificate, psi: np.ndarray) -> Certificate:
    """The bound over reweighings by kernels, and the sums it rests on."""
    cells = psi.reshape(len(made.groups), 2, 2, -1)
    bound = None if made.bound == inf else made.bound
    delta = made.share * (1 - made.confidence)
    found = reweighed.reweighings(
        cells[..., :-1], float(made.n), delta, made.notion, bound, made.floor
    )
    alpha = made.alpha_difference.tolist()
    kernels = {"upper": found.value, "psi": cells.tolist(), "alpha": alpha, "about": made.about}
    kernels["duals"] = [edges.tolist() for edges in found.duals]
    return replace(made, kernels=kernels, upper=found.value)


def notes_of(told: Sequence[PartRecord]) -> tuple[str, ...]:
    """What is not certified, named: parts with too few rows, and groups that were left out of compared parts."""
    few = not_estimable(told)
    notes = []
    if few and isfinite(few[0].difference):
        worst = few[0]
        notes.append(
            f"Not estimable for too few rows: {len(few):,} parts, with measured differences up to "
            f"{worst.difference:.4f} "
            f"({worst.name}, {worst.rows:,} rows)."
        )
    left = sorted({name for part in told[:1] if part.estimable for name in part.left_out})
    if left:
        notes.append(f"Compared with none, having too few rows: {shown(left)}.")
    return tuple(notes)


def fitted_on(model: Model | None, X: object) -> bool:
    """Whether these are the very rows that the model was fitted on, as far as what is beside the model tells."""
    return isinstance(X, Table) and len(X) > 0 and known_again(model, [X]) >= len(X)


def known_again(model: Model | None, tables: Sequence[Table]) -> float:
    """About how many of these rows are among those of the fit; 0 where nobody can tell."""
    labelled = bool(tables) and all(table.target is not None for table in tables)
    if model is None or model.training is None or not labelled:
        return 0.0
    return model.training.among(model.reading, tables)


def cannot_tell(model: Model | None, tables: Sequence[Table]) -> tuple[str, ...]:
    """A note where nobody can tell whether these are rows of the fit."""
    if model is None or not tables or model.training is not None:
        return ()
    return (UNTOLD,)


def check_held_out(model: Model | None, tables: Sequence[Table]) -> None:
    """Raise where rows of the fit are among these, as far as what is beside the model tells."""
    rows, n = known_again(model, tables), sum(map(len, tables))
    if rows:
        which = "these are the" if rows >= n else f"about {rows:,.0f} of these {n:,} are"
        raise DataError(
            f"{which} rows that the model was fitted on, and say nothing beyond them: audit rows "
            "held out from the fit (in Python, held_out=False measures these and bounds nothing)"
        )


def check_clients(model: Model, clients: Mapping[str, Any]) -> tuple[str, ...]:
    """Raise where clients hold rows of the fit, or two of them mostly the same rows; a note where they have fewer in
    common."""
    tables = {key: table for key, table in clients.items() if isinstance(table, Table)}
    check_held_out(model, [*tables.values()])
    keys, held = [*tables], [*tables.values()]
    notes = [*cannot_tell(model, held)]
    if len(keys) < 2:
        return tuple(notes)
    buckets = 1 << (16 if len(keys) <= FEW_CLIENTS else 12)
    common = np.triu(in_common(np.stack([sketch_of([table], buckets) for table in held])))
    digests = [digest_of([table]) for table in held]
    for i, j in combinations(range(len(keys)), 2):
        rows = len(held[i]) if digests[i] == digests[j] else common[i, j]
        if rows >= min(len(held[i]), len(held[j])) / 2:
            raise DataError(
                f"clients {keys[i]!r} and {keys[j]!r} hold the same rows, which would count twice: leave one out"
            )
        if rows:
            notes.append(
                f"Clients {keys[i]!r} and {keys[j]!r} have about {rows:,.0f} rows in common, more than chance makes "
                "equal: bounds hold only if these are different people."
            )
    return tuple(notes)
