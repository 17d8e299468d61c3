"""One thread for linear algebra: with several, the bits of a product depend on how many there are."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager


def one_thread() -> AbstractContextManager:
    """While it is entered BLAS uses one thread, so that the same rows give the same sums on every
    machine of a kind. More processors are of use through more processes (``workers``)."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="blas")


def cpus() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
