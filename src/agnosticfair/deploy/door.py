"""The coordinator's one port, open while a run goes on: sites connect to it, and nobody else gets in.

Who has no registered key gets no further than the TLS handshake, which has seconds for it and of which there are
few at a time; nothing that such a one sends is read or remembered.
"""

from __future__ import annotations

import asyncio
import queue
import resource
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agnosticfair.deploy.folder import Settings, read_settings
from agnosticfair.deploy.frames import BEAT, MAX_BODY, SILENT, Broken, frame, read_frame, server_tls
from agnosticfair.deploy.secrets import public_key, tls_end
from agnosticfair.errors import FederationError, SettingsError

HANDSHAKES = 128  # TLS handshakes under way at most, of which the oldest gives way
HANDSHAKE = 10.0  # seconds for each

WAITING = 64
"""Connections that are taken at a time, each with buffers of its own; others wait with the system."""

STRANGER = 60.0
"""Seconds for which a refused connection is a possible cause of a site's absence."""

EXPIRED = "the TLS certificate has expired: 'agnosticfair deploy renew' makes another, and no site needs a new file"

REFUSALS = {
    "CERTIFICATE_VERIFY_FAILED": "its key is not registered",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no key",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust our TLS certificate: give it this folder's site file",
    "SSLV3_ALERT_BAD_CERTIFICATE": "our TLS certificate is not for the address, or its clock is wrong",
}
"""What an error of TLS says of the other side."""


@dataclass
class Link:
    """A site's connection.  raw: below TLS.  asked: what it has to answer, if anything."""

    number: int
    site: str
    public: bytes
    raw: Any
    writer: asyncio.StreamWriter
    seen: float
    pending: str = ""

    def awaited(self) -> int:
        """Bytes of an answer that may come now."""
        return MAX_BODY if self.pending else 0

    def alive(self) -> None:
        """Some of a frame came."""
        self.seen = time.monotonic()


@dataclass
class Knock(asyncio.Protocol):
    """A connection before its TLS handshake, of which nothing is read."""

    let_in: Callable[[Any], None]

    def connection_made(self, transport: Any) -> None:
        transport.pause_reading()
        self.let_in(transport)


