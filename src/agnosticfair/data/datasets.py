"""The data set that the package ships, and rows dealt at random to clients and a test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from agnosticfair.data.reading import to_column, to_numbers
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
    note="UCI Adult (census of 1994), 45,222 rows, shipped with the package",
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


@dataclass(frozen=True)
class Split:
    """Training rows by client, and the test rows with the client each is of.

    test_piece: (n_test,) indices into ``pieces``, the names of the clients or client groups.
    """

    train: Mapping[str, Table]
    test: Table
    test_piece: np.ndarray
    pieces: tuple[str, ...]


def client_names(clients: int) -> tuple[str, ...]:
    """Names whose sorted order is the numeric order.

    >>> client_names(2)
    ('client-1', 'client-2')
    """
    width = len(str(clients))
    return tuple(f"client-{i:0{width}d}" for i in range(1, clients + 1))


def iid(table: Table, clients: int = 2, seed: int = 0, rate: float = 0.8) -> Split:
    """Deal training and test rows at random, evenly to the clients.

    Parameters
    ----------
    table : Table
        All rows.
    clients : int
    seed : int
    rate : float
        Share of the rows that trains.

    Returns
    -------
    Split
        ``train`` by client, ``test``, and whose each test row is.

    Examples
    --------
    >>> from agnosticfair import load_dataset
    >>> [len(rows) for rows in iid(load_dataset("adult").take(np.arange(10))).train.values()]
    [4, 4]
    """
    train, test = shuffled(len(table), rate, np.random.default_rng(seed))
    check_clients(clients, len(train))
    return dealt(table, np.array_split(train, clients), np.array_split(test, clients))


def shuffled(n: int, rate: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    rows = rng.permutation(n)
    cut = round(rate * n)
    return rows[:cut], rows[cut:]


def dealt(table: Table, train: list[np.ndarray], test: list[np.ndarray]) -> Split:
    """A split whose test rows are of the clients, too."""
    client = np.repeat(np.arange(len(test)), [len(rows) for rows in test])
    held_out = np.concatenate(test)
    order = np.argsort(held_out)
    return Split(
        by_client(table, train),
        table.take(held_out[order]),
        client[order],
        client_names(len(test)),
    )


def by_client(table: Table, deal: Sequence[np.ndarray]) -> dict[str, Table]:
    names = client_names(len(deal))
    return {name: table.take(np.sort(rows)) for name, rows in zip(names, deal, strict=True)}


def check_clients(clients: int, maximum: int) -> None:
    if clients < 1:
        raise SettingsError(f"{clients} clients make no federation: ask for at least 1")
    if clients > maximum:
        raise SettingsError(
            f"{clients} clients are too many for these rows: ask for at most {maximum}"
        )
