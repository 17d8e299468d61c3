"""A site's process: it asks the SuperLink for requests, and answers those of the registered app.

It speaks Flower's Fleet API, as a SuperNode does, but runs no code that comes over the network, opens no
port, and stays warm: the file is read once, not once per request.
"""

from __future__ import annotations

import random
import signal
import ssl
import threading
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from agnosticfair.errors import FederationError, SettingsError, plain
from agnosticfair.flower.fleet import BEAT, Fleet, WireRequest
from agnosticfair.flower.folder import write_new, write_whole
from agnosticfair.flower.masking import load_secret
from agnosticfair.flower.prometheus import site_gauges
from agnosticfair.flower.secrets import key_pair
from agnosticfair.flower.site import hello, pin, reason, respond, site_of
from agnosticfair.flower.trail import Trail
from agnosticfair.protocol.engines.seam import HELLO

IDLE, BUSY = 1.0, 0.05
"""Seconds between two looks for a request: at most, and just after an answer."""

AGAIN = 2.0
"""Seconds until a connection that failed is tried again, up to four times that."""


@dataclass(frozen=True)
class Joined:
    """A site's one file.  app: the hash of the app that it answers.  config: what ``site_of`` reads.
    metrics: where they are written, if anywhere."""

    address: str
    tls_authority: str
    app: str
    config: Mapping[str, Any]
    key: Path
    log: Path
    metrics: Path | None = None


