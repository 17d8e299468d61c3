"""Frozen records as JSON and named arrays, and back; what is read is checked field by field, by its type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from agnosticfair.data.encoding import Encoding
from agnosticfair.data.summary import SummaryStatistics

T = TypeVar("T")
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
        elif isinstance(value, Mapping) and _names_arrays(_hints(kind)[f.name]):
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


def put_together(kind: type[T], plain: object, arrays: Arrays) -> T:
    """The inverse of ``taken_apart``; ValueError says which field is wrong."""
    if not isinstance(plain, dict):
        raise ValueError(f"{kind.__name__} is not a record")
    hints = _hints(kind)  # type: ignore[arg-type]
    if strange := {*plain, *(name.partition(".")[0] for name in arrays)} - {*hints}:
        raise ValueError(f"{kind.__name__} has no {sorted(strange)[0]!r}")
    return kind(**{name: _field(name, hint, plain, arrays) for name, hint in hints.items()})


@lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


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
    return _value(name, hint, plain[name])


def _value(name: str, hint: Any, value: Any) -> Any:
    """A plain value as its type says: numbers, texts, truth values, and tuples and mappings of them."""
    if isinstance(hint, type) and is_dataclass(hint):
        return put_together(hint, value, {})
    if get_args(hint):
        return _composed(name, hint, value)
    if hint is float and type(value) in (int, float) and np.isfinite(value):
        return float(value)
    if hint is Any or (type(value) is hint and hint is not float):
        return value
    raise ValueError(f"{name!r} is of the wrong type")


def _composed(name: str, hint: Any, value: Any) -> Any:
    """The same of a mapping, a tuple, or a union, of which the first type is taken that fits."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Mapping and isinstance(value, dict):
        return {key: _value(name, inner[1], v) for key, v in value.items()}
    if kind is tuple and isinstance(value, list | tuple):
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_value(name, inner[0], v) for v in value)
        if len(inner) == len(value):
            return tuple(_value(name, h, v) for h, v in zip(inner, value, strict=True))
    for option in inner if kind not in (Mapping, tuple) else ():
        try:
            return _value(name, option, value)
        except ValueError:
            continue
    raise ValueError(f"{name!r} is of the wrong type")
