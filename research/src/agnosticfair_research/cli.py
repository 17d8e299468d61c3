"""The command line ``agnosticfair-research``."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from agnosticfair.cli import add, run
from agnosticfair_research.commands import bench, reproduce, shifts

app = typer.Typer(
    help="The paper's experiments, the shift suite and the benchmark of agnosticfair.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
add(app, "agnosticfair-research", "Experiments", (shifts.shifts, bench.bench, reproduce.reproduce))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    run(app, "agnosticfair-research", arguments)
