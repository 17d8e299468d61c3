"""Where a site's ledgers lie, and which one is of some rows: by their content under a secret key, not by a name.

The same rows have the same ledger, in whatever file or folder they lie. Rows of which half or more are those of another
ledger (a file to which rows were added, say) begin with what was spent there.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from agnosticfair.data.rows import contents, marked
from agnosticfair.data.storage import alone, write_atomically
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError
from agnosticfair.protocol.privacy.ledger import Ledger

VARIABLE = "AGNOSTICFAIR_STATE"
"""Names the folder of what this user's sites keep, where it is not the system's usual one."""

KEY = "rows.key"
SAME = 0.5
"""The share of the smaller of two sets of rows from which on both have one budget."""


def ledger_folder() -> Path:
    """The standard place of ledgers, outside any federation's folder, so that a copied folder has no budget of its
    own."""
    named, state = os.environ.get(VARIABLE), os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return (Path(named) if named else base / "agnosticfair") / "ledgers"


def ledger_of(
    table: Table, epsilon: float, delta: float, unit: str = "row", folder: Path | None = None
) -> Ledger:
    """The ledger of these rows.  folder: of ledgers; the standard place unless said."""
    place = ledger_folder() if folder is None else folder
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        marks = np.sort(marked(contents(table), _key(place)))
        name = hashlib.sha256(marks.tobytes()).hexdigest()[:32]
        rows = place / f"{name}.rows"
        if not rows.exists():
            write_atomically({rows: np.unique(marks).tobytes()}, 0o600)
    except OSError as error:
        raise SettingsError(
            f"cannot keep a ledger in {str(place)!r}: {error.strerror}; name another folder, or set {VARIABLE}"
        ) from None
    others = Relatives(place, name, np.unique(marks))
    return Ledger(epsilon, delta, path=place / f"{name}.json", unit=unit, others=others)


@dataclass
class Relatives:
    """The ledgers of mostly the same rows.  marks: of these rows, sorted.  known: by name whether another is one."""

    folder: Path
    name: str
    marks: np.ndarray
    known: dict[str, bool] = field(default_factory=dict)

    def __call__(self) -> list[Path]:
        """Their files, those that came later among them."""
        for rows in self.folder.glob("*.rows"):
            if rows.stem != self.name and rows.stem not in self.known:
                self.known[rows.stem] = self._same(np.frombuffer(rows.read_bytes(), np.uint64))
        files = [self.folder / f"{name}.json" for name, same in self.known.items() if same]
        return [file for file in files if file.exists()]

    def _same(self, other: np.ndarray) -> bool:
        common = len(np.intersect1d(self.marks, other, assume_unique=True))
        return common > 0 and common >= SAME * min(len(self.marks), len(other))


def _key(folder: Path) -> bytes:
    """The key of the site's rows, made at the first use: a ledger's name tells nobody else whose rows it is of."""
    path = folder / KEY
    with alone(path):
        if not path.exists():
            write_atomically({path: secrets.token_bytes(32)}, 0o600)
    key = path.read_bytes()
    if len(key) != 32:
        raise SettingsError(f"the key {str(path)!r} is damaged: restore it, or nothing is answered")
    return hmac.digest(key, b"agnosticfair ledgers", "sha256")
