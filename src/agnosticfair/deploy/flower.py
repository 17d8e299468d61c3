"""The same run as a Flower app, by Flower's public interface: for who has a SuperLink and SuperNodes already.

The app's ``pyproject.toml`` (``examples/flower``) names ``client_app`` and ``server_app`` of this module.  A SuperNode
gets the path of its site's file by ``--node-config 'site-file="north.toml"'``, a run that of the federation's folder by
``--run-config 'folder="bank"'``.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from agnosticfair.deploy.coordinator import results
from agnosticfair.deploy.folder import read_config, read_settings
from agnosticfair.deploy.node import Trail, answer, read_site
from agnosticfair.deploy.runner import leave
from agnosticfair.errors import plain
from agnosticfair.protocol.engines.remote import RemoteEngine
from agnosticfair.protocol.engines.seam import HELLO

FRESH = 1.0
"""Seconds between two looks for the nodes that are connected."""

GREETING = 60.0
"""Seconds for a new node to say which site it is: its first process may have much to import."""

client_app, server_app = ClientApp(), ServerApp()


@client_app.query()
def reply(message: Message, context: Context) -> Message:
    """Answer one request for the site of the node's file; what goes wrong travels as a sentence."""
    joined = read_site(Path(str(context.node_config["site-file"])))
    request = dict(message.content.config_records["request"])
    content = request.pop("content", b"")
    record = answer(joined, request, content if isinstance(content, bytes) else b"?")
    if detail := record.pop("detail", ""):
        Trail(joined.log).write("refused", step=plain(request.get("step", ""), 40), why=detail)
    answered = RecordDict({"answer": ConfigRecord({"id": request["id"], **record})})
    return Message(answered, reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the fit of a federation's folder over the nodes of Flower, and leave its results there."""
    folder, run = Path(str(context.run_config["folder"])), str(context.run_id)
    config, sites = read_config(folder), read_settings(folder).sites
    leave(config, run, results(RemoteEngine(FlowerLine(grid), sites), config, run))


@dataclass
class FlowerLine:
    """A line over Flower's nodes, each of which says once which site it is.  sent: by a message's id, its site and the
    id of its request."""

    grid: Grid
    sites: dict[int, str] = field(default_factory=dict)
    sent: dict[str, tuple[str, str]] = field(default_factory=dict)
    _nodes: dict[str, int] = field(default_factory=dict)
    _looked: float = 0.0

    def present(self) -> Mapping[str, Hashable]:
        if time.monotonic() - self._looked > FRESH:
            nodes = [*self.grid.get_node_ids()]
            self._greet([node for node in nodes if node not in self.sites])
            self._nodes = {self.sites[node]: node for node in nodes if node in self.sites}
            self._looked = time.monotonic()
        return self._nodes

    def _greet(self, nodes: list[int]) -> None:
        """Ask new nodes for their sites."""
        if not nodes:
            return
        request = {"id": HELLO, "step": HELLO, "round": 0, "content": b""}
        messages = [_message(node, request) for node in nodes]
        for message in self.grid.send_and_receive(messages, timeout=GREETING):
            record = _answer(message)
            if site := plain(record.get("site", ""), 100):
                self.sites[message.metadata.src_node_id] = site

    def post(self, site: str, request: Mapping[str, Any]) -> None:
        (identity,) = self.grid.push_messages([_message(self._nodes[site], request)])
        if identity:
            self.sent[identity] = (site, str(request["id"]))

    def collect(self, seconds: float) -> Sequence[tuple[str, Mapping[str, Any]]]:
        answers = []
        for message in self.grid.pull_messages([*self.sent]) if self.sent else ():
            site, identity = self.sent.pop(message.metadata.reply_to_message_id, ("", ""))
            answers.append((site, {**_answer(message), "id": identity}))
        if not answers:
            time.sleep(min(seconds, 0.1))
        return [(site, answer) for site, answer in answers if site]


def _message(node: int, request: Mapping[str, Any]) -> Message:
    content = RecordDict({"request": ConfigRecord(dict(request))})
    return Message(content, dst_node_id=node, message_type="query")


def _answer(message: Message) -> dict[str, Any]:
    """What a site answered; Flower's own reason for an error may hold a stack trace, and with it values."""
    if message.has_error():
        return {"failure": f"Flower's error {message.error.code}: look at the log of its SuperNode"}
    records = message.content.config_records
    return dict(records["answer"]) if "answer" in records else {}
