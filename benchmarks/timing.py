"""What the benchmarks share: times of rivals, taken in turn, and the median of their ratios."""

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

from threadpoolctl import threadpool_limits

Work = Callable[[], object]


def seconds(work: Work) -> float:
    """Time of one call."""
    begin = perf_counter()
    work()
    return perf_counter() - begin


def in_turn(one: Work, other: Work, repeats: int, threads: int) -> tuple[list[float], list[float]]:
    """Times of both with so many BLAS threads, after a call of each to warm up.

    The two are called in turn, and who is first alternates, so that a machine that slows down or is
    shared slows both.
    """
    with threadpool_limits(threads):
        one(), other()
        times: tuple[list[float], list[float]] = ([], [])
        for k in range(repeats):
            for which in (0, 1) if k % 2 == 0 else (1, 0):
                times[which].append(seconds((one, other)[which]))
    return times


def say(what: str, one: Sequence[float], other: Sequence[float]) -> None:
    """Median and range of the ratios of ``other`` to ``one``, as one line."""
    found = [b / a for a, b in zip(one, other, strict=True)]
    print(f"{what}: {median(found):.2f} (from {min(found):.2f} to {max(found):.2f})", flush=True)
