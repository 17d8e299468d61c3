"""Rows that are not independent: repeats beyond what chance makes equal, and one row per cluster."""

from __future__ import annotations

from dataclasses import replace
from math import inf, lgamma
from typing import Any

import numpy as np

from agnosticfair.auditing.inputs import codes
from agnosticfair.data.rows import row_hashes
from agnosticfair.data.table import Table

SURE = 1e-6
"""The probability under which a pattern of repeats is not put down to chance."""

SLACK = 3.0
"""Standard deviations that counts of repeats are given before they are held against each other."""


def repeated(hashes: np.ndarray) -> int:
    """How many rows repeat another one, where that is more than chance explains; 0 where it is not.

    hashes: (n,), of the rows' content.

    Of independent draws the number of different rows that come k times, N_k, is a mixture of Poisson counts: k! E[N_k]
    are moments of a measure, and so log-convex, m_k^2 <= m_(k-1) m_(k+1). People who stand on several lines each break
    that: there are many pairs, and fewer single rows, or fewer triples, than pairs by chance would bring along.

    >>> rng = np.random.default_rng(0)
    >>> repeated(rng.integers(0, 3000, 2000)), repeated(np.repeat(np.arange(500), 4))
    (0, 1500)
    """
    from scipy.stats import poisson

    times = np.unique(hashes, return_counts=True)[1]
    found = np.bincount(times, minlength=times.max() + 2)
    for k in np.flatnonzero(found[2:]) + 2:
        here = found[k] - SLACK * np.sqrt(found[k])
        if here <= 0:
            continue
        for beside, across in ((k - 1, k + 1), (k + 1, k - 1)):
            there = found[across] + SLACK * np.sqrt(found[across] + 1)
            scale = 2 * lgamma(k + 1) - lgamma(across + 1) - lgamma(beside + 1)
            expected = np.exp(scale) * here**2 / there if there > 0 else inf
            if poisson.cdf(found[beside], expected) < SURE:
                return int(len(hashes) - len(times))
    return 0


def about_rows(table: Table, cells: np.ndarray) -> tuple[str, ...]:
    """The note on rows of a table that repeat each other.  cells: (n,), of group, label and decision."""
    bare = replace(table, target=None, sensitive_features={}, weights=None)
    return note_of(row_hashes(replace(bare, numeric={**bare.numeric, "": cells.astype(float)})))


def note_of(hashes: np.ndarray) -> tuple[str, ...]:
    """The note of a certificate about repeats, where there are any beyond chance."""
    rows = repeated(hashes)
    if not rows:
        return ()
    return (
        f"{rows:,} of the {len(hashes):,} rows repeat another one, which is more than chance makes equal. Bounds hold "
        "only if these are different people: else name who they are by cluster (--cluster).",
    )


def one_of_each(clusters: Any, n: int, seed: int = 0) -> np.ndarray:
    """One row of each cluster, drawn at random: their places, (clusters,), in order.

    Clusters that were drawn independently give rows that are.

    >>> one_of_each(["a", "b", "a", "b"], 4).size
    2
    """
    owner, names = codes(clusters, "cluster", n)
    order = np.random.default_rng(seed).permutation(n)
    _, first = np.unique(owner[order], return_index=True)
    assert len(first) == len(names)
    return np.sort(order[first])
