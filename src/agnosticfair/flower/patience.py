"""A SuperLink that holds a request for what has not come yet, so that nobody has to ask again and again.

Flower's nodes and apps poll: every look costs the SuperLink some milliseconds, and finds what came some time after it
came. Worse, a message is told of before its objects have been sent, and who asks for one in between sleeps for a
second. Here such a request waits at the door until the other side has sent something, or for ``HELD`` seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

HOLD_SECONDS = 1.0
"""Seconds for which a request is held at most."""

App = Callable[..., Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]


@dataclass
class Bell:
    """Wakes all who wait for what others send."""

    event: asyncio.Event = field(default_factory=asyncio.Event)

    def ring(self) -> None:
        self.event.set()
        self.event = asyncio.Event()


def patient(app: App) -> App:
    """The application, which answers a request for something that is not there yet when it is, or after a while."""
    from flwr.proto.fleet_pb2 import PullMessagesResponse
    from flwr.proto.message_pb2 import PullObjectResponse
    from flwr.proto.runtime_pb2 import PullAppMessagesResponse

    answers: dict[str, Any] = {
        "/v1/fleet/pull-messages": PullMessagesResponse,
        "/v1/fleet/pull-object": PullObjectResponse,
        "/v1/runtime/pull-messages": PullAppMessagesResponse,
        "/v1/runtime/pull-object": PullObjectResponse,
    }
    bells = {sent_by_others(path): Bell() for path in answers}

    async def door(scope: MutableMapping[str, Any], receive: Receive, send: App) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path in answers:
            bell = bells[sent_by_others(path)]
            await _hold(app, bell, answers[path], scope, receive, send)
        else:
            await app(scope, receive, send)
            if path in bells:
                bells[path].ring()

    return door


def sent_by_others(path: str) -> str:
    """By which request that comes which is asked for here.

    >>> sent_by_others("/v1/fleet/pull-object")
    '/v1/runtime/push-object'
    """
    this_side, other = ("fleet", "runtime") if "/fleet/" in path else ("runtime", "fleet")
    return path.replace(this_side, other).replace("pull", "push")


async def _hold(
    app: App, bell: Bell, answer: Any, scope: MutableMapping[str, Any], receive: Receive, send: App
) -> None:
    """Ask the application, again whenever the bell rings, until it has something to tell or time is up."""
    body, end = await _body(receive), time.monotonic() + HOLD_SECONDS
    while True:
        rung, events = bell.event, list[dict[str, Any]]()
        await app({**scope}, _again(body, receive), _into(events))
        left = end - time.monotonic()
        if left <= 0 or events[0]["status"] != 200 or not _missing(answer, events):
            break
        try:
            await asyncio.wait_for(rung.wait(), left)
        except TimeoutError:
            break
    for event in events:
        await send(event)


def _missing(answer: Any, events: list[dict[str, Any]]) -> bool:
    """Whether an answer says that there is nothing yet: no message, or an object that is on its way."""
    reply = answer.FromString(b"".join(event.get("body", b"") for event in events[1:]))
    if hasattr(reply, "messages_list"):
        return not reply.messages_list
    return bool(reply.object_found and not reply.object_available)


async def _body(receive: Receive) -> bytes:
    """All of a request's body."""
    chunks, more = [], True
    while more:
        event = await receive()
        chunks.append(event.get("body", b""))
        more = event.get("more_body", False)
    return b"".join(chunks)


def _again(body: bytes, receive: Receive) -> Receive:
    """A request's body as if it came just now, and what comes after it."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_event() -> Any:
        return left.pop() if left else await receive()

    return next_event


def _into(events: list[dict[str, Any]]) -> App:
    async def keep(event: dict[str, Any]) -> None:
        events.append(event)

    return keep
