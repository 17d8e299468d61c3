"""Clients at sites, asked through Flower's message API: one message per client and request.

A node's id is random, so a site is known by the name that its key is registered by; a node
without one, which needs no authentication, is asked for it (``HELLO``). Contents are this package's
wire form; Flower carries bytes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from agnosticfair.errors import FederationError, plain
from agnosticfair.protocol.engines.seam import HELLO, Answers, Failure, Keys, RowsChanged
from agnosticfair.protocol.messages import FORMAT, pack, unpack

PATIENCE = 3600.0
"""Seconds for an answer where no deadline is given."""

FRESH = 1.0
"""Seconds between two looks for who is connected, and since when."""

MAX_ABOUT = 20_000
"""Characters that a site may say of itself."""

LOOK = 4.0
"""Seconds between two looks for what keeps a site from answering."""


def away(key: str) -> str:
    """What is said of a site where nobody knows more."""
    return "it is not connected: start it, and register its key"


@dataclass
class FlowerEngine:
    """sites: the keys that must take part.  pause: seconds between two looks for replies.  why: what keeps
    a site from answering, as far as the coordinator can know.  notice: is told of sites that are waited
    for, with the cause, whenever that changes.  traffic: per request and site, the bytes.  twice: the sites
    that gave more than one answer to a request, of which one counts.  rows: each site's keyed digest of
    its rows, which must stay as in its first answer."""

    grid: Grid
    sites: tuple[str, ...]
    pause: float = 0.1
    why: Callable[[str], str] = away
    notice: Callable[[Mapping[str, str]], None] = lambda waiting: None
    traffic: list[dict[str, Any]] = field(default_factory=list)
    twice: set[str] = field(default_factory=set)
    rows: dict[str, str] = field(default_factory=dict)
    _keys: dict[int, str] = field(default_factory=dict)

    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.sites))

    def exchange(self, step: str, payload: Any, keys: Keys, deadline: float = inf) -> Answers:
        """Ask the sites, waiting for those that are not connected, until all answered or time is up."""
        end = time.monotonic() + (PATIENCE if deadline == inf else deadline)
        content = b"" if payload is None else pack(payload)
        self._keys = {node: key for node, key in self._keys.items() if key}
        waiting: dict[str, str] = {}
        sent: dict[str, tuple[int, str]] = {}
        answers: dict[str, Any] = {}
        causes: dict[str, str] = {}
        look = time.monotonic() + LOOK
        nodes, fresh = self._nodes(end), time.monotonic() + FRESH
        while len(answers) < len(keys) and time.monotonic() < end:
            if time.monotonic() > fresh:
                nodes, fresh = self._nodes(end), time.monotonic() + FRESH
            # a SuperNode that was started anew has lost what it was asked: it is asked again, and
            # should both answers come, they are the same
            new = [k for k in keys if k in nodes and k not in answers and sent.get(k) != nodes[k]]
            waiting |= self._send(step, content, payload, {k: nodes[k][0] for k in new}, end)
            sent |= {k: nodes[k] for k in new}
            for identity, reply in self._replies(waiting):
                key = waiting.pop(identity)
                if key in answers:  # by both of a site's processes, the second started anew
                    self.twice.add(key)
                answers[key] = self._read(step, payload, key, reply, len(content))
            if len(answers) < len(keys):
                time.sleep(self.pause)
            if time.monotonic() > look:
                waited = {k: why for k in keys if k not in answers and (why := self.why(k))}
                if waited != causes:
                    self.notice(waited)
                causes, look = waited, time.monotonic() + LOOK
        if causes:
            self.notice({})
        late = "it gave no answer in time: give it longer by the deadline, or look at its log"
        lost = {k: late if k in sent else self.why(k) or late for k in keys if k not in answers}
        return {k: answers[k] if k in answers else Failure(lost[k]) for k in keys}

    def _nodes(self, end: float) -> dict[str, tuple[int, str]]:
        """The node of each site that is connected, and since when; nameless ones are asked for theirs."""
        there = {node.node_id: node for node in self.grid.get_nodes()}
        self._keys |= {node: about.name for node, about in there.items() if about.name}
        strangers = {str(node): node for node in there if node not in self._keys}
        sent = self._send(HELLO, b"", None, strangers, end)
        until = min(end, time.monotonic() + 60)
        while sent and time.monotonic() < until:
            for identity, reply in self._replies(sent):
                node = int(sent.pop(identity))
                self._keys[node] = (
                    "" if reply.has_error() else plain(_record(reply).get("site", ""), 100)
                )
            if sent:
                time.sleep(self.pause)
        nodes: dict[str, tuple[int, str]] = {}
        for node, about in there.items():
            key = self._keys.get(node, "")
            if key in nodes and key in self.sites:
                raise FederationError(f"two nodes say that they are site {key!r}: stop one of them")
            nodes[key] = (node, about.last_activated_at)
        return nodes

    def _send(
        self, step: str, content: bytes, payload: Any, nodes: dict[str, int], end: float
    ) -> dict[str, str]:
        """Send one request; the keys by the ids of the messages that went to them."""
        if not nodes:
            return {}
        record = RecordDict({"request": ConfigRecord({"step": step, "content": content})})
        group, ttl = str(getattr(payload, "round", 0)), max(end - time.monotonic(), 1.0)
        messages = [
            Message(record, dst_node_id=node, message_type="query", ttl=ttl, group_id=group)
            for node in nodes.values()
        ]
        identities = list(self.grid.push_messages(messages))
        return {i: key for i, key in zip(identities, nodes, strict=True) if i}

    def _replies(self, sent: Mapping[str, str]) -> list[tuple[str, Message]]:
        """What came, one reply to each message, though a site may have answered twice."""
        replies: dict[str, Message] = {}
        for message in self.grid.pull_messages(list(sent)) if sent else ():
            identity = message.metadata.reply_to_message_id
            if identity in replies:
                self.twice.add(sent[identity])
            replies[identity] = message
        return [(identity, replies[identity]) for identity in sent if identity in replies]

    def _read(self, step: str, payload: Any, key: str, reply: Message, sent: int) -> Any:
        """A reply as a message of ours, or the failure that it tells of."""
        if reply.has_error():
            # Flower's reason may hold a stack trace, and with it values: only the code is kept
            return Failure(f"Flower's error {reply.error.code}: look at its log")
        record = _record(reply)
        if record.get("site") != key:
            return Failure(
                f"it says that it is site {plain(record.get('site', ''), 100)!r}: correct the site's file, or "
                "register its key by that name",
                final=True,
            )
        if "failure" in record:
            return Failure(str(record["failure"]), final=True)
        rows = str(record.get("rows", ""))[:64]
        if self.rows.setdefault(key, rows) != rows:
            raise RowsChanged(
                f"the rows of site {key!r} changed since the run began: put its file back as it was, or remove the "
                "checkpoint and begin anew"
            )
        if step == HELLO:
            return _about(record)
        content = record.get("content")
        if not isinstance(content, bytes):
            return Failure("its reply has no content: check that its version is the same")
        number = getattr(payload, "round", 0)
        about = {"step": step, "round": number, "site": key}
        self.traffic.append({**about, "sent": sent, "received": len(content)})
        try:
            return unpack(content, f"client {key!r}")
        except FederationError as error:
            return Failure(str(error))


def _about(record: Mapping[str, Any]) -> Any:
    """What a site says of itself; one that speaks otherwise will not do better when asked again."""
    try:
        about = shown(dict(json.loads(str(record.get("about", ""))[:MAX_ABOUT])))
    except (ValueError, TypeError, RecursionError):
        about = {}
    if about.get("format") != FORMAT:
        return Failure(
            f"its messages have the format {about.get('format')!r}, here it is {FORMAT!r}: install the same "
            "version of agnosticfair at both ends",
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


def _record(reply: Message) -> dict[str, Any]:
    records = reply.content.config_records
    return dict(records["answer"]) if "answer" in records else {}
