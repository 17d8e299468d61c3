"""Submits a run over sites, follows it, says what holds it up, and checks what really became of it.

A run counts as good when its status is 'finished:completed' and model and history of that very run are
there.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agnosticfair.errors import FederationError
from agnosticfair.flower import control
from agnosticfair.flower.folder import Settings, read_config, read_settings
from agnosticfair.model import Model, load_model
from agnosticfair.runs.provenance import COMMAND

LOST = 60.0
"""Seconds without a sign of the SuperLink after which it is given up on."""

LOOK = 2.0
"""Seconds between two questions after a run's status."""

LOCK, CHECKED = "state/run.lock", "state/check"


@dataclass(frozen=True)
class Result:
    """A finished run: its model, and the history that its ServerApp wrote."""

    run: str
    model: Model
    history: dict[str, Any]
    folder: Path


@dataclass(frozen=True)
class Notify:
    """Who is told what while a run goes on: of a round, and of what holds the run up."""

    on_round: Callable[[dict[str, Any]], None] = lambda progress: None
    on_trouble: Callable[[str], None] = lambda sentence: None


def run_federation(folder: Path, notify: Notify | None = None, timeout: float = 3600.0) -> Result:
    """Register the sites' keys, submit a run and wait for its end; stop it when the time is up."""
    run, out = _run(folder, notify or Notify(), timeout, {})
    history = read_json(out / "history.json", run)
    if not history:
        raise FederationError(
            f"run {run} ended well, but its history is not in {str(out)!r}: 'deploy run' reads it from "
            "the SuperLink's machine"
        )
    return Result(run, load_model(out / "model.safetensors"), history, out)


def check_federation(
    folder: Path, notify: Notify | None = None, timeout: float = 60.0
) -> dict[str, Any]:
    """What every site says of itself, if keys, connections, versions and files are in order; no training."""
    apart = str(read_settings(folder).folder / CHECKED)  # the last run's results stay what they are
    changes = {"check": True, "on-failure": "wait", "out": apart}
    run, out = _run(folder, notify or Notify(), timeout, changes)
    return dict(read_json(out / "check.json", run)["sites"])


def _run(
    folder: Path, notify: Notify, timeout: float, changes: Mapping[str, Any]
) -> tuple[str, Path]:
    """Submit a run and follow it to a good end, or say why it had another."""
    settings = read_settings(folder)
    config = read_config(folder) | {"folder": str(settings.folder), **changes}
    config["patience"] = min(float(config.get("patience") or timeout), timeout)
    config["command"] = shlex.join(COMMAND.get())
    out = Path(config["out"])
    with locked(settings):
        patiently(lambda: control.register(settings), notify)
        for other in control.active_runs(settings):  # of a 'deploy run' that was killed
            notify.on_trouble(f"run {other} was left behind: it is stopped first")
            control.stop(settings, other)
        run = control.submit(settings, config)
        (settings.folder / LOCK).write_text(run)
        try:
            status, why = _follow(settings, run, out, notify, timeout)
        except KeyboardInterrupt:
            raise Interrupted(run) from None
    if status != "finished:completed":
        error_text = read_json(out / "error.json", run).get("error") or why
        if not error_text and status == "finished:stopped":
            raise FederationError(
                f"run {run} was stopped: the next one goes on from its checkpoint"
            )
        raise FederationError(
            f"run {run} ended as {status}: {error_text or 'the SuperLink gave no cause'}"
        )
    return run, out


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a run goes on; ``args[0]`` is the run."""


@contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """One run at a time in a folder; the lock ends with the process that holds it."""
    path = settings.folder / LOCK
    path.parent.mkdir(exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            run = path.read_text().strip() or "that is about to begin"
            raise FederationError(
                f"run {run} of {str(settings.folder)!r} goes on: wait for it ('agnosticfair deploy status'), "
                "or stop it ('agnosticfair deploy stop')"
            ) from None
        try:
            yield
        finally:
            with suppress(OSError):
                os.truncate(path, 0)


def patiently(work: Callable[[], Any], notify: Notify) -> Any:
    """The answer of a SuperLink that may just have been started; what it waits for is said at once."""
    begin, last_message = time.monotonic(), ""
    while True:
        try:
            return work()
        except control.Away as error:
            if time.monotonic() - begin > LOST:
                raise
            if str(error) != last_message and time.monotonic() - begin > 3:
                last_message = str(error)
                notify.on_trouble(f"{last_message}; waiting for it, {LOST:.0f} s at most")
        time.sleep(0.5)


def _follow(
    settings: Settings, run: str, out: Path, notify: Notify, timeout: float
) -> tuple[str, str]:
    """The run's status at its end and its cause; rounds and troubles are told of on the way."""
    seen: Any = {}
    waiting: Mapping[str, str] = {}
    begin, looked = time.monotonic(), -LOOK
    while True:
        progress = read_json(out / "progress.json", run)
        if progress and progress["round"] != seen:
            seen = progress["round"]
            notify.on_round(progress)
        now = progress.get("waiting", {})
        for key, why in now.items():
            if waiting.get(key) != why:
                notify.on_trouble(f"waiting for site {key!r}: {why}")
        waiting = now
        ended = any(
            read_json(out / name, run) for name in ("history.json", "check.json", "error.json")
        )
        if ended or time.monotonic() - looked > LOOK:
            status, why = patiently(lambda: control.status_of(settings, run), notify)
            looked = time.monotonic()
            if status.startswith("finished"):
                return status, why
            if looked - begin > timeout:
                control.stop(settings, run)
                waiting_sites = "; ".join(f"site {key!r}: {why}" for key, why in waiting.items())
                raise FederationError(
                    f"run {run} was stopped after {timeout:.0f} s ({waiting_sites or status}): the next run goes on "
                    "from its checkpoint; allow more by --timeout"
                )
        time.sleep(0.2)


def read_json(path: Path, run: str) -> dict[str, Any]:
    """A file of this very run; nothing if it is not there, or of an earlier run."""
    try:
        content = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        return {}
    return content if content.get("run") == run else {}
