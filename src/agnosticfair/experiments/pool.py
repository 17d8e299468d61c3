"""Cells of an experiment in several processes, with the same rows whatever their number."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any

from agnosticfair.data.datasets import load_dataset
from agnosticfair.errors import SettingsError

Row = dict[str, Any]


def run_cells(
    cell: Callable[[Any], Row],
    tasks: Sequence[Any],
    jobs: int = 1,
    on_done: Callable[[Row], None] | None = None,
) -> list[Row]:
    """The row that ``cell`` makes of every task, in the order of the tasks, in ``jobs`` processes.

    on_done sees each as it arrives.  A task has the name and the folder of its data set.
    """
    if jobs < 1:
        raise SettingsError(f"{jobs} jobs do no work: ask for at least 1")
    for name, folder in {(task.dataset, task.folder) for task in tasks}:
        load_dataset(
            name, folder
        )  # what is missing or altered is said, or downloaded, once and first
    tell = on_done or (lambda row: None)
    if min(jobs, len(tasks)) == 1:
        rows = []
        for task in tasks:
            rows.append(cell(task))
            tell(rows[-1])
        return rows
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), multiprocessing.get_context("spawn"))
    try:
        with _ignoring_interrupts():
            futures = [pool.submit(cell, task) for task in tasks]
        for future in as_completed(futures):
            tell(future.result())
    except BrokenProcessPool:
        raise SettingsError(
            f"one of {jobs} worker processes was ended, most likely for lack of memory: "
            "ask for fewer jobs"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
    return [future.result() for future in futures]


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Processes started in here ignore Ctrl-C for good: the parent alone answers to it."""
    if current_thread() is not main_thread():  # where signals cannot be set
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
