"""How processors are used: one thread for linear algebra, as with several the bits of a product depend on how many
there are; more through more processes; and loops that Numba compiles where it is installed (extra 'trees').
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from functools import cache, lru_cache, partial
from threading import Thread, current_thread, main_thread
from typing import Any, TypeVar

from agnosticfair.errors import SettingsError

Task = TypeVar("Task")
Result = TypeVar("Result")

OFTEN = 0.05
"""Seconds between two looks at what worker processes have made."""

_QUEUE: Any = None


def one_thread() -> AbstractContextManager:
    """While it is entered BLAS uses one thread, so that the same rows give the same sums on every
    machine of a kind."""
    return _libraries(len(sys.modules)).limit(limits=1, user_api="blas")


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """The libraries that are loaded, looked for anew once more modules are imported: a search takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def cpus() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def parallel(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    jobs: int = 1,
    on_done: Callable[[Result], Any] | None = None,
) -> list[Result]:
    """What ``work`` makes of every task, in the order of the tasks, in ``jobs`` processes; on_done sees each as it
    arrives.

    >>> parallel(abs, [-1, 2])
    [1, 2]
    """
    return [result for (result,) in walked(partial(_once, work), tasks, jobs, on_done)]


def _once(work: Callable[[Task], Result], task: Task) -> tuple[Result]:
    return (work(task),)


def walked(
    walk: Callable[[Task], Iterable[Result]],
    tasks: Sequence[Task],
    jobs: int = 1,
    on_done: Callable[[Result], Any] | None = None,
) -> list[list[Result]]:
    """As ``parallel``, where a task makes one thing after the other, all in one process: what each made.

    >>> walked(range, [3, 2])
    [[0, 1, 2], [0, 1]]
    """
    if jobs < 1:
        raise SettingsError(f"{jobs} jobs do no work: ask for at least 1")
    results: list[list[Result]] = [[] for _ in tasks]

    def noted(k: int, result: Result) -> None:
        results[k].append(result)
        if on_done is not None:
            on_done(result)

    if min(jobs, len(tasks)) <= 1:
        for k, task in enumerate(tasks):
            for result in walk(task):
                noted(k, result)
        return results
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), context, _notify_by, (queue,))
    try:
        with _ignoring_interrupts():
            running = {pool.submit(_notify, walk, k, task) for k, task in enumerate(tasks)}
        while running:
            done, running = wait(running, timeout=OFTEN, return_when=FIRST_COMPLETED)
            while not queue.empty():
                noted(*queue.get())
            for future in done:
                future.result()
    except BrokenProcessPool:
        raise SettingsError(
            f"one of {jobs} worker processes was ended, most likely for lack of memory: "
            "ask for fewer jobs"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
    return results


def _notify_by(queue: Any) -> None:
    """Of a worker process: where to put what it makes; it ends with the process that started it."""
    global _QUEUE
    _QUEUE = queue
    parent = multiprocessing.parent_process()
    if parent is not None:
        ends_after(parent.join)


def ends_after(waited: Callable[[], Any]) -> None:
    """End this process, whatever it does, as soon as ``waited`` returns: nobody is left to take what it makes."""

    def watch() -> None:
        waited()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _notify(walk: Callable[[Task], Iterable[Any]], k: int, task: Task) -> None:
    for result in walk(task):
        _QUEUE.put((k, result))


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


@cache
def compiled(loop: Callable[..., None]) -> Callable[..., Any] | None:
    """The function, compiled; None without Numba."""
    try:
        from numba import njit
    except ImportError:
        return None
    return njit(cache=True, nogil=True, error_model="numpy")(loop)
