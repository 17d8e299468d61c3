"""``agnosticfair report``: runs to look at, as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from agnosticfair.commands.options import Columns, Force, example
from agnosticfair.commands.output import check_file, write_files
from agnosticfair.commands.rows import labelled
from agnosticfair.errors import SettingsError

if TYPE_CHECKING:
    from agnosticfair.data.storage import Decided
    from agnosticfair.model import Model
    from agnosticfair.report.runs import Run


@example("report run --test held-out.csv --mix workclass --mix age --out report.html")
def report(
    runs: Annotated[list[Path], Argument(help="Folders written by fit --run, audit, deploy.")],
    test: Annotated[
        list[Path] | None, Option(help="Rows to compare fits on: a file, or one per site.")
    ] = None,
    target: Annotated[
        str | None, Option(help="Their column with the label; else as in the fit.")
    ] = None,
    client_column: Annotated[str | None, Option(help="Their column that names the site.")] = None,
    mix: Annotated[Columns, Option(help="A column for the explorer's sliders; repeat it.")] = None,
    out: Annotated[Path, Option(help="The HTML file.")] = Path("report.html"),
    force: Force = False,
) -> None:
    """Write one HTML file that shows runs: it works offline and asks nothing of the network.

    Runs of fit are measured on --test rows side by side; audits keep their own test rows.
    """
    from agnosticfair.report.page import page_data, report_page
    from agnosticfair.report.runs import read_run

    check_file(out, test or (), force)
    loaded_runs = [read_run(path) for path in dict.fromkeys(runs)]
    tested = None if not test else _tested(loaded_runs, test, target, client_column)
    text = report_page(page_data(loaded_runs, tested, mix or ()))
    write_files(out.parent, {out.name: text.encode()})
    print(f"Written: {out}, {len(text.encode()) / 1e6:.1f} MB; open it in a browser.")


def _tested(runs: list[Run], files: list[Path], target: str | None, client: str | None) -> Decided:
    """The test rows with what the model of every fit decides on them."""
    from dataclasses import replace

    import numpy as np

    from agnosticfair.data.storage import Decided
    from agnosticfair.data.table import Column, concatenate, intersected
    from agnosticfair.report.runs import sensitive_feature_of
    from agnosticfair.report.studies import metric_of, names_of

    fits = [run for run in runs if run.kind == "fit"]
    if not fits:
        raise SettingsError("--test is for runs of fit; an audit keeps its own test rows")
    if (
        len({(sensitive_feature_of(run), metric_of(run), model_of(run).positive) for run in fits})
        > 1
    ):
        raise SettingsError(
            "these fits differ in the sensitive feature, the metric or the positive label: report them apart"
        )
    sensitive_feature, decisions = sensitive_feature_of(fits[0]), {}
    for run, name in zip(fits, names_of(fits), strict=True):
        model, label = model_of(run), target or run.content.get("target")
        if label is None:
            raise SettingsError("the run does not say which column has the label: give --target")
        if not sensitive_feature:
            raise SettingsError(f"the fit in {str(run.path)!r} has no groups to compare")
        clients = labelled(model, files, label, model.sensitive_features, client)
        decisions[name] = np.concatenate([model.predict(t) for t in clients.values()]).astype(float)
        if run is fits[0]:
            rows, sizes = concatenate(list(clients.values())), [len(t) for t in clients.values()]
            site = Column(np.repeat(np.arange(len(clients)), sizes), tuple(clients))
    places = site if len(site.categories) > 1 else None
    if sensitive_feature not in rows.sensitive_features:
        rows = replace(
            rows, sensitive_features={sensitive_feature: intersected(rows.sensitive_features)}
        )
    return Decided.of(rows, sensitive_feature, model_of(fits[0]).positive, decisions, places)


def model_of(run: Run) -> Model:
    assert run.model is not None, "a fit has one"
    return run.model
