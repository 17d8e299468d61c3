"""``agnosticfair audit``: a certificate for a model file, or for predictions that stand in a column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from agnosticfair.commands.measuring import labelled
from agnosticfair.commands.options import (
    Categorical,
    Drop,
    Json,
    NotionName,
    Numeric,
    OutFolder,
    Positive,
    Target,
)
from agnosticfair.commands.output import check_folder, deliver, progress
from agnosticfair.errors import DataError, SettingsError, SolverError
from agnosticfair.mathematics.notions import PARITY

EPILOG = "Example: agnosticfair audit test.csv --target income --sensitive-features sex --model model.safetensors"


def audit(
    file: Annotated[Path, Argument(help="CSV or Parquet with the rows to audit on.")],
    target: Target,
    sensitive_features: Annotated[str, Option(help="Column with the groups.")],
    model: Annotated[Path | None, Option(help="A model written by 'fit'.")] = None,
    predictions: Annotated[
        str | None, Option(help="Or the column with another model's labels, 0/1 or probabilities.")
    ] = None,
    numeric: Numeric = None,
    categorical: Categorical = None,
    drop: Drop = None,
    positive: Positive = None,
    threshold: Annotated[
        float, Option(help="A probability above it is a positive decision.")
    ] = 0.5,
    notion: NotionName = PARITY.name,
    bound: Annotated[float, Option(help="Bound B on the adversary's alpha.")] = 5.0,
    kernels: Annotated[int, Option(help="Gaussian kernels around rows drawn at random.")] = 200,
    sigma: Annotated[float, Option(help="Their width; features are scaled to [0, 1].")] = 1.0,
    floor: Annotated[float, Option(help="Least share of the mass a compared group keeps.")] = 0.05,
    seed: Annotated[int, Option(help="Draws the kernels' centres and the resamples.")] = 0,
    bootstrap: Annotated[int, Option(help="Resamples for the intervals; 0 for none.")] = 200,
    strict: Annotated[bool, Option("--strict", help="Fail if the search stops early.")] = False,
    out: OutFolder = Path("audit"),
    as_json: Json = False,
) -> None:
    """Certify any model: its worst risk difference and accuracy over every reweighing in a set.

    Give a model file, or the column with the predictions of a model from elsewhere. Writes
    certificate.json, certificate.png and, for 'report', rows.parquet, which holds the rows. The
    options numeric, categorical and drop may be repeated.
    """
    from agnosticfair.auditing.audit import audit as certify
    from agnosticfair.auditing.inputs import labels_and_decisions
    from agnosticfair.data.decided import Decided
    from agnosticfair.mathematics.basis import gaussian
    from agnosticfair.model import load_model
    from agnosticfair.report import certificate as report
    from agnosticfair.report.figures import png
    from agnosticfair.runs.provenance import provenance

    if (model is None) == (predictions is None):
        raise SettingsError("name either a model by --model or a column by --predictions")
    check_folder(out)
    kinds = {"numeric": numeric, "categorical": categorical, "drop": drop}
    if model is not None:
        given, table = _of_model(model, file, target, sensitive_features, kinds, positive)
    else:
        given, table = _of_column(str(predictions), file, target, sensitive_features, kinds)
    with progress(100, "percent") as advance:

        def tell(done: int, total: int) -> None:
            for _ in range(100 * (done - 1) // total, 100 * done // total):
                advance("")

        made = certify(
            given,
            table,
            sensitive_features=sensitive_features,
            basis=gaussian(kernels, sigma),
            bound=bound,
            floor=floor,
            seed=seed,
            bootstrap=bootstrap,
            notion=notion,
            threshold=threshold,
            positive=positive,
            on_progress=tell,
        )
    if strict and made.warnings and made.outcome != "optimal":
        raise SolverError(f"{made.warnings[-1]} Allow a larger tolerance or fewer kernels.")
    name = load_model(model).method["name"] if model is not None else str(predictions)
    told = made.to_json() | {"method": name} | provenance({file.stem: table})
    text = json.dumps(told, indent=1, allow_nan=False)
    files = {"certificate.json": f"{text}\n".encode(), "certificate.png": png(report.figure(made))}
    y, decided = labels_and_decisions(
        given, table, None, len(table), positive=positive, threshold=threshold
    )
    label = next(iter(table.target.values()[y]), "positive")
    rows = Decided.of(table, sensitive_features, label, {name: decided.astype(float)})
    files["rows.parquet"] = rows.to_bytes()
    deliver(out, files, report.grids(made), str(made), text if as_json else None)


def _of_model(
    path: Path, file: Path, target: str, sensitive_features: str, kinds: Any, positive: str | None
) -> tuple[Any, Any]:
    """The model, and the rows as it reads them."""
    from agnosticfair.model import load_model

    named = [name for name, columns in kinds.items() if columns]
    if named or positive is not None:
        raise SettingsError(
            f"the model knows its columns and labels: leave out --{(*named, 'positive')[0]}"
        )
    loaded = load_model(path)
    return loaded, labelled(loaded, [file], target, (sensitive_features,), None)[file.stem]


def _of_column(
    predictions: str, file: Path, target: str, sensitive_features: str, kinds: Any
) -> tuple[Any, Any]:
    """The predictions in a column, as labels or as numbers; and the rows, without that column."""
    import numpy as np

    from agnosticfair.data.encoding import shown
    from agnosticfair.data.files import Roles, read_table

    # read as the column of clients, which is no feature either
    columns = {name: tuple(values or ()) for name, values in kinds.items()}
    table = read_table(file, Roles(target, (sensitive_features,), client=predictions, **columns))
    column, labels = table.other[predictions], table.target.categories if table.target else ()
    if {*column.categories} <= {*labels}:
        return column.values(), table
    numbers = []
    for value in column.categories:
        try:
            numbers.append(float(value))
        except ValueError:
            raise DataError(
                f"column {predictions!r} has the value {shown([value])}, neither a label "
                f"({shown(labels)}) nor a number: write labels, 0 and 1, or probabilities"
            ) from None
    return np.array(numbers)[column.codes], table
