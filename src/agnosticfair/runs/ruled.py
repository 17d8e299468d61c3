"""A rule in numbers, for its card and its page: where it had to act, how its estimates agree with the rows, and what
they hang on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agnosticfair.data.encoding import shown
from agnosticfair.data.table import Table, concatenate
from agnosticfair.errors import existing
from agnosticfair.federation import Fit
from agnosticfair.learners.estimates import LEARNERS, Estimates, learned, predict
from agnosticfair.learners.importance import (
    effects,
    gains,
    partial_dependence,
    permutation_importances,
)

MAX_SUBGROUPS = 12
"""Subgroups that are named."""

COLUMNS = 6
"""Columns that are drawn."""

ROWS = 1000
"""Rows by which a column's importance and dependence are taken: more change no picture."""

POINTS = 12
"""Of a dependence."""

UNLIKELY = 4.0
"""Standard deviations that hardly any of some thousand differences reaches by chance."""


def about(fitted: Fit, tables: Sequence[Table] = ()) -> dict[str, Any] | None:
    """All that is shown of a rule, as JSON has it; None of a fit without one.

    tables: its training rows, where they are here.
    """
    model = fitted.model
    if model.rule is None or model.estimates is None:
        return None
    calibration = fitted.calibration
    return {
        "learner": fitted.learner,
        "held_out": dict(fitted.held_out),
        "statements": [*fitted.statements],
        "proxy": proxy(model.estimates, model.sensitive_features),
        "multipliers": [vars(entry) for entry in fitted.multipliers[:MAX_SUBGROUPS]],
        "limited": len(fitted.multipliers),
        "subgroups": 0 if model.rule.subgroups is None else len(model.rule.subgroups.values),
        "calibration": [vars(entry) for entry in calibration[:MAX_SUBGROUPS]],
        "calibrated": [len(calibration), sum(abs(entry.z) > UNLIKELY for entry in calibration)],
        **_columns(fitted, tables),
    }


def proxy(estimates: Estimates, sensitive_features: Sequence[str]) -> str:
    """What the rule knows of the sensitive features, in a sentence or two."""
    if len(estimates.heads) == 1:
        return "The rule compares no groups, and decides by the learner's own probabilities."
    names = shown(sensitive_features)
    if estimates.aware:
        return (
            f"The rule decides by {names} itself (aware): rows without it cannot be decided. Where the law forbids "
            "this, train without aware."
        )
    return (
        f"The rule uses an estimate of {names} from the other columns, never the feature itself. In some places a "
        "proxy is treated as the feature: two people with the same columns get the same decision, whatever their "
        "group, and a person whose columns are typical of another group is treated as that group is. Where the "
        "feature may be used, aware=True uses it instead."
    )


def _columns(fitted: Fit, tables: Sequence[Table]) -> dict[str, Any]:
    """What the estimates hang on: curves of an additive learner, importances and dependences of trees."""
    model = fitted.model
    estimates = existing(model.estimates)
    heads = [estimates.heads[h].name for h in learned(estimates)]
    if not heads:
        return {}
    if estimates.kind in LEARNERS and LEARNERS[estimates.kind].linear:
        effects_of = {h: effects(estimates, model.encoding, k) for k, h in enumerate(heads)}
        first = next(iter(effects_of.values()))
        names = [*first][:COLUMNS]
        return {"curves": {name: _lines({h: effects_of[h][name] for h in heads}) for name in names}}
    if estimates.kind != "trees":
        return {}
    columns: dict[str, Any] = {
        "gains": {h: gains(estimates, model.encoding, k) for k, h in enumerate(heads)}
    }
    if tables and heads[0] == "label":
        columns |= _of_trees(fitted, _sample(tables), heads)
    return columns


def _lines(of_heads: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    x = next(iter(of_heads.values()))[0]
    return {"x": x.tolist(), "y": {name: y.tolist() for name, (_, y) in of_heads.items()}}


def _of_trees(fitted: Fit, rows: Table, heads: Sequence[str]) -> dict[str, Any]:
    """Permutation importances of the label's probability, and how the heads depend on the columns that gain most."""
    model, estimates = fitted.model, existing(fitted.model.estimates)
    y = rows.labels(model.positive)
    importances = permutation_importances(model.probabilities, rows, y)
    numeric = [name for name in importances if name in rows.numeric][:COLUMNS]

    def of_heads(table: Table) -> np.ndarray:
        return predict(estimates, model.encoding, estimates.folds, table)[list(learned(estimates))]

    curves = {}
    for name in numeric:
        x, y = partial_dependence(of_heads, rows, name, POINTS)
        curves[name] = _lines({head: (x, values) for head, values in zip(heads, y.T, strict=True)})
    return {"importances": importances, "dependences": curves}


def _sample(tables: Sequence[Table]) -> Table:
    share = min(1.0, ROWS / max(1, sum(map(len, tables))))
    some = [
        t.take(np.linspace(0, len(t) - 1, max(1, int(share * len(t)))).astype(int)) for t in tables
    ]
    return some[0] if len(some) == 1 else concatenate(some)