@dataclass
class Door:
    """A line to the sites of a folder, whose keys are read anew whenever their files change."""

    settings: Settings
    run: str = ""
    links: dict[str, Link] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    refused: tuple[float, str] = (0.0, "")
    _answers: queue.SimpleQueue[tuple[str, dict[str, Any]]] = field(
        default_factory=queue.SimpleQueue
    )
    _shaking: list[Any] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _keys: dict[bytes, str] = field(default_factory=dict)
    _stamp: Any = None
    _count: int = 0
    _beaten: float = 0.0
    _open: threading.Event = field(default_factory=threading.Event)
    _failed: str = ""

    def __enter__(self) -> Self:
        raise_limit()
        self._read_keys()
        if self._ends < datetime.now(UTC):
            raise SettingsError(EXPIRED)
        check_port(self.settings.listen, self.settings.port)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._open.wait()
        self._check()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(RuntimeError):  # where it failed
            self._loop.call_soon_threadsafe(self._shut.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self._failed = f"{type(error).__name__}: {error}"
        finally:
            self._open.set()

    def _check(self) -> None:
        if self._failed:
            raise FederationError(f"the port for sites is shut: {self._failed}")

    def present(self) -> Mapping[str, int]:
        return {key: link.number for key, link in self.links.copy().items()}

    def post(self, site: str, request: Mapping[str, Any]) -> None:
        head = {name: request[name] for name in ("id", "step", "round")}
        self._check()
        self._loop.call_soon_threadsafe(self._post, site, head, request["content"])

    def collect(self, seconds: float) -> list[tuple[str, dict[str, Any]]]:
        self._check()
        answers = []
        with suppress(queue.Empty):
            answers.append(self._answers.get(timeout=max(seconds, 0.0)))
            while True:
                answers.append(self._answers.get_nowait())
        return answers

    def why(self, site: str) -> str:
        """Why a site is not connected, as far as this side can know."""
        if self._ends < datetime.now(UTC):
            return EXPIRED
        at, reason = self.refused
        stranger = ""
        if time.time() - at < STRANGER:
            stranger = f", but a connection was refused, {reason}: it may have been this site's"
        if site in self.left:
            return self.left[site] + stranger
        return (
            "it has not connected since the run began: start it; if it runs, its own log says what fails"
            + stranger
        )

    def state(self) -> dict[str, str]:
        """By site, that it is connected, or why not."""
        present = self.present()
        return {
            key: "connected" if key in present else self.why(key) for key in self.settings.sites
        }

    async def _serve(self) -> None:
        """Let sites in until the run has ended."""
        self._loop, self._shut = asyncio.get_running_loop(), asyncio.Event()
        at = self.settings.listen, self.settings.port
        server = await self._loop.create_server(lambda: Knock(self.let_in), *at, backlog=WAITING)
        async with server:
            self._open.set()
            while not self._shut.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._shut.wait(), 1.0)
                self._look()
            for link in self.links.values():
                link.writer.write(frame({"end": True}))
                link.writer.close()
        for raw in self._shaking:
            raw.abort()
        await asyncio.sleep(0.1)  # for what is on its way out

    def _post(self, site: str, head: Mapping[str, Any], content: bytes) -> None:
        if link := self.links.get(site):
            link.pending = str(head["id"])
            link.writer.write(frame(head, content))

    def let_in(self, raw: Any) -> None:
        """A new connection, of which nothing is known; of too many the oldest goes."""
        self._shaking.append(raw)
        for old in self._shaking[:-HANDSHAKES]:
            old.abort()
        task = asyncio.create_task(self._shake_hands(raw))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake_hands(self, raw: Any) -> None:
        """Let in who holds a registered key; the connection ends with this."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport = await loop.start_tls(
                raw, protocol, self._tls, server_side=True, ssl_handshake_timeout=HANDSHAKE
            )
            self._shaking.remove(raw)
            if transport is not None:  # else it went away
                protocol.connection_made(transport)
                public = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
                try:
                    await self._talk(raw, public, reader, writer)
                finally:
                    writer.close()
        except ssl.SSLError as error:
            if error.reason in REFUSALS:  # who only came and went is nobody
                peer = (raw.get_extra_info("peername") or ("?",))[0]
                self.refused = (time.time(), f"from {peer}: {REFUSALS[error.reason]}")
        except (OSError, EOFError):
            pass
        finally:
            raw.abort()
            if raw in self._shaking:
                self._shaking.remove(raw)

    async def _talk(
        self, raw: Any, public: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """A site's connection, until it ends; the second of two is refused while the first lives."""
        if (site := self._keys.get(public)) is None:
            return
        if site in self.links:
            refusal = "another process of this site is connected: one of them is enough"
            writer.write(frame({"refused": refusal}))
            with suppress(OSError):
                await writer.drain()
            return
        self._count += 1
        link = self.links[site] = Link(self._count, site, public, raw, writer, time.monotonic())
        writer.write(frame({"welcome": site, "run": self.run}))
        words = "its process or its network is down"
        try:
            while True:
                head, body = await read_frame(reader, link.awaited, link.alive)
                if link.pending and head.get("id") == link.pending:
                    link.pending = ""
                    self._answers.put((site, head | ({"content": body} if body else {})))
        except Broken as error:
            words = f"what it sent was refused: {error}"
        except (OSError, EOFError):
            pass
        finally:
            self.left[site] = f"it has been silent since {datetime.now():%H:%M:%S}: {words}"
            del self.links[site]

    def _look(self) -> None:
        """End what is silent or no longer registered; say that this side is alive."""
        with suppress(SettingsError, OSError):  # a file that is being replaced
            self._read_keys()
        now = time.monotonic()
        for link in self.links.values():
            if now - link.seen > SILENT or self._keys.get(link.public) != link.site:
                link.raw.abort()
            elif now - self._beaten > BEAT:
                link.writer.write(frame({}))
        if now - self._beaten > BEAT:
            self._beaten = now

    def _read_keys(self) -> None:
        """The keys in the folder, and TLS that lets them in."""
        folder = self.settings.folder
        files = [*folder.glob("*.toml"), *folder.glob("keys/*.pub"), *folder.glob("tls/server.*")]
        stamp = {path: path.stat().st_mtime_ns for path in files}
        if stamp == self._stamp:
            return
        keys = registered(folder)
        self._tls = server_tls(folder, keys.values())
        self._ends = tls_end((folder / "tls" / "server.crt").read_text())
        self._keys = {ssl.PEM_cert_to_DER_cert(pem): site for site, pem in keys.items()}
        self._stamp = stamp


def registered(folder: Path) -> dict[str, str]:
    """The public keys of a folder's sites, as PEM; no two may have the same."""
    sites = read_settings(folder).sites
    keys = {key: public_key(folder / "keys" / f"{key}.pub", key) for key in sites}
    by_key = {pem: key for key, pem in keys.items()}
    if twice := [key for key, pem in keys.items() if by_key[pem] != key]:
        raise SettingsError(
            f"sites {twice[0]!r} and {by_key[keys[twice[0]]]!r} have one and the same key: let each make its own"
        )
    return keys


def check_port(host: str, port: int) -> None:
    """Say it at once where a port cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SettingsError(
                f"port {port} at {host!r} for the sites cannot be had ({error.strerror}): stop what uses "
                "it, or change the port in federation.toml and in the sites' files"
            ) from None


def raise_limit() -> None:
    """As many open files, and so connections, as this process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
