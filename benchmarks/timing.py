"""What the benchmarks share: times of rivals, taken in turn, and the median of their ratios."""

from collections.abc import Callable, Mapping, Sequence
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
    """Times of both with so many BLAS threads, after a call of each to warm up."""
    found = all_in_turn({"one": one, "other": other}, repeats, threads)
    return found["one"], found["other"]


def all_in_turn(works: Mapping[str, Work], repeats: int, threads: int) -> dict[str, list[float]]:
    """Times of all, by name, with so many BLAS threads, after a call of each to warm up.

    They are called in turn, and who is first alternates, so that a machine that slows down or is shared slows all.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    with threadpool_limits(threads):
        for work in works.values():
            work()
        for k in range(repeats):
            for name in works if k % 2 == 0 else reversed([*works]):
                times[name].append(seconds(works[name]))
    return times


def say(what: str, one: Sequence[float], other: Sequence[float]) -> None:
    """Median and range of the ratios of ``other`` to ``one``, as one line."""
    found = [b / a for a, b in zip(one, other, strict=True)]
    print(f"{what}: {median(found):.2f} (from {min(found):.2f} to {max(found):.2f})", flush=True)
