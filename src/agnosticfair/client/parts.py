"""A client whose rows lie in several files: each part answers by itself, and their sum is the client's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.files import Roles, read_source
from agnosticfair.errors import SettingsError
from agnosticfair.protocol.together import together

Handler = Callable[[str, Any], Any]


def over_files(key: str, files: Sequence[str | Path], roles: Roles) -> Handler:
    """A function from (step, payload) to the sum of what the files' rows answer."""
    who = f"client {key!r}"
    clients = {str(f): Client(key, read_source(f, roles, who=who)) for f in files}

    def respond(step: str, payload: Any) -> Any:
        return together({name: answer(held, step, payload) for name, held in clients.items()})

    return respond


def makers(folder: Path, roles: Roles, parts: int) -> dict[str, Callable[[], Handler]]:
    """What makes the parts of a folder of Parquet files, dealt by size, each where it is called."""
    if parts < 1:
        raise SettingsError(f"{parts} parts: give one or more")
    files = sorted(folder.glob("*.parquet"), key=lambda f: (-f.stat().st_size, f.name))
    if len(files) < parts:
        raise SettingsError(
            f"{str(folder)!r} has {len(files)} Parquet files for {parts} parts: split them, or ask for fewer"
        )
    dealt: list[list[Path]] = [[] for _ in range(parts)]
    for file in files:
        min(dealt, key=lambda held: sum(f.stat().st_size for f in held)).append(file)
    digits = len(str(parts - 1))
    named = {f"part-{k:0{digits}}": held for k, held in enumerate(dealt)}
    return {key: partial(over_files, key, held, roles) for key, held in named.items()}
