"""Small tables and clients that several tests share."""

import numpy as np

from agnosticfair.data.table import Column, Table


def small_table(n: int = 300, seed: int = 0, groups: int = 2) -> Table:
    """Rows with two numeric and one categorical feature, whose label and group depend on them."""
    rng = np.random.default_rng(seed)
    age, hours = rng.normal(size=n), rng.uniform(size=n)
    job = rng.integers(0, 3, n)
    s = (
        (rng.uniform(size=n) < 0.3 + 0.2 * (job == 1)).astype(int)
        if groups == 2
        else rng.integers(0, groups, n)
    )
    y = (age + 0.8 * s + 0.7 * job + rng.logistic(size=n) > 1.0).astype(int)
    return Table(
        numeric={"age": age, "hours": hours},
        categorical={"job": Column(job.astype(np.int32), ("a", "b", "c"))},
        target=Column(y.astype(np.int32), ("no", "yes")),
        sensitive={"sex": Column(s.astype(np.int32), tuple(f"g{j}" for j in range(groups)))},
    )


def dealt(table: Table, clients: int, seed: int = 0) -> dict[str, Table]:
    """The same rows at random over some clients; all clients non-empty."""
    part = np.random.default_rng(seed).permutation(np.arange(len(table)) % clients)
    return {f"c{k:03d}": table.take(part == k) for k in range(clients)}
