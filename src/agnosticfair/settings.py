"""What a setting may be, in words and as a test. A value of another kind is refused by its name."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any, NamedTuple

from agnosticfair.errors import SettingsError


class Kind(NamedTuple):
    """Values of a type that pass a test."""

    words: str
    good: Callable[[Any], bool]
    type: Any = Real


POSITIVE = Kind("a positive number", lambda v: v > 0)
NOT_NEGATIVE = Kind("a number, 0 or more", lambda v: v >= 0)
SHARE = Kind("a number from 0 to 1", lambda v: 0 <= v <= 1)
COUNT = Kind("a whole number, 1 or more", lambda v: v >= 1, Integral)
NATURAL = Kind("a whole number, 0 or more", lambda v: v >= 0, Integral)


def require(kind: Kind | type, **values: object) -> None:
    """Raise for the first value that is not of the kind, or of the type.

    >>> require(POSITIVE, tau=0.1, bound="5")
    Traceback (most recent call last):
    agnosticfair.errors.SettingsError: bound is '5'; it must be a positive number
    """
    if isinstance(kind, type):
        kind = Kind(f"a {kind.__name__}", lambda v: True, kind)
    for what, value in values.items():
        good = isinstance(value, kind.type) and kind.good(value)
        if not good or (
            isinstance(value, bool) and kind.type is not bool
        ):  # True is no number here
            raise SettingsError(f"{what} is {reprlib.repr(value)}; it must be {kind.words}")


def require_name(what: str, value: object, known: Iterable[str]) -> None:
    """Raise unless the value is a name that is known."""
    known = tuple(known)
    if not isinstance(value, str) or value not in known:
        raise SettingsError(f"unknown {what} {reprlib.repr(value)}; there are: {', '.join(known)}")
