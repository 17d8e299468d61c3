"""Entrants whose packages contradict ours, each in an environment of its own: a cell goes there as JSON and its rows
come back.

``make peers`` makes the environments, ``peers/NAME`` in this one; AGNOSTICFAIR_PEERS names another folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import agnosticfair
from agnosticfair.experiments.pool import Row

if TYPE_CHECKING:
    from agnosticfair.experiments.benchmark import Cell

SOURCE = Path(agnosticfair.__file__).parents[1]


def interpreter(name: str) -> Path | None:
    """Python of the environment that was made for an entrant, if there is one and we are not in it."""
    folder = os.environ.get("AGNOSTICFAIR_PEERS") or Path(sys.prefix) / "peers"
    found = Path(folder) / name / "bin" / "python"
    return found if found.exists() and "AGNOSTICFAIR_APART" not in os.environ else None


def run_apart(cell: Cell, python: Path) -> Row:
    """The rows of a cell, made by another interpreter from this source; its failure is said in ``why``."""
    paths = [str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    given = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "AGNOSTICFAIR_APART": "1"}
    done = subprocess.run(  # noqa: S603
        [python, "-m", "agnosticfair.experiments.apart"],
        input=json.dumps(asdict(cell)),
        capture_output=True,
        text=True,
        env=given,
        check=False,
    )
    if done.returncode == 0:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    said = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    return {"why": f"in its own environment: {said}"[:300]}


def main() -> None:
    """Read a cell, print its rows as the last line."""
    from agnosticfair.experiments.benchmark import Cell, run_cell

    asked = json.loads(sys.stdin.read())
    lists = {name: tuple(asked[name]) for name in ("limits", "asked")}
    row = run_cell(Cell(**asked | lists))
    print("\n" + json.dumps(row, allow_nan=False))


if __name__ == "__main__":
    main()
