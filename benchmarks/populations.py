"""Coverage of whole certificates, differences and ratios jointly, on three populations whose rates are known.

    python benchmarks/populations.py --draws 200 --out benchmarks/populations.json

ordinary: rates between 0.2 and 0.6.  extreme: rates near 0 and 1, decisions nearly by group.  clustered: people on
eight equal lines each, audited by cluster; by rows: the same lines audited as if they were people. A draw counts as
kept if every interval of every subgroup, of differences and of ratios, holds, and the bound over all subgroups.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from agnosticfair import audit

JOBS, TOWNS = ("clerk", "nurse", "smith"), ("east", "north", "south", "west")
ROWS, SHARES = 6000, (0.55, 0.45)
KINDS = ("ordinary", "extreme", "clustered", "by rows")
LINES = 8


def rates_of(kind: str) -> np.ndarray:
    """The rate of positive decisions by job, town and group, (3, 4, 2)."""
    rng = np.random.default_rng(min(KINDS.index(kind), 2))
    if kind != "extreme":
        return rng.uniform(0.2, 0.6, (3, 4, 2))
    low, high = rng.uniform(0.0, 0.01, (3, 4)), rng.uniform(0.99, 1.0, (3, 4))
    return np.stack([low, np.where(rng.random((3, 4)) < 0.5, high, low + 0.01)], axis=2)


def drawn(kind: str, seed: int, rows: int = ROWS):
    """A draw: rows as a frame, groups, decisions, and who the rows are about."""
    rng = np.random.default_rng([seed, min(KINDS.index(kind), 2)])
    lines = LINES if kind in KINDS[2:] else 1
    people = rows // lines
    job, town, group = (rng.integers(0, size, people) for size in (3, 4, 2))
    decided = rng.random(people) < rates_of(kind)[job, town, group]
    who = np.repeat(np.arange(people), lines)
    frame = pd.DataFrame({"job": np.array(JOBS)[job[who]], "town": np.array(TOWNS)[town[who]]})
    return frame, np.array(["F", "M"])[group[who]], decided[who], who


def truth(kind: str, name: str) -> tuple[float, float]:
    """The population's difference and ratio in a subgroup."""
    rates, where = (
        rates_of(kind),
        dict(one.split(" = ") for one in name.split(" and ") if "=" in one),
    )
    jobs = [JOBS.index(where["job"])] if "job" in where else range(3)
    towns = [TOWNS.index(where["town"])] if "town" in where else range(4)
    by_group = rates[np.ix_([*jobs], [*towns])].mean(axis=(0, 1))
    return float(np.ptp(by_group)), float(by_group.min() / by_group.max())


def kept(kind: str, seed: int, rows: int = ROWS) -> tuple[bool, bool, int]:
    """Whether all differences of a draw hold, and all ratios; and how many subgroups were certified."""
    frame, group, decided, who = drawn(kind, seed, rows)
    cluster = who if kind == "clustered" else None
    certificate = audit(
        decided, frame, sensitive_features=group, precision=0.25, cluster=cluster, seed=seed
    )
    able = [
        subgroup
        for subgroup in certificate.subgroups
        if subgroup.estimable and not subgroup.left_out
    ]
    true = {subgroup.name: truth(kind, subgroup.name) for subgroup in able}
    apart = all(
        subgroup.low - 1e-9 <= true[subgroup.name][0] <= subgroup.high + 1e-9 for subgroup in able
    )
    apart &= (
        max((true[subgroup.name][0] for subgroup in able), default=0.0) <= certificate.upper + 1e-9
    )
    ratio = all(
        subgroup.ratio_low - 1e-9 <= true[subgroup.name][1] <= subgroup.ratio_high + 1e-9
        for subgroup in able
    )
    return apart, ratio, len(able)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--out", type=Path, help="Write the results here as JSON, too.")
    request = parser.parse_args()
    results, head = [], ("population", "draws", "differences", "ratios", "jointly", "subgroups")
    print(f"| {' | '.join(head)} |\n|---|---:|---:|---:|---:|---:|")
    for kind in KINDS:
        values = np.array([kept(kind, seed) for seed in range(request.draws)])
        both = float((values[:, 0] & values[:, 1]).mean())
        differences, ratios, subgroups = values.mean(axis=0).tolist()
        line = (kind, request.draws, differences, ratios, both, subgroups)
        results.append(dict(zip(head, line, strict=True)))
        print(
            f"| {kind} | {request.draws} | {differences:.1%} | {ratios:.1%} | {both:.1%} | {subgroups:.1f} |",
            flush=True,
        )
    if request.out is not None:
        request.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
