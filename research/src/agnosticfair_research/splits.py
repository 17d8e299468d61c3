"""Rows dealt to clients and to a test set: by a data set's own shift, or by a Dirichlet draw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agnosticfair.data.datasets import Split, by_client, check_clients, dealt, iid, shuffled
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError
from agnosticfair_research.datasets import Dataset, Shift, dataset, load_dataset

__all__ = ["Split", "dirichlet", "iid", "shift", "split_of"]

MIN_ROWS = 10  # training rows that a Dirichlet draw must leave every client
MAX_DRAWS = 1000


def split_of(name: str, setting: str, clients: int, seed: int, folder: str | None) -> Split:
    """The split that the cells of a setting share."""
    source, table = dataset(name), load_dataset(name, folder)
    if setting == "dirichlet":
        return dirichlet(table, clients, 0.5, seed, source.sensitive_features)
    if setting == "iid":
        return iid(table, clients, seed)
    return shift(table, source, clients, seed)


def shift(table: Table, dataset: Dataset, clients: int | None = 2, seed: int = 0) -> Split:
    """Split by the data set's shift: of the rows of the values it names one share trains, of the rest another.

    Everything else, but for what is left out, is the test set, whose pieces these two groups are. The first half of
    the clients (rounded up) shares the first group evenly, the others the second; where the second is held back
    altogether, all share the first.  clients: None for the data set's natural sites, or two where it has none.

    >>> from agnosticfair_research.datasets import dataset, load_dataset
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
        check_clients(clients, len(first) + len(second))
        return by_client(table, np.array_split(np.concatenate(train), clients))
    check_clients(clients, 2 * min(map(len, train)))
    half = (clients + 1) // 2
    return by_client(table, np.array_split(first, half) + np.array_split(second, clients - half))


def _by_site(table: Table, rows: np.ndarray, column: str) -> dict[str, Table]:
    """A client for every value of the column, of its name."""
    sites = table.column(column)
    return {
        name: table.take(np.sort(rows[sites.codes[rows] == k]))
        for k, name in enumerate(sites.categories)
        if (sites.codes[rows] == k).any()
    }


def dirichlet(
    table: Table,
    clients: int = 5,
    concentration: float = 0.5,
    seed: int = 0,
    sensitive_feature: str = "sex",
) -> Split:
    """Deal each sensitive group to the clients by a Dirichlet draw; 60% of the rows train.

    The smaller the concentration, the less alike are clients. Train and test rows follow the same proportions. Draws
    that leave a client fewer than ten training rows, or no test row, are drawn again.

    >>> from agnosticfair_research.datasets import load_dataset
    >>> list(dirichlet(load_dataset("adult"), clients=3).train)
    ['client-1', 'client-2', 'client-3']
    """
    if not 0 < concentration <= 1e6:
        raise SettingsError(f"concentration {concentration} should be above 0 and at most 1e6")
    rng = np.random.default_rng(seed)
    train, test = shuffled(len(table), 0.6, rng)
    check_clients(clients, len(train) // MIN_ROWS)
    codes = table.column(sensitive_feature).codes
    sets = [[rows[codes[rows] == g] for g in np.unique(codes)] for rows in (train, test)]
    for _ in range(MAX_DRAWS):
        shares = rng.dirichlet(np.full(clients, concentration), size=len(sets[0]))
        deal, local = (_by_shares(groups, shares) for groups in sets)
        if min(map(len, deal)) >= MIN_ROWS and min(map(len, local)) > 0:
            return dealt(table, deal, local)
    raise SettingsError(
        f"no draw of {MAX_DRAWS} left each of {clients} clients {MIN_ROWS} training rows and a "
        f"test row: raise concentration {concentration:g} or lower the number of clients"
    )


def _by_shares(groups: Sequence[np.ndarray], shares: np.ndarray) -> list[np.ndarray]:
    """Each group's rows cut by its row of shares (G, p), then joined by client."""
    cuts = np.cumsum(shares, axis=1)[:, :-1]
    by_group = [
        np.split(rows, np.round(cut * len(rows)).astype(np.int64))
        for rows, cut in zip(groups, cuts, strict=True)
    ]
    return [np.concatenate(rows) for rows in zip(*by_group, strict=True)]
