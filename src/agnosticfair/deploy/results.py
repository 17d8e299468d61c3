"""A run's results: model, history and certificate appear together, or not at all.

``results/RUN/`` is written beside and renamed; then one link, ``results/latest``, is replaced. The files
of ``results/`` itself are links through it, so that they change in one step.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from agnosticfair.errors import SettingsError

LATEST = "latest"


def publish(out: Path, run: str, files: Mapping[str, bytes]) -> None:
    """Put the files of a run where they are looked for, in one step."""
    draft, place = out / f".{run}.draft", out / run
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for name, content in files.items():
            with (draft / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
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
