"""``agnosticfair predict``: a saved model's labels for new rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from agnosticfair.commands.options import Columns, Dialect, Force, ModelFile, example, with_dialect
from agnosticfair.commands.output import check_file, write_files

if TYPE_CHECKING:
    from agnosticfair.data.table import Table
    from agnosticfair.model import Model


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
    from agnosticfair.data.files import read_rows
    from agnosticfair.data.reading import called, read_columns
    from agnosticfair.model import load_model

    check_file(out, (file, model), force)
    loaded = load_model(model)
    table = read_rows(
        file, loaded.encoding, sensitive_features=loaded.further_columns, dialect=dialect
    )
    kept = read_columns(file, keep or (), called(file), dialect)
    labels, positive = (loaded.negative, loaded.positive), loaded.predict(table, called(file))
    columns: dict[str, Sequence[Any]] = {**kept}
    columns["prediction"] = [labels[k] for k in positive]
    columns["probability"] = loaded.probabilities(table).tolist()
    if explain:
        columns |= _explained(loaded, table)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    write_files(out.parent, {out.name: text.getvalue().encode()})
    print(f"Written: {out}; {positive.sum()} of {len(table)} rows are {loaded.positive!r}.")


def _explained(model: Model, table: Table) -> dict[str, Sequence[Any]]:
    """The columns that say what each decision is made of."""
    made = model.explain(table)
    rows = (made.of_row(i) for i in range(len(table)))
    words = ["; ".join(f"{name} {value:+.4f}" for name, value in row.items()) for row in rows]
    told = {"score": made.score, "utility": made.utility, "overall": made.overall - made.shift}
    return {**{name: values.tolist() for name, values in told.items()}, "subgroups": words}
