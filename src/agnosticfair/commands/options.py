"""Options that several commands have, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

_Columns = list[str] | None
Files = Annotated[list[Path], Argument(help="A CSV or Parquet file per client, or one for all.")]
Target = Annotated[str, Option(help="Column with the label.")]
Sensitive = Annotated[
    list[str], Option(help="Column with the groups; may be repeated, each is protected.")
]
Client = Annotated[str | None, Option(help="Column that names the client, in one file for all.")]
Numeric = Annotated[_Columns, Option(help="Take this column as numbers.")]
Categorical = Annotated[_Columns, Option(help="Take this column as categories.")]
Drop = Annotated[_Columns, Option(help="Leave this column out.")]
Positive = Annotated[
    str | None, Option(help="The label that counts as 1; by default the last of two.")
]
MethodName = Annotated[str, Option(help="See 'agnosticfair methods'.")]
NetworkName = Annotated[str, Option(help="linear, or mlp for a network (extra 'torch').")]
Notion = Annotated[
    str | None,
    Option(help="demographic_parity, equal_opportunity, equalized_odds or bounded_group_loss."),
]
Intersections = Annotated[
    bool | None, Option("--intersections", help="Compare the attributes' intersections.")
]
Tau = Annotated[float | None, Option(help="Largest difference between groups.")]
Bound = Annotated[float | None, Option(help="Bound B on the adversary's alpha.")]
Json = Annotated[bool, Option("--json", help="Print JSON instead of tables.")]
