"""Entrants whose packages contradict ours, each in an environment of its own, and those from files of others, each in a
process: a cell goes there as JSON and its rows come back.

``make peers`` makes the environments, ``peers/NAME`` in this one; AGNOSTICFAIR_PEERS names another folder.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

import agnosticfair
from agnosticfair.threads import ends_after
from agnosticfair_research.pool import Row

if TYPE_CHECKING:
    from agnosticfair_research.benchmark import Cell

SOURCES = [str(Path(file).parents[1]) for file in (agnosticfair.__file__, __file__)]


def interpreter(name: str, this: bool = False) -> Path | None:
    """Python of the environment that was made for an entrant, if there is one and we are not in it; or ``this`` one,
    in a process of its own, so that what crashes there crashes alone."""
    if "AGNOSTICFAIR_APART" in os.environ:
        return None
    folder = os.environ.get("AGNOSTICFAIR_PEERS") or Path(sys.prefix) / "peers"
    found = Path(sys.executable) if this else Path(folder) / name / "bin" / "python"
    return found if found.exists() else None


def run_apart(cell: Cell, python: Path) -> Row:
    """The rows of a cell, made by another interpreter from this source; its failure is said in ``why``."""
    paths = [*SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])]
    given = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "AGNOSTICFAIR_APART": "1"}
    words = [str(python), "-m", "agnosticfair_research.apart"]
    with (
        TemporaryFile("w+") as out,
        TemporaryFile("w+") as errors,
        Popen(words, stdin=PIPE, stdout=out, stderr=errors, text=True, env=given) as done,  # noqa: S603
    ):
        assert done.stdin is not None
        with suppress(BrokenPipeError):
            # its standard input stays open while we live: it ends with us, however we end
            print(json.dumps(asdict(cell)), file=done.stdin, flush=True)
        code = done.wait()
        with suppress(
            BrokenPipeError
        ):  # what it did not read is tried once more, and again in vain
            done.stdin.close()
        made, said = _lines(out), _lines(errors)
    if code == 0:
        return dict(json.loads(made[-1]))
    return {"why": f"in its own process: {[f'exit {code}', *said][-1]}"[:300]}


def _lines(file: IO[str]) -> list[str]:
    file.seek(0)
    return file.read().strip().splitlines()


def main() -> None:
    """Read a cell, print its rows as the last line."""
    from agnosticfair_research.benchmark import Cell, run_cell

    request = json.loads(sys.stdin.readline())
    ends_after(lambda: os.read(0, 1))  # no more is written: it returns when the writer is gone
    lists = {name: tuple(request[name]) for name in ("limits", "request")}
    row = run_cell(Cell(**request | lists))
    print("\n" + json.dumps(row, allow_nan=False))


if __name__ == "__main__":
    main()
