"""What the benchmarks share: times of rivals, taken in turn, and the median of their ratios."""

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter


def seconds(work: Callable[[], object]) -> float:
    """Time of one call."""
    begin = perf_counter()
    work()
    return perf_counter() - begin


def ratios(one: Callable[[], object], other: Callable[[], object], repeats: int) -> list[float]:
    """Time of ``other`` divided by that of ``one``, after a call of each to warm up.

    The two are called in turn, and who is first alternates, so that a machine that slows down or is
    shared slows both.
    """
    one(), other()
    found = []
    for k in range(repeats):
        pair = (one, other) if k % 2 == 0 else (other, one)
        times = {work: seconds(work) for work in pair}
        found.append(times[other] / times[one])
    return found


def say(what: str, found: Sequence[float]) -> None:
    """Median and range, as one line."""
    print(f"{what}: {median(found):.2f} (from {min(found):.2f} to {max(found):.2f})", flush=True)
