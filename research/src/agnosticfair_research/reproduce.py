"""The paper's experiments as a list of cells: one data set, setting, method and seed each.

A cell is a function of its cell alone, so rows are the same in whatever order and in however many
processes they are computed. Only ``seconds`` differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isnan

import numpy as np
from threadpoolctl import threadpool_limits

from agnosticfair.auditing.audit import audit
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.federation import fit
from agnosticfair.mathematics import scoring
from agnosticfair.methods import METHODS, Method
from agnosticfair.methods import method as method
from agnosticfair.model import Model
from agnosticfair.settings import require_name
from agnosticfair.threads import parallel
from agnosticfair_research.datasets import dataset, load_dataset
from agnosticfair_research.deployments import Row
from agnosticfair_research.paper import as_printed
from agnosticfair_research.splits import Split, split_of

SETTINGS, CLIENTS = ("shift", "iid"), 2
"""Tables 1 and 2; Table 3."""


@dataclass(frozen=True)
class PaperCell:
    """A fit of the paper. folder: where to look for a data set that is not shipped."""

    dataset: str
    setting: str
    method: str
    seed: int
    folder: str | None = None


def cells(
    datasets: Iterable[str],
    settings: Iterable[str] = SETTINGS,
    methods: Iterable[str] = tuple(METHODS),
    seeds: int = 20,
    folder: str | None = None,
) -> list[PaperCell]:
    """Every cell asked for; those that share a split are neighbours.

    >>> [(t.method, t.seed) for t in cells(["adult"], ["shift"], ["fl", "afl"], 2)]
    [('fl', 0), ('afl', 0), ('fl', 1), ('afl', 1)]
    """
    names, settings = list(dict.fromkeys(methods)), list(dict.fromkeys(settings))
    for name in names:
        method(name)
    for setting in settings:
        require_name("setting", setting, SETTINGS)
    if seeds < 1:
        raise SettingsError(f"{seeds} seeds leave nothing to run: ask for at least 1")
    wanted = []
    for data in dict.fromkeys(datasets):
        dataset(data)
        for setting in settings:
            for seed in range(seeds):
                wanted += [PaperCell(data, setting, name, seed, folder) for name in names]
    return wanted


def tuned(name: str, data: str) -> Method:
    """The method of that name, with rows as centres, as in the paper; ``agnosticfair`` with the tau of the data set."""
    tau = {"tau": dataset(data).tau} if name == "agnosticfair" else {}
    return method(name, **tau, **as_printed(METHODS[name]))


def run_cells(
    tasks: Sequence[PaperCell], jobs: int = 1, on_done: Callable[[Row], None] | None = None
) -> list[Row]:
    """The row of every task, in their order, in ``jobs`` processes; on_done sees each as it arrives."""
    for name, folder in {(task.dataset, task.folder) for task in tasks}:
        load_dataset(name, folder)  # what is missing or altered is said, or downloaded, once
    return parallel(run_cell, tasks, jobs, on_done)


def run_cell(cell: PaperCell) -> Row:
    """Fit and measure one cell. A fit that diverges is a row without measures, not an error."""
    data = dataset(cell.dataset)
    # One thread: a sum split over threads is rounded in another order.
    with threadpool_limits(1):
        split = _split(cell.dataset, cell.setting, CLIENTS, cell.seed, cell.folder)
        try:
            fitted = fit(
                split.train,
                tuned(cell.method, cell.dataset),
                sensitive_features=data.sensitive_features,
                positive=data.positive,
                seed=cell.seed,
            )
        except SolverError:
            measured: Row = dict.fromkeys(MEASURES) | {"client_risk_differences": []}
            ended: Row = {"rounds": 0, "seconds": 0.0, "outcome": "diverged", "outcomes": {}}
        else:
            measured = measure(fitted.model, split, data.positive)
            ended = {
                "rounds": fitted.rounds,
                "seconds": round(fitted.seconds, 3),
                "outcome": fitted.outcome,
                "outcomes": dict(fitted.outcomes),
            }
    request = {k: getattr(cell, k) for k in ("dataset", "setting", "method", "seed")}
    return request | measured | ended


_split = lru_cache(maxsize=1)(split_of)


MEASURES = (
    "train_accuracy",
    "train_risk_difference",
    "test_accuracy",
    "test_risk_difference",
    "test_worst_subgroup",
    "test_balanced_accuracy",
    "client_risk_differences",
    "majority_rate",
    "label_risk_difference",
)


def measure(model: Model, split: Split, positive: str) -> Row:
    """MEASURES of a model on a split; None where a group is absent and there is no number."""

    def on(table: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return (
            table.labels(positive),
            model.predict(table),
            table.column(model.sensitive_feature).codes,
        )

    train = [np.concatenate(values) for values in zip(*map(on, split.train.values()), strict=True)]
    y, y_hat, s = on(split.test)
    pieces = [split.test_piece == k for k in range(len(split.pieces))]
    local = [scoring.risk_difference(y_hat[piece], s[piece]) for piece in pieces]
    return {
        "train_accuracy": number(scoring.accuracy(train[0], train[1])),
        "train_risk_difference": number(scoring.risk_difference(train[1], train[2])),
        "test_accuracy": number(scoring.accuracy(y, y_hat)),
        "test_risk_difference": number(scoring.risk_difference(y_hat, s)),
        "test_worst_subgroup": number(_worst_subgroup(y_hat, split.test, model.sensitive_feature)),
        "test_balanced_accuracy": number(scoring.balanced_accuracy(y, y_hat)),
        "client_risk_differences": [number(value) for value in local],
        "majority_rate": number(scoring.majority_rate(y)),
        "label_risk_difference": number(scoring.risk_difference(y, s)),
    }


def number(value: float) -> float | None:
    """A measure, None where there is none: a group is absent."""
    return None if isnan(value) else float(value)


def _worst_subgroup(y_hat: np.ndarray, table: Table, sensitive_feature: str) -> float:
    """The largest risk difference in a subgroup with rows enough, on these rows."""
    values = table.column(sensitive_feature).values()
    if len(np.unique(values)) < 2:
        return float("nan")
    return audit(y_hat, table, sensitive_features=values, held_out=False).worst_difference
