"""Run folders as the commands leave them, read and checked; what is not one is refused with a sentence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agnosticfair.auditing.certificate import FORMAT as CERTIFICATE
from agnosticfair.data.storage import Decided, read_decided
from agnosticfair.errors import ModelError
from agnosticfair.model import Model, load_model
from agnosticfair.runs.provenance import HISTORY

MAIN = {
    "history.json": ("fit", HISTORY),
    "certificate.json": ("audit", CERTIFICATE),
}
"""A run's main file, the first of these that is there; the command that writes it; and its format."""


@dataclass(frozen=True)
class Run:
    """content: the main file's content.  certificate: beside a fit's.  decided: the test rows with their
    decisions, by file name."""

    path: Path
    kind: str
    content: Mapping[str, Any]
    certificate: Mapping[str, Any] = field(default_factory=dict)
    decided: Mapping[str, Decided] = field(default_factory=dict)
    model: Model | None = None


def read_run(path: Path) -> Run:
    """The run in a folder: of a command, or of a deployment with its results in a folder of their own."""
    folder = path / "results" if (path / "federation.toml").is_file() else path
    if not folder.is_dir():
        raise ModelError(
            f"there is no run folder {str(path)!r}: name what a command wrote by --out"
        )
    name = next((name for name in MAIN if (folder / name).is_file()), None)
    if _time(folder / "error.json") > _time(folder / "history.json"):  # of a deployed run
        why = _json(folder / "error.json").get("error")
        raise ModelError(f"the run in {str(path)!r} ended with an error ({why}): run it again")
    if name is None:
        raise ModelError(
            f"{str(path)!r} holds no results of agnosticfair ({', '.join(MAIN)}): name a folder written "
            "by fit --run, audit or deploy run"
        )
    kind, form = MAIN[name]
    content = _json(folder / name)
    if content.get("format") != form:
        raise ModelError(
            f"{str(folder / name)!r} has format {content.get('format')!r}; this version reads {form!r}: "
            f"run '{kind}' again"
        )
    decided = {p.name: read_decided(p) for p in sorted(folder.glob("rows*.parquet"))}
    if kind != "fit":
        return Run(path, kind, content, decided=decided)
    for other in ("certificate.json", "model.safetensors"):
        if not (folder / other).is_file():
            raise ModelError(f"the run in {str(path)!r} is incomplete: {other!r} is not there")
    _check_files(folder, content.get("files", {}))
    certificate = _json(folder / "certificate.json")
    return Run(path, kind, content, certificate, decided, load_model(folder / "model.safetensors"))


def _check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Raise where a file is not the one that the history was written with."""
    for name, digest in files.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise ModelError(
                f"{name!r} in {str(folder)!r} is not of the run that 'history.json' tells of: take all "
                "files of one run"
            )


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
