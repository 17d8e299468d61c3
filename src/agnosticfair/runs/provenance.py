"""What a run leaves in its folder for ``report`` and ``watch``, besides its own results.

``history.json`` says how a fit came about; ``rounds.jsonl`` grows by a line per round while it runs;
``provenance`` is with what, from what and by which command the numbers were made.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agnosticfair.errors import SettingsError

if TYPE_CHECKING:
    from agnosticfair.data.stream import Stream
    from agnosticfair.data.table import Table
    from agnosticfair.federation import Fit
    from agnosticfair.methods import Method

HISTORY = "agnosticfair-history-1"
ROUNDS_FILE = "rounds.jsonl"
COMMAND: ContextVar[tuple[str, ...]] = ContextVar("COMMAND", default=())
"""The program that runs and its arguments, if any."""


def provenance(tables: Mapping[str, Table | Stream]) -> dict[str, Any]:
    """Command, versions, and how many rows there are.  A digest of rows would tell whoever knows all rows but one
    whether that one is there."""
    names = ("agnosticfair", "numpy", "scipy")
    versions = {"python": platform.python_version(), **{name: version(name) for name in names}}
    command = shlex.join(map(without_password, COMMAND.get())) or None
    data = {k: {"rows": len(t)} for k, t in tables.items()}
    return {"command": command, "versions": versions, "data": data}


def without_password(text: str) -> str:
    """The text without the user and the password that an address in it may hold.

    >>> without_password("mlflow:https://me:p@ss@host/runs")
    'mlflow:https://host/runs'
    """
    return re.sub(r"//[^/\s]*@", "//", text)


def history(fitted: Fit, tables: Sequence[Table] = ()) -> dict[str, Any]:
    """How a fit came about, as JSON.  tables: its rows, where they are here, by which a rule's trees are explained."""
    from dataclasses import asdict

    from agnosticfair.auditing.certificate import plain
    from agnosticfair.runs.ruled import about as of_rule

    content = {
        k: getattr(fitted, k) for k in ("outcome", "rounds", "outcomes", "seconds", "events")
    }
    model = fitted.model
    about: dict[str, Any] = {
        "sensitive_features": model.sensitive_features,
        "positive": model.positive,
    }
    about |= {"method": plain(asdict(fitted.method)), "seed": model.seed, "rows": model.rows}
    shown = {"history": plain(list(fitted.history)), "alpha": fitted.alpha.tolist()}
    shown["shadow_price"] = fitted.price_of_limit
    if (rule := of_rule(fitted, tables)) is not None:
        shown["rule"] = plain(rule)
    return {"format": HISTORY, **about, **content, **shown}


def run_files(
    fitted: Fit, clients: Mapping[str, Table | Stream], certificate: Mapping[str, Any], **about: Any
) -> dict[str, bytes]:
    """Model, history and certificate of a fit, as a deployed run leaves them."""
    about = {"certificate": certificate["sentence"], **about}
    files = {"model.safetensors": fitted.model.to_bytes(), "certificate.json": as_json(certificate)}
    tables = [] if any(t.streamed for t in clients.values()) else [*clients.values()]
    pages = (
        history(fitted, cast("Sequence[Table]", tables))
        | provenance(clients)
        | about
        | {"files": digests(files)}
    )
    return {**files, "history.json": as_json(pages)}


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """What tells whether files belong to one run, by file name."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def as_json(content: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(content, indent=1, default=float)}\n".encode()


def rounds(folder: Path, method: Method, clients: int, resume: bool) -> Callable[[dict], None]:
    """A function that adds each round to the folder's file, which begins anew unless a fit resumes."""
    path = folder / ROUNDS_FILE
    tau = method.fairness.tau if method.fairness else None
    begins = {
        "method": method.name,
        "max_rounds": method.max_rounds,
        "tau": tau,
        "clients": clients,
    }
    begins |= provenance({})

    def add(entry: Mapping[str, Any], mode: str = "a") -> None:
        try:
            with path.open(mode) as file:
                file.write(json.dumps(entry, default=float) + "\n")
        except OSError as error:
            why = f"{error.strerror}; name another folder"
            raise SettingsError(f"cannot write to {str(path)!r}: {why}") from None

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"{error.strerror}; name another folder"
        raise SettingsError(f"cannot make {str(folder)!r}: {why}") from None
    if not (resume and path.exists()):
        add(begins, "w")
    return add


def read_rounds(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the file of rounds says of the fit, and its rounds; a round said twice counts as last said.

    A last line that is still being written is left for the next time.
    """
    begins: dict[str, Any] = {}
    entries: list[dict[str, Any]] = []
    try:
        lines = (folder / ROUNDS_FILE).read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    for line in lines:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if not isinstance(entry, dict):
            continue
        if isinstance(entry.get("round"), int):
            entries = [*(e for e in entries if e["round"] < entry["round"]), entry]
        elif "round" not in entry:
            begins = entry
    return begins, entries
