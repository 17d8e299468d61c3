"""A rule in numbers, for its card and its page: where it had to act, how its estimates agree with the rows, and what
they hang on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agnosticfair.data.encoding import Encoding, indicators, shown
from agnosticfair.data.table import Column, Table, concatenate
from agnosticfair.errors import existing
from agnosticfair.federation import Fit
from agnosticfair.learners.estimates import LEARNERS, Estimates, learned, predict
from agnosticfair.mathematics.linear import log_loss

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


Probabilities = Callable[[Table], np.ndarray]


def gains(estimates: Estimates, encoding: Encoding, head: int = 0) -> dict[str, float]:
    """The share of what a head's trees took off the loss by splits on each column, the largest first.

    estimates: of trees.
    """
    names = [name for name, _, _ in encoding.numeric] + [name for name, _ in encoding.categorical]
    gain = np.asarray(estimates.arrays["gain"][head], float)
    shares = gain / max(gain.sum(), 1e-300)
    order = np.argsort(-shares, kind="stable")
    return {names[k]: float(shares[k]) for k in order}


def effects(
    estimates: Estimates, encoding: Encoding, head: int = 0
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What every column of numbers adds to a head's log odds, as a broken line: x and y, two points for each bin, y
    centred; the widest effect first.

    estimates: of the additive or the linear learner.
    """
    w, effect_of = np.asarray(estimates.arrays["w"][-1][head], float), {}
    starts = indicators(encoding)[len(encoding.categorical) :]
    bins = {name: (edges, at) for (name, edges), at in zip(encoding.bins, starts, strict=False)}
    for j, (name, low, high) in enumerate(encoding.numeric):
        edges, at = bins.get(name, ((), -1))
        cuts = np.array([low, *(e for e in edges if low < e < high), high])
        x = np.repeat(cuts, 2)[1:-1]
        width = (high - low) or 1.0
        y = w[j] * ((x - low) / width if encoding.scale else x)
        if at >= 0:
            middle = (cuts[:-1] + cuts[1:]) / 2
            y = y + np.repeat(w[at + np.searchsorted(edges, middle, "right")], 2)
        effect_of[name] = (x, y - (y.min() + y.max()) / 2)
    order = sorted(effect_of, key=lambda name: -float(np.ptp(effect_of[name][1])))
    return {name: effect_of[name] for name in order}


def permutation_importances(
    probabilities: Probabilities, table: Table, y: np.ndarray, seed: int = 0
) -> dict[str, float]:
    """By how much the mean log loss rises where a column's values are dealt to other rows, the most first.

    ``probabilities`` goes from a table to P(Y = 1 | x), (n,); the table's rows are not those of the training.
    """
    order = np.random.default_rng(seed).permutation(len(table))
    base = mean_log_loss(probabilities(table), y)
    rises = {
        name: mean_log_loss(probabilities(_permuted(table, name, order)), y) - base
        for name in (*table.numeric, *table.categorical)
    }
    return dict(sorted(rises.items(), key=lambda entry: -entry[1]))


def _permuted(table: Table, name: str, order: np.ndarray) -> Table:
    if name in table.numeric:
        return replace(table, numeric={**table.numeric, name: table.numeric[name][order]})
    column = table.categorical[name]
    mixed = Column(column.codes[order], column.categories)
    return replace(table, categorical={**table.categorical, name: mixed})


def mean_log_loss(p: np.ndarray, y: np.ndarray) -> float:
    """
    >>> round(mean_log_loss(np.array([0.5, 0.5]), np.array([0, 1])), 4)
    0.6931
    """
    p = np.clip(p, 1e-7, 1 - 1e-7)
    return float(log_loss(np.log(p / (1 - p)), y).mean())


def partial_dependence(
    probabilities: Probabilities, table: Table, name: str, points: int = 20
) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column, and the mean probability over all rows if every row had each of them; of several heads,
    where the probabilities are (heads, n), a column each.

    Of a column of numbers the values are quantiles of those that occur, at most so many; of one of categories all.
    """
    n = len(table)
    if name in table.numeric:
        seen = np.unique(table.numeric[name])
        known = seen[~np.isnan(seen)]
        values = np.unique(np.quantile(known, np.linspace(0, 1, points))) if len(known) else seen
    else:
        values = np.array(table.categorical[name].categories, dtype=object)
    every = table.take(np.tile(np.arange(n), len(values)))
    if name in table.numeric:
        every = replace(every, numeric={**every.numeric, name: np.repeat(values, n)})
    else:
        column = table.categorical[name]
        codes = np.repeat(np.arange(len(values), dtype=column.codes.dtype), n)
        values_of_column = Column(codes, column.categories)
        every = replace(every, categorical={**every.categorical, name: values_of_column})
    predictions = probabilities(every)
    return values, predictions.reshape(*predictions.shape[:-1], len(values), n).mean(axis=-1).T
