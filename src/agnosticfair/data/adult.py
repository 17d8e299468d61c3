"""UCI Adult, shipped with the package (see files/README.md for its source and licence)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from agnosticfair.data.arrow import to_column, to_numbers
from agnosticfair.data.table import Table

FILE = Path(__file__).parent / "files" / "adult.parquet"
NUMERIC = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
CATEGORICAL = ("workclass", "marital-status", "occupation", "relationship")
OTHER = ("education", "race", "native-country")


@cache
def load_adult() -> Table:
    """The 45,222 rows without unknown values; the target is 'income', the sensitive feature 'sex'.

    >>> len(load_adult())
    45222
    """
    import pyarrow.parquet as pq

    rows = pq.read_table(FILE)
    return Table(
        {name: to_numbers(rows[name]) for name in NUMERIC},
        {name: to_column(rows[name]) for name in CATEGORICAL},
        to_column(rows["income"]),
        {"sex": to_column(rows["sex"])},
        {name: to_column(rows[name]) for name in OTHER},
    )
