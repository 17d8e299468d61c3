"""What the rule must show, one line at a time: accuracy and differences, with their spread over seeds.

    python benchmarks/rule.py --method rule --learner trees --seeds 0-4 --out rule
    python benchmarks/rule.py --lines frontier,natural --before benchmarks/rule_before.json

Lines: ``frontier`` (data sets' own shifts, the suite of ``bench``, a path of tau), ``natural`` (regions of govcensus
that nobody trained on), ``random`` (Adult at random, the overall difference only), ``balanced`` (costs by class
frequency, 70/30 at random), ``training`` (tau on the training rows, estimated and counted).  A cell is a file in
``--out``: a second run takes up what is there.  A rule's estimates are learned once for each split, as ``tune`` does;
rounds and seconds are the program's.  ``--write FILE`` stores all cells in one file, ``--before FILE``
compares with one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from agnosticfair.data.axes import axes_of_table, codes_of
from agnosticfair.data.table import Table, concatenate
from agnosticfair.federation import Fit, fit
from agnosticfair.mathematics.subgroups import large_subgroups, members, sizes_of
from agnosticfair.methods import method
from agnosticfair.server.plan import Start
from agnosticfair_research.benchmark import parsed
from agnosticfair_research.datasets import DATASETS, dataset, load_dataset
from agnosticfair_research.deployments import (
    Suite,
    deployments,
    measure_all,
    named_suite,
    natural_subgroups,
)
from agnosticfair_research.entrants import Train
from agnosticfair_research.splits import Split, iid, shift

LINES = ("frontier", "natural", "random", "balanced", "training")
TAUS = (0.005, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
RANDOM = (0.1, 0.05, 0.01)
TARGETS = {0.1: 0.865, 0.05: 0.857, 0.01: 0.848}
"""Accuracy on Adult at random by overall difference: LinearPost, blind, trees."""
BALANCED = {
    "bank": (0.697, 0.119),
    "law": (0.698, 0.175),
    "oulad": (0.601, 0.093),
    "compas": (0.617, 0.155),
    "adult": (0.791, 0.137),
    "dutch": (0.770, 0.141),
}
"""The prototype's balanced accuracy and p90 with costs by class frequency, tau 0.1."""
NATURAL = {"accuracy": 0.72, "overall": 0.03, "p90": 0.10}
PEOPLE, SHARE = 300, 0.05  # of a subgroup that is counted in ``balanced`` and ``training``


@dataclass(frozen=True)
class Cell:
    """A fit and what it is worth.  learner: None for a method that has none."""

    line: str
    dataset: str
    seed: int
    method: str
    tau: float
    learner: str | None = None

    @property
    def key(self) -> str:
        """The name of its file."""
        return "-".join(str(v) for v in asdict(self).values() if v is not None)

    @property
    def changes(self) -> dict[str, Any]:
        """What of the method it changes."""
        found: dict[str, Any] = {"tau": self.tau}
        if self.line == "random":  # no limit in any subgroup
            found = {"tau": 1.0, "overall": self.tau}
        if self.learner is not None:
            found["learner"] = self.learner
        if self.line == "balanced":
            found["costs"] = "balanced"
        return found


def cells(
    lines: Iterable[str],
    datasets: Sequence[str],
    seeds: Sequence[int],
    name: str,
    learner: str | None,
) -> list[Cell]:
    """Every cell of some lines.

    >>> [cell.key for cell in cells(["natural"], ["govcensus"], [0], "fairfl", None)][:2]
    ['natural-govcensus-0-fairfl-0.005', 'natural-govcensus-0-fairfl-0.02']
    """
    own = {
        "frontier": (datasets, TAUS),
        "natural": ([d for d in datasets if d == "govcensus"], TAUS),
        "random": ([d for d in datasets if d == "adult"], RANDOM),
        "balanced": ([d for d in datasets if d in BALANCED], (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)),
        "training": (datasets, (0.1,)),
    }
    return [
        Cell(line, data, seed, name, tau, learner)
        for line in lines
        for data in own[line][0]
        for seed in seeds
        for tau in own[line][1]
    ]


@lru_cache(maxsize=1)
def split_of(line: str, name: str, seed: int) -> Split:
    """A data set's own shift, or 70/30 at random."""
    source, table = dataset(name), load_dataset(name)
    if line in ("frontier", "natural"):
        return shift(table, source, None, seed)
    return iid(table, 2, seed, 0.7)


@lru_cache(maxsize=1)
def estimates_of(shifted: bool, name: str, seed: int, learner: str | None) -> Start:
    """What a rule has learned of a split's training rows."""
    split, source = split_of("frontier" if shifted else "random", name, seed), dataset(name)
    changes = {} if learner is None else {"learner": learner}
    fitted = fit(
        split.train,
        method("rule", tau=1.0, **changes),
        sensitive_features=source.sensitive_features,
        positive=source.positive,
        seed=seed,
    )
    assert fitted.start is not None
    return replace(fitted.start, w=np.zeros(0))


