"""Rows dealt to clients and to a test set: a data set's own shift, at random, or by a Dirichlet draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agnosticfair.data.datasets import Dataset, Shift
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError

LEAST_ROWS = 10  # training rows that a Dirichlet draw must leave every client
MOST_DRAWS = 1000


@dataclass(frozen=True)
class Split:
    """Training rows by client, and the test rows with the part each belongs to.

    test_part: (n_test,) indices into ``parts``, the names of the clients or client groups.
    """

    train: Mapping[str, Table]
    test: Table
    test_part: np.ndarray
    parts: tuple[str, ...]


def client_names(clients: int) -> tuple[str, ...]:
    """Names whose sorted order is the numeric order.

    >>> client_names(2)
    ('client-1', 'client-2')
    """
    width = len(str(clients))
    return tuple(f"client-{i:0{width}d}" for i in range(1, clients + 1))


def shift(table: Table, dataset: Dataset, clients: int | None = 2, seed: int = 0) -> Split:
    """Split by the data set's shift: of the rows of the values it names one share trains, of the rest another.

    Everything else, but for what is left out, is the test set, whose parts these two groups are. The first half of
    the clients (rounded up) shares the first group evenly, the others the second; where the second is held back
    altogether, all share the first.

    Parameters
    ----------
    table : Table
    dataset : Dataset
        Whose shift it is.
    clients : int or None
        None for the data set's natural sites, or two where it has none.
    seed : int

    Returns
    -------
    Split

    Examples
    --------
    >>> from agnosticfair.data.datasets import dataset, load_dataset
    >>> split = shift(load_dataset("adult"), dataset("adult"), clients=2)
    >>> len(split.train), len(split.test) > 0
    (2, True)
    """
    if dataset.shift.left_out:
        out = table.column(dataset.shift.column).aligned(dataset.shift.left_out) >= 0
        table = table.take(~out)
    named, name = _first_group(table, dataset.shift, seed)
    rng = np.random.default_rng(seed)
    train, test = [], []
    for group, rate in zip((named, ~named), dataset.shift.rates, strict=True):
        rows = rng.permutation(np.flatnonzero(group))
        cut = round(rate * len(rows))
        train.append(rows[:cut])
        test.append(rows[cut:])
    held_out = np.sort(np.concatenate(test))
    return Split(
        _dealt_to(table, dataset, train, clients),
        table.take(held_out),
        (~named)[held_out].astype(np.int64),
        (name, f"not {name}"),
    )


def _first_group(table: Table, shift: Shift, seed: int) -> tuple[np.ndarray, str]:
    """The rows (n,) of the values named, or of all but those that the seed draws; and a name for them."""
    column = table.column(shift.column)
    if not shift.drawn:
        named = column.aligned(shift.values) >= 0
        return named, shift.values[0] if len(shift.values) == 1 else f"seen {shift.column}"
    rng = np.random.default_rng([seed, shift.drawn])  # its own stream
    held_back = rng.choice(np.unique(column.codes), shift.drawn, replace=False)
    return ~np.isin(column.codes, held_back), f"seen {shift.column}"


def _dealt_to(
    table: Table, dataset: Dataset, train: Sequence[np.ndarray], clients: int | None
) -> dict[str, Table]:
    first, second = train
    if clients is None and dataset.sites is not None:
        return _by_site(table, np.concatenate(train), dataset.sites)
    clients = 2 if clients is None else clients
    if clients == 1 or not len(second):
        _check_clients(clients, len(first) + len(second))
        return _by_client(table, np.array_split(np.concatenate(train), clients))
    _check_clients(clients, 2 * min(map(len, train)))
    half = (clients + 1) // 2
    return _by_client(table, np.array_split(first, half) + np.array_split(second, clients - half))


def _by_site(table: Table, rows: np.ndarray, column: str) -> dict[str, Table]:
    """A client for every value of the column, of its name."""
    sites = table.column(column)
    return {
        name: table.take(np.sort(rows[sites.codes[rows] == k]))
        for k, name in enumerate(sites.categories)
        if (sites.codes[rows] == k).any()
    }


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
    >>> [len(part) for part in iid(load_dataset("adult").take(np.arange(10))).train.values()]
    [4, 4]
    """
    train, test = _shuffled(len(table), rate, np.random.default_rng(seed))
    _check_clients(clients, len(train))
    return _dealt(table, np.array_split(train, clients), np.array_split(test, clients))


