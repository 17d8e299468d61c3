"""A run over sites: one process that opens the door, waits for the sites, fits, and leaves the results."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agnosticfair.deploy.coordinator import results
from agnosticfair.deploy.door import Door
from agnosticfair.deploy.folder import Settings, read_config, read_settings, write
from agnosticfair.errors import AgnosticFairError, FederationError, SettingsError, plain
from agnosticfair.monitoring.verdict import Gauges
from agnosticfair.protocol.engines.remote import RemoteEngine
from agnosticfair.runs.provenance import COMMAND, as_json
from agnosticfair.server import checkpoints

LATEST = "latest"
LOCK = "state/run.lock"
STATE = "state/run.json"
CHECKED = "state/check"
CHECK = "check"
"""The number of a run that trains nothing."""


@dataclass(frozen=True)
class Notify:
    """Who is told what while a run goes on: of a round, and of what holds the run up."""

    on_round: Callable[[dict[str, Any]], None] = lambda state: None
    on_trouble: Callable[[str], None] = lambda sentence: None


@dataclass
class Live:
    """What 'deploy status' reads of a run while it goes on, and after it."""

    settings: Settings
    door: Door
    notify: Notify
    state: dict[str, Any]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, **changes: Any) -> None:
        """Write the state with what is new in it, from any thread; a check leaves that of the last run."""
        with self._lock:
            self.state |= changes
            self.state |= {"sites": self.door.state(), "seen": time.time()}
            if self.state["run"] == CHECK:
                return
            write(self.settings.folder / STATE, as_json(self.state).decode())
            if self.settings.metrics:
                write(self.settings.folder / self.settings.metrics, run_gauges(self.state).decode())

    def waiting(self, waiting: Mapping[str, str]) -> None:
        for key, why in waiting.items():
            if self.state["waiting"].get(key) != why:
                self.notify.on_trouble(f"waiting for site {key!r}: {why}")
        self.write(waiting=dict(waiting))


def run_federation(
    folder: Path, notify: Notify | None = None, timeout: float = 3600.0, check: bool = False
) -> Path:
    """A run, from its first connection to its results, and where those are; it goes on from the checkpoint of one that
    was stopped.  check: train nothing, and leave what every site says of itself, if all is in order."""
    settings, notify = read_settings(folder), notify or Notify()
    config = {**read_config(folder), "command": shlex.join(COMMAND.get())}
    if check:  # the last run's results stay what they are
        config |= {"check": True, "on-failure": "wait", "out": str(settings.folder / CHECKED)}
    config["patience"] = min(float(config.get("patience") or timeout), timeout)
    run = CHECK if check else next_run(settings.folder)
    with locked(settings), Door(settings, run) as door:
        state = {"run": run, "began": time.time(), "ended": "", "round": {}, "waiting": {}}
        live = Live(settings, door, notify, state)
        engine = RemoteEngine(door, settings.sites, door.why, live.waiting)
        engine.until = time.monotonic() + timeout

        def on_round(entry: dict[str, Any]) -> None:
            live.write(round=entry)
            notify.on_round(live.state)

        live.write()
        try:
            files = results(engine, config, run, on_round)
            out = leave(config, run, files)
        except (AgnosticFairError, OSError) as error:
            live.write(ended=plain(error, 8000))
            raise FederationError(f"run {run}: {plain(error, 8000)}") from None
        except KeyboardInterrupt:
            live.write(ended="it was stopped")
            raise
        live.write(ended="well", waiting={})
    return out


@contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """One run at a time in a folder; the lock, which has the process's id, ends with that."""
    path = settings.folder / LOCK
    path.parent.mkdir(exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FederationError(
                f"a run of {str(settings.folder)!r} goes on: wait for it ('agnosticfair deploy status'), "
                "or stop it ('agnosticfair deploy stop')"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def next_run(folder: Path) -> str:
    known = [path.name for path in (folder / "results").glob("*") if path.name.isdigit()]
    return str(1 + max(map(int, (*known, read_state(folder).get("run", 0)))))


def holder(folder: Path) -> int:
    """The process that holds the lock of a run; 0 where none goes on."""
    with suppress(OSError, ValueError), (folder / LOCK).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(file.read())
    return 0


def stop(folder: Path) -> bool:
    """Stop the run that goes on; whether there was one."""
    if process := holder(folder):
        os.kill(process, signal.SIGTERM)
    return bool(process)


def read_state(folder: Path) -> dict[str, Any]:
    """What the last run, or the one that goes on, wrote of itself."""
    try:
        return dict(json.loads((folder / STATE).read_text()))
    except (OSError, ValueError):
        return {}


def run_gauges(state: Mapping[str, Any]) -> bytes:
    """A run's round and its sites.  state: as ``Live`` has it."""
    gauges = Gauges()
    for key, words in state["sites"].items():
        connected = words == "connected"
        gauges.gauge("run_site_connected", "1 if the site is connected", {"site": key}, connected)
    ended = state["ended"]
    rounds = state["round"].get("round", 0)
    gauges.gauge("run_round", "The last round of the last run", {}, rounds)
    gauges.gauge("run_waiting", "Sites that the run waits for", {}, len(state["waiting"]))
    gauges.gauge("run_failed", "1 if the last run failed", {}, ended not in ("", "well"))
    gauges.gauge("run_seen", "When this was written", {}, state["seen"])
    return gauges.text()


def leave(config: Mapping[str, Any], run: str, files: Mapping[str, bytes]) -> Path:
    """Publish the files of a run that is done, so that the next is a new one; where they are."""
    out = Path(config["out"])
    out.mkdir(parents=True, exist_ok=True)
    publish(out, run, files)
    if not config.get("check"):
        (Path(config["checkpoint"]) / checkpoints.FILE).unlink(missing_ok=True)
    return out


def publish(out: Path, run: str, files: Mapping[str, bytes]) -> None:
    """Put the files of a run where they are looked for, in one step: ``out/RUN/`` is written beside and renamed, then
    one link, ``out/latest``, is replaced, through which all other links go."""
    draft, place = out / f".{run}.draft", out / run
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for name, content in files.items():
            with (draft / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        shutil.rmtree(place, ignore_errors=True)  # a check before this one
        draft.replace(place)
        for name in files:
            _link(out / name, Path(LATEST) / name)
        _link(out / LATEST, Path(run))
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise SettingsError(
            f"the results of run {run} cannot be written to {str(out)!r}: {error.strerror}; make room or "
            "let this user write there, and run again"
        ) from None


def _link(place: Path, to: Path) -> None:
    """Let ``place`` be a link, whatever it was, at once."""
    if place.is_symlink() and place.readlink() == to:
        return
    draft = place.with_name(f".{place.name}.{os.getpid()}.link")
    draft.unlink(missing_ok=True)
    draft.symlink_to(to)
    draft.replace(place)
