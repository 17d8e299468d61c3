"""Rivals that are re-implemented here, held to their published numbers, with the rule limited overall beside them.

    python benchmarks/published.py --seeds 0-2

Adult at equal costs: LinearPost, blind, over trees, 70 / 30 at random; FedFACT over five clients of a Dirichlet draw of
concentration 0.5.  Writes research/report/published.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from agnosticfair import load_dataset
from agnosticfair_research.benchmark import parsed
from agnosticfair_research.datasets import dataset
from agnosticfair_research.entrants import ENTRANTS, Train
from agnosticfair_research.entrants.thresholds import gap
from agnosticfair_research.splits import Split, dirichlet, iid

RESULTS = Path(__file__).resolve().parents[1] / "research/report/published.json"
PUBLISHED = (
    ("random", "linearpost", 0.10, 0.865),
    ("random", "linearpost", 0.05, 0.857),
    ("random", "linearpost", 0.01, 0.848),
    ("dirichlet", "fedfact", 0.013, 0.827),
)
"""Split, method, difference and the accuracy published at it."""


def training(split: Split) -> Train:
    """The rows of a split at equal costs; what is learned of them is shared by all that is measured."""
    source = dataset("adult")
    return Train(split.train, source.positive, source.sensitive_features, 0, balanced=False)


def measured(split: Split, train: Train, name: str, limit: float) -> dict[str, float]:
    """Test accuracy and overall difference of an entrant."""
    d, y = ENTRANTS[name].fit(train, limit)(split.test), split.test.labels(train.positive)
    s = split.test.column(train.sensitive_features).codes
    return {"accuracy": float((d == y).mean()), "difference": abs(gap(d, s))}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--seeds", default="0-2")
    seeds = parsed(words.parse_args().seeds)
    table = load_dataset("adult")
    found: dict[tuple[str, str, float, float], list[dict[str, float]]] = {}
    for seed in seeds:
        splits = {"random": iid(table, 2, seed, 0.7), "dirichlet": dirichlet(table, 5, 0.5, seed)}
        trains = {how: training(split) for how, split in splits.items()}
        for how, name, limit, accuracy in PUBLISHED:
            for entrant in (name, "rule-overall"):
                with threadpool_limits(1):
                    one = measured(splits[how], trains[how], entrant, limit)
                print(seed, how, entrant, limit, accuracy, one, flush=True)
                found.setdefault((how, entrant, limit, accuracy), []).append(one)
    names = ("split", "entrant", "limit", "published")
    rows: list[dict[str, Any]] = [
        dict(zip(names, key, strict=True))
        | {k: [round(one[k], 4) for one in each] for k in ("accuracy", "difference")}
        for key, each in found.items()
    ]
    RESULTS.write_text(json.dumps({"seeds": seeds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
