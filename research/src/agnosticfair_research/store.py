"""Cells on the disk, a line of JSON each, so that a run is taken up again; and which code they are of."""

from __future__ import annotations

import hashlib
import json
import lzma
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import agnosticfair
from agnosticfair.errors import SettingsError
from agnosticfair_research import entrants
from agnosticfair_research.benchmark import REPORTED, Cell, key_of, run
from agnosticfair_research.deployments import Row

FILE = "cells.jsonl"
PACKAGE, RESEARCH = Path(agnosticfair.__file__).parent, Path(__file__).parent


@dataclass(frozen=True)
class Code:
    """The code that runs. commit: its hash, None if unknown.  clean: whether nothing was changed since;
    None if nobody can tell.  source: SHA-256 of all modules of both packages, the same for the same code anywhere."""

    commit: str | None
    clean: bool | None
    source: str


def code() -> Code:
    """The code of both packages."""
    digest = hashlib.sha256()
    for folder in (PACKAGE, RESEARCH):
        for path in sorted(folder.rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder)} {len(content)}\n".encode() + content)
    commit = _git("rev-parse", "HEAD")
    clean = all(_git("status", "--porcelain", ".", where=w) == "" for w in (PACKAGE, RESEARCH))
    return Code(commit, None if commit is None else clean, digest.hexdigest())


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


def authorise(seeds: Iterable[int], code: Code, files: Iterable[str] = ()) -> None:
    """Raise unless these seeds may be run: reported ones are for a commit without local changes, also of those
    files that hold an entrant."""
    reported = sorted({*seeds} & {*REPORTED})
    if not reported:
        return
    if not code.clean:
        which = "no commit" if code.commit is None else f"commit {code.commit[:12]} with changes"
        raise SettingsError(
            f"seed {reported[0]} is for reporting, and the code is of {which}: commit them, or take seeds 0 to 19"
        )
    for file in files:
        words, where = ("--", Path(file).name), Path(file).expanduser().resolve().parent
        if not _git("ls-files", *words, where=where) or _git("status", "-s", *words, where=where):
            raise SettingsError(
                f"seed {reported[0]} is for reporting, and {file!r} is not as its repository's commit has it: commit "
                "it, or take seeds 0 to 19"
            )


def append(folder: Path, code: Code, cell: Cell, row: Row) -> None:
    """Keep a cell: one more line."""
    head = {"commit": code.commit, "clean": code.clean, "source": code.source}
    line = json.dumps(
        head | {"limits": cell.limits, "request": cell.request} | row, allow_nan=False
    )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE).open("a") as file:
        file.write(f"{line}\n")


def read(path: Path) -> list[Row]:
    """The cells of a file, maybe compressed (.xz), of each the last that has a result; a last line cut off is left."""
    rows: dict[str, Row] = {}
    content = path.read_bytes() if path.exists() else b""
    lines = (lzma.decompress(content) if path.suffix == ".xz" else content).decode().splitlines()
    for k, line in enumerate(lines):
        try:
            row = json.loads(line)
        except ValueError:
            if k + 1 < len(lines):
                raise SettingsError(
                    f"line {k + 1} of {str(path)!r} is no JSON: delete it, and its cell is run again"
                ) from None
            break
        if "why" not in row or key_of(row) not in rows:
            rows[key_of(row)] = row
    return [*rows.values()]


def mend(path: Path) -> None:
    """Take off a last line that was cut off, so that the next one begins on its own."""
    if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def run_stored(
    wanted: Sequence[Cell],
    out: Path,
    code: Code,
    jobs: int,
    on_done: Callable[[str], None],
    budget: float = np.inf,
) -> tuple[list[Row], int]:
    """The rows of all cells, in their order, and how many of them were run; each is kept as it ends."""
    mend(out / FILE)
    rows: dict[str, Row] = {key_of(row): row for row in read(out / FILE)}
    todo = {cell.key: cell for cell in wanted if not usable(rows.get(cell.key), cell, code)}
    ran: list[str] = []

    def done(row: Row) -> None:
        key = key_of(row)
        append(out, code, todo[key], row)
        rows[key] = row | {"commit": code.commit, "clean": code.clean, "source": code.source}
        ran.append(key)
        on_done(key)

    if todo:
        run([*todo.values()], jobs, done, budget)
    there = [rows[c.key] for c in wanted if c.key not in todo or c.key in ran]
    return there, len(ran)


def usable(row: Mapping[str, object] | None, cell: Cell, code: Code) -> bool:
    """Whether a stored cell stands for this one: the same settings, a result, the same entrant's file; and of a
    reported seed the same code. On development seeds results of earlier code are taken up, and said to be."""
    if row is None or "why" in row:
        return False
    same = (row["limits"], row["request"]) == ([*cell.limits], [*cell.request])
    file = None if cell.file is None else entrants.digest(cell.file)
    code_counts = cell.seed in REPORTED
    return same and row.get("file") == file and (not code_counts or row["source"] == code.source)
