"""The door holds a request for what is on its way; the lean application leaves out idle layers only."""

import asyncio
import time

import pytest

pytest.importorskip("flwr", reason="needs agnosticfair[flower]")

from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.proto.message_pb2 import Message, PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse

from agnosticfair.flower import patience
from agnosticfair.flower.patience import patient

ON_ITS_WAY = PullObjectResponse(object_found=True)
THERE = PullObjectResponse(object_found=True, object_available=True, object_content=b"x")
UNKNOWN = PullObjectResponse()
FLEET, RUNTIME = "/v1/fleet/", "/v1/runtime/"


class Flower:
    """Answers in their order; what was asked."""

    def __init__(self, *answers, status=200):
        self.answers, self.status, self.request = [*answers], status, []

    async def __call__(self, scope, receive, send):
        event = await receive()
        self.request.append((scope["path"], event["body"]))
        pulled = "pull" in scope["path"]
        told = (
            (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]) if pulled else b""
        )
        body = told.SerializeToString() if pulled else b""
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": body})


async def send(door, path, *subgroups):
    """The body of an answer."""
    left = [*(subgroups or (b"?",))]
    sent = []

    async def receive():
        body = left.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(left)}

    async def send(event):
        sent.append(event)

    await door({"type": "http", "path": path, "headers": []}, receive, send)
    return sent[0]["status"], b"".join(event.get("body", b"") for event in sent[1:])


async def send_while(door, path, *others):
    """The answer to a request while others send, some time after it."""
    request = asyncio.create_task(send(door, path, b"an ", b"object"))
    for other in others:
        await asyncio.sleep(0.01)
        await send(door, other)
    return await request


@pytest.mark.parametrize(
    ("path", "sent", "empty", "full"),
    [
        (
            "fleet/pull-messages",
            "runtime/push-messages",
            PullMessagesResponse(),
            PullMessagesResponse(messages_list=[Message()]),
        ),
        (
            "runtime/pull-messages",
            "fleet/push-messages",
            PullAppMessagesResponse(),
            PullAppMessagesResponse(messages_list=[Message()]),
        ),
        ("fleet/pull-object", "runtime/push-object", ON_ITS_WAY, THERE),
        ("runtime/pull-object", "fleet/push-object", ON_ITS_WAY, THERE),
    ],
)
def test_a_request_is_held_until_the_other_side_has_sent(monkeypatch, path, sent, empty, full):
    monkeypatch.setattr(patience, "HOLD_SECONDS", 30.0)
    flower, path, sent = Flower(empty, empty, full), "/v1/" + path, "/v1/" + sent
    begin = time.monotonic()
    status, body = asyncio.run(send_while(patient(flower), path, sent, sent))
    assert (status, body) == (200, full.SerializeToString())
    assert time.monotonic() - begin < 30
    looked = [content for at, content in flower.request if at == path]
    assert looked == [b"an object"] * 3  # at first, and whenever the other side had sent


@pytest.mark.parametrize(
    ("flower", "status"),
    [(Flower(UNKNOWN), 200), (Flower(ON_ITS_WAY, status=401), 401), (Flower(THERE), 200)],
    ids=["unknown", "a stranger", "there"],
)
def test_what_will_not_come_or_is_there_is_answered_at_once(monkeypatch, flower, status):
    monkeypatch.setattr(patience, "HOLD_SECONDS", 1e9)
    assert asyncio.run(send(patient(flower), FLEET + "pull-object"))[0] == status
    assert len(flower.request) == 1


def test_nothing_is_held_for_longer_than_that(monkeypatch):
    monkeypatch.setattr(patience, "HOLD_SECONDS", 0.02)
    flower = Flower(ON_ITS_WAY)
    own = FLEET + "push-object"  # what the same side sends wakes nobody of it
    _, body = asyncio.run(send_while(patient(flower), FLEET + "pull-object", own))
    assert body == ON_ITS_WAY.SerializeToString()
    assert [at for at, _ in flower.request] == [FLEET + "pull-object", own]
