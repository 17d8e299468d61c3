"""What a site shows of its own rows where no schema is agreed on: the columns that it lists, and no rare value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agnosticfair.data.table import Column, Table

OTHER = "other"
"""The value that stands for all rare ones."""


def shown_rows(table: Table, columns: Sequence[str] = (), min_rows: int = 1) -> Table:
    """The rows with the listed columns alone, and values that few rows have as the value 'other'.

    Parameters
    ----------
    table : Table
    columns : sequence of str
        Features that may be told of; all where none is listed. Label and sensitive features are not among them.
    min_rows : int
        Values of fewer rows are not told.

    Returns
    -------
    Table

    Examples
    --------
    >>> rows = Table({}, {"job": Column.of(["a", "a", "b", "c"])}, None, {})
    >>> shown_rows(rows, (), 2).categorical["job"].categories
    ('a', 'other')
    """

    def listed(name: str) -> bool:
        return not columns or name in columns

    return replace(
        table,
        numeric={k: v for k, v in table.numeric.items() if listed(k)},
        categorical={k: joined(v, min_rows) for k, v in table.categorical.items() if listed(k)},
        other={k: joined(v, min_rows) for k, v in table.other.items() if listed(k)},
    )


def joined(column: Column, min_rows: int) -> Column:
    """The column whose values of fewer rows are one value, 'other'.

    >>> joined(Column.of(["a", "a", "b"]), 2).values().tolist()
    ['a', 'a', 'other']
    """
    counts = np.bincount(column.codes, minlength=len(column.categories))
    rare = (counts > 0) & (counts < min_rows)
    if not rare.any():
        return column
    texts = np.where(rare, OTHER, np.asarray(column.categories, object))
    return Column.of(texts[column.codes])
