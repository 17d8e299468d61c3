"""``agnosticfair predict``: a saved model's labels for new rows."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from agnosticfair.commands.options import ModelFile
from agnosticfair.commands.output import check_folder, write_files

EPILOG = "Example: agnosticfair predict model.safetensors new.csv --out predictions.csv"


def predict(
    model: ModelFile,
    file: Annotated[Path, Argument(help="CSV or Parquet; needs no label and no groups.")],
    out: Annotated[Path, Option(help="CSV to write.")] = Path("predictions.csv"),
) -> None:
    """Predict every row of a file: its label, and the probability of the positive one."""
    from agnosticfair.data.files import read_rows
    from agnosticfair.model import load_model

    check_folder(out.parent, needed=True)
    loaded = load_model(model)
    table = read_rows(file, loaded.encoding)
    labels, positive = (loaded.negative, loaded.positive), loaded.predict(table, str(file))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("prediction", "probability"))
    for k, probability in zip(positive, loaded.probabilities(table), strict=True):
        writer.writerow((labels[k], float(probability)))
    write_files(out.parent, {out.name: text.getvalue().encode()})
    print(f"Written: {out}; {positive.sum()} of {len(table)} rows are {loaded.positive!r}.")
