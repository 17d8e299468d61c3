"""Frozen records as JSON and named arrays, and back; what is read is checked field by field, by its type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin

import numpy as np

from agnosticfair.data import wire
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


def put_together(kind: type[T], plain: object, arrays: Arrays) -> T:
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
