"""A relay: to the coordinator one site, to its own sites the coordinator's door. It passes on
requests, and the sum of the answers.

Under masks that is a sum of masked numbers, which only the sum over all relays makes readable.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from agnosticfair.deploy.door import Door
from agnosticfair.deploy.folder import Settings, read_settings
from agnosticfair.deploy.node import Joined, Node, Trail, read_joined, reported, run_node
from agnosticfair.deploy.runner import Live, Notify, locked
from agnosticfair.deploy.site import versions
from agnosticfair.errors import FederationError
from agnosticfair.protocol.engines.relay import Relay
from agnosticfair.protocol.engines.remote import RemoteEngine
from agnosticfair.protocol.engines.seam import HELLO, Failure
from agnosticfair.protocol.messages import FORMAT, pack, unpack


@dataclass
class Below:
    """The sites below a relay, as one.  patience: seconds for which it waits for all of them."""

    relay: str
    engine: RemoteEngine
    patience: float

    def answer(self, request: Mapping[str, Any], content: bytes) -> dict[str, Any]:
        """The sum of all sites' answers, or why there is none."""

        def answered() -> dict[str, Any]:
            self.engine.until = inf
            if (step := str(request["step"])) == HELLO:
                self.engine.rows.clear()  # a new run
                record: dict[str, Any] = {"about": json.dumps(self._hello())}
            else:
                record = {"content": pack(self._sum(step, content))}
            rows = json.dumps(sorted(self.engine.rows.items())).encode()
            return record | {"rows": hashlib.sha256(rows).hexdigest()}

        return reported(self.relay, answered)

    def _sum(self, step: str, content: bytes) -> Any:
        payload = unpack(content, "the coordinator") if content else None
        above = Relay({self.relay: self.engine})
        return _there(above.exchange(step, payload, (self.relay,), self.patience)[self.relay])

    def _hello(self) -> dict[str, Any]:
        """Who is below, with their versions; and the list of keys that all of them hold, if it is one."""
        sites = self.engine.clients()
        answers = self.engine.exchange(HELLO, None, sites, self.patience)
        about = {site: _there(answers[site], site) for site in sites}
        greeting = {"site": self.relay, "format": FORMAT, "steps": [], "versions": versions()}
        lists = [one.get("keys") for one in about.values()]
        greeting |= {"keys": lists[0]} if all(keys == lists[0] for keys in lists) else {}
        below = {site: dict(about[site]["versions"])["agnosticfair"] for site in sites}
        return {**greeting, "sites": below}

    def give_up(self) -> None:
        """Wait no longer: nobody is there to take the answer."""
        self.engine.until = time.monotonic()


def _there(answer: Any, site: str = "") -> Any:
    if isinstance(answer, Failure):
        raise FederationError(f"its site {site!r}: {answer.reason}" if site else answer.reason)
    return answer


def read_relay(path: Path) -> tuple[Joined, Settings]:
    """A relay's file, and the folder of its sites."""
    joined = read_joined(path, "relay", ("folder",))
    return joined, read_settings(Path(joined.config["folder"]))


def serve_relay(path: Path) -> None:
    """Run the relay of a file until it is told to end (SIGTERM, Ctrl-C)."""
    joined, settings = read_relay(path)
    with locked(settings), Door(settings, joined.site) as door:
        notify = Notify(on_trouble=lambda sentence: print(f"Note: {sentence}", flush=True))
        state = {"run": joined.site, "began": time.time(), "ended": "", "round": {}, "waiting": {}}
        live = Live(settings, door, notify, state)
        engine = RemoteEngine(door, settings.sites, door.why, live.waiting)
        below = Below(joined.site, engine, float(settings.run["patience"]))
        run_node(Node(joined, Trail(joined.log), below.answer, below.give_up, live.write))
        live.write(ended="well")
