"""``agnosticfair predict``: a saved model's labels for new rows."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from agnosticfair.commands.options import Columns, Dialect, Force, ModelFile, example, with_dialect
from agnosticfair.commands.output import check_file, write_files


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
    force: Force = False,
) -> None:
    """Predict every row of a file: its label, and the probability of the positive one."""
    from agnosticfair.data.files import read_rows
    from agnosticfair.data.reading import called, read_columns
    from agnosticfair.model import load_model

    check_file(out, (file, model), force)
    loaded = load_model(model)
    table = read_rows(file, loaded.encoding, dialect=dialect)
    kept = read_columns(file, keep or (), called(file), dialect)
    labels, positive = (loaded.negative, loaded.positive), loaded.predict(table, str(file))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*kept, "prediction", "probability"))
    beside = zip(*kept.values(), strict=True) if kept else [()] * len(table)
    for k, p, values in zip(positive, loaded.probabilities(table), beside, strict=True):
        writer.writerow((*values, labels[k], float(p)))
    write_files(out.parent, {out.name: text.getvalue().encode()})
    print(f"Written: {out}; {positive.sum()} of {len(table)} rows are {loaded.positive!r}.")
