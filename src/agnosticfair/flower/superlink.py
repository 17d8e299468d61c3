"""The coordinator's process: Flower's SuperLink with two doors instead of one.

Flower serves the nodes (``/v1/fleet/``) and takes runs (``/v1/control/``) at one port, and a run is code.
Here the sites' door passes ``/v1/fleet/`` only, and no signed request twice; the whole application
listens on loopback, where submitting needs a token that only the folder's owner can read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, MutableMapping
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from agnosticfair.errors import SettingsError
from agnosticfair.flower.causes import VISITS, identity
from agnosticfair.flower.control import public_key
from agnosticfair.flower.folder import TOKEN, Settings, read_settings, write_whole
from agnosticfair.flower.patience import App, patient
from agnosticfair.flower.prometheus import superlink_gauges

FLEET, CONTROL, RUNTIME = "/v1/fleet/", "/v1/control/", "/v1/runtime/"
KEEP_SECONDS = 400.0
"""Seconds for which a used signature is remembered; Flower's own window is 310."""

IDLE_LAYERS = ("Control", "RuntimeTracing", "FleetEventLog")
"""Names, in their beginnings, of Flower's layers that do nothing but for runs, for tracing and for its event log."""


@dataclass
class Visits:
    """What came to the sites' door: by public key the last request, its outcome and the clock's difference."""

    path: Path | None = None
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    used: dict[tuple[str, str], float] = field(default_factory=dict)
    counts: dict[tuple[str, int], int] = field(default_factory=dict)
    written: float = 0.0

    def fresh(self, key: str, stamp: str) -> bool:
        """Whether this key signs this time for the first time: a copied request is no request."""
        now = time.time()
        if len(self.used) > 10_000:
            self.used = {k: t for k, t in self.used.items() if now - t < KEEP_SECONDS}
        known = (key, stamp) in self.used
        self.used.setdefault((key, stamp), now)
        return not known

    def note(self, key: str, path: str, status: int, stamp: str) -> None:
        """Write down a request's outcome; the file follows at most once a second."""
        now = time.time()
        self.counts[path, status] = self.counts.get((path, status), 0) + 1
        if key:
            self.last[key] = {"seen": now, "path": path, "status": status, "clock": _ahead(stamp)}
        if len(self.last) > 1000:  # strangers: the oldest go
            self.last = dict(sorted(self.last.items(), key=lambda kv: -kv[1]["seen"])[:500])
        if self.path and now - self.written >= 1.0:
            self.written = now
            write_whole(self.path, json.dumps(self.last))


def _ahead(stamp: str) -> float | None:
    """Seconds by which a site's clock is ahead of ours."""
    try:
        return datetime.fromisoformat(stamp).timestamp() - time.time()
    except ValueError:
        return None


def fleet_only(app: App, visits: Visits) -> App:
    """The application's ``/v1/fleet/`` and nothing else; a request that was there before is refused."""

    async def door(scope: MutableMapping[str, Any], receive: App, send: App) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(FLEET):
            return await _answer(scope, send, 404, "there is nothing here but " + FLEET)
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        stamp = headers.get("flwr-timestamp", b"").decode("latin-1")
        try:
            key = identity(base64.b64decode(headers["flwr-public-key"], validate=True))
        except (KeyError, binascii.Error):
            key = ""
        if key and not visits.fresh(key, stamp):
            visits.note("", scope["path"], 409, stamp)
            return await _answer(scope, send, 409, "this signed request was used before")
        status = 500

        async def seen(event: dict[str, Any]) -> None:
            nonlocal status
            if event["type"] == "http.response.start":
                status = event["status"]
            await send(event)

        try:
            return await app(scope, receive, seen)
        finally:
            visits.note(key, scope["path"], status, stamp)

    return door


def with_token(app: App, token: str, metrics: Callable[[], bytes]) -> App:
    """The whole application, but ``/v1/control/`` for the holder of the token only, and ``/metrics``."""
    wanted = f"Bearer {token}".encode()

    async def door(scope: MutableMapping[str, Any], receive: App, send: App) -> None:
        if scope["type"] == "http" and scope["path"].startswith(CONTROL):
            header = dict(scope["headers"]).get(b"authorization", b"")
            if not secrets.compare_digest(header, wanted):
                return await _answer(
                    scope, send, 401, "the token of the federation's folder is missing"
                )
        if scope["type"] == "http" and scope["path"] == "/metrics":
            return await _answer(scope, send, 200, metrics().decode())
        return await app(scope, receive, send)

    return door


