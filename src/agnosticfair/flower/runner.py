"""Submits a run over sites, follows it, and checks what really became of it.

Through Flower's own command, whose exit status says nothing of the run: a run counts as good when
its status is 'finished:completed' and model and history of that very run are there.
"""

from __future__ import annotations

import json
import os
import subprocess  # only Flower's own command, without a shell
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.flower.folder import QUIET
from agnosticfair.model import Model, load_model

LOST = 60.0
"""Seconds without a sign of the SuperLink after which the run is given up on."""

LOOK = 5.0
"""Seconds between two questions after a run's status: each costs the start of Flower's command."""


@dataclass(frozen=True)
class Result:
    """A finished run: its model, and the history that its ServerApp wrote."""

    run: str
    model: Model
    history: dict[str, Any]
    folder: Path


def run_federation(
    folder: Path, on_progress: Callable[[dict], None] | None = None, timeout: float = 3600.0
) -> Result:
    """Register the sites' keys, submit a run and wait for its end."""
    folder = folder.resolve()
    config = read_config(folder)
    for key in sorted(config["sites"].split(",")):
        register(folder, key)
    run = str(flwr(folder, "run", str(folder / "app"))["run-id"])
    out = Path(config["out"])
    status = _follow(folder, run, out, on_progress or (lambda progress: None), timeout)
    if status != "finished:completed":
        told = _read(out / "error.json", run).get("error")
        raise FederationError(
            f"run {run} ended as {status}: {told or 'look at the log of the SuperLink'}"
        )
    history = _read(out / "history.json", run)
    if not history:
        raise FederationError(
            f"run {run} ended well, but its history is not in {str(out)!r}: 'deploy run' reads it from "
            "the SuperLink's machine"
        )
    return Result(run, load_model(out / "model.safetensors"), history, out)


def _follow(
    folder: Path, run: str, out: Path, on_progress: Callable[[dict], None], timeout: float
) -> str:
    """The run's status at its end; its rounds are told of on the way."""
    seen, begin, looked = None, time.monotonic(), -LOOK
    while True:
        progress = _read(out / "progress.json", run)
        if progress and progress["round"] != seen:
            seen = progress["round"]
            on_progress(progress)
        told = any(_read(out / name, run) for name in ("history.json", "error.json"))
        if told or time.monotonic() - looked > LOOK:
            status, looked = status_of(folder, run), time.monotonic()
            if status.startswith("finished"):
                return status
            if looked - begin > timeout:
                raise FederationError(
                    f"run {run} is still {status} after {timeout:.0f} s: allow more time, or stop it "
                    f"by 'flwr stop {run}'"
                )
        time.sleep(0.5)


def read_config(folder: Path) -> dict[str, Any]:
    """The run's configuration in a folder of 'deploy init'."""
    path = folder / "app" / "pyproject.toml"
    try:
        config = dict(tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["config"])
        return {name: config[name] for name in ("method", "sites", "out")} | config
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise SettingsError(
            f"{str(folder)!r} is no folder of 'deploy init' ("
            f"{type(error).__name__} at {path.name}): make one by "
            "'agnosticfair deploy init'"
        ) from None


def register(folder: Path, key: str) -> None:
    """Let the SuperLink know a site's public key; one that it knows already is fine.

    A SuperLink that is not there yet is waited for: it may just have been started.
    """
    public = folder / "keys" / f"{key}.pub"
    if not public.is_file():
        raise SettingsError(f"there is no public key {str(public)!r}: put the site's own there")
    begin = time.monotonic()
    while True:
        told = flwr(folder, "supernode", "register", str(public), "--name", key, check=False)
        if "is unavailable" not in told.get("error-message", "") or (
            time.monotonic() - begin > LOST
        ):
            break
        time.sleep(1.0)
    if not told["success"] and "already in use" not in told["error-message"]:
        raise FederationError(f"the key of site {key!r} was refused: {_line(told)}")


def status_of(folder: Path, run: str) -> str:
    """The run's real status; a SuperLink that is silent for a while ends the waiting."""
    begin = time.monotonic()
    while True:
        told = flwr(folder, "list", "--run-id", run, check=False)
        if told["success"]:
            return str(told["runs"][0]["status"])
        if time.monotonic() - begin > LOST:
            raise FederationError(
                f"the SuperLink gives no news of run {run} ({_line(told)}): start it again, then "
                "'deploy run' goes on from the last checkpoint"
            )
        time.sleep(2.0)


def flwr(folder: Path, *arguments: str, check: bool = True) -> dict[str, Any]:
    """What Flower's command says, as JSON, under this folder's configuration."""
    command = [str(Path(sys.executable).parent / "flwr"), *arguments, "--format", "json"]
    environment = {**os.environ, **QUIET, "FLWR_HOME": str(folder / "flower")}
    try:
        done = subprocess.run(  # noqa: S603
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    except FileNotFoundError:
        raise SettingsError("Flower is not here: pip install 'agnosticfair[flower]'") from None
    except subprocess.TimeoutExpired:
        return _failed("no answer within 120 s", check)
    start = done.stdout.find("{")
    try:
        told = json.loads(done.stdout[start:])
    except json.JSONDecodeError:
        return _failed(done.stderr.strip().rpartition("\n")[2] or "no answer", check)
    if not told.get("success"):
        return _failed(str(told.get("error-message", "")), check)
    return told


def _failed(why: str, check: bool) -> dict[str, Any]:
    told = {"success": False, "error-message": why}
    if check:
        raise FederationError(f"Flower refused: {_line(told)}; is the SuperLink started?")
    return told


def _line(told: dict[str, Any]) -> str:
    return " ".join(str(told["error-message"]).split())[-300:]


def _read(path: Path, run: str) -> dict[str, Any]:
    """A file of this very run; nothing if it is not there, or of an earlier run."""
    try:
        told = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        return {}
    return told if told.get("run") == run else {}
