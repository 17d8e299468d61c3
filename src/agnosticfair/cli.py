"""The command line: its commands put together, and every error in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Annotated

import click
import typer

import agnosticfair
from agnosticfair.commands import (
    audit,
    data,
    deploy,
    fit,
    monitor,
    use,
)
from agnosticfair.commands.options import grouped
from agnosticfair.errors import AgnosticFairError, plain
from agnosticfair.runs.provenance import COMMAND

app = typer.Typer(
    help="Federated classifiers that stay accurate and fair on a deployment nobody has seen.",
    epilog="Begin with: agnosticfair data adult --out adult",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Train and use": (
        *(data.data, fit.fit, use.evaluate, use.predict),
        *(fit.tune, use.export, data.list_methods),
    ),
    "Judge": (
        *(audit.plan_audit, audit.audit, audit.verify, use.report),
        monitor.monitor,
    ),
    "Over sites": (data.schema, data.explain_messages),
}
"""The commands by what they are for, the most used first."""


def add(
    app: typer.Typer, program: str, panel: str, commands: Iterable[Callable[..., None]]
) -> None:
    """Give an app these commands, under the first word of their examples."""
    for command in commands:
        words = vars(command)["example"]
        shown = f"Example: {program} {words}"
        app.command(words.split()[0], epilog=shown, rich_help_panel=panel)(grouped(command))


for panel, commands in COMMANDS.items():
    add(app, "agnosticfair", panel, commands)
    if panel == "Over sites":
        app.add_typer(deploy.deploy, name="deploy", rich_help_panel=panel)
        app.add_typer(deploy.site_app, name="site", rich_help_panel=panel)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"agnosticfair {agnosticfair.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    run(app, "agnosticfair", arguments)


def run(app: typer.Typer, program: str, arguments: Sequence[str] | None = None) -> None:
    """Run a command line; what is wrong with the input ends in one sentence and exit code 2."""
    words = tuple(sys.argv[1:] if arguments is None else arguments)
    COMMAND.set((program, *words))
    try:
        sys.exit(_command(app)(arguments, prog_name=program, standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.UsageError as error:
        known = [c.name for c in app.registered_commands if c.name and words[:1] == (c.name,)]
        name = error.ctx.command_path if error.ctx is not None else " ".join((program, *known))
        message = error.format_message().rstrip(".")
        print(f"error: {message}: see '{name} --help'", file=sys.stderr)
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except AgnosticFairError as error:
        print("error:", plain(error, 8000), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read the output has gone
        sys.stderr.close()
        sys.exit(1)
    except (OSError, MemoryError) as error:
        print("error:", _machine(error), file=sys.stderr)
        sys.exit(2)


_command = cache(typer.main.get_command)
"""Of an app; to make it of the commands' signatures takes longer than many commands."""


def _machine(error: OSError | MemoryError) -> str:
    """What a machine refused, in one sentence.

    >>> _machine(FileNotFoundError(2, "No such file or directory", "/proc/x"))
    "cannot use '/proc/x': No such file or directory; name another place"
    """
    if isinstance(error, MemoryError):
        why = " ".join(str(error).split()) or "there is none left"
        return f"not enough memory ({why}): take fewer rows, columns or kernels, or a folder of Parquet files"
    where = "a file or an address" if error.filename is None else repr(str(error.filename))
    return f"cannot use {where}: {error.strerror or error}; name another place"
