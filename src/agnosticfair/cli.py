"""The command line: its commands put together, and every error in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import agnosticfair
from agnosticfair.commands import (
    audit,
    bench,
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
from agnosticfair.errors import AgnosticFairError
from agnosticfair.runs.provenance import COMMAND

app = typer.Typer(
    help="Federated classifiers that stay accurate and fair on a deployment nobody has seen.",
    epilog="Begin with: agnosticfair reproduce --dataset adult --setting shift --seeds 2",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("explain-messages", epilog=messages.EPILOG)(messages.explain_messages)
app.command("reproduce", epilog=reproduce.EPILOG)(reproduce.reproduce)
app.command("fit", epilog=fit.EPILOG)(fit.fit)
app.command("schema", epilog=schema.EPILOG)(schema.schema)
app.command("predict", epilog=predict.EPILOG)(predict.predict)
app.command("evaluate", epilog=evaluate.EPILOG)(evaluate.evaluate)
app.command("methods", epilog=lists.METHODS_EPILOG)(lists.list_methods)
app.command("data", epilog=lists.DATA_EPILOG)(lists.list_data)
app.command("audit", epilog=audit.EPILOG)(audit.audit)
app.command("verify", epilog=verify.EPILOG)(verify.verify)
app.command("bench", epilog=bench.EPILOG)(bench.bench)
app.command("shifts", epilog=shifts.EPILOG)(shifts.shifts)
app.command("export", epilog=export.EPILOG)(export.export)
app.command("report", epilog=report.EPILOG)(report.report)
app.command("watch", epilog=report.WATCH_EPILOG)(report.watch)
app.command("monitor", epilog=monitor.EPILOG)(monitor.monitor)
app.command("tune", epilog=tune.EPILOG)(tune.tune)
app.add_typer(deploy.deploy, name="deploy")


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; what is wrong with the input ends in one sentence and exit code 2."""
    COMMAND.set(tuple(sys.argv[1:] if arguments is None else arguments))
    try:
        app(arguments, prog_name="agnosticfair")
    except AgnosticFairError as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
