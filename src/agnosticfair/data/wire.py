"""Records as plain JSON, and back by the types of their fields: what comes from outside is not trusted, and ValueError
says what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from sys import float_info
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
LARGEST = 1e100
"""Of a number: beyond it squares and ratios overflow."""

WORDS = {str: "a text", int: "a whole number", float: "a finite number", bool: "true or false"}


def plain(value: Any) -> Any:
    """Lists, mappings and numbers; a record without what is empty by default.

    >>> from dataclasses import make_dataclass
    >>> plain(make_dataclass("Point", ["x", ("names", tuple, ())])((1, 2)))
    {'x': [1, 2]}
    """
    if is_dataclass(value):
        pairs = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: plain(v) for f, v in pairs if _required(f) or v not in (None, (), {})}
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, tuple) else value


def record(kind: type[T], value: object) -> T:
    """The record of a mapping, which has every field without a default, and no others.

    >>> from dataclasses import make_dataclass
    >>> record(make_dataclass("Point", [("x", float)]), {"x": 3}).x
    3.0
    """
    entries, hints = mapping(value, kind.__name__), hints_of(kind)  # type: ignore[arg-type]
    required = {f.name for f in fields(kind) if _required(f)}  # type: ignore[arg-type]
    optional = {name for name, hint in hints.items() if NoneType in get_args(hint)}
    for name in sorted({*entries} - {*hints}):
        raise ValueError(f"{kind.__name__} has no entry {name!r}")
    for name in sorted(required - optional - {*entries}):
        raise ValueError(f"{name!r} is missing")
    given = {name: read(hints[name], entry, repr(name)) for name, entry in entries.items()}
    return kind(**dict.fromkeys(required & optional), **given)


def read(kind: Any, value: object, what: str) -> Any:
    """A value of a type: a text, a finite number, a record, a tuple or mapping of them, or one of several types.

    >>> read(tuple[str, float], ["age", 17], "a column")
    ('age', 17.0)
    """
    inner, origin = get_args(kind), get_origin(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return record(kind, value)
    if origin in (Union, UnionType):
        return _first_of(inner, value, what)
    if origin is Mapping:
        known = sorted(mapping(value, what).items())
        return {k: read(inner[1], v, f"{what} of {k!r}") for k, v in known}
    if origin is tuple:
        return _tuple(inner, value, what)
    if kind is float and type(value) in (int, float):
        if abs(value) <= float_info.max:  # type: ignore[arg-type]
            return float(value)  # type: ignore[arg-type]
    elif kind is Any or type(value) is kind:
        return value
    raise ValueError(f"{what} should be {WORDS.get(kind, kind)}")


def _first_of(kinds: Sequence[Any], value: object, what: str) -> Any:
    for kind in kinds:
        try:
            return read(kind, value, what)
        except ValueError:
            continue
    raise ValueError(f"{what} is of the wrong type")


def _tuple(kinds: Sequence[Any], value: object, what: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{what} should be a list")
    kinds = [kinds[0]] * len(value) if kinds[1:] == (Ellipsis,) else kinds
    if len(value) != len(kinds):
        raise ValueError(f"{what} should be a list of {len(kinds)}")
    entry = what if what.startswith("an entry") else f"an entry of {what}"
    return tuple(read(kind, v, entry) for kind, v in zip(kinds, value, strict=True))


def _required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


@lru_cache(maxsize=64)
def hints_of(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def mapping(value: object, what: str) -> dict[str, Any]:
    """The value if it is a JSON object."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{what} should map names to values")
    return value


def distinct(values: Iterable[str], what: str) -> None:
    """Raise if a value is there twice.

    >>> distinct(["a", "b"], "the vocabulary")
    """
    values = [*values]
    if len({*values}) != len(values):
        raise ValueError(f"{what} has an entry twice")


def ascending(edges: Sequence[float], what: str) -> None:
    """Raise unless these edges of bins ascend, none beyond LARGEST."""
    if list(edges) != sorted({*edges}) or not all(abs(edge) <= LARGEST for edge in edges):
        raise ValueError(f"{what} should ascend")


def in_order(low: float, high: float, what: str) -> None:
    """Raise unless the low end of a range lies below the high one, and none beyond LARGEST."""
    if not -LARGEST <= low <= high <= LARGEST:
        raise ValueError(f"{what} is {low:g} to {high:g}: its ends should be finite and ascend")


def texts(value: object, what: str) -> tuple[str, ...]:
    """The value if it is a list of distinct texts.

    >>> texts(["a", "b"], "the groups")
    ('a', 'b')
    """
    values: tuple[str, ...] = read(tuple[str, ...], value, what)
    distinct(values, what)
    return values
