"""States of several sites added up under masks: whoever adds sees the total, and no site's own counts.

Sites meet in a folder that all can write to. Each puts a signed masking key there; once all keys are there, each
puts its counts under masks there, once; whoever holds the folder then adds them up, to the bits of plain addition.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, ClassVar

import numpy as np

from agnosticfair.data.storage import write_atomically
from agnosticfair.errors import DataError, FederationError, ModelError
from agnosticfair.monitoring.baseline import Baseline
from agnosticfair.monitoring.monitor import fresh_state
from agnosticfair.monitoring.state import MonitorState
from agnosticfair.protocol import messages
from agnosticfair.protocol.questions import UNCOUNTED, Shapes, Task
from agnosticfair.protocol.secure.keys import Identity, Roster
from agnosticfair.protocol.secure.site import AGREE, KEYS, SecureSite
from agnosticfair.protocol.secure.totals import Opened, total

SESSION = "session"


@dataclass(frozen=True)
class Watched:
    """What is asked of every site: its counts under one baseline."""

    step: ClassVar[str] = "watched"
    baseline: str
    counts: tuple[int, ...]
    values: int

    def shapes(self, task: Task) -> Shapes:
        return {"counts": self.counts, "values": (self.values,), "rows": (2,)}


def asked(baseline: Baseline) -> messages.Broadcast[Watched]:
    """The question that all sites of one baseline answer."""
    fresh = fresh_state(baseline)
    return messages.Broadcast(
        0, UNCOUNTED, Watched(baseline.id, fresh.counts.shape, len(fresh.values))
    )


def sums_of(state: MonitorState) -> messages.Reply:
    """The numbers of a state, as a reply."""
    own = {"counts": state.counts, "values": state.values, "rows": [state.rows, state.undecided]}
    return messages.Reply(0, {name: np.asarray(value, float) for name, value in own.items()})


def share(
    folder: Path,
    state: MonitorState,
    baseline: Baseline,
    identity: Identity,
    roster: Roster,
    kept: Path,
) -> tuple[str, ...]:
    """Take the next step in a folder where sites meet: offer a key, and once all are there, the masked counts.

    Parameters
    ----------
    state : this site's, which must watch the baseline
    kept : a folder of this site alone, for its masking keys and what it has answered

    Returns
    -------
    the sites whose keys are still missing; none once this site's counts are there
    """
    if state.baseline != baseline.id:
        raise ModelError(
            "this state watches another baseline: name the certificate it was begun with"
        )
    session, name = _session(folder), identity.site
    site = SecureSite(
        identity, roster, lambda step, question: sums_of(state), path=kept / f"{name}.shared"
    )
    offer = site(KEYS, messages.Invitation(session, dict(roster)))
    write_atomically({_file(folder, name, "key"): messages.pack(offer)})
    missing = tuple(other for other in sorted(roster) if not _file(folder, other, "key").is_file())
    if missing:
        return missing
    offers = tuple(_offer(_file(folder, other, "key"), other) for other in sorted(roster))
    site(AGREE, messages.Agreement(session, offers))
    # one mask hides one answer: what was sent once is sent again as it was, however the state went on
    answered = kept / f"{name}.{session}.masked"
    if not answered.is_file():
        question = asked(baseline)
        masked = site(Watched.step, messages.Broadcast(0, question.task, question.asked, session))
        write_atomically({answered: messages.pack(masked)}, 0o600)
    write_atomically({_file(folder, name, "masked"): answered.read_bytes()})
    return ()


def together(folder: Path, baseline: Baseline, roster: Roster) -> MonitorState:
    """The total of all sites' states in a folder."""

    def answers(step: str, question: Any, check: Callable[[object, str], Any]) -> Mapping[str, Any]:
        return {site: check(_masked(_file(folder, site, "masked"), site), site) for site in roster}

    found = total(answers, Opened(_session(folder, make=False), roster), asked(baseline)).sums
    numbers = {k: np.rint(v).astype(np.int64) for k, v in found.items()}
    rows, undecided = numbers["rows"].tolist()
    return MonitorState(baseline.id, numbers["counts"], numbers["values"], rows, undecided)


def _file(folder: Path, site: str, kind: str) -> Path:
    if not site or site.startswith(".") or {"/", "\\", "\0"} & set(site):
        raise DataError(f"the site name {site!r} is no file name: choose letters and digits")
    return folder / f"{site}.{kind}"


def _session(folder: Path, make: bool = True) -> str:
    """The folder's session: the first site that comes begins it."""
    path = folder / SESSION
    if not folder.is_dir():
        raise DataError(f"there is no folder {str(folder)!r} where sites meet: make it first")
    if not path.exists():
        if not make:
            raise DataError(f"no site has shared its counts in {str(folder)!r} yet")
        part = folder / f".{SESSION}.{token_hex(8)}"
        part.write_text(token_hex(16))
        with suppress(FileExistsError):  # another site was first
            os.link(part, path)  # whole or not at all
        part.unlink()
    try:
        return messages.hexadecimal(path.read_text().strip(), 16)
    except (ValueError, OSError):
        raise DataError(f"{str(path)!r} is no session: meet in an empty folder") from None


def _offer(path: Path, site: str) -> messages.Offer:
    found = _read(path, site)
    if not isinstance(found, messages.Offer) or found.site != site:
        raise FederationError(
            f"{path.name!r} is no masking key of site {site!r}: let it share again"
        )
    return found


def _masked(path: Path, site: str) -> messages.Masked:
    found = _read(path, site)
    if not isinstance(found, messages.Masked):
        raise FederationError(f"{path.name!r} is not masked counts: let site {site!r} share again")
    return found


def _read(path: Path, site: str) -> object:
    try:
        return messages.unpack(path.read_bytes(), f"site {site!r}")
    except OSError:
        raise DataError(
            f"site {site!r} has not shared its counts: there is no {path.name!r}; let it share, too"
        ) from None
