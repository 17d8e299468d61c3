"""The data set that the package ships, for examples and tests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agnosticfair.data.arrow import to_column, to_numbers
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError


@dataclass(frozen=True)
class Dataset:
    """What the columns of a data set are for. numeric and categorical are the features; ``other`` columns split rows
    or name subgroups."""

    name: str
    note: str
    licence: str
    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    other: tuple[str, ...]
    target: str
    positive: str
    sensitive_features: str


ADULT = Dataset(
    name="adult",
    note="UCI Adult (summary statistics of 1994), 45,222 rows, shipped with the package",
    licence="CC BY 4.0",
    numeric=(
        *("age", "fnlwgt", "education-num"),
        *("capital-gain", "capital-loss", "hours-per-week"),
    ),
    categorical=("workclass", "marital-status", "occupation", "relationship"),
    other=("education", "race", "native-country"),
    target="income",
    positive=">50K",
    sensitive_features="sex",
)


@cache
def load_dataset(name: str = ADULT.name) -> Table:
    """The rows of the data set of that name.

    Parameters
    ----------
    name : str
        ``"adult"``, the one that is shipped.

    Returns
    -------
    Table

    Examples
    --------
    >>> len(load_dataset("adult"))
    45222
    """
    if name != ADULT.name:
        raise SettingsError(
            f"no data set {name!r} is shipped, only {ADULT.name!r}: read your own files by read_table"
        )
    import pyarrow.parquet as pq

    rows = pq.read_table(Path(__file__).parent / "files" / "adult.parquet")
    return Table(
        {column: to_numbers(rows[column]) for column in ADULT.numeric},
        {column: to_column(rows[column]) for column in ADULT.categorical},
        to_column(rows[ADULT.target]),
        {ADULT.sensitive_features: to_column(rows[ADULT.sensitive_features])},
        {column: to_column(rows[column]) for column in ADULT.other},
    )
