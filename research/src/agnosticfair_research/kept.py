"""Cells on the disk, so that a run can be stopped and taken up again; and which code they are of."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import agnosticfair
from agnosticfair.data.storage import write_atomically
from agnosticfair.errors import SettingsError
from agnosticfair_research import entrants
from agnosticfair_research.benchmark import REPORTED, Cell, key_of, run
from agnosticfair_research.pool import Row

FORMAT = "agnosticfair-bench-1"
PACKAGE, RESEARCH = Path(agnosticfair.__file__).parent, Path(__file__).parent
FOLDERS = {"src/agnosticfair": "", "research/src/agnosticfair_research": "research/"}
"""Where the repository has the modules, and what their names begin with in a digest."""


@dataclass(frozen=True)
class Code:
    """The code that runs. commit: its hash, None if unknown.  clean: whether nothing was changed since;
    None if nobody can tell.  source: SHA-256 of all its modules, the same for the same code anywhere."""

    commit: str | None
    clean: bool | None
    source: str


def code(stated: str | None = None) -> Code:
    """The code of both packages; ``stated`` is its commit where there is no repository to ask."""
    files = {
        f"{before}{p.relative_to(folder).as_posix()}": p.read_bytes()
        for folder, before in zip((PACKAGE, RESEARCH), FOLDERS.values(), strict=True)
        for p in folder.rglob("*.py")
    }
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return Code(stated, None, digest(files))
    if stated is not None and not commit.startswith(stated):
        raise SettingsError(
            f"the code is of commit {commit[:12]}, not {stated}: leave --commit out"
        )
    clean = all(_git("status", "--porcelain", ".", where=w) == "" for w in (PACKAGE, RESEARCH))
    return Code(commit, clean, digest(files))


def digest(files: Mapping[str, bytes]) -> str:
    """One SHA-256 of files by name.

    >>> digest({"a.py": b"1", "b.py": b""}) == digest({"b.py": b"", "a.py": b"1"})
    True
    """
    found = hashlib.sha256()
    for name, content in sorted(files.items()):
        found.update(f"{name} {len(content)}\n".encode() + content)
    return found.hexdigest()


def source_of(commit: str, where: Path) -> str | None:
    """The digest of the packages' modules as a commit of the repository ``where`` has them, if it has it."""
    top = _git("rev-parse", "--show-toplevel", where=where)
    names = top and _git("ls-tree", "-r", "--name-only", commit, *FOLDERS, where=Path(top))
    if not top or not names:
        return None
    files = {
        f"{before}{name.removeprefix(f'{folder}/')}": _show(commit, name, Path(top))
        for folder, before in FOLDERS.items()
        for name in names.splitlines()
        if name.startswith(f"{folder}/") and name.endswith(".py")
    }
    return digest(files)


def _git(*words: str, where: Path = PACKAGE) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603
            ["git", *words],  # noqa: S607
            cwd=where,
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode().strip()


def _show(commit: str, name: str, where: Path) -> bytes:
    words = ["git", "show", f"{commit}:{name}"]
    return subprocess.run(words, cwd=where, capture_output=True, check=True).stdout  # noqa: S603


def authorise(seeds: Iterable[int], code: Code, files: Iterable[str] = ()) -> None:
    """Raise unless these seeds may be run: reported ones are for a commit without local changes, also of those
    files that hold an entrant."""
    reported = sorted({*seeds} & {*REPORTED})
    if not reported:
        return
    if code.commit is None:
        raise SettingsError(
            f"seed {reported[0]} is for reporting, and there is no repository to tell the commit: name it by --commit"
        )
    if code.clean is False:
        raise SettingsError(
            f"seed {reported[0]} is for reporting, and the code differs from commit {code.commit[:12]}: commit "
            "your changes, or take seeds 0 to 19"
        )
    for file in files:
        words, where = ("--", Path(file).name), Path(file).expanduser().resolve().parent
        if not _git("ls-files", *words, where=where) or _git("status", "-s", *words, where=where):
            raise SettingsError(
                f"seed {reported[0]} is for reporting, and {file!r} is not as its repository's commit has it: commit "
                "it, or take seeds 0 to 19"
            )


def write_cell(folder: Path, cell: Cell, code: Code, row: Row) -> None:
    """Keep a cell, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"source": code.source, "limits": cell.limits, "request": cell.request, **row}
    text = json.dumps(content, allow_nan=False)
    write_atomically({folder / f"{cell.key}.json": text.encode()})


def read_cell(folder: Path, cell: Cell, code: Code) -> Row | None:
    """What was kept of a cell by the same code with the same settings, if anything; a failure is tried again."""
    try:
        content: dict[str, Any] = json.loads((folder / f"{cell.key}.json").read_text())
    except (OSError, ValueError):
        return None
    same = (content.pop("source", None), content.pop("limits", None), content.pop("request", None))
    known = same == (code.source, [*cell.limits], [*cell.request]) and "why" not in content
    file = None if cell.file is None else entrants.digest(cell.file)
    return content if known and content.get("file") == file else None


def run_kept(
    wanted: Sequence[Cell], out: Path, code: Code, jobs: int, on_done: Callable[[str], None]
) -> tuple[list[Row], int]:
    """The rows of all cells, in their order, and how many of them had to be run; each is kept as it ends."""
    folder = out / "cells"
    rows = {cell.key: read_cell(folder, cell, code) for cell in wanted}
    todo = {cell.key: cell for cell in wanted if rows[cell.key] is None}

    def done(row: Row) -> None:
        key = key_of(row)
        write_cell(folder, todo[key], code, row)
        rows[key] = row
        on_done(key)

    if todo:
        run([*todo.values()], jobs, done)
    return [row for row in rows.values() if row is not None], len(todo)


def results_of(rows: Sequence[Row], code: Code, absent: Mapping[str, str]) -> dict[str, Any]:
    """The content of results.json; single deployments of the first seed only."""
    first = min((row["seed"] for row in rows), default=0)
    brief = [row if row["seed"] == first else _without_deployments(row) for row in rows]
    return {"format": FORMAT, **asdict(code), "absent": {**absent}, "cells": brief}


def _without_deployments(row: Row) -> Row:
    none: Row = {"deployments": [], "deployment_errors": []}
    return row | {"rows": [r | none for r in row["rows"]]}


def unpack(results: Mapping[str, Any], out: Path) -> None:
    """Cells on the disk from the results of another machine, so that others can be added to them."""
    code = Code(results["commit"], results["clean"], results["source"])
    for row in results["cells"]:
        cell = Cell(*(row[name] for name in ("dataset", "split", "seed", "entrant")))
        write_cell(out / "cells", cell, code, row)
