"""One thread for linear algebra: with several, the bits of a product depend on how many there are. More
processors are of use through more processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
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
    return [made for (made,) in chained(work, tasks, lambda task, made: None, jobs, on_done)]


def chained(
    work: Callable[[Task], Made],
    tasks: Sequence[Task],
    follow: Callable[[Task, Made], Task | None],
    jobs: int = 1,
    on_done: Callable[[Made], Any] | None = None,
) -> list[list[Made]]:
    """As ``spread``, where ``follow(task, made)`` is the task that comes after one, or None: all that each chain made.

    >>> chained(abs, [-3, 2], lambda task, made: made - 1 if made else None)
    [[3, 2, 1, 0], [2, 1, 0]]
    """
    if jobs < 1:
        raise SettingsError(f"{jobs} jobs do no work: ask for at least 1")
    found: list[list[Made]] = [[] for _ in tasks]

    def noted(k: int, task: Task, made: Made) -> Task | None:
        found[k].append(made)
        if on_done is not None:
            on_done(made)
        return follow(task, made)

    if min(jobs, len(tasks)) <= 1:
        for k, first in enumerate(tasks):
            task: Task | None = first
            while task is not None:
                task = noted(k, task, work(task))
        return found
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), multiprocessing.get_context("spawn"))
    try:
        with _ignoring_interrupts():
            running = {pool.submit(work, first): (k, first) for k, first in enumerate(tasks)}
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                k, ended = running.pop(future)
                task = noted(k, ended, future.result())
                if task is not None:
                    running[pool.submit(work, task)] = (k, task)
    except BrokenProcessPool:
        raise SettingsError(
            f"one of {jobs} worker processes was ended, most likely for lack of memory: "
            "ask for fewer jobs"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
    return found


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