@lru_cache(maxsize=1)
def suite_of(line: str, name: str, seed: int) -> tuple[Table, Suite]:
    """The rows that are decided, and the subgroups or deployments that are measured."""
    split, source = split_of(line, name, seed), dataset(name)
    feature = source.sensitive_features
    if line == "natural":
        rows = split.test.take(split.test_piece == 1)
        return rows, named_suite(rows, feature)
    if line == "frontier":
        encoding = Train(split.train, source.positive, feature, seed).encoding
        natural = natural_subgroups(split, source.shift)
        return split.test, deployments(split.test, encoding, seed, feature, natural)
    return split.test, subgroups_of(split.test, feature)


def subgroups_of(table: Table, feature: str) -> Suite:
    """All rows, and the single values and pairs with PEOPLE rows and SHARE of each group."""
    from scipy.sparse import csr_array

    axes = axes_of_table(table, sorted({*table.numeric, *table.categorical}))
    codes, s = codes_of(table, axes), table.column(feature).codes
    rows = [np.ones(len(table), bool)]
    kinds = ["test set"]
    for subgroup in large_subgroups(codes, sizes_of(axes), PEOPLE / len(table)):
        inside = members(codes, subgroup)
        counts = np.bincount(s[inside], minlength=s.max() + 1)
        if counts.sum() >= PEOPLE and counts.min() >= SHARE * counts.sum():
            rows.append(inside)
            kinds.append("pair" if len(subgroup) > 1 else "single value")
    names = tuple(map(str, range(len(rows))))
    return Suite(names, tuple(kinds), csr_array(np.array(rows, float)))


def run(cell: Cell) -> dict[str, Any]:
    """Fit and measure one cell."""
    split, source = split_of(cell.line, cell.dataset, cell.seed), dataset(cell.dataset)
    rows, suite = suite_of(cell.line, cell.dataset, cell.seed)
    start = None
    if method(cell.method).rule is not None:
        shifted = cell.line in ("frontier", "natural")
        start = estimates_of(shifted, cell.dataset, cell.seed, cell.learner)
    begin = perf_counter()
    fitted = fit(
        split.train,
        method(cell.method, **cell.changes),
        sensitive_features=source.sensitive_features,
        positive=source.positive,
        seed=cell.seed,
        start=start,
    )
    seconds = perf_counter() - begin
    found = asdict(cell) | {"rounds": fitted.rounds, "seconds": round(seconds, 2)}
    decided = (fitted.model.decision(rows) > 0).astype(float)
    if cell.line == "training":
        found |= on_training(fitted, split, source.positive, source.sensitive_features, cell.tau)
    return found | summary(rows, decided, suite, source.positive, source.sensitive_features)


def on_training(
    fitted: Fit, split: Split, positive: str, feature: str, tau: float
) -> dict[str, Any]:
    """How far differences on the training rows are beyond tau, at most: those of the program, smoothed and of its
    decisions, by estimates; and those that are counted, as they are and in standard errors."""
    rows = concatenate([*split.train.values()])
    decided = (fitted.model.decision(rows) > 0).astype(float)
    suite, s = subgroups_of(rows, feature), rows.column(feature).codes
    measures = measure_all(suite, rows.labels(positive), decided, s)
    over, error = measures["risk_difference"] - tau, measures["risk_difference_error"]
    z = over / np.maximum(error, 1e-12)
    last = fitted.history[-1] if fitted.history else {}
    return {
        "estimated": last.get("smoothed_excess"),
        "decided": last.get("excess"),
        "subgroups": len(suite),
        "beyond": round(float(over.max()), 5),
        "z": round(float(z.max()), 3),
        "beyond_two_errors": int((z > 2).sum()),
    }


def summary(
    rows: Table, decided: np.ndarray, suite: Suite, positive: str, feature: str
) -> dict[str, Any]:
    """Accuracy and the overall difference on all rows; mean, p90 and max of differences, of all and by kind."""
    measures = measure_all(suite, rows.labels(positive), decided, rows.column(feature).codes)
    rd, kinds = measures["risk_difference"], np.array(suite.kinds)
    values = {name: float(measures[name][0]) for name in ("accuracy", "balanced_accuracy")}
    values |= {"positive_rate": float(measures["positive_rate"][0]), "overall": float(rd[0])}
    by = {kind: _three(rd[kinds == kind]) for kind in dict.fromkeys(suite.kinds)}
    return {k: round(v, 5) for k, v in values.items()} | {"all": _three(rd), "kinds": by}


def _three(values: np.ndarray) -> list[float]:
    found = values.mean(), np.quantile(values, 0.9), values.max()
    return [round(float(v), 5) for v in found]


