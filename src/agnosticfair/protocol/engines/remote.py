"""Clients at sites, asked over a line: one message per client and request, in this package's wire form."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from agnosticfair.errors import FederationError, plain
from agnosticfair.protocol.engines.seam import HELLO, Answers, Failure, Keys, RowsChanged
from agnosticfair.protocol.messages import FORMAT, pack, unpack

PATIENCE = 3600.0
"""Seconds for an answer where no deadline is given."""

MAX_ABOUT = 20_000
"""Characters that a site may say of itself."""

LOOK = 4.0
"""Seconds between two looks for what keeps a site from answering."""


class Line(Protocol):
    """Carries requests to sites, and their answers back; it says by its own means which site it talks to."""

    def present(self) -> Mapping[str, Hashable]:
        """The sites that are connected, each with its connection: another one after it came back."""

    def post(self, site: str, request: Mapping[str, Any]) -> None:
        """Send a request: its ``id``, ``step``, ``round`` and ``content``."""

    def collect(self, seconds: float) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """The answers that came, each with its site; waits so long for a first one."""


def away(key: str) -> str:
    """What is said of a site where nobody knows more."""
    return "it is not connected: start it"


@dataclass
class RemoteEngine:
    """sites: the keys that must take part.  why: what keeps a site from answering, as far as the line knows.  notice:
    is told of the sites that are waited for, with the cause, every few seconds.  traffic: per request and site, the
    bytes.  rows: each site's keyed digest of its rows, which must stay as in its first answer.  until: when the
    whole run ends, on the monotonic clock."""

    line: Line
    sites: tuple[str, ...]
    why: Callable[[str], str] = away
    notice: Callable[[Mapping[str, str]], None] = lambda waiting: None
    until: float = inf
    traffic: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[str, str] = field(default_factory=dict)
    _posted: dict[str, tuple[str, Hashable]] = field(default_factory=dict)
    _looked: float = field(default_factory=time.monotonic)

    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.sites))

    def exchange(self, step: str, payload: Any, keys: Keys, deadline: float = inf) -> Answers:
        """Ask the sites, waiting for those that are not connected, until all answered or time is up."""
        end = time.monotonic() + (PATIENCE if deadline == inf else deadline)
        content = b"" if payload is None else pack(payload)
        number = getattr(payload, "round", 0)
        # the same request has the same name, and the same answer: a late one still counts
        identity = hashlib.sha256(f"{step} {number} ".encode() + content).hexdigest()[:32]
        request = {"id": identity, "step": step, "round": number, "content": content}
        answers: dict[str, Any] = {}
        causes: dict[str, str] = {}
        while len(answers) < len(keys) and (now := time.monotonic()) < end:
            self._post(request, [key for key in keys if key not in answers])
            for key, answer in self.line.collect(min(0.2, end - now)):
                posted = self._posted.get(key, ("", None))[0]
                if posted == answer.get("id"):
                    del self._posted[key]
                if posted == answer.get("id") == identity and key in keys:
                    answers[key] = self._read(step, number, key, answer, len(content))
            if now - self._looked > LOOK:
                causes, self._looked = self._away(k for k in keys if k not in answers), now
                self.notice(causes)
            self._check_time(key for key in keys if key not in answers)
        if causes:
            self.notice({})
        late = "it gave no answer in time: give it longer by the deadline, or look at its log"
        lost = {k: late for k in keys if k not in answers}
        lost |= self._away(lost)
        return {k: answers[k] if k in answers else Failure(lost[k]) for k in keys}

    def _away(self, keys: Iterable[str]) -> dict[str, str]:
        """Those of these sites that are not connected, and why."""
        present = self.line.present()
        return {key: self.why(key) for key in keys if key not in present}

    def _post(self, request: Mapping[str, Any], keys: list[str]) -> None:
        """Send a request to the sites that are there and have not got it over this connection."""
        present = self.line.present()
        for key in keys:
            wanted = (request["id"], present.get(key))
            if key in present and self._posted.get(key) != wanted:
                self.line.post(key, request)
                self._posted[key] = wanted

    def _check_time(self, keys: Iterable[str]) -> None:
        """Raise where the run's own time is up, with what keeps these sites."""
        if time.monotonic() > self.until:
            held = "; ".join(f"site {key!r}: {why}" for key, why in self._away(keys).items())
            raise FederationError(
                f"the run's time is up ({held or 'its sites were at work'}): allow more by --timeout; the next run "
                "goes on from its checkpoint (state/checkpoint), if there is one"
            )

    def _read(self, step: str, number: int, key: str, answer: Mapping[str, Any], sent: int) -> Any:
        """An answer as a message of ours, or the failure that it tells of; one that is malformed would be again."""
        if answer.get("site") != key:
            return Failure(
                f"it says that it is site {plain(answer.get('site', ''), 100)!r}: correct the site's file, or "
                "register its key by that name",
                final=True,
            )
        if "failure" in answer:
            return Failure(str(answer["failure"]), final=True)
        rows = str(answer.get("rows", ""))[:64]
        if self.rows.setdefault(key, rows) != rows:
            raise RowsChanged(
                f"the rows of site {key!r} changed since the run began: put its file back as it was, or remove "
                "state/checkpoint in the coordinator's folder and begin anew"
            )
        if step == HELLO:
            return _about(answer)
        content = answer.get("content")
        if not isinstance(content, bytes) or not content:
            return Failure("its reply has no content: check that its version is the same", True)
        about = {"step": step, "round": number, "site": key}
        self.traffic.append({**about, "sent": sent, "received": len(content)})
        try:
            return unpack(content, f"client {key!r}")
        except FederationError as error:
            return Failure(str(error), final=True)


def _about(answer: Mapping[str, Any]) -> Any:
    """What a site says of itself; one that speaks otherwise will not do better when asked again."""
    try:
        about = shown(dict(json.loads(str(answer.get("about", ""))[:MAX_ABOUT])))
    except (ValueError, TypeError, RecursionError):
        about = {}
    if about.get("format") != FORMAT:
        version = dict(about.get("versions") or {}).get("agnosticfair", "?")
        return Failure(
            f"its messages (version {version}) have the format {about.get('format')!r}, here it is {FORMAT!r}: install "
            "the same version of agnosticfair at both ends",
            final=True,
        )
    return about


def shown(value: Any) -> Any:
    r"""JSON of a site with its texts fit to be printed.

    >>> shown({"versions": {"python": "\x1b[2J3.11"}, "steps": ["sums"]})
    {'versions': {'python': '[2J3.11'}, 'steps': ['sums']}
    """
    if isinstance(value, dict):
        return {plain(key, 100): shown(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shown(inner) for inner in value]
    return plain(value, 200) if isinstance(value, str) else value
