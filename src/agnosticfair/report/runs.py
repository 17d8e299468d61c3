"""Run folders as the commands leave them, read and checked; what is not one is refused with a sentence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agnosticfair.auditing.certificate import FORMAT as CERTIFICATE
from agnosticfair.data.decided import Decided, read_decided
from agnosticfair.errors import ModelError
from agnosticfair.model import Model, load_model
from agnosticfair.runs.provenance import HISTORY, ROUNDS_FILE, read_rounds

MAIN = {
    "history.json": ("fit", HISTORY),
    "certificate.json": ("audit", CERTIFICATE),
}
"""A run's main file, the first of these that is there; the command that writes it; and its format."""


@dataclass(frozen=True)
class Run:
    """content: the main file's content.  certificate: beside a fit's.  decided: the test rows with their
    decisions, by file name.  rounds: what is known of a fit that still runs."""

    path: Path
    kind: str
    content: Mapping[str, Any]
    certificate: Mapping[str, Any] = field(default_factory=dict)
    decided: Mapping[str, Decided] = field(default_factory=dict)
    model: Model | None = None
    rounds: list[dict[str, Any]] = field(default_factory=list)


def read_run(path: Path, live: bool = False) -> Run:
    """The run in a folder: of a command, or of a deployment with its results in a folder of their own.

    live: a fit that still runs is fine, too.
    """
    folder = path / "results" if (path / "federation.toml").is_file() else path
    if not folder.is_dir():
        raise ModelError(
            f"there is no run folder {str(path)!r}: name what a command wrote by --out"
        )
    begins, rounds = read_rounds(folder)
    name = next((name for name in MAIN if (folder / name).is_file()), None)
    running = _running(folder, rounds)
    if live and (name is None or running):  # watching may begin before the run does
        live_told = {"waiting": _waiting(folder), **begins, **_error(folder)}
        return Run(path, "running", live_told, rounds=rounds)
    if running:
        error = _error(folder).get("error")
        why = f"ended with an error ({error})" if error else "has not ended"
        raise ModelError(
            f"the run in {str(path)!r} {why} after {len(rounds)} rounds: wait for its end or run it again; "
            f"'agnosticfair watch {path}' shows what there is"
        )
    if name is None:
        raise ModelError(
            f"{str(path)!r} holds no results of agnosticfair ({', '.join(MAIN)}): name a folder written "
            "by fit --run, audit or deploy run"
        )
    kind, form = MAIN[name]
    error = _json(folder / name)
    if error.get("format") != form:
        raise ModelError(
            f"{str(folder / name)!r} has format {error.get('format')!r}; this version reads {form!r}: "
            f"run '{kind}' again"
        )
    decided = {p.name: read_decided(p) for p in sorted(folder.glob("rows*.parquet"))}
    if kind != "fit":
        return Run(path, kind, error, decided=decided)
    for other in ("certificate.json", "model.safetensors"):
        if not (folder / other).is_file():
            raise ModelError(f"the run in {str(path)!r} is incomplete: {other!r} is not there")
    _check_files(folder, error.get("files", {}))
    certificate = _json(folder / "certificate.json")
    model = load_model(folder / "model.safetensors")
    return Run(path, kind, error, certificate, decided, model, rounds)


def _check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Raise where a file is not the one that the history was written with."""
    for name, digest in files.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise ModelError(
                f"{name!r} in {str(folder)!r} is not of the run that 'history.json' tells of: take all "
                "files of one run"
            )


def fit_run(files: Mapping[str, bytes], model: Model) -> Run:
    """The run of a fit that has just ended, from what it is about to write."""
    history, certificate = (
        json.loads(files[name]) for name in ("history.json", "certificate.json")
    )
    return Run(Path(history["method"]["name"]), "fit", history, certificate, model=model)


def _running(folder: Path, rounds: list[dict[str, Any]]) -> bool:
    """Whether rounds were written after the last result. In a copied folder times say nothing: there the
    last round is the result's own."""
    path = folder / "history.json"
    if _time(folder / ROUNDS_FILE) <= _time(path):
        return False
    try:
        last = _json(path)["history"][-1]
        return any(rounds[-1][key] != last[key] for key in ("round", "loss", "accuracy"))
    except (ModelError, LookupError, TypeError):
        return True


def _error(folder: Path) -> dict[str, Any]:
    """What a deployed run wrote of its end, if that was an error after its last round."""
    path = folder / "error.json"
    return _json(path) if _time(path) > _time(folder / ROUNDS_FILE) else {}


def _waiting(folder: Path) -> dict[str, str]:
    """For which sites a deployed run waits, and why."""
    try:
        waiting = _json(folder / "progress.json").get("waiting", {})
    except ModelError:
        return {}
    return {str(k): str(v) for k, v in waiting.items()} if isinstance(waiting, dict) else {}


def _time(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
        if not isinstance(content, dict):
            raise ValueError("no object")
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{str(path)!r} cannot be read ({type(error).__name__}): it is damaged, or not ours"
        ) from None
    return content


def sensitive_feature_of(run: Run) -> str:
    """The sensitive feature whose groups a fit is shown for: the certificate's, of several the worst."""
    return run.certificate.get("sensitive_feature") or (*run.content["sensitive_features"], "")[0]
