"""The command line ``agnosticfair-research``."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from agnosticfair.cli import add, run
from agnosticfair_research.commands import bench, data, reproduce

app = typer.Typer(
    help="The paper's experiments and the benchmark of agnosticfair.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
COMMANDS = (data.data, reproduce.reproduce, bench.bench)
add(app, "agnosticfair-research", "Experiments", COMMANDS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    run(app, "agnosticfair-research", arguments)
