"""A site's process: it connects to the coordinator, and answers what that asks.

It runs no code that comes over the network, opens no port, and stays warm: the file is read once, not once per
request.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import ssl
import threading
import time
import tomllib
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from agnosticfair.data.storage import write_atomically
from agnosticfair.deploy.frames import BEAT, MAX_BODY, SILENT, frame, read_frame, site_tls
from agnosticfair.deploy.secrets import key_pair, read_key
from agnosticfair.deploy.site import hello, pin, reason, respond, site_of, versions
from agnosticfair.errors import AgnosticFairError, FederationError, SettingsError, existing, plain
from agnosticfair.monitoring.verdict import Gauges
from agnosticfair.protocol.engines.seam import HELLO

AGAIN = 1.0
"""Seconds until a connection that failed is tried again, up to five times that."""

PENDING = 2
"""Requests that a site takes before it has answered the first: one may have come too late for the coordinator."""

MAX_BYTES = 5_000_000
MAX_FILES = 10
"""How many full files are kept beside the present one: NAME.1 is the latest of them."""

UNKNOWN = (
    "its key is not registered (any more): 'agnosticfair deploy rotate-key --public' registers it"
)


@dataclass(frozen=True)
class Joined:
    """A site's one file.  config: what ``site_of`` reads.  metrics: where they are written, if anywhere."""

    host: str
    port: int
    tls_authority: str
    config: Mapping[str, Any]
    key: Path
    log: Path
    metrics: Path | None = None

    @property
    def site(self) -> str:
        return str(self.config["site"])


def read_site(path: Path) -> Joined:
    """A site's file, whose paths are taken from where it is."""
    joined = read_joined(path, "site", ("mask-list", "schema", "ledger"))
    if "mask-list" in joined.config:
        joined = replace(joined, config={**joined.config, "mask-key": str(joined.key)})
    site_of(joined.config)
    return joined


