"""A fit between two rounds, on disk: named arrays behind a header of JSON, with a checksum.

Nothing in it is run when it is read. Any frozen dataclass of this package's state can stand in it;
bits survive, so that a resumed fit is the fit that was never interrupted.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.data.storage import write_atomically
from agnosticfair.errors import ModelError, SettingsError
from agnosticfair.server.solvers import SOLVERS, TRAINERS, SolverState

FORMAT = "agnosticfair-checkpoint-3"
FILE = "checkpoint.safetensors"


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _record(name: str) -> Any:
    """The frozen dataclass of that name, of this package or of a registered solver's module; KeyError for all else."""
    module, _, kind = name.partition(":")
    solvers: tuple[Any, ...] = (*SOLVERS.values(), *TRAINERS.values())
    known = module.startswith("agnosticfair.") or module in {s.init.__module__ for s in solvers}
    record: Any = getattr(sys.modules.get(module), kind, None) if known else None
    params = getattr(record, "__dataclass_params__", None)
    if not isinstance(record, type) or params is None or not params.frozen:
        raise KeyError(name)
    return record


def freeze(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A value as JSON, with its arrays put aside under numbers.

    >>> freeze((1, np.zeros(2)), kept := {}), kept
    ({'tuple': [1, {'array': '0'}]}, {'0': array([0., 0.])})
    """
    if isinstance(value, np.ndarray | np.generic):
        name = str(len(arrays))
        arrays[name] = np.array(value, order="C")
        return {"array" if isinstance(value, np.ndarray) else "number": name}
    if is_dataclass(value) and not isinstance(value, type):
        inner = {f.name: freeze(getattr(value, f.name), arrays) for f in fields(value)}
        return {"is": _name(type(value)), "of": inner}
    if isinstance(value, Mapping):
        return {"dict": {key: freeze(inner, arrays) for key, inner in value.items()}}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [freeze(inner, arrays) for inner in value]}
    return value


def thaw(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The inverse of ``freeze``; nothing but frozen dataclasses is made.

    >>> thaw({"tuple": [1, {"array": "0"}]}, {"0": np.zeros(2)})
    (1, array([0., 0.]))
    """
    match value:
        case {"array": name}:
            return np.array(arrays[name])
        case {"number": name}:
            return arrays[name][()]
        case {"is": name, "of": inner}:
            return _record(name)(**{key: thaw(item, arrays) for key, item in inner.items()})
        case {"dict": inner}:
            return {key: thaw(item, arrays) for key, item in inner.items()}
        case {"tuple": inner}:
            return tuple(thaw(item, arrays) for item in inner)
        case {"list": inner}:
            return [thaw(item, arrays) for item in inner]
    return value


def save(folder: Path, run: Mapping[str, Any], state: SolverState, events: list[dict]) -> None:
    """Write the checkpoint, whole or not at all. run: what must be the same for it to be resumed."""
    from safetensors.numpy import save as to_bytes

    arrays: dict[str, np.ndarray] = {}
    frozen = freeze({"run": dict(run), "state": state, "events": events}, arrays)
    content = to_bytes(arrays, {"agnosticfair": json.dumps({"format": FORMAT, "all": frozen})})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically({folder / FILE: hashlib.sha256(content).digest() + content})
    except OSError as error:
        raise SettingsError(
            f"cannot write a checkpoint to {str(folder)!r}: {error.strerror}; name another folder"
        ) from None


def load(
    folder: Path, run: Mapping[str, Any], restated: bool = False
) -> tuple[SolverState, list[dict]] | None:
    """State and events of the checkpoint in this folder; None if there is none yet.

    A damaged checkpoint, or one of another run, is refused and never overwritten; except that a
    problem just ``restated`` takes the place of the one before it.
    """
    path = folder / FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ModelError(f"cannot read the checkpoint {str(path)!r}: {error.strerror}") from None
    if len(content) < 40 or hashlib.sha256(content[32:]).digest() != content[:32]:
        raise ModelError(
            f"the checkpoint {str(path)!r} is damaged: remove it to begin anew, or restore a copy"
        )
    checkpoint = _parse(content[32:], path)
    for name, value in run.items():
        if checkpoint["run"].get(name) != value and restated:
            return None
        if checkpoint["run"].get(name) != value:
            raise SettingsError(
                f"the checkpoint {str(path)!r} is of a run that differs in {name}: name another folder, "
                "or remove it to begin anew"
            )
    return checkpoint["state"], checkpoint["events"]


def _parse(content: bytes, path: Path) -> dict[str, Any]:
    """What a file with a good checksum holds; a bad one then is of another version."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    try:
        size = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["agnosticfair"])
        if header["format"] != FORMAT:
            raise ValueError("format")
        return thaw(header["all"], from_bytes(content))
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"the checkpoint {str(path)!r} is of another version ({type(error).__name__}): finish the fit "
            "with that version, or remove it to begin anew"
        ) from None
