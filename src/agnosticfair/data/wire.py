"""Records as plain JSON, and as JSON with named arrays, and back by the types of their fields: what comes from outside
is not trusted, and ValueError says what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from sys import float_info
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from agnosticfair.data import wire
from agnosticfair.data.encoding import Encoding
from agnosticfair.data.summary import SummaryStatistics

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


R = TypeVar("R")
Arrays = Mapping[str, np.ndarray]


def taken_apart(record: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The plain values and the arrays of a record; an inner record's arrays are named 'inner.name'.

    >>> from agnosticfair.mathematics.fairness import Surrogate
    >>> taken_apart(Surrogate("sigmoid", 0.5))
    ({'kind': 'sigmoid', 'temperature': 0.5}, {})
    """
    plain: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    kind: Any = type(record)
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, np.ndarray):
            arrays[f.name] = value
        elif isinstance(value, Encoding | SummaryStatistics):
            plain[f.name] = value.to_json()
        elif isinstance(value, Mapping) and _names_arrays(wire.hints_of(kind)[f.name]):
            plain[f.name] = sorted(value)
            arrays |= {f"{f.name}.{name}": v for name, v in value.items()}
        elif is_dataclass(value):
            plain[f.name], inner = taken_apart(value)
            arrays |= {f"{f.name}.{name}": v for name, v in inner.items()}
        elif isinstance(value, tuple) and value and all(map(is_dataclass, value)):
            plain[f.name] = [taken_apart(v)[0] for v in value]
        elif value is not None:
            plain[f.name] = value
    return plain, arrays


def _names_arrays(hint: Any) -> bool:
    """Whether the type is a mapping of arrays by name."""
    return get_origin(hint) is Mapping and get_args(hint)[1] is np.ndarray


def put_together(kind: type[R], plain: object, arrays: Arrays) -> R:
    """The inverse of ``taken_apart``; ValueError says which field is wrong."""
    if not isinstance(plain, dict):
        raise ValueError(f"{kind.__name__} is not a record")
    hints = wire.hints_of(kind)  # type: ignore[arg-type]
    if strange := {*plain, *(name.partition(".")[0] for name in arrays)} - {*hints}:
        raise ValueError(f"{kind.__name__} has no {sorted(strange)[0]!r}")
    return kind(**{name: _field(name, hint, plain, arrays) for name, hint in hints.items()})


def _field(name: str, hint: Any, plain: Mapping[str, Any], arrays: Arrays) -> Any:
    """One field, of plain values, of arrays or of both."""
    options = get_args(hint) if NoneType in get_args(hint) else (hint,)
    inner = {k.partition(".")[2]: v for k, v in arrays.items() if k.startswith(f"{name}.")}
    if NoneType in options and name not in plain and name not in arrays and not inner:
        return None
    kind = options[0]
    if kind is np.ndarray and name in arrays:
        return arrays[name]
    if name not in plain:
        raise ValueError(f"{name!r} is missing")
    if _names_arrays(kind):
        if plain[name] != sorted(inner):
            raise ValueError(f"{name!r} has not the arrays that it names")
        return inner
    if kind in (Encoding, SummaryStatistics):
        return kind.from_json(plain[name])
    if isinstance(kind, type) and is_dataclass(kind):
        return put_together(kind, plain[name], inner)
    return wire.read(hint, plain[name], repr(name))
