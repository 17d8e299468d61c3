"""``agnosticfair plan-audit``: how many rows an audit needs."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from agnosticfair.commands import options
from agnosticfair.commands.output import grid, show

if TYPE_CHECKING:
    import numpy as np


@options.with_dialect
@options.example("plan-audit test.csv --target income --sensitive-features sex")
def plan_audit(
    file: Annotated[Path, Argument(help="CSV or Parquet with some rows like those to audit.")],
    target: options.Target,
    sensitive_features: options.SensitiveFeatures,
    dialect: options.Dialect,
    drop: options.Drop = None,
    precision: Annotated[
        float, Option(help="How well a difference is to be known, +- this.")
    ] = 0.1,
    confidence: Annotated[float, Option(help="With which all bounds are to hold at once.")] = 0.95,
) -> None:
    """Say how many rows an audit needs for everybody, and for every value of a column, before it is made.

    The shares of groups and values come from the rows at hand; the two largest groups are compared.
    """
    from agnosticfair.data.axes import codes_of, own_axes
    from agnosticfair.data.files import Roles, read_table

    names = tuple(sensitive_features)
    table = read_table(file, Roles(target, names, None, (), (), tuple(drop or ())), dialect=dialect)
    axes = own_axes(table, None, 4)
    codes, parts = codes_of(table, axes), sum(len(axis.values) for axis in axes)
    ask = (precision, 1 - (1 - confidence) / len(names))
    print(f"There are {len(table):,} rows now. More than two groups, and conjunctions, need more.")
    for name in names:
        group = table.sensitive_features[name].codes
        lines = [("everybody", _needed(group, group >= 0, *ask, None))]
        for a, axis in enumerate(axes):
            every = [_needed(group, codes[:, a] == v, *ask, parts) for v in range(len(axis.values))]
            lines.append((f"every value of {axis.name}", max(every, key=lambda n: n or inf)))
        title = f"Rows for +-{precision:g} by {name}, at {confidence:.0%} confidence"
        show(grid(title, ("of", "rows in all"), lines))


def _needed(
    group: np.ndarray, inside: np.ndarray, precision: float, confidence: float, parts: int | None
) -> int | None:
    """The rows in all for the two largest groups of a part; None where it has not two.  inside: (n,) of bool."""
    import numpy as np

    from agnosticfair.auditing.planning import rows_needed

    one, other = np.sort(np.bincount(group[inside], minlength=2))[::-1][:2] / len(group)
    return rows_needed(one, other, precision, confidence, parts) if other > 0 else None
