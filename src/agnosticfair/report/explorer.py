"""The shift explorer's data: test rows with every method's decisions, and what of them goes into a page.

A page holds no row, but a table of counts: rows, and rows decided positively, of every (cell, group,
label), where a cell is one value of each mixed column. Under a weight per value, which is a weight per
cell, accuracy and rates from the counts are those from the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np

from agnosticfair.data.axes import edges_at_quantiles, histogram, round_cuts
from agnosticfair.data.encoding import bin_codes, bin_names
from agnosticfair.data.storage import SITE, Decided
from agnosticfair.data.table import Column
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.mathematics.metrics import PARITY, gap, metric_of

USUAL = ("workclass", "age", "marital-status", SITE)
"""Columns mixed unless others are named, where a data set has them; else the first that suit."""

MAX_COLUMNS = 4  # mixed at a time
MAX_VALUES = 12  # of a column; rarer ones are one
BINS = 4  # of a column of numbers
MIN_ROWS = 400  # of a corner, or a twentieth of all rows, where that is less
MIN_SHARE = 0.05  # of every group in a corner


def chosen(rows: Decided, mix: Sequence[str]) -> list[str]:
    """The columns to mix by: those named, or the usual ones, or the first of few values."""
    for name in mix:
        if name not in rows.columns:
            there = ", ".join(sorted(rows.columns))
            raise SettingsError(f"no column {name!r} to mix by; there are: {there}")
    if len(mix) > MAX_COLUMNS:
        raise SettingsError(f"{len(mix)} columns to mix by are too many: name {MAX_COLUMNS}")
    if mix:
        return list(dict.fromkeys(mix))
    usual = [name for name in USUAL if name in rows.columns]
    widths = {
        name: len(np.unique(column)) if isinstance(column, np.ndarray) else len(column.categories)
        for name, column in rows.columns.items()
    }
    few = [name for name, width in widths.items() if 1 < width <= MAX_VALUES]
    return (usual + [name for name in few if name not in usual])[: max(3, len(usual))]


def values(column: np.ndarray | Column) -> Column:
    """A column in few values: numbers in bins, rare categories together.

    >>> values(np.arange(20.0, 60.0)).categories
    ('under 30', '30 to 40', '40 to 50', '50 or more')
    """
    if isinstance(column, np.ndarray):
        missing = np.isnan(column)
        there = np.unique(column[~missing])
        if len(there) <= BINS and not missing.any():
            return Column(np.searchsorted(there, column), tuple(f"{v:g}" for v in there))
        low, high = (there[0], there[-1]) if len(there) else (0.0, 0.0)
        edges = edges_at_quantiles(round_cuts(low, high), histogram(column, low, high), BINS)
        return Column(bin_codes(column, edges), bin_names(edges, missing=bool(missing.any())))
    counts = np.bincount(column.codes, minlength=len(column.categories))
    order = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    frequent = order if len(order) <= MAX_VALUES else order[: MAX_VALUES - 1]
    codes = np.full(len(counts), len(frequent))
    codes[frequent] = np.arange(len(frequent))
    others = () if len(frequent) == len(order) else (f"{len(order) - len(frequent)} others",)
    return Column(codes[column.codes], (*(column.categories[k] for k in frequent), *others))


def counts(rows: Decided, mix: Sequence[str] = (), metric: str = PARITY.name) -> dict[str, Any]:
    """The table of counts as JSON: of every (cell, group, label) that occurs its codes, how many rows
    and, method by method, how many of these are decided positively."""
    if not len(rows.y):
        raise DataError("there are no test rows: give a file that has some")
    columns = {name: values(rows.columns[name]) for name in chosen(rows, mix)}
    groups = tuple(rows.s.categories[k] for k in np.unique(rows.s.codes))
    s = rows.s.aligned(groups)
    keys = np.column_stack([*(c.codes for c in columns.values()), s, rows.y.astype(int)])
    strata, which = np.unique(keys, axis=0, return_inverse=True)
    which = which.ravel()
    table: dict[str, Any] = {
        "metric": asdict(metric_of(metric)),
        "columns": [{"name": k, "values": c.categories} for k, c in columns.items()],
        "sensitive_feature": rows.sensitive_feature,
        "groups": groups,
        "positive_label": rows.positive,
        "codes": [strata[:, k].tolist() for k in range(len(columns))],
        "group": strata[:, -2].tolist(),
        "label": strata[:, -1].tolist(),
        "rows": np.bincount(which).tolist(),
        "positive": {
            name: np.bincount(which, weights=p).round(9).tolist()
            for name, p in rows.decisions.items()
        },
    }
    min_rows = min(MIN_ROWS, len(rows.y) // 20)
    corners = {name: corner(table, name, min_rows) for name in rows.decisions}
    return table | {"min_rows": min_rows, "min_share": MIN_SHARE, "corners": corners}


def corner(table: Mapping[str, Any], method: str, min_rows: int) -> dict[str, Any] | None:
    """The subgroup of the rows that is worst by the metric, among those that have one value, or all
    values, of each column, ``min_rows`` rows, and the share MIN_SHARE of every group.

    only: for each column the code of its value, None for all.  None where no subgroup is large enough.
    """
    codes, s, y = np.array(table["codes"]), np.array(table["group"]), np.array(table["label"])
    sizes = [len(c["values"]) for c in table["columns"]]
    mass, took = np.zeros((2, *sizes, len(table["groups"]), 2))
    np.add.at(mass, (*codes, s, y), np.array(table["rows"], float))
    np.add.at(took, (*codes, s, y), np.array(table["positive"][method]))
    best: dict[str, Any] | None = None
    fairness_metric = metric_of(table["metric"]["name"])
    tried, axes = 0, tuple(range(len(sizes)))
    for only in product(*((None, *range(size)) for size in sizes)):
        place = tuple(slice(None) if k is None else slice(k, k + 1) for k in only)
        here, positive = mass[place].sum(axis=axes), took[place].sum(axis=axes)
        groups = here.sum(axis=1)
        if groups.sum() < min_rows or groups.min() < MIN_SHARE * groups.sum() or not groups.min():
            continue
        difference = gap(fairness_metric, np.stack([here - positive, positive], axis=2))
        tried += np.isfinite(difference)
        if np.isfinite(difference) and (best is None or difference > best["difference"] + 1e-12):
            best = {"only": only, "difference": difference, "rows": int(groups.sum())}
    return None if best is None else best | {"tried": int(tried)}
