"""Options that the commands of experiments share; and names with commas between them, read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from typer import Option

Datasets = Annotated[
    str, Option(help="Names with commas between, or all: see agnosticfair-research data.")
]
Seeds = Annotated[int, Option(help="Runs of each method, each on a split of its own.")]
DataFolder = Annotated[
    Path | None, Option(help="Where data not shipped is; else $AGNOSTICFAIR_DATA, else downloaded.")
]


def listed(text: str, known: Iterable[str]) -> list[str]:
    """Names with commas between them; 'all' is all there are.

    >>> listed("fl, afl", ["fl", "afl", "fedavg"]), listed("all", ["x", "y"])
    (['fl', 'afl'], ['x', 'y'])
    """
    return list(known) if text.strip() == "all" else [name.strip() for name in text.split(",")]
