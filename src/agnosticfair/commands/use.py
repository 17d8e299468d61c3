"""``agnosticfair evaluate``, ``predict``, ``export`` and ``report``: what is done with a saved model or run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from agnosticfair.commands import options
from agnosticfair.commands.options import Columns, Dialect, Force, ModelFile, example, with_dialect
from agnosticfair.commands.output import check_file, csv_bytes, write_files
from agnosticfair.commands.rows import labelled, scores, show_scores, warned
from agnosticfair.errors import SettingsError, plain

if TYPE_CHECKING:
    from agnosticfair.data.storage import Decided
    from agnosticfair.data.table import Table
    from agnosticfair.model import Model
    from agnosticfair.report.studies import Run


@options.with_dialect
@options.example("evaluate model.safetensors test.csv --target income")
def evaluate(
    model: options.ModelFile,
    files: options.Files,
    target: options.Target,
    dialect: options.Dialect,
    sensitive_features: Annotated[
        list[str] | None, Option(help="Column with groups; else the model's. May be repeated.")
    ] = None,
    client_column: options.Client = None,
    metric: options.Metric = None,
    as_json: options.Json = False,
) -> None:
    """Measure a model on labelled rows: accuracy, and how its decisions differ between groups."""
    from agnosticfair.mathematics.metrics import METRICS
    from agnosticfair.model import load_model
    from agnosticfair.report.words import poor
    from agnosticfair.settings import require_name

    if metric is not None:
        require_name("metric", metric, METRICS)
    loaded = load_model(model)
    named = tuple(sensitive_features or loaded.sensitive_features)
    clients = labelled(loaded, files, target, named, client_column, dialect)
    measures = scores(loaded, clients, named, metric)
    if as_json:
        return print(json.dumps(measures, indent=1))
    show_scores(f"{model}, a model by {loaded.method['name']}", measures)
    for text in warned(measures, poor):
        print("Warning:", text)
    return None


@with_dialect
@example("predict model.safetensors new.csv --out predictions.csv")
def predict(
    model: ModelFile,
    file: Annotated[Path, Argument(help="CSV or Parquet; needs no label and no groups.")],
    dialect: Dialect,
    out: Annotated[Path, Option(help="CSV to write.")] = Path("predictions.csv"),
    keep: Annotated[
        Columns, Option(help="A column of the file to write beside; may be repeated, or 'all'.")
    ] = None,
    explain: Annotated[
        bool, Option("--explain", help="Write what each decision is made of beside it, of a rule.")
    ] = False,
    force: Force = False,
) -> None:
    """Predict every row of a file: its label, and the probability of the positive one.

    With --explain also the score, which is positive where the decision is, and what it is made of: the utility of a
    positive decision by the estimates alone, and what is added overall and by each subgroup that the row lies in.
    """
    from agnosticfair.data.encoding import far_outside
    from agnosticfair.data.files import read_rows
    from agnosticfair.data.reading import called, read_columns
    from agnosticfair.model import load_model

    check_file(out, (file, model), force)
    loaded = load_model(model)
    table = read_rows(
        file, loaded.encoding, sensitive_features=loaded.further_columns, dialect=dialect
    )
    columns: dict[str, Sequence[Any]] = {**read_columns(file, keep or (), called(file), dialect)}
    labels, positive = (loaded.negative, loaded.positive), loaded.predict(table, called(file))
    columns["prediction"] = [labels[k] for k in positive]
    columns["probability"] = loaded.probabilities(table).tolist()
    if explain:
        columns |= _explained(loaded, table)
    for sentence in far_outside(loaded.encoding, table):
        print("Warning:", plain(sentence))
    write_files(out.parent, {out.name: csv_bytes(columns)})
    print(f"Written: {out}; {positive.sum()} of {len(table)} rows are {loaded.positive!r}.")


def _explained(model: Model, table: Table) -> dict[str, Sequence[Any]]:
    """The columns that say what each decision is made of."""
    messages = model.explain(table)
    rows = (messages.of_row(i) for i in range(len(table)))
    words = ["; ".join(f"{name} {value:+.4f}" for name, value in row.items()) for row in rows]
    parts = {
        "score": messages.score,
        "utility": messages.utility,
        "overall": messages.overall - messages.shift,
    }
    return {**{name: values.tolist() for name, values in parts.items()}, "subgroups": words}


@example("export model.safetensors --onnx model.onnx")
def export(
    model: ModelFile,
    onnx: Annotated[Path, Option(help="The ONNX file to write.")],
    force: Force = False,
) -> None:
    """Write a model as an ONNX file that takes raw columns: the encoding is part of the graph."""
    from agnosticfair.model import load_model
    from agnosticfair.runs.export import to_onnx

    check_file(onnx, (model,), force, option="--onnx")
    exported = to_onnx(load_model(model))
    write_files(onnx.parent, {onnx.name: exported.SerializeToString()})
    inputs, outputs = (
        [v.name for v in ends] for ends in (exported.graph.input, exported.graph.output)
    )
    print(f"Written: {onnx}; inputs {', '.join(inputs)}; outputs {', '.join(outputs)}.")


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
    from agnosticfair.report.studies import read_run

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
    from agnosticfair.report.studies import metric_of, names_of, sensitive_feature_of

    fits = [run for run in runs if run.kind == "fit"]
    if not fits:
        raise SettingsError("--test is for runs of fit; an audit keeps its own test rows")
    if (
        len(
            {(sensitive_feature_of(run), metric_of(run), run.fitted_model.positive) for run in fits}
        )
        > 1
    ):
        raise SettingsError(
            "these fits differ in the sensitive feature, the metric or the positive label: report them apart"
        )
    sensitive_feature, decisions = sensitive_feature_of(fits[0]), {}
    for run, name in zip(fits, names_of(fits), strict=True):
        model, label = run.fitted_model, target or run.content.get("target")
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
    return Decided.of(rows, sensitive_feature, fits[0].fitted_model.positive, decisions, places)
