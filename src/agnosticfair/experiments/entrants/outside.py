"""An entrant from a file of anybody's, outside this package."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from agnosticfair.errors import SettingsError
from agnosticfair.experiments.entrants.entrant import Entrant


def is_file(name: str) -> bool:
    """Whether an entrant is named by its file.

    >>> is_file("fairfl"), is_file("~/mine.py")
    (False, True)
    """
    return name.endswith(".py")


@cache
def from_file(path: str) -> Entrant:
    """``ENTRANT`` of a Python file, which is run for it."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise SettingsError(f"there is no file {path!r} with an entrant: check its path")
    name = f"agnosticfair_entrant_{digest(path)[:12]}"
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and pickle look for what it defines
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SettingsError(f"{path!r} cannot be run: {type(error).__name__}: {error}") from error
    found = getattr(module, "ENTRANT", None)
    if not isinstance(found, Entrant):
        raise SettingsError(
            f"{path!r} has no entrant: end it with ENTRANT = Entrant(name, fit, note), which "
            "agnosticfair.experiments.entrants has"
        )
    return found


def digest(path: str) -> str:
    """SHA-256 of the file, which stands beside its numbers."""
    return hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest()
