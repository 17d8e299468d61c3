"""One thread for linear algebra: with several, the bits of a product depend on how many there are. More
processors are of use through more processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from threading import current_thread, main_thread
from typing import Any, TypeVar

from agnosticfair.errors import SettingsError

Task = TypeVar("Task")
Made = TypeVar("Made")


def one_thread() -> AbstractContextManager:
    """While it is entered BLAS uses one thread, so that the same rows give the same sums on every
    machine of a kind. More processors are of use through more processes (``workers``)."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="blas")


def cpus() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def spread(
    work: Callable[[Task], Made],
    tasks: Sequence[Task],
    jobs: int = 1,
    on_done: Callable[[Made], Any] | None = None,
) -> list[Made]:
    """What ``work`` makes of every task, in the order of the tasks, in ``jobs`` processes; on_done sees each as it
    arrives.

    >>> spread(abs, [-1, 2])
    [1, 2]
    """
    if jobs < 1:
        raise SettingsError(f"{jobs} jobs do no work: ask for at least 1")
    tell = on_done or (lambda made: None)
    if min(jobs, len(tasks)) <= 1:
        found = []
        for task in tasks:
            found.append(work(task))
            tell(found[-1])
        return found
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), multiprocessing.get_context("spawn"))
    try:
        with _ignoring_interrupts():
            futures = [pool.submit(work, task) for task in tasks]
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
