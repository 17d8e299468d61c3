"""The benchmark in numbers: means over seeds, and how our default stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from agnosticfair_research.datasets import DATASETS

Json = dict[str, Any]
OURS = "rule"
MAIN_LIMIT = 0.1
NEAR = 0.02  # accuracy that a verdict allows below the best that keeps the limit
CONSTANT = 0.01  # share of positives, or negatives, under which a classifier hardly decides
COUNTED = ("won", "alike", "ahead", "unbeaten")  # what a verdict may say for our default
EACH = ("p90", "max", "accuracy")  # what is kept of every seed
KEPT = 0.5  # share of seeds in which the rule must find the limit kept, to count as keeping it

NUMBERS = {
    "accuracy": lambda row: row["test"]["accuracy"],
    "accuracy_error": lambda row: row["test"]["accuracy_error"],
    "balanced": lambda row: row["test"]["balanced_accuracy"],
    "balanced_error": lambda row: row["test"]["balanced_accuracy_error"],
    "positives": lambda row: row["test"]["positive_rate"],
    "positives_error": lambda row: row["test"]["positive_rate_error"],
    "test": lambda row: row["test"]["risk_difference"],
    "test_error": lambda row: row["test"]["risk_difference_error"],
    "mean": lambda row: row["all"]["mean"],
    "p90": lambda row: row["all"]["p90"],
    "max": lambda row: row["all"]["max"],
    "max_error": lambda row: row["worst_error"],
    "error": lambda row: row["all"]["error"],
    "beyond": lambda row: row["all"]["beyond"],
    "count": lambda row: row["all"]["count"],
    "kept": lambda row: float(row["kept"]),
    "cross_worst": lambda row: row["cross_worst"],
    "sceptic_accuracy": lambda row: row["sceptic"]["accuracy"],
    "sceptic_mean": lambda row: row["sceptic"]["mean"],
    "sceptic_p90": lambda row: row["sceptic"]["p90"],
    "sceptic_max": lambda row: row["sceptic"]["max"],
    "ratio": lambda row: row["ratio"],
}


def aggregate(results: Mapping[str, Any]) -> Json:
    """The results without single seeds and deployments: a line per data set, split, limit and entrant."""
    groups: dict[tuple[str, str, str], list[Json]] = {}
    for cell in results["cells"]:
        groups.setdefault((cell["dataset"], cell["split"], cell["entrant"]), []).append(cell)
    limits = sorted({row["limit"] for cell in results["cells"] for row in cell["rows"]})
    lines = [
        _line(limit, *key, those)
        for key, those in groups.items()
        for limit in limits or [MAIN_LIMIT]
    ]
    order = [*DATASETS]
    lines.sort(
        key=lambda line: (line["split"] != "shift", order.index(line["dataset"]), line["limit"])
    )
    head = {k: results[k] for k in ("commit", "clean", "source", "absent")}
    seeds = sorted({cell["seed"] for cell in results["cells"]})
    return {"format": "agnosticfair-bench-summary-1", **head, "seeds": seeds, "lines": lines}


def _line(limit: float, dataset: str, split: str, entrant: str, cells: Sequence[Json]) -> Json:
    rows = [
        row | {"seed": cell["seed"]}
        for cell in cells
        for row in cell["rows"]
        if row["limit"] == limit
    ]
    whys = [cell["why"] for cell in cells if "why" in cell]
    about = {k: cells[0][k] for k in ("note", "sees", "pooled", "ours")}
    head = {"dataset": dataset, "split": split, "entrant": entrant, "limit": limit, **about}
    head |= {"seeds": len(rows), "failed": len(whys), "why": whys[0] if whys else None}
    if not rows:
        return head
    values = {name: [get(row) for row in rows] for name, get in NUMBERS.items()}
    kinds = {
        kind: {
            k: _short(np.mean([r["kinds"][kind][k] for r in rows])) for k in ("mean", "p90", "max")
        }
        for kind in rows[0]["kinds"]
        if all(kind in row["kinds"] for row in rows)
    }
    worst = [row["worst"] for row in rows]
    return head | {
        **{name: _short(np.mean(found)) for name, found in values.items()},
        "spread": {
            k: _short(np.std(values[k], ddof=len(rows) > 1)) for k in ("accuracy", "p90", "max")
        },
        "each": [[row["seed"], [_short(NUMBERS[k](row)) for k in EACH]] for row in rows],
        "kinds": kinds,
        "worst": max(worst, key=worst.count),
    }


def _short(value: Any) -> float:
    return float(f"{float(value):.5g}")


def verdict(lines: Iterable[Json]) -> Json:
    """How our default stands on one data set at one limit, among those that decide and do not see the attribute.

    Every comparison with it is on the seeds that both have. best: the most accurate that keeps the limit.
    lowest: whose p90 and max are lowest. won: both are our default's, at an accuracy within two points of the
    best that keeps the limit. alike: the same among those within two points of it, for whoever gives up more
    accuracy is lower by that. ahead: the same among our default and the methods of others. lower: who is below
    it in p90 or max, and how much less accurate. beaten: by whom among those alike, beyond error; unbeaten: by
    nobody, where our default decides, at that accuracy. behind: by how much the best is more accurate.
    """
    blind = [line for line in lines if line["seeds"] and not line["sees"]]
    own = next((line for line in blind if line["entrant"] == OURS), None)
    there = {line["entrant"]: line for line in blind if not is_constant(line)}
    above = {name: _above(line, own) for name, line in there.items()}
    p90, top, more = {}, {}, {}
    for name, found in above.items():
        p90[name], top[name], more[name] = found.mean(axis=0)
    keeping = [name for name, line in there.items() if line["kept"] > KEPT]
    best = max(keeping, key=lambda name: more[name], default=None)
    minimum = -np.inf if best is None else more[best] - NEAR
    alike = [name for name in there if best is not None and more[name] >= minimum]
    others = [name for name in there if name == OURS or not there[name]["ours"]]
    near = own is not None and best is not None and minimum <= 0
    sound = near and OURS in there

    def leads(among: Sequence[str]) -> bool:
        return sound and all(min(p90[name], top[name]) >= 0 for name in among)

    beaten = [name for name in alike if own is not None and _beyond(-above[name][:, :2])]
    return {
        "own": own,
        "best": there[best] if best is not None else None,
        "lowest": {k: min(by, key=lambda n: by[n]) for k, by in (("p90", p90), ("max", top)) if by},
        "near": near,
        "behind": 0.0 if best is None else more[best],
        "won": leads([*there]),
        "alike": leads(alike),
        "ahead": leads(others),
        "lower": {k: -more[k] for k in there if own is not None and min(p90[k], top[k]) < 0},
        "beaten": beaten,
        "unbeaten": sound and not beaten,
    }


def _above(line: Json, own: Json | None) -> np.ndarray:
    """By how much p90, max and accuracy are above our default's, (seeds, 3), on the seeds that both have."""
    theirs = dict(line["each"])
    ours = dict.fromkeys(theirs, [0.0] * len(EACH)) if own is None else dict(own["each"])
    shared = sorted(theirs.keys() & ours.keys())
    none = [[np.inf, np.inf, -np.inf]]
    return np.array([np.subtract(theirs[seed], ours[seed]) for seed in shared] or none)


def _beyond(more: np.ndarray) -> bool:
    """Whether a mean over seeds, of (seeds, 2), is over two of its standard errors."""
    n = len(more)
    return n > 1 and bool((more.mean(axis=0) > 2 * more.std(axis=0, ddof=1) / np.sqrt(n)).any())


def is_constant(line: Json) -> bool:
    """Whether hardly any row of the test set is decided otherwise than the rest: fair, and of no use."""
    return not CONSTANT < line["positives"] < 1 - CONSTANT


def by_data(summary: Json, split: str = "shift") -> dict[str, dict[float, list[Json]]]:
    """The lines of a split: data set -> limit -> its entrants."""
    found: dict[str, dict[float, list[Json]]] = {}
    for line in summary["lines"]:
        if line["split"] == split:
            found.setdefault(line["dataset"], {}).setdefault(line["limit"], []).append(line)
    return found