async def _answer(scope: MutableMapping[str, Any], send: App, status: int, text: str) -> None:
    if scope["type"] == "websocket":
        return await send({"type": "websocket.close", "code": 1008})
    head = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": head})
    return await send({"type": "http.response.body", "body": text.encode()})


def check_port(host: str, port: int, what: str) -> None:
    """Say it at once where a port cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SettingsError(
                f"port {port} at {host!r} for {what} cannot be had ({error.strerror}): stop what uses "
                "it, or change the port in federation.toml and in the sites' files"
            ) from None


def serve(folder: Path) -> None:
    """Run the coordinator's SuperLink until it is told to end."""
    settings = read_settings(folder)
    check_port(settings.listen, settings.port, "the sites")
    check_port("127.0.0.1", settings.control, "runs")
    # Flower starts its own programs by name: those that belong to this very Python
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    os.environ["FLWR_HOME"] = str(settings.folder / "state" / "flower")
    asyncio.run(_listen(settings, _application(settings)))


def _application(settings: Settings) -> App:
    """Flower's own application of the SuperLink; what is used of it is pinned by its version.

    Its state is in memory, which halves a round's time: keys are registered anew by every run, and what a
    run must not lose is in its checkpoint.
    """
    from importlib import import_module

    from flwr.superlink.main import create_app

    # the package has a function of the module's name
    flower: Any = import_module("flwr.superlink.cli.flower_superlink")

    at = settings.folder / "tls"
    arguments = sys.argv
    sys.argv = [
        *("flower-superlink", "--host", "127.0.0.1", "--port", str(settings.control)),
        *("--ssl-ca-certfile", str(at / "ca.crt"), "--ssl-certfile", str(at / "server.crt")),
        *("--ssl-keyfile", str(at / "server.key"), "--enable-supernode-auth"),
        *("--disable-runtime-dependency-installation",),
    ]
    try:
        config = flower._parse_superlink_lifespan_config()
    finally:
        sys.argv = arguments
    return patient(lean(create_app(config, flower.SuperLinkLifespan)))


def lean(whole: Any) -> App:
    """Flower's application, with fewer layers where it is asked neither for a run nor with tracing or an event log.

    Each of its nine layers costs every request about a millisecond; keys are checked by one of those that stay.
    """
    wants_events = (
        os.environ.get("FLWR_TRACING_ENABLED") == "1" or whole.state.fleet_event_log_plugin
    )
    thin = copy(whole)
    thin.user_middleware = [
        layer
        for layer in whole.user_middleware
        if wants_events or not getattr(layer.cls, "__name__", "").startswith(IDLE_LAYERS)
    ]

    async def app(scope: MutableMapping[str, Any], receive: App, send: App) -> None:
        plain = scope["type"] == "http" and scope["path"].startswith((FLEET, RUNTIME))
        await (thin if plain else whole)(scope, receive, send)

    return app


def _gauges(settings: Settings, visits: Visits) -> bytes:
    keys = {k: settings.folder / "keys" / f"{k}.pub" for k in read_settings(settings.folder).sites}
    names = {identity(public_key(path, k)): k for k, path in keys.items() if path.is_file()}
    try:
        progress = json.loads((settings.folder / "results" / "progress.json").read_text())
    except (OSError, ValueError):
        progress = {}
    return superlink_gauges(names, visits.last, visits.counts, progress)


async def _listen(settings: Settings, app: App) -> None:
    """Both doors, until a signal; the second to be told ends first, and hands the signal on."""
    import uvicorn

    folder = settings.folder
    token = secrets.token_urlsafe(32)
    write_whole(folder / TOKEN, token, 0o600)
    visits = Visits(folder / VISITS)
    (folder / VISITS).unlink(missing_ok=True)
    at = folder / "tls"
    common: dict[str, Any] = {"access_log": False, "log_level": "warning"}
    common |= {"ssl_certfile": str(at / "server.crt"), "ssl_keyfile": str(at / "server.key")}
    control = uvicorn.Config(
        with_token(app, token, partial(_gauges, settings, visits)),
        host="127.0.0.1",
        port=settings.control,
        lifespan="on",
        **common,
    )
    fleet = uvicorn.Config(
        fleet_only(app, visits), host=settings.listen, port=settings.port, lifespan="off", **common
    )
    print(
        f"The SuperLink listens for sites at {settings.listen}:{settings.port}, for runs at "
        f"127.0.0.1:{settings.control}.",
        flush=True,
    )
    await asyncio.gather(*(uvicorn.Server(config).serve() for config in (control, fleet)))