def taken_up(wanted: Sequence[Cell], out: Path) -> list[dict[str, Any]]:
    """All cells: those that have a file, and the others once they have run."""
    out.mkdir(parents=True, exist_ok=True)
    begin, rows = perf_counter(), []
    for k, cell in enumerate(wanted, 1):
        file = out / f"{cell.key}.json"
        if not file.exists():
            text = json.dumps(run(cell))
            file.with_suffix(".new").write_text(text)
            file.with_suffix(".new").rename(file)
            line = f"\r{k}/{len(wanted)}  {perf_counter() - begin:.0f} s  {cell.key}\033[K"
            print(line, end="", file=sys.stderr, flush=True)
        rows.append(json.loads(file.read_text()))
    print(file=sys.stderr)
    return rows


def shown(values: Sequence[float], digits: int = 3) -> str:
    """Mean and standard error over seeds.

    >>> shown([0.1, 0.2])
    '0.150 ± 0.050'
    """
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.{digits}f} ± {error:.{digits}f}"


def accuracy_at(points: Sequence[tuple[float, float]], p90: float) -> float:
    """Accuracy of a frontier of (p90, accuracy) at a p90: straight lines between its best points; nan below all.

    >>> accuracy_at([(0.1, 0.8), (0.2, 0.9), (0.15, 0.7)], 0.15)
    0.85
    """
    best: list[tuple[float, float]] = []
    for point in sorted(points):
        if not best or point[1] > best[-1][1]:
            best.append(point)
    x, y = np.array(best).T
    return float(np.round(np.interp(p90, x, y), 10)) if p90 >= x[0] else float("nan")


def table_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line of text for each setting, over its seeds."""
    found = ["line data learner tau seeds | accuracy | balanced | overall | singles | pairs | all"]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        names = ("line", "dataset", "method", "learner", "tau")
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    for key, those in groups.items():
        three = [
            np.mean([r["kinds"].get(k, [np.nan] * 3) for r in those], axis=0)
            for k in ("single value", "pair")
        ]
        three.append(np.mean([r["all"] for r in those], axis=0))
        cells = [shown([r[k] for r in those]) for k in ("accuracy", "balanced_accuracy", "overall")]
        cells += ["/".join(f"{v:.3f}" for v in t) for t in three]
        if "z" in those[0]:
            names = ("estimated", "decided", "beyond", "z", "beyond_two_errors")
            maximum = [max(-1.0 if r[k] is None else r[k] for r in those) for k in names]
            words = "beyond tau, at most: smoothed {:.4f}, decided {:.3f}, counted {:+.3f} ({:.1f} errors, {} over 2)"
            cells.append(words.format(*maximum))
        head = " ".join(str(v) for v in key if v is not None)
        found.append(f"{head} {len(those)} | " + " | ".join(cells))
    return found


def gains(
    rows: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]], line: str
) -> list[str]:
    """Accuracy beyond another method's at equal p90, seed by seed: mean and standard error at each of its taus."""
    found = []
    for data in DATASETS:
        for tau in TAUS:
            more, at = [], []
            for seed in {r["seed"] for r in rows}:
                where = {"line": line, "dataset": data, "seed": seed}
                mine = [(r["all"][1], r["accuracy"]) for r in rows if r.items() >= where.items()]
                old = [r for r in before if r.items() >= (where | {"tau": tau}).items()]
                for r in old if mine else []:
                    more.append(accuracy_at(mine, r["all"][1]) - r["accuracy"])
                    at.append(r["all"][1])
            if more:
                known = [v for v in more if not np.isnan(v)]
                text = f"accuracy by {shown(known, 4)} more, over " if known else "reached in "
                text += f"{len(known)} of {len(more)} seeds"
                absent = len(more) - len(known)
                text += f"; in {absent} no tau of ours has so low a p90" if absent else ""
                found.append(f"{line} {data} tau {tau}: at p90 {np.mean(at):.3f} {text}")
    return found


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--lines", default=",".join(LINES))
    words.add_argument("--datasets", default=",".join(DATASETS))
    words.add_argument("--seeds", default="0-4")
    words.add_argument("--method", default="rule")
    words.add_argument("--learner")
    words.add_argument("--out", type=Path, default=Path("rule"))
    words.add_argument("--write", type=Path)
    words.add_argument("--before", type=Path)
    request = words.parse_args()
    wanted = cells(
        request.lines.split(","),
        request.datasets.split(","),
        parsed(request.seeds),
        request.method,
        request.learner,
    )
    rows = taken_up(wanted, request.out)
    print("\n".join(table_of(rows)))
    if request.before:
        before = json.loads(request.before.read_text())
        print("\n".join(line for k in ("frontier", "natural") for line in gains(rows, before, k)))
    if request.write:
        text = ",\n".join(json.dumps(row) for row in rows)
        request.write.write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
