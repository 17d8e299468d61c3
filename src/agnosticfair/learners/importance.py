"""What a learner's probabilities hang on: gain, permutation importance and partial dependence, as pure functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from agnosticfair.data.encoding import Encoding, indicators
from agnosticfair.data.table import Column, Table
from agnosticfair.learners.estimates import Estimates
from agnosticfair.mathematics.linear import log_loss

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
