"""Checks on what came from outside, a model file or a client: ValueError says what is wrong."""

from __future__ import annotations

from typing import Any

LARGEST = 1e100  # beyond it squares and ratios overflow: as useless as infinity


def record(value: object, keys: set[str]) -> dict[str, Any]:
    """The value if it is a JSON object with exactly these keys.

    >>> record({"n": 3}, {"n"})
    {'n': 3}
    """
    if not isinstance(value, dict) or set(value) != keys:
        raise ValueError(f"it should have exactly the entries {', '.join(sorted(keys))}")
    return value


def mapping(value: object, what: str) -> dict[str, Any]:
    """The value if it is a JSON object."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{what} should map names to values")
    return value


def pieces(value: object, size: int, what: str) -> tuple[Any, ...]:
    """The value as a tuple, if it is a list of that size."""
    if not isinstance(value, list | tuple) or len(value) != size:
        raise ValueError(f"{what} should be a list of {size}")
    return tuple(value)


def texts(value: object, what: str) -> tuple[str, ...]:
    """The value as a tuple, if it is a list of distinct strings.

    >>> texts(["a", "b"], "the vocabulary")
    ('a', 'b')
    """
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
        raise ValueError(f"{what} should be a list of strings")
    if len(set(value)) != len(value):
        raise ValueError(f"{what} has an entry twice")
    return tuple(value)


def limits(value: object, what: str) -> tuple[float, float]:
    """The value as (low, high), if it is two finite numbers in that order.

    >>> limits([17, 90], "the range of 'age'")
    (17.0, 90.0)
    """
    for number in pieces(value, 2, what):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"{what} should be two numbers")
        if not abs(number) <= LARGEST:
            raise ValueError(f"{what} should be finite")
    low, high = (float(number) for number in pieces(value, 2, what))
    if low > high:
        raise ValueError(f"{what} has its low end above its high end")
    return low, high


def count(value: object, what: str) -> int:
    """The value if it is a whole number of rows."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError(f"{what} should be a whole number, zero or more")
    return value
