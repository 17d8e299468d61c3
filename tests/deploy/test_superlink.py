"""The coordinator's two doors, as ASGI applications."""

import asyncio
import base64
import json
import os
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs agnosticfair[flower]")

from agnosticfair.flower.superlink import Visits, fleet_only, lean, with_token


def send(app, path, headers=(), kind="http"):
    """What an ASGI application answers: its status, or that it closed."""
    sent = []

    async def send(event):
        sent.append(event)

    scope = {"type": kind, "path": path, "headers": [*headers]}
    asyncio.run(app(scope, None, send))
    return sent[0].get("status", sent[0]["type"])


async def flower(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1/control/start-run",
        "/v1/runtime/x",
        "/docs",
        "/v1/fleet",
        "//v1/fleet/",
        "/V1/fleet/x",
    ],
)
def test_the_sites_door_passes_the_fleet_side_only(path):
    door = fleet_only(flower, Visits())
    assert send(door, path) == 404
    assert send(door, "/v1/fleet/pull-messages") == 200
    assert send(door, "/v1/fleet/x", kind="websocket") == "websocket.close"


def test_a_signed_request_is_taken_once(tmp_path):
    visits = Visits(tmp_path / "fleet.json")
    door = fleet_only(flower, visits)

    def signed(stamp, key=b"key"):
        return [(b"flwr-public-key", base64.b64encode(key)), (b"flwr-timestamp", stamp)]

    one = b"2026-11-15T12:00:00.000001+00:00"
    assert send(door, "/v1/fleet/push-messages", signed(one)) == 200
    assert send(door, "/v1/fleet/push-messages", signed(one)) == 409
    assert send(door, "/v1/fleet/pull-messages", signed(one)) == 409  # nor for another purpose
    assert send(door, "/v1/fleet/push-messages", signed(one, b"other")) == 200
    assert send(door, "/v1/fleet/push-messages", signed(one.replace(b"1+", b"2+"))) == 200
    assert len(json.loads((tmp_path / "fleet.json").read_text())) >= 1


def test_runs_are_submitted_with_the_token_only():
    door = with_token(flower, "secret", lambda: b"agnosticfair_x 1\n")
    path = "/v1/control/start-run"
    assert send(door, path) == 401
    assert send(door, path, [(b"authorization", b"Bearer wrong")]) == 401
    assert send(door, path, [(b"authorization", b"Bearer secret")]) == 200
    assert send(door, "/v1/runtime/pull") == 200
    assert send(door, "/metrics") == 200


def test_programs_of_flower_are_those_of_this_python(tmp_path, monkeypatch):
    """A PATH without Flower is no fault any more."""
    import sys

    from agnosticfair.data.files import Roles
    from agnosticfair.flower import superlink
    from agnosticfair.flower.folder import Federation, write_folder

    plan = Federation({"a": Path("a")}, Roles("y", ("sex",)), secure=False)
    write_folder(tmp_path / "bank", plan)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("FLWR_HOME", "")
    monkeypatch.setattr(superlink, "check_port", lambda *_: None)
    monkeypatch.setattr(superlink, "_application", lambda settings: None)
    seen = []

    async def listen(settings, app):
        seen.append(os.environ["PATH"].split(os.pathsep)[0])

    monkeypatch.setattr(superlink, "_listen", listen)
    superlink.serve(tmp_path / "bank")
    assert seen == [str(Path(sys.executable).parent)]


def layers(app):
    return [getattr(layer.cls, "__name__", "") for layer in app.user_middleware]


def test_the_lean_application_keeps_what_checks_keys_and_all_layers_of_runs(monkeypatch):
    """By its names: another version of Flower, whose layers are called otherwise, keeps them all."""
    from flwr.superlink.main import create_app

    whole, seen = create_app(), []
    full = layers(whole)

    async def called(self, scope, receive, send):
        seen.append((scope["path"], layers(self)))

    monkeypatch.setattr(type(whole), "__call__", called)
    app = lean(whole)
    paths = ("/v1/fleet/x", "/v1/runtime/x", "/v1/control/x", "/docs")
    for path in paths:
        asyncio.run(app({"type": "http", "path": path}, None, None))
    kept = ["BaseHTTPMiddleware", "ProtobufTranslationMiddleware", "NodeAuthMiddleware"]
    assert dict(seen) == {
        "/v1/fleet/x": kept,
        "/v1/runtime/x": kept,
        "/v1/control/x": full,
        "/docs": full,
    }
    assert layers(whole) == full
    assert {*full} - {*kept} == {
        "ControlSensitiveResponseMiddleware",
        "ControlAuthenticationMiddleware",
        "ControlLicenseMiddleware",
        "ControlEventLogMiddleware",
        "RuntimeTracingMiddleware",
        "FleetEventLogMiddleware",
    }
    monkeypatch.setenv("FLWR_TRACING_ENABLED", "1")
    seen.clear()
    asyncio.run(lean(whole)({"type": "http", "path": "/v1/fleet/x"}, None, None))
    assert seen == [("/v1/fleet/x", full)]
