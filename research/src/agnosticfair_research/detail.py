"""What the report shows of one seed: how the fits went, and every method's decision on every test row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agnosticfair.data.datasets import dataset, load_dataset
from agnosticfair.data.decided import Decided
from agnosticfair.data.splits import Split, dirichlet, iid, shift
from agnosticfair.data.table import Column
from agnosticfair.federation import Fit
from agnosticfair_research.pool import Row

SEED = 0
"""The seed that is shown in detail."""


def split_of(name: str, setting: str, clients: int, seed: int, folder: str | None) -> Split:
    """The split that the cells of a setting share."""
    source, table = dataset(name), load_dataset(name, folder)
    if setting == "dirichlet":
        return dirichlet(table, clients, 0.5, seed, source.sensitive_features)
    if setting == "iid":
        return iid(table, clients, seed)
    return shift(table, source, clients, seed)


def detail(fitted: Fit | None, p: np.ndarray) -> dict[str, Any]:
    """p: (n,), the probability that a test row is decided positively."""
    about: dict[str, Any] = {}
    if fitted is not None:
        about = {"history": list(fitted.history), "alpha": fitted.alpha.tolist()}
    return {**about, "decisions": p.tolist()}


def number(value: float) -> float | None:
    """A measure, None where there is none: a group is absent."""
    return None if np.isnan(value) else float(value)


def decided_files(rows: Sequence[Row], clients: int, folder: str | None) -> dict[str, bytes]:
    """Files of test rows with their decisions, which are taken out of the rows' details.

    rows: the results', those of SEED with a ``detail``.  clients: how many the split has.
    """
    found: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for row in rows:
        if "detail" in row:
            place = found.setdefault((row["dataset"], row["setting"]), {})
            place[row["method"]] = np.array(row["detail"].pop("decisions"))
    return {
        f"rows-{name}-{setting}.parquet": _rows(name, setting, clients, folder, decisions)
        for (name, setting), decisions in found.items()
    }


def _rows(
    name: str, setting: str, clients: int, folder: str | None, decisions: Mapping[str, np.ndarray]
) -> bytes:
    split, source = split_of(name, setting, clients, SEED, folder), dataset(name)
    site = Column(split.test_part, split.parts)
    return Decided.of(
        split.test, source.sensitive_features, source.positive, decisions, site
    ).to_bytes()
