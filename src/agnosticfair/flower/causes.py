"""Why a site is not there, as the coordinator can know it: from what came to the sites' door."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

VISITS = "state/fleet.json"
SILENT = 8.0
"""Seconds without a sign after which a site counts as gone: it asks every second, or beats every four."""

CLOCK = 5.0
"""Seconds that clocks may differ; a signature of a later time is refused."""

Visits = Mapping[str, Mapping[str, Any]]


def identity(public_key: bytes) -> str:
    """How a public key is named in files and logs."""
    return hashlib.sha256(public_key).hexdigest()[:32]


def read_visits(folder: Path) -> Visits:
    """By the identity of a public key, its last request at the sites' door."""
    try:
        return dict(json.loads((folder / VISITS).read_text()))
    except (OSError, ValueError):
        return {}


def why_missing(
    visits: Visits, site: str, known: Mapping[str, str], now: float | None = None
) -> str:
    """Why the site with this key identity does not answer; nothing if it seems to be at work.

    known: all sites' identities, by site.

    >>> why_missing({}, "a", {"north": "a"})
    'it has not connected since the SuperLink was started: start it; if it runs, its own log says what fails'
    """
    now = time.time() if now is None else now
    last = visits.get(site)
    strangers = [k for k, v in visits.items() if k not in known.values() and now - v["seen"] < 60]
    if strangers:
        other = (
            f"but somebody did with a key that is not registered ({strangers[0][:12]}): if that was the site, put its "
            "public key into keys/"
        )
    if last is None:
        if strangers:
            return f"it has not connected, {other}"
        return (
            "it has not connected since the SuperLink was started: start it; if it runs, its own log "
            "says what fails"
        )
    clock = last.get("clock")
    if last["status"] == 401 and clock is not None and abs(clock) > CLOCK:
        side = "ahead of" if clock > 0 else "behind"
        return f"its clock is {abs(clock):.0f} s {side} the coordinator's: set the clocks"
    if last["status"] in (401, 403, 404, 412):
        return "its key was refused: it is not registered (any more)"
    if now - last["seen"] > SILENT:
        since = datetime.fromtimestamp(last["seen"]).strftime("%H:%M:%S")
        if strangers:
            return f"it has not connected since {since}, {other}"
        return f"it has been silent since {since}: its process or its network is down"
    return ""