def read_joined(path: Path, kind: str, files: Sequence[str]) -> Joined:
    """The file of a site or a relay.  files: entries of [here] that are paths for ``config``."""
    try:
        content = tomllib.loads(path.read_text())
        at, here = content["coordinator"], content["here"]
        paths = {name: path.resolve().parent / str(value) for name, value in here.items()}
        host, _, port = str(at["address"]).rpartition(":")
        config = {**content[kind], **content.get("policy", {})}
        config |= {name: str(paths[name]) for name in files if name in paths}
        by = (host, int(port), str(at["tls-authority"]), config)
        return Joined(*by, paths["key"], paths["log"], paths.get("metrics"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"it has no {error}" if type(error) is KeyError else type(error).__name__
        raise SettingsError(
            f"{str(path)!r} is no {kind}'s file of this version ({why}): take the one that 'agnosticfair deploy init' "
            "or 'deploy upgrade' wrote"
        ) from None


def load_key(path: Path, site: str) -> None:
    """See that the site's private key is there; one that is not is made, and its public half said where to send."""
    if not path.exists():
        files = key_pair(site)
        path.parent.mkdir(parents=True, exist_ok=True)
        for end, text in files.items():
            write_atomically(
                {path.with_name(path.name + end): text.encode()}, 0o644 if end else 0o600
            )
        print(
            f"Made a key: send {path}.pub to the coordinator, and to who keeps the list of masking keys: 'agnosticfair "
            "deploy rotate-key --public' takes it.",
            flush=True,
        )
    read_key(path, site)


def cause(error: Exception) -> str:
    """Why the coordinator cannot be reached, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrust(error.verify_code)
    if isinstance(error, ssl.SSLError) and "ALERT" in str(error.reason):
        return UNKNOWN
    if isinstance(error, ConnectionRefusedError):
        return "no run goes on there, or nothing lets this site through to the coordinator"
    if isinstance(error, FederationError):
        return str(error)
    if isinstance(error, OSError | EOFError):
        return f"the connection to the coordinator broke ({type(error).__name__})"
    return f"{type(error).__name__} when talking to the coordinator"


def _distrust(code: int) -> str:
    """What is wrong with the coordinator's TLS certificate, by OpenSSL's code."""
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    words = {
        9: f"is not valid yet: this machine's clock is behind (here it is {now})",
        10: "has expired ('agnosticfair deploy renew'), or this machine's clock is ahead "
        f"(here it is {now})",
        62: "is not for the address in this site's file: correct one of them",
        64: "is not for the address in this site's file: correct one of them",
    }
    other = "is of another authority than this site's file says: get the coordinator's new file for this site"
    return f"the coordinator's TLS certificate {words.get(code, other)}"


@dataclass
class Trail:
    """A site's log: a line of JSON per event, appended, rotated, without a value of any row: when it was asked what, by
    which run, how many bytes left, and what it refused.  counts: events since the start, for the metrics."""

    path: Path
    max_bytes: int = MAX_BYTES
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, event: str, **about: Any) -> None:
        """Add an event with the time; what is empty is left out."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        fields = {name: value for name, value in about.items() if value != ""}
        line = json.dumps({"time": now, "event": event, **fields}, default=str) + "\n"
        kind = (event, str(about.get("step", "")))
        with self._lock:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.sent += int(about.get("answered", 0))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size + len(line) > self.max_bytes:
                self._rotate()
            number = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
            with os.fdopen(number, "w") as file:
                file.write(line)

    def _rotate(self) -> None:
        for number in range(MAX_FILES, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            newer = older.with_suffix(f".{number - 1}") if number > 1 else self.path
            if newer.exists():
                newer.replace(older)


def site_gauges(
    site: str, connected: bool, counts: Mapping[tuple[str, str], int], sent: int
) -> bytes:
    """A site's events since its start, and the bytes that left it."""
    gauges = Gauges()
    gauges.gauge("site_connected", "1 if the site is in a run", {"site": site}, connected)
    gauges.gauge("site_answer_bytes", "Bytes that left the site", {"site": site}, sent)
    gauges.gauge("site_seen", "When this was written", {"site": site}, time.time())
    for (event, step), count in sorted(counts.items()):
        about = {"site": site, "event": event, "step": step}
        gauges.gauge("site_events", "Events in the site's log", about, count)
    return gauges.text()


@dataclass
class Node:
    """The side of a site, or of a relay.  answered: gives the answer to a request.  ended: is called whenever a
    connection has ended, in which an answer may still be under way.  lived: is called every few seconds."""

    joined: Joined
    trail: Trail
    answered: Callable[[Mapping[str, Any], bytes], dict[str, Any]]
    ended: Callable[[], None] = lambda: None
    lived: Callable[[], None] = lambda: None
    seen: float = 0.0
    run: str = ""
    _worker: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1))

    async def serve(self) -> None:
        """Connect, and connect again whenever that breaks, until told to stop."""
        failed, last_message = 0, ""
        while True:
            try:
                await self._connected()
                failed, last_message = 0, ""
            except Exception as error:
                why = cause(error)
                if why != last_message:
                    print(f"Site {self.joined.site!r}: {why}; trying again.", flush=True)
                    self.trail.write("disconnected", why=why)
                last_message, failed = why, failed + 1
            self._measure(connected=False, why=last_message)
            await asyncio.sleep(AGAIN * min(failed + 1, 5) * random.uniform(0.8, 1.2))  # noqa: S311

    async def _connected(self) -> None:
        """A connection, from its begin to the run's end."""
        joined, tls = self.joined, site_tls(self.joined.tls_authority, self.joined.key)
        reader, writer = await asyncio.open_connection(
            joined.host, joined.port, ssl=tls, ssl_handshake_timeout=SILENT, ssl_shutdown_timeout=2
        )
        writer.transport.set_write_buffer_limits(high=0)  # what is drained has left
        self._alive()
        beating = asyncio.create_task(self._beat(reader, writer))
        answering: set[asyncio.Task[None]] = set()
        try:
            try:
                head, _ = await read_frame(reader, lambda: 0, self._alive)
            except (OSError, EOFError):  # a refused key is told by nothing but the end
                raise FederationError(UNKNOWN) from None
            if "welcome" not in head:
                raise FederationError(plain(head.get("refused", "it was not let in"), 200))
            self.run = plain(head.get("run", ""), 40)
            self.trail.write("connected", to=f"{joined.host}:{joined.port}", run=self.run)
            print(f"Site {joined.site!r} is connected.", flush=True)
            self._measure(connected=True)
            while (
                "end" not in head
            ):  # and goes on while an answer is made, or this side would seem dead
                head, body = await read_frame(reader, lambda: MAX_BODY, self._alive)
                if "step" in head:
                    self._begin(answering, reader, self._answer(writer, head, body))
            self.trail.write("run ended", run=self.run)
        finally:
            self.ended()
            beating.cancel()
            for task in answering:
                task.cancel()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _begin(
        self,
        answering: set[asyncio.Task[None]],
        reader: asyncio.StreamReader,
        answer: Coroutine[Any, Any, None],
    ) -> None:
        """Answer a request beside the reading, which ends where that fails."""

        def ended(task: asyncio.Task[None]) -> None:
            answering.discard(task)
            if not task.cancelled() and isinstance(error := task.exception(), Exception):
                reader.set_exception(error)

        answering.add(task := asyncio.create_task(answer))
        task.add_done_callback(ended)
        if len(answering) > PENDING:
            raise FederationError(f"the coordinator sent more than {PENDING} requests at once")

    def _alive(self) -> None:
        self.seen = time.monotonic()

    async def _beat(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Say that the site is there, until the coordinator is silent."""
        while time.monotonic() - self.seen < SILENT:
            writer.write(frame({}))
            await asyncio.sleep(BEAT)
            self._measure(connected=True)
        reader.set_exception(TimeoutError("the coordinator is silent"))

    def _measure(self, connected: bool, why: str = "") -> None:
        """Write how the site is, for 'agnosticfair site status', and the metrics, where they are wanted."""
        state = {"connected": connected, "why": why, "run": self.run, "seen": time.time()}
        state["app"] = "agnosticfair {agnosticfair}, app {app}".format(**versions())
        write_atomically({state_file(self.joined): json.dumps(state).encode()})
        self.lived()
        if self.joined.metrics is not None:
            counts = dict(self.trail.counts)
            text = site_gauges(self.joined.site, connected, counts, self.trail.sent)
            write_atomically({self.joined.metrics: text})

    async def _answer(
        self, writer: asyncio.StreamWriter, request: Mapping[str, Any], content: bytes
    ) -> None:
        """Answer one request, or say why not; either way it is written down, once it was sent."""
        begin, loop = time.monotonic(), asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._worker, self.answered, request, content)
        why = answer.pop("detail", "") or answer.get("failure", "")
        about: dict[str, Any] = {n: plain(request.get(n, ""), 40) for n in ("step", "round")}
        about |= {
            "run": self.run,
            "request": len(content),
            "seconds": round(time.monotonic() - begin, 3),
        }
        body = answer.pop("content", b"")
        try:
            writer.write(frame({"id": request.get("id"), **answer}, body))
            await writer.drain()
        except (OSError, asyncio.CancelledError):
            self.trail.write("not sent", **about, why=plain(why))  # it may have left in part
            raise
        self.trail.write(
            "refused" if why else "answered", **about, why=plain(why), answered=len(body)
        )


def state_file(joined: Joined) -> Path:
    """Where a site's process says how it is."""
    return joined.log.with_suffix(".state")


def status(joined: Joined) -> tuple[bool, str]:
    """Whether a site's process is alive, and in words what it does."""
    try:
        state = json.loads(state_file(joined).read_text())
    except (OSError, ValueError):
        return False, f"site {joined.site!r} is not started: 'agnosticfair deploy site'"
    if (age := time.time() - state["seen"]) > 2 * SILENT:
        return False, f"site {joined.site!r} has been silent for {age:.0f} s: start it again"
    what = f"site {joined.site!r} ({state.get('app', 'an older version')}) is in"
    if state["connected"]:
        return True, f"{what} run {state['run']}"
    return True, f"{what} no run: {state['why'] or 'the last one has ended'}"


def answer(joined: Joined, request: Mapping[str, Any], content: bytes) -> dict[str, Any]:
    """A site's answer."""

    def answered() -> dict[str, Any]:
        step = str(request["step"])
        if step == HELLO:
            record: dict[str, Any] = {"about": hello(joined.config)}
        else:
            record = {"content": respond(joined.config, step, content)}
        return record | {"rows": pin(joined.config, joined.log.with_suffix(".pin"))}

    return reported(joined.site, answered)


def reported(site: str, answered: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """An answer as it is sent; what goes wrong travels as a sentence.  detail: for the site's own log."""
    try:
        return {"site": site, **answered()}
    except Exception as error:
        detail = getattr(error, "detail", "") or located(error)
        return {"site": site, "failure": plain(reason(error)), "detail": detail}


def located(error: Exception) -> str:
    """Where an error that is none of ours came up, without its words, which may quote a row."""
    if isinstance(error, AgnosticFairError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} at {Path(frames[-1].filename).name}, line {frames[-1].lineno}"


def serve_site(path: Path) -> None:
    """Run the site of a file until it is told to end (SIGTERM, Ctrl-C)."""
    joined = read_site(path)
    run_node(Node(joined, Trail(joined.log), partial(answer, joined)))


def run_node(node: Node) -> None:
    """Serve until a signal, with the node's key, which is made where there is none."""
    load_key(node.joined.key, node.joined.site)
    node.trail.write("started")
    with suppress(asyncio.CancelledError):
        asyncio.run(_until_signal(node))
    node.trail.write("stopped")
    state_file(node.joined).unlink(missing_ok=True)


async def _until_signal(node: Node) -> None:
    task = existing(asyncio.current_task())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await node.serve()
