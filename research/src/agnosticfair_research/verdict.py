"""The benchmark in numbers: means over seeds, and the verdict on our default, as it was set beforehand.

At each limit, on at least BAR of seven data sets, our default has a lower p90 *and* max than every method of others
that does not see the attribute at like balanced accuracy (within one standard error of the difference, or NEAR), or a
balanced accuracy higher by MORE at no larger p90. A method of others competes with every setting that it was asked for,
so that a choice of its setting on training rows that went wrong wins nothing for us. A setting that is constant is
compared with nobody. One that is more accurate beyond that and no worse in p90 and max beats our default; any other one
stands elsewhere on the trade, and decides nothing. A cell in which nobody can be compared is not met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agnosticfair_research.benchmark import OURS
from agnosticfair_research.datasets import DATASETS
from agnosticfair_research.promises import totals

Json = dict[str, Any]
MAIN_LIMIT = 0.1
BAR = 5
NEAR, MORE = 0.01, 0.02  # balanced accuracy
CONSTANT = 0.01  # share of positives, or negatives, under which a classifier hardly decides

NUMBERS = {
    "balanced": lambda row: row["test"]["balanced_accuracy"],
    "accuracy": lambda row: row["test"]["accuracy"],
    "positives": lambda row: row["test"]["positive_rate"],
    "overall": lambda row: row["test"]["risk_difference"],
    "mean": lambda row: row["all"]["mean"],
    "p90": lambda row: row["all"]["p90"],
    "max": lambda row: row["all"]["max"],
    "kept": lambda row: float(row.get("kept", True)),
}


def summary(cells: Sequence[Mapping[str, Any]]) -> Json:
    """All that tables and texts are made of: which cells there are, a line for each protocol, data set, limit and
    entrant, what came of promises, and what cells cost."""
    return {
        "provenance": _provenance(cells),
        "lines": aggregate(cells),
        "promises": totals(cells),
        "cost": _cost(cells),
    }


def _provenance(cells: Sequence[Mapping[str, Any]]) -> Json:
    return {
        "cells": len(cells),
        "failed": sum("why" in cell for cell in cells),
        "seeds": {
            d: sorted({cell["seed"] for cell in cells if cell["dataset"] == d}) for d in DATASETS
        },
        "commits": sorted({str(cell.get("commit"))[:12] for cell in cells}),
        "clean": all(cell.get("clean") for cell in cells),
    }


def _cost(cells: Sequence[Mapping[str, Any]]) -> list[Json]:
    seconds: dict[tuple[str, str, str], list[float]] = {}
    for cell in cells:
        key = (cell["protocol"], cell["entrant"], cell["dataset"])
        seconds.setdefault(key, []).append(cell.get("seconds", 0.0))
    names = ("protocol", "entrant", "dataset")
    return [
        {**dict(zip(names, key, strict=True)), "seconds": round(float(np.mean(values)), 2)}
        for key, values in seconds.items()
    ]


def aggregate(cells: Iterable[Mapping[str, Any]]) -> list[Json]:
    """A line for each protocol, data set, entrant and limit, of the setting that is taken at it; and, with request in
    the limit's place, for each setting of others: every number of every seed."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for cell in sorted(cells, key=lambda cell: cell["seed"]):
        if cell["protocol"] != "promise":
            key = (cell["protocol"], cell["dataset"], cell["entrant"])
            groups.setdefault(key, []).append(cell)
    every = [cell for those in groups.values() for cell in those]
    limits = sorted({row["limit"] for cell in every for row in cell["rows"]})
    order = [*DATASETS]
    table = []
    for key in sorted(groups, key=lambda key: (key[0], order.index(key[1]))):
        taken = [(limit, _at_limit(groups[key], limit)) for limit in limits]
        table += [_line("limit", limit, *key, groups[key], rows) for limit, rows in taken]
        by: dict[float, list[tuple[int, Mapping[str, Any]]]] = {}
        for cell in groups[key]:
            for setting in [] if cell["ours"] else _settings(cell):
                by.setdefault(setting["request"], []).append((cell["seed"], setting))
        table += [_line("request", k, *key, groups[key], by[k]) for k in sorted(by)]
    return table


