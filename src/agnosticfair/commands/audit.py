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
    columns: Annotated[
        list[str] | None, Option(help="Column that names parts; may be repeated, else all.")
    ] = None,
    depth: Annotated[int, Option(help="Most values in one part: 1, 2 or 3.")] = 2,
    least: Annotated[float, Option(help="Least share of the rows that a part holds.")] = 0.01,
    bands: Annotated[int, Option(help="Bands of a column of numbers.")] = 4,
    confidence: Annotated[float, Option(help="With which the bounds hold, all at once.")] = 0.95,
    precision: Annotated[
        float, Option(help="Parts whose interval is wider than +- this are not estimable.")
    ] = 0.1,
    mixtures: Annotated[bool, Option("--mixtures", help="Bound mixtures of parts, too.")] = False,
    kernels: Annotated[
        int | None, Option(help="Instead of parts: Gaussian kernels around rows drawn at random.")
    ] = None,
    bound: Annotated[float, Option(help="Bound B on the adversary's alpha, for kernels.")] = 5.0,
    sigma: Annotated[float, Option(help="Kernels' width; features are scaled to [0, 1].")] = 1.0,
    floor: Annotated[float, Option(help="Least share of the mass a compared group keeps.")] = 0.05,
    seed: Annotated[int, Option(help="Draws the kernels' centres and the resamples.")] = 0,
    bootstrap: Annotated[int, Option(help="Resamples for kernels' intervals; 0: none.")] = 200,
    strict: Annotated[bool, Option("--strict", help="Fail if the search stops early.")] = False,
    key: Annotated[Path | None, Option(help="Sign with this key (extra 'secure').")] = None,
    out: OutFolder = Path("audit"),
    as_json: Json = False,
) -> None:
    """Certify any model on rows it was not fitted on: every named part of the population, at a confidence.

    Give a model file, or the column with the predictions of a model from elsewhere. Writes
    certificate.json, which 'verify' checks without the rows, certificate.png and, for 'report', rows.parquet,
    which holds the rows. The options numeric, categorical, drop and columns may be repeated.
    """
    from agnosticfair.auditing.audit import audit as certify
    from agnosticfair.auditing.inputs import labels_and_decisions
    from agnosticfair.auditing.proof import read_key, sealed
    from agnosticfair.data.decided import Decided
    from agnosticfair.model import load_model
    from agnosticfair.report import certificate as report
    from agnosticfair.report.figures import png
    from agnosticfair.runs.provenance import provenance

    if (model is None) == (predictions is None):
        raise SettingsError("name either a model by --model or a column by --predictions")
    check_folder(out)
    secret = None if key is None else read_key(key)
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
            **_set(kernels, sigma, bound, bootstrap),
            parts=_parts(columns, depth, least, bands, kernels),
            confidence=confidence,
            precision=precision,
            mixtures=mixtures,
            floor=floor,
            seed=seed,
            notion=notion,
            threshold=threshold,
            positive=positive,
            on_progress=tell,
        )
    if strict and made.warnings and made.outcome != "optimal":
        raise SolverError(f"{made.warnings[-1]} Allow a larger tolerance or fewer kernels.")
    name = load_model(model).method["name"] if model is not None else str(predictions)
    told = sealed(made.to_json() | {"method": name} | provenance({file.stem: table}), secret)
    text = json.dumps(told, indent=1, allow_nan=False)
    files = {"certificate.json": f"{text}\n".encode(), "certificate.png": png(report.figure(made))}
    y, decided = labels_and_decisions(
        given, table, None, len(table), positive=positive, threshold=threshold
    )
    label = next(iter(table.target.values()[y]), "positive")
    rows = Decided.of(table, sensitive_features, label, {name: decided.astype(float)})
    files["rows.parquet"] = rows.to_bytes()
    deliver(out, files, report.grids(made), str(made), text if as_json else None)


def _set(kernels: int | None, sigma: float, bound: float, bootstrap: int) -> dict[str, Any]:
    """The kernels that were asked for, if any."""
    from agnosticfair.mathematics.basis import gaussian

    if kernels is None:
        return {}
    return {"basis": gaussian(kernels, sigma), "bound": bound, "bootstrap": bootstrap}


def _parts(
    columns: list[str] | None, depth: int, least: float, bands: int, kernels: int | None
) -> Any:
    """The parts that were asked for: none where it is kernels without columns."""
    from agnosticfair.auditing.parts import Subpopulations

    if kernels is not None and columns is None:
        return None
    return Subpopulations(tuple(columns) if columns else None, depth, least, bands)


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
