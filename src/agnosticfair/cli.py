"""The command line: its commands put together, and every error in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import click
import typer

import agnosticfair
from agnosticfair.commands import (
    audit,
    bench,
    data,
    deploy,
    evaluate,
    export,
    fit,
    lists,
    messages,
    monitor,
    predict,
    report,
    reproduce,
    schema,
    shifts,
    tune,
    verify,
)
from agnosticfair.commands.options import grouped
from agnosticfair.errors import AgnosticFairError
from agnosticfair.runs.provenance import COMMAND

app = typer.Typer(
    help="Federated classifiers that stay accurate and fair on a deployment nobody has seen.",
    epilog="Begin with: agnosticfair data adult --out adult",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
COMMANDS: dict[str, dict[str, tuple[Callable[..., None], str]]] = {
    "Train and use": {
        "data": (data.data, data.EPILOG),
        "fit": (fit.fit, fit.EPILOG),
        "evaluate": (evaluate.evaluate, evaluate.EPILOG),
        "predict": (predict.predict, predict.EPILOG),
        "tune": (tune.tune, tune.EPILOG),
        "export": (export.export, export.EPILOG),
        "methods": (lists.list_methods, lists.METHODS_EPILOG),
    },
    "Judge": {
        "audit": (audit.audit, audit.EPILOG),
        "verify": (verify.verify, verify.EPILOG),
        "report": (report.report, report.EPILOG),
        "watch": (report.watch, report.WATCH_EPILOG),
        "monitor": (monitor.monitor, monitor.EPILOG),
        "share-state": (monitor.share_state, monitor.SHARE_EPILOG),
    },
    "Over sites": {
        "schema": (schema.schema, schema.EPILOG),
        "explain-messages": (messages.explain_messages, messages.EPILOG),
    },
    "Experiments": {
        "shifts": (shifts.shifts, shifts.EPILOG),
        "bench": (bench.bench, bench.EPILOG),
        "reproduce": (reproduce.reproduce, reproduce.EPILOG),
    },
}
"""The commands by what they are for, the most used first."""

for panel, commands in COMMANDS.items():
    for name, (command, epilog) in commands.items():
        app.command(name, epilog=epilog, rich_help_panel=panel)(grouped(command))
    if panel == "Over sites":
        app.add_typer(deploy.deploy, name="deploy", rich_help_panel=panel)


def _version(asked: bool) -> None:
    if asked:
        print(f"agnosticfair {agnosticfair.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _named(words: Sequence[str]) -> str:
    """The command that these words ask for, where there is one of that name.

    >>> _named(("predict", "--keep")), _named(("nonsense",))
    ('agnosticfair predict', 'agnosticfair')
    """
    known = any(words[:1] == (name,) for commands in COMMANDS.values() for name in commands)
    return f"agnosticfair {words[0]}" if known else "agnosticfair"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; what is wrong with the input ends in one sentence and exit code 2."""
    COMMAND.set(tuple(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.exit(app(arguments, prog_name="agnosticfair", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.UsageError as error:
        name = error.ctx.command_path if error.ctx is not None else _named(COMMAND.get())
        said = error.format_message().rstrip(".")
        print(f"error: {said}: see '{name} --help'", file=sys.stderr)
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except AgnosticFairError as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read the output has gone
        sys.stderr.close()
        sys.exit(1)
    except (OSError, MemoryError) as error:
        print("error:", _machine(error), file=sys.stderr)
        sys.exit(2)


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
