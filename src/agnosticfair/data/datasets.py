"""The data sets the package knows by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agnosticfair.data.adult import load_adult
from agnosticfair.data.dutch import load_dutch
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError


@dataclass(frozen=True)
class Dataset:
    """A data set and the paper's shift: the share of rows to train on where ``shift_column`` is
    ``shift_value``, and elsewhere.  tau: what ``agnosticfair`` is run with in the experiments; how it
    was chosen stands in the documentation.  network_tau: the same for a network, whose decisions it bounds.
    """

    name: str
    load: Callable[[str | Path | None], Table]
    positive: str
    sensitive_features: str
    shift_column: str
    shift_value: str
    shift_rates: tuple[float, float]
    tau: float
    network_tau: float
    note: str


DATASETS = {
    "adult": Dataset(
        name="adult",
        load=lambda folder: load_adult(),
        positive=">50K",
        sensitive_features="sex",
        shift_column="workclass",
        shift_value="Private",
        shift_rates=(0.8, 0.2),
        tau=0.11,
        network_tau=0.11,
        note="UCI Adult, 45,222 rows, shipped with the package (CC BY 4.0)",
    ),
    "dutch": Dataset(
        name="dutch",
        load=load_dutch,
        positive="2_1",
        sensitive_features="sex",
        shift_column="household_position",
        shift_value="1122",
        shift_rates=(0.8, 0.4),
        tau=0.052,
        network_tau=0.06,
        note="Dutch census 2001, 60,420 rows, from a folder you name or downloaded once",
    ),
}


def dataset(name: str) -> Dataset:
    """The data set of that name.

    >>> dataset("adult").shift_value
    'Private'
    """
    if name not in DATASETS:
        raise SettingsError(f"no data set {name!r}; there are: {', '.join(DATASETS)}")
    return DATASETS[name]


def load_dataset(name: str, folder: str | Path | None = None) -> Table:
    """The rows of the data set of that name; ``folder`` is where to look for one not shipped.

    >>> len(load_dataset("adult"))
    45222
    """
    return dataset(name).load(folder)
