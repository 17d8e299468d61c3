"""What the commands of experiments give out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agnosticfair
from agnosticfair.commands.output import deliver

if TYPE_CHECKING:
    from agnosticfair.report.tables import Grid


def made_from(names: Iterable[str], folder: str | None) -> dict[str, Any]:
    """By which command, versions and rows the results were made."""
    from agnosticfair.runs.provenance import provenance
    from agnosticfair_research.datasets import fingerprint, load_dataset

    tables = {name: load_dataset(name, folder) for name in names}
    about = provenance(tables)
    return about | {
        "data": {k: d | {"sha256": fingerprint(tables[k])} for k, d in about["data"].items()}
    }


def deliver_study(
    command: str,
    results: Mapping[str, Any],
    head: str,
    grids: tuple[Iterable[Grid], Iterable[Grid]],
    drawn: Mapping[str, tuple[Any, str]],
    sentence: str,
    out: Path,
    as_json: bool,
) -> None:
    """Write an experiment's results, tables and figures; then show the tables and say where the rest is.  grids: to
    write, and to show."""
    from agnosticfair.report.figures import png
    from agnosticfair_research.report.tables import document

    options = {
        k: "" if v is True else f" {v}" for k, v in results["request"].items() if v is not False
    }
    words = " ".join(f"--{key}{value}" for key, value in options.items())
    made_by = (
        f"Made by `agnosticfair-research {command} {words}`, version {agnosticfair.__version__}."
    )
    name, text = STUDIES[command], json.dumps(results, indent=1, allow_nan=False)
    written = document(head, grids[0], {file: about for file, (_, about) in drawn.items()}, made_by)
    files = {name[0]: f"{text}\n".encode(), name[1]: written.encode()}
    files |= {file: png(figure) for file, (figure, _) in drawn.items()}
    deliver(out, files, grids[1], sentence, text if as_json else None)


STUDIES = {
    "reproduce": ("results.json", "tables.md"),
    "shifts": ("shifts.json", "shifts.md"),
}
