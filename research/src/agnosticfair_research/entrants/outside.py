"""An entrant from a file of anybody's, outside this package."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from agnosticfair.errors import SettingsError
from agnosticfair_research.entrants.entrant import Entrant


def is_file(name: str) -> bool:
    """Whether an entrant is named by its file.

    >>> is_file("fairfl"), is_file("~/mine.py")
    (False, True)
    """
    return name.endswith(".py")


@cache
def from_file(path: str) -> Entrant:
    """``ENTRANT`` of a Python file, which is run for it; or its ``fit``, under the file's name, with the first line of
    its words as the note."""
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
    entrant, fit = getattr(module, "ENTRANT", None), getattr(module, "fit", None)
    if isinstance(entrant, Entrant):
        return entrant
    if entrant is None and callable(fit):
        words = (module.__doc__ or fit.__doc__ or "").strip().splitlines()
        return Entrant(file.stem, fit, words[0].rstrip(".") if words else "of a file")
    raise SettingsError(
        f"{path!r} has no entrant: it needs fit(train, limit), or, to say more of it, ENTRANT = Entrant(name, fit, "
        "note), which agnosticfair_research.entrants has"
    )


def digest(path: str) -> str:
    """SHA-256 of the file, which stands beside its numbers."""
    return hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest()
