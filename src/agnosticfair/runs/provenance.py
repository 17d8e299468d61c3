"""What a run leaves in its folder for ``report``, besides its own results: ``history.json``, how a fit came about; and
with what, from what and by which command the numbers were made.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shlex
from collections.abc import Mapping
from contextvars import ContextVar
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agnosticfair.data.stream import Stream
    from agnosticfair.data.table import Table
    from agnosticfair.federation import Fit

HISTORY = "agnosticfair-history-1"
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

    >>> without_password("https://me:p@ss@host/runs")
    'https://host/runs'
    """
    return re.sub(r"//[^/\s]*@", "//", text)


def history(fitted: Fit) -> dict[str, Any]:
    """How a fit came about, as JSON."""
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
    shown["shadow_price"], shown["estimated"] = fitted.price_of_limit, fitted.estimated
    shown["warnings"] = [] if fitted.collapsed is None else [fitted.collapsed]
    if (rule := of_rule(fitted)) is not None:
        shown["rule"] = plain(rule)
    return {"format": HISTORY, **about, **content, **shown}


def run_files(
    fitted: Fit, clients: Mapping[str, Table | Stream], certificate: Mapping[str, Any], **about: Any
) -> dict[str, bytes]:
    """Model, history and certificate of a fit, as a deployed run leaves them."""
    about = {"certificate": certificate["sentence"], **about}
    files = {"model.safetensors": fitted.model.to_bytes(), "certificate.json": as_json(certificate)}
    pages = history(fitted) | provenance(clients) | about | {"files": digests(files)}
    return {**files, "history.json": as_json(pages)}


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """What tells whether files belong to one run, by file name."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def as_json(content: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(content, indent=1, default=float)}\n".encode()
