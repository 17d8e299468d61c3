"""A client whose rows lie in several files: each subgroup answers by itself, and their sum is the client's."""

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
        return together({name: answer(client, step, payload) for name, client in clients.items()})

    return respond


def makers(folder: Path, roles: Roles, count: int) -> dict[str, Callable[[], Handler]]:
    """What makes the subgroups of a folder of Parquet files, dealt by size, each where it is called."""
    if count < 1:
        raise SettingsError(f"{count} subgroups: give one or more")
    files = sorted(folder.glob("*.parquet"), key=lambda f: (-f.stat().st_size, f.name))
    if len(files) < count:
        raise SettingsError(
            f"{str(folder)!r} has {len(files)} Parquet files for {count} subgroups: split them, or ask for fewer"
        )
    dealt: list[list[Path]] = [[] for _ in range(count)]
    for file in files:
        min(dealt, key=lambda group: sum(f.stat().st_size for f in group)).append(file)
    digits = len(str(count - 1))
    named = {f"subgroup-{k:0{digits}}": group for k, group in enumerate(dealt)}
    return {key: partial(over_files, key, group, roles) for key, group in named.items()}
