"""Options that several commands have, each said once; and names with commas between them, read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from agnosticfair.mathematics.notions import NOTIONS

Columns = list[str] | None
Files = Annotated[list[Path], Argument(help="A CSV or Parquet file per client, or one for all.")]
ModelFile = Annotated[Path, Argument(help="A model written by 'fit'.")]
Target = Annotated[str, Option(help="Column with the label.")]
SensitiveFeatures = Annotated[
    list[str], Option(help="Column with the groups; may be repeated, each is protected.")
]
Client = Annotated[str | None, Option(help="Column that names the client, in one file for all.")]
Numeric = Annotated[Columns, Option(help="Take this column as numbers.")]
Categorical = Annotated[Columns, Option(help="Take this column as categories.")]
Drop = Annotated[Columns, Option(help="Leave this column out.")]
Positive = Annotated[
    str | None, Option(help="The label that counts as 1; by default by what two labels say.")
]
Separator = Annotated[
    str | None, Option(help="Between a CSV file's columns: ',', ';', '|' or tab; else found out.")
]
Encoding = Annotated[
    str | None, Option(help="Of a CSV file: utf-8, latin-1, utf-16; by default found out.")
]
Force = Annotated[bool, Option("--force", help="Write over a file that is not ours.")]
MethodName = Annotated[str, Option(help="See 'agnosticfair methods'.")]
NetworkName = Annotated[
    str | None, Option(help="mlp, a network (extra 'torch'); by default the linear model.")
]
_NOTION = Option(help=f"{', '.join(NOTIONS)}.")
Notion = Annotated[str | None, _NOTION]
NotionName = Annotated[str, _NOTION]
Intersections = Annotated[
    bool | None, Option("--intersections", help="Compare the sensitive features' intersections.")
]
Tau = Annotated[float | None, Option(help="Largest difference between groups.")]
Spread = Annotated[
    float | None, Option(help="Price on differences over tau in named parts (agnosticfair-named).")
]
Bound = Annotated[float | None, Option(help="Bound B on the adversary's alpha.")]
Json = Annotated[bool, Option("--json", help="Print JSON instead of tables.")]
Datasets = Annotated[str, Option(help="Names with commas between, or all: see agnosticfair data.")]
Seeds = Annotated[int, Option(help="Runs of each method, each on a split of its own.")]
Jobs = Annotated[int | None, Option(help="Processes; by default one per processor.")]
DataFolder = Annotated[
    Path | None, Option(help="Where data not shipped is; else $AGNOSTICFAIR_DATA, else downloaded.")
]
OutFolder = Annotated[Path, Option(help="Folder for the results.")]


def listed(text: str, known: Iterable[str]) -> list[str]:
    """Names with commas between them; 'all' is all there are.

    >>> listed("fl, afl", ["fl", "afl", "qffl"]), listed("all", ["x", "y"])
    (['fl', 'afl'], ['x', 'y'])
    """
    return list(known) if text.strip() == "all" else [name.strip() for name in text.split(",")]
