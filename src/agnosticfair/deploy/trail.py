"""A site's log: one line of JSON per event, appended, rotated, without a value of any row.

A data-protection officer can read from it when the site was asked what, by which run, how many bytes left,
and what it refused.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MAX_BYTES = 5_000_000
MAX_FILES = 10
"""How many full files are kept beside the present one: NAME.1 is the latest of them."""


@dataclass
class Trail:
    """path: the present file.  counts: events since the start, for the metrics."""

    path: Path
    max_bytes: int = MAX_BYTES
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, event: str, **about: Any) -> None:
        """Add an event with the time; what is empty is left out."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        fields = {name: value for name, value in about.items() if value != ""}
        line = json.dumps({"time": now, "event": event, **fields}, default=str) + "\n"
        kind = (event, str(about.get("step", "")))
        with self._lock:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.sent += int(about.get("answered", 0))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size + len(line) > self.max_bytes:
                self._rotate()
            number = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
            with os.fdopen(number, "w") as file:
                file.write(line)

    def _rotate(self) -> None:
        for number in range(MAX_FILES, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            newer = older.with_suffix(f".{number - 1}") if number > 1 else self.path
            if newer.exists():
                newer.replace(older)
