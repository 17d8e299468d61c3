"""Run folders as the commands leave them, read and checked; what is not one is refused with a sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agnosticfair.certificate import FORMAT as CERTIFICATE
from agnosticfair.data.decided import Decided, read_decided
from agnosticfair.errors import ModelError
from agnosticfair.model import Model, load_model
from agnosticfair.record import HISTORY, ROUNDS_FILE, read_rounds

MAIN = {
    "shifts.json": ("shifts", "agnosticfair-shifts-1"),
    "results.json": ("reproduce", "agnosticfair-results-1"),
    "history.json": ("fit", HISTORY),
    "certificate.json": ("audit", CERTIFICATE),
}
"""A run's main file, the first of these that is there; the command that writes it; and its format."""


@dataclass(frozen=True)
class Run:
    """told: the main file's content.  certificate: beside a fit's.  decided: the test rows with their
    decisions, by file name.  rounds: what is known of a fit that still runs."""

    path: Path
    kind: str
    told: Mapping[str, Any]
    certificate: Mapping[str, Any] = field(default_factory=dict)
    decided: Mapping[str, Decided] = field(default_factory=dict)
    model: Model | None = None
    rounds: list[dict[str, Any]] = field(default_factory=list)


def read_run(path: Path, live: bool = False) -> Run:
    """The run in a folder: of a command, or of a deployment with its results in a folder of their own.

    live: a fit that still runs is fine, too.
    """
    folder = path / "results" if (path / "app").is_dir() else path
    if not folder.is_dir():
        raise ModelError(
            f"there is no run folder {str(path)!r}: name what a command wrote by --out"
        )
    begins, rounds = read_rounds(folder)
    if _running(folder):
        if live:
            return Run(path, "running", begins, rounds=rounds)
        raise ModelError(
            f"the run in {str(path)!r} has not ended ({len(rounds)} rounds so far): wait for its end, "
            f"or look at it by 'agnosticfair watch {path}'"
        )
    name = next((name for name in MAIN if (folder / name).is_file()), None)
    if name is None:
        raise ModelError(
            f"{str(path)!r} holds no results of agnosticfair ({', '.join(MAIN)}): name a folder written "
            "by fit --run, reproduce, shifts, audit or deploy run"
        )
    kind, form = MAIN[name]
    told = _json(folder / name)
    if told.get("format") != form:
        raise ModelError(
            f"{str(folder / name)!r} has format {told.get('format')!r}; this version reads {form!r}: "
            f"run '{kind}' again"
        )
    decided = {p.name: read_decided(p) for p in sorted(folder.glob("rows*.parquet"))}
    if kind != "fit":
        return Run(path, kind, told, decided=decided)
    for other in ("certificate.json", "model.safetensors"):
        if not (folder / other).is_file():
            raise ModelError(f"the run in {str(path)!r} is incomplete: {other!r} is not there")
    certificate = _json(folder / "certificate.json")
    model = load_model(folder / "model.safetensors")
    return Run(path, kind, told, certificate, decided, model, rounds)


def _running(folder: Path) -> bool:
    """Whether rounds were written after the last result."""
    rounds, history = folder / ROUNDS_FILE, folder / "history.json"
    if not rounds.exists():
        return False
    return not history.exists() or history.stat().st_mtime_ns < rounds.stat().st_mtime_ns


def _json(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text())
        if not isinstance(told, dict):
            raise ValueError("no object")
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{str(path)!r} cannot be read ({type(error).__name__}): it is damaged, or not ours"
        ) from None
    return told