def dirichlet(
    table: Table,
    clients: int = 5,
    concentration: float = 0.5,
    seed: int = 0,
    sensitive_feature: str = "sex",
) -> Split:
    """Deal each sensitive group to the clients by a Dirichlet draw; 60% of the rows train.

    Train and test rows follow the same proportions. Draws that leave a client fewer than ten training rows, or no
    test row, are drawn again.

    Parameters
    ----------
    table, clients, seed : as in ``iid``
    concentration : float
        Of the Dirichlet draw: the smaller, the less alike are clients.
    sensitive_feature : str
        Whose groups are dealt.

    Returns
    -------
    Split

    Examples
    --------
    >>> from agnosticfair.data.datasets import load_dataset
    >>> list(dirichlet(load_dataset("adult"), clients=3).train)
    ['client-1', 'client-2', 'client-3']
    """
    if not 0 < concentration <= 1e6:
        raise SettingsError(f"concentration {concentration} should be above 0 and at most 1e6")
    rng = np.random.default_rng(seed)
    train, test = _shuffled(len(table), 0.6, rng)
    _check_clients(clients, len(train) // LEAST_ROWS)
    codes = table.column(sensitive_feature).codes
    sets = [[rows[codes[rows] == g] for g in np.unique(codes)] for rows in (train, test)]
    for _ in range(MOST_DRAWS):
        shares = rng.dirichlet(np.full(clients, concentration), size=len(sets[0]))
        deal, local = (_by_shares(groups, shares) for groups in sets)
        if min(map(len, deal)) >= LEAST_ROWS and min(map(len, local)) > 0:
            return _dealt(table, deal, local)
    raise SettingsError(
        f"no draw of {MOST_DRAWS} left each of {clients} clients {LEAST_ROWS} training rows and a "
        f"test row: raise concentration {concentration:g} or lower the number of clients"
    )


def _shuffled(n: int, rate: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    rows = rng.permutation(n)
    cut = round(rate * n)
    return rows[:cut], rows[cut:]


def _by_shares(groups: Sequence[np.ndarray], shares: np.ndarray) -> list[np.ndarray]:
    """Each group's rows cut by its row of shares (G, p), then joined by client."""
    cuts = np.cumsum(shares, axis=1)[:, :-1]
    dealt = [
        np.split(rows, np.round(cut * len(rows)).astype(np.int64))
        for rows, cut in zip(groups, cuts, strict=True)
    ]
    return [np.concatenate(parts) for parts in zip(*dealt, strict=True)]


def _dealt(table: Table, train: list[np.ndarray], test: list[np.ndarray]) -> Split:
    """A split whose test parts are the clients."""
    part = np.repeat(np.arange(len(test)), [len(rows) for rows in test])
    held_out = np.concatenate(test)
    order = np.argsort(held_out)
    return Split(
        _by_client(table, train), table.take(held_out[order]), part[order], client_names(len(test))
    )


def _by_client(table: Table, deal: Sequence[np.ndarray]) -> dict[str, Table]:
    names = client_names(len(deal))
    return {name: table.take(np.sort(rows)) for name, rows in zip(names, deal, strict=True)}


def _check_clients(clients: int, most: int) -> None:
    if clients < 1:
        raise SettingsError(f"{clients} clients make no federation: ask for at least 1")
    if clients > most:
        raise SettingsError(
            f"{clients} clients are too many for these rows: ask for at most {most}"
        )
