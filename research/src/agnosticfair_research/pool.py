"""Cells of an experiment in several processes, with the same rows whatever their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan
from typing import Any

from agnosticfair.threads import parallel
from agnosticfair_research.datasets import load_dataset

Row = dict[str, Any]


def number(value: float) -> float | None:
    """A measure, None where there is none: a group is absent."""
    return None if isnan(value) else float(value)


def run_cells(
    cell: Callable[[Any], Row],
    tasks: Sequence[Any],
    jobs: int = 1,
    on_done: Callable[[Row], None] | None = None,
) -> list[Row]:
    """The row that ``cell`` makes of every task, in the order of the tasks, in ``jobs`` processes.

    on_done sees each as it arrives.  A task has the name and the folder of its data set.
    """
    for name, folder in {(task.dataset, task.folder) for task in tasks}:
        # what is missing or altered is said, or downloaded, once and first
        load_dataset(name, folder)
    return parallel(cell, tasks, jobs, on_done)