def read_site(path: Path) -> Joined:
    """A site's file, whose paths are taken from where it is."""
    try:
        content = tomllib.loads(path.read_text())
        at, here = content["coordinator"], content["here"]
        key, log = (path.resolve().parent / str(here[name]) for name in ("key", "log"))
        address, authority, app = (str(at[n]) for n in ("address", "tls-authority", "app"))
        config = {**content["site"], **content.get("policy", {})}
        for name in ("mask-key", "mask-list", "schema", "ledger"):
            if name in here:
                config[name] = str(path.resolve().parent / str(here[name]))
        metrics_file = path.resolve().parent / str(here["metrics"]) if "metrics" in here else None
        joined = Joined(address, authority, app, config, key, log, metrics_file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"it has no {error}" if type(error) is KeyError else type(error).__name__
        raise SettingsError(
            f"{str(path)!r} is no site's file of this version ({why}): take the one that "
            "'agnosticfair deploy init' wrote"
        ) from None
    site_of(joined.config)
    return joined


def load_key(path: Path) -> Any:
    """The site's private key; one that is not there is made, and its public half said where to send."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    if not path.exists():
        for end, text in key_pair().items():
            write_new(path.with_name(path.name + end), text, private=not end)
        print(
            f"Made a key: send {path}.pub to the coordinator, who puts it into keys/.", flush=True
        )
    if path.stat().st_mode & 0o077:
        raise SettingsError(
            f"others can read the key {str(path)!r}: chmod 600 it, or make a new one"
        )
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except ValueError as error:
        raise SettingsError(f"{str(path)!r} is no private key of OpenSSH: {error}") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise SettingsError(
            f"the key {str(path)!r} is not of ECDSA: make one by ssh-keygen -t ecdsa"
        )
    return key


def cause(error: Exception) -> str:
    """Why the SuperLink cannot be reached, in words."""
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return _refusal(error.response.status_code, error.response.headers.get("date", ""))
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        end = (
            "expired" if "expired" in text else "is of another authority than this site's file says"
        )
        return (
            f"the coordinator's TLS certificate {end}: get the coordinator's new file for this site"
        )
    if isinstance(error, httpx.ConnectError | httpx.TimeoutException):
        return "the SuperLink does not answer: is it started, and does the network let this site through?"
    if isinstance(error, httpx.TransportError | ssl.SSLError):
        return f"the connection broke ({type(error).__name__})"
    return f"{type(error).__name__} when talking to the SuperLink"


def _refusal(status: int, date: str) -> str:
    """What a status of the Fleet API means for a site."""
    try:
        apart = time.time() - parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        apart = 0.0
    if status == 401 and abs(apart) > 4:
        return f"its clock is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} the coordinator's"
    if status == 412:
        return (
            "its key is not registered (any more): let the coordinator register it by 'deploy run'; or "
            "another process of this site was connected a moment ago, and is waited for"
        )
    if status in (401, 403, 404, 409):
        return "its key is not registered (any more): let the coordinator register the public key"
    return f"the SuperLink answered with status {status}"


@dataclass
class Node:
    """The site's side of the federation.  connect: opens the way to the SuperLink."""

    joined: Joined
    trail: Trail
    connect: Callable[[], Fleet]
    stopping: threading.Event = field(default_factory=threading.Event)
    apps: dict[int, str] = field(default_factory=dict)

    def serve(self) -> None:
        """Connect, and connect again whenever that breaks, until told to stop."""
        failed, last_message = 0, ""
        while not self.stopping.is_set():
            try:
                with self.connect() as fleet:
                    fleet.activate()
                    self.trail.write("connected", to=self.joined.address)
                    self._measure(connected=True)
                    print(f"Site {self.joined.config['site']!r} is connected.", flush=True)
                    failed, last_message = 0, ""
                    self._work(fleet)
            except Exception as error:
                why = cause(error)
                if why != last_message:
                    print(f"Site {self.joined.config['site']!r}: {why}; trying again.", flush=True)
                    self.trail.write("disconnected", why=why)
                    self._measure(connected=False)
                last_message, failed = why, failed + 1
            self.stopping.wait(AGAIN * min(failed, 4) * random.uniform(0.8, 1.2))  # noqa: S311
        self.trail.write("stopped")
        self._measure(connected=False)

    def _work(self, fleet: Fleet) -> None:
        """Answer requests while heartbeats go out beside."""
        ended = threading.Event()
        broken: list[Exception] = []

        def beat() -> None:
            while not ended.wait(BEAT * 0.4):
                try:
                    fleet.beat()
                    self._measure(connected=True)
                except Exception as error:
                    broken[:] = [error]

        threading.Thread(target=beat, daemon=True).start()
        pause = BUSY
        try:
            while not self.stopping.is_set():
                if broken:
                    raise broken[0]
                request = fleet.pull()
                if request is None:
                    self.stopping.wait(pause)
                    pause = min(pause * 1.2, IDLE)
                else:
                    self.answer(fleet, request)
                    pause = BUSY
        finally:
            ended.set()
            with suppress(Exception):
                fleet.leave()

    def _measure(self, connected: bool) -> None:
        """Write the metrics, where they are wanted."""
        if self.joined.metrics is not None:
            site, trail = str(self.joined.config["site"]), self.trail
            text = site_gauges(site, connected, dict(trail.counts), trail.sent)
            write_whole(self.joined.metrics, text.decode())

    def answer(self, fleet: Fleet, request: WireRequest) -> None:
        """Answer one request, or say why not; either way it is written down."""
        begin, why = time.monotonic(), ""
        answer_record: dict[str, Any] = {"site": str(self.joined.config["site"])}
        try:
            self._check_app(fleet, request.run)
            if request.step == HELLO:
                answer_record["about"] = hello(self.joined.config, self.joined.app)
            else:
                answer_record["content"] = respond(
                    self.joined.config, request.step, request.content
                )
            answer_record["rows"] = pin(self.joined.config, self.joined.log.with_suffix(".pin"))
        except Exception as error:
            answer_record["failure"] = reason(error)
            why = getattr(error, "detail", "") or answer_record["failure"]
        spent = time.monotonic() - begin
        about: dict[str, Any] = {"run": str(request.run), "step": plain(request.step, 40)}
        about |= {"round": plain(request.round, 40), "request": len(request.content)}
        about |= {"seconds": round(spent, 3), "why": plain(why)}
        try:
            accepted = fleet.push(request, answer_record, spent)
        except Exception:
            self.trail.write("not sent", **about)  # it may have left in subgroup
            raise
        event = "refused" if why else "answered" if accepted else "not taken"
        self.trail.write(event, **about, answered=len(answer_record.get("content", b"")))

    def _check_app(self, fleet: Fleet, run: int) -> None:
        """Raise where a run is of another app than the one registered here."""
        if run not in self.apps:
            self.apps[run] = fleet.app_of(run)
        if (app := self.apps[run]) != self.joined.app:
            raise FederationError(
                f"site {self.joined.config['site']!r} does not answer run {run}: its app {app[:12]} "
                f"is not the registered {self.joined.app[:12]}; for another version the coordinator sends "
                "a new file for the site"
            )


def serve_site(path: Path) -> None:
    """Run the site of a file until it is told to end (SIGTERM, Ctrl-C)."""
    joined = read_site(path)
    key = load_key(joined.key)
    if "mask-key" in joined.config:
        load_secret(Path(joined.config["mask-key"]), str(joined.config["site"]))
    trail = Trail(joined.log)
    node = Node(joined, trail, lambda: Fleet.to(joined.address, joined.tls_authority, key))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: node.stopping.set())
    trail.write("started", app=joined.app)
    node.serve()