def _settings(cell: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those that gave a result."""
    return [setting for setting in cell.get("settings", ()) if "why" not in setting]


def _at_limit(
    cells: Sequence[Mapping[str, Any]], limit: float
) -> list[tuple[int, Mapping[str, Any]]]:
    """Of every seed the setting that is taken at a limit; of methods of others the laxest request within it."""
    return [
        (cell["seed"], setting | row)
        for cell in cells
        for row in cell["rows"]
        for setting in _settings(cell)
        if (row["limit"], row["request"]) == (limit, setting["request"])
    ]


def _line(
    what: str,
    value: float,
    protocol: str,
    dataset: str,
    entrant: str,
    cells: Sequence[Mapping[str, Any]],
    rows: Sequence[tuple[int, Mapping[str, Any]]],
) -> Json:
    head = {"protocol": protocol, "dataset": dataset, what: value, "entrant": entrant}
    head |= {k: cells[0][k] for k in ("note", "sees", "pooled", "ours")}
    head |= {"seeds": [seed for seed, _ in rows]}
    failed = [one["why"] for c in cells for one in (c, *c.get("settings", ())) if "why" in one]
    head |= {"why": failed[0] if failed else None}
    kinds = dict.fromkeys(kind for _, row in rows for kind in row["kinds"])
    p90 = {kind: [r["kinds"][kind] for _, r in rows if kind in r["kinds"]] for kind in kinds}
    head["kinds"] = {kind: round(float(np.mean(values)), 4) for kind, values in p90.items()}
    return head | {k: [round(get(row), 4) for _, row in rows] for k, get in NUMBERS.items()}


def mean(line: Mapping[str, Any], name: str) -> float:
    """Of a number over seeds."""
    return float(np.mean(line[name]))


def error(line: Mapping[str, Any], name: str) -> float:
    """The standard error of that mean, nan of one seed."""
    values = line[name]
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def is_constant(line: Mapping[str, Any]) -> bool:
    """Whether hardly any test row is decided otherwise than the rest: fair, and of no use."""
    return not CONSTANT < mean(line, "positives") < 1 - CONSTANT


@dataclass(frozen=True)
class Pair:
    """Our default beside a method of others, on the seeds that both have. request: the setting of theirs that decides.
    more: balanced accuracy of ours less theirs, with its standard error over seeds.  p90, max: theirs less ours.
    outcome: 'lower', as accurate, and ours is lower in p90 and max; 'better', ours is more accurate by MORE at no
    larger p90; 'lost', as accurate, and ours is not lower in both, or more accurate and no worse in both;
    'elsewhere', more accurate and less fair, or fairer and less accurate: not compared."""

    rival: str
    request: float
    more: float
    error: float
    p90: float
    max: float
    outcome: str


NOBODY = "nobody to compare with"


def compare(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Pair:
    """How a setting of a method of others stands to our default.

    >>> base = {"entrant": "x", "request": 0.1, "seeds": [0], "balanced": [0.7], "p90": [0.1], "max": [0.2]}
    >>> [compare(base, base | {"p90": [p], "max": [0.3], "balanced": [b]}).outcome
    ...  for p, b in ((0.2, 0.705), (0.05, 0.705), (0.1, 0.68), (0.2, 0.75))]
    ['lower', 'lost', 'better', 'elsewhere']
    """
    shared = sorted({*ours["seeds"]} & {*theirs["seeds"]})

    def of(line: Mapping[str, Any], name: str) -> np.ndarray:
        at = dict(zip(line["seeds"], line[name], strict=True))
        return np.array([at[seed] for seed in shared])

    more = of(ours, "balanced") - of(theirs, "balanced")
    spread = float(more.std(ddof=1) / np.sqrt(len(more))) if len(more) > 1 else 0.0

    def exact(
        differences: np.ndarray,
    ) -> float:  # 0.7 - 0.68 is 0.02, as it is of numbers with four digits
        return round(float(differences.mean()), 9)

    p90, top = (exact(of(theirs, k) - of(ours, k)) for k in ("p90", "max"))
    gain = exact(more)
    return Pair(
        theirs["entrant"],
        theirs["request"],
        gain,
        spread,
        p90,
        top,
        _outcome(gain, spread, p90, top),
    )


def _outcome(gain: float, spread: float, p90: float, top: float) -> str:
    if gain >= MORE and p90 >= 0:
        return "better"
    if abs(gain) <= max(spread, NEAR):
        return "lower" if min(p90, top) > 0 else "lost"
    return "lost" if gain < 0 and max(p90, top) <= 0 else "elsewhere"


@dataclass(frozen=True)
class Judged:
    """A cell of the verdict.  ours: our default's line, None without one.  met: whether no method of others beats it
    and at least one is beaten.  why: in words, where it is not met."""

    dataset: str
    limit: float
    ours: Json | None
    pairs: tuple[Pair, ...]
    met: bool
    why: str


def judged(lines: Sequence[Json], protocol: str = "balanced") -> list[Judged]:
    """Every cell of the verdict."""
    chosen = [line for line in lines if line["protocol"] == protocol]
    keys = dict.fromkeys((line["dataset"], line["limit"]) for line in chosen if "limit" in line)
    return [_judged(*key, [x for x in chosen if x["dataset"] == key[0]]) for key in keys]


def _judged(dataset: str, limit: float, lines: Sequence[Json]) -> Judged:
    ours = next((x for x in lines if (x["entrant"], x.get("limit")) == (OURS, limit)), None)
    if ours is None or not ours["seeds"] or is_constant(ours):
        why = "our default is constant" if ours and ours["seeds"] else "no result of our default"
        return Judged(dataset, limit, None, (), False, why)
    pairs: dict[str, list[Pair]] = {}
    for line in lines:
        competes = "request" in line and not line["sees"] and {*line["seeds"]} & {*ours["seeds"]}
        if competes and not is_constant(line):
            pairs.setdefault(line["entrant"], []).append(compare(ours, line))
    deciding = tuple(min(those, key=_rank) for those in pairs.values())
    lost = [pair.rival for pair in deciding if pair.outcome == "lost"]
    won = [pair for pair in deciding if pair.outcome in ("lower", "better")]
    why = f"to {', '.join(lost)}" if lost else "" if won else NOBODY
    return Judged(dataset, limit, ours, deciding, bool(won) and not lost, why)


def _rank(pair: Pair) -> tuple[int, float]:
    """Of a method's settings the one decides that beats our default; else one as accurate; else one that is worse."""
    return ("lost", "lower", "better", "elsewhere").index(pair.outcome), abs(pair.more)


def reached(cells: Sequence[Judged], empty: bool = False) -> dict[float, tuple[int, int]]:
    """By limit: on how many data sets the verdict is met, and of how many.  empty: where nobody can be compared it
    counts as met, as "every method at like balanced accuracy" can be read."""
    at: dict[float, list[bool]] = {limit: [] for limit in sorted({cell.limit for cell in cells})}
    for cell in cells:
        at[cell.limit].append(cell.met or (empty and cell.why == NOBODY))
    return {limit: (sum(met), len(met)) for limit, met in at.items()}
