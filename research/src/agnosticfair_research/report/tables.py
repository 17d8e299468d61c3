"""The paper's tables from rows of results, beside the paper's own numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agnosticfair.report.tables import Grid
from agnosticfair_research.datasets import DATASETS
from agnosticfair_research.paper import Reported, reported
from agnosticfair_research.report.bench import table
from agnosticfair_research.reproduce import MEASURES

Row = Mapping[str, Any]

HEAD = (
    "# What the paper reports, and what was measured here\n\n"
    "Mean ± standard deviation over the seeds; *paper* is the number printed in the paper. "
    "RD is the risk difference between the sexes, best at 0; the worst RD is the largest in a subgroup "
    "with rows enough, which an overall limit hides. "
    "Always answering the commonest label is right at the *majority rate*; *label RD* is the risk difference of the "
    "true labels."
)
NUMBERS = tuple(k for k in (*MEASURES, "rounds", "seconds") if k != "client_risk_differences")
COLUMNS = {
    "train_accuracy": "train accuracy",
    "paper train_accuracy": "paper",
    "test_accuracy": "test accuracy",
    "paper test_accuracy": "paper",
    "majority_rate": "majority rate",
    "test_risk_difference": "test RD",
    "paper test_risk_difference": "paper",
    "test_worst_subgroup": "worst RD",
    "label_risk_difference": "label RD",
    "test_balanced_accuracy": "balanced accuracy",
}
"""Tables 1 and 3, between the method and the outcome."""

BRIEF = (0, 3, 4, 6, 8, 11)
"""Columns of these that a terminal shows; the majority rate and label RD stand in the note."""

LOCAL = ("agnosticfair", "agnosticfair-printed", "agnosticfair-b")
"""Methods in Table 2."""


@dataclass(frozen=True)
class MeanDeviation:
    """Mean and sample standard deviation of the values that there are; both nan without any."""

    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> MeanDeviation:
        """
        >>> MeanDeviation.of([1.0, 3.0, None])
        MeanDeviation(mean=2.0, deviation=1.4142135623730951, count=2)
        """
        there = np.array([value for value in values if value is not None], dtype=float)
        if not len(there):
            return cls(np.nan, np.nan, 0)
        deviation = there.std(ddof=1) if len(there) > 1 else 0.0
        return cls(float(there.mean()), float(deviation), len(there))

    def text(self, digits: int) -> str:
        """
        >>> MeanDeviation(0.8195, 0.0021, 20).text(4), MeanDeviation(0.5, 0.0, 1).text(2)
        ('0.8195 ± 0.0021', '0.50')
        """
        deviation = f" ± {self.deviation:.{digits}f}" if self.count > 1 else ""
        return f"{self.mean:.{digits}f}{deviation}" if self.count else "none"


@dataclass(frozen=True)
class PaperSummary:
    """One method in one setting, over its seeds. numbers: a Spread for each of NUMBERS."""

    dataset: str
    setting: str
    method: str
    clients: int
    seeds: int
    numbers: Mapping[str, MeanDeviation]
    client_risk_differences: tuple[MeanDeviation, ...]
    outcome: str
    paper: Reported | None

    def __getitem__(self, name: str) -> MeanDeviation:
        return self.numbers[name]


def summarise(rows: Sequence[Row]) -> list[PaperSummary]:
    """One summary per data set, setting, number of clients and method, in order of appearance."""
    groups: dict[tuple[str, str, str, int], list[Row]] = {}
    for row in rows:
        key = (row["dataset"], row["setting"], row["method"], row["clients"])
        groups.setdefault(key, []).append(row)
    summaries = []
    for key, group in groups.items():
        numbers = {name: MeanDeviation.of(row.get(name) for row in group) for name in NUMBERS}
        local = [row["client_risk_differences"] for row in group if row["client_risk_differences"]]
        by_group = tuple(MeanDeviation.of(values) for values in zip(*local, strict=True))
        paper_value = reported(*key[:3])
        summaries.append(
            PaperSummary(*key, len(group), numbers, by_group, outcome(group), paper_value)
        )
    return summaries


def outcome(rows: Sequence[Row]) -> str:
    """How the fits ended, in words.

    >>> outcome([{"outcome": "converged", "outcomes": {"step kept": 8}}])
    'converged 1/1'
    >>> outcome([{"outcome": "rounds", "outcomes": {"lp infeasible": 12, "lp optimal": 3}}])
    'LP infeasible in 12 of 15 rounds'
    >>> outcome([{"outcome": "rounds", "outcomes": {"averaged": 60}}])
    'all rounds run'
    >>> outcome([{"outcome": "converged", "outcomes": {"averaged": 60}}])
    'converged 1/1'
    """
    ends, lps = Counter(row["outcome"] for row in rows), Counter[str]()
    for row in rows:
        lps.update({k[3:]: n for k, n in row["outcomes"].items() if k.startswith("lp ")})
    if lps:  # a method of as many rounds as it is told, and no stopping rule
        total = sum(lps.values())
        bad = [f"LP {k} in {n} of {total} rounds" for k, n in lps.items() if k != "optimal"]
        sentences = bad or ["all rounds run"]
    elif all("averaged" in row["outcomes"] for row in rows) and not ends["converged"]:
        sentences = ["all rounds run"]
    else:
        sentences = [f"converged {ends['converged']}/{len(rows)}"]
    if ends["diverged"]:
        sentences.append(f"diverged {ends['diverged']}/{len(rows)}")
    return "; ".join(sentences)


def grids(summaries: Sequence[PaperSummary], digits: int = 4) -> list[Grid]:
    """The paper's Tables 1, 2 and 3, and Figure 3 in numbers, as far as there are rows for them."""
    all_grids = []
    for number, setting in ((1, "shift"), (3, "iid")):
        for dataset in dict.fromkeys(s.dataset for s in summaries):
            chosen = [s for s in summaries if (s.dataset, s.setting) == (dataset, setting)]
            if chosen:
                all_grids.append(_performance(number, chosen, digits))
            local = [s for s in chosen if s.method in LOCAL and s.client_risk_differences]
            if local and setting == "shift":
                all_grids.append(_local_fairness(local, digits))
    curve = [s for s in summaries if s.setting == "clients"]
    return [*all_grids, _by_clients(curve, digits)] if curve else all_grids


def _performance(number: int, chosen: Sequence[PaperSummary], digits: int) -> Grid:
    """Table 1 or 3 for one data set."""
    lines = [(s.method, *(_cell(s, name, digits) for name in COLUMNS), s.outcome) for s in chosen]
    what = "shifted test set" if number == 1 else "iid test set"
    header = ("method", *COLUMNS.values(), "outcome")
    return Grid(_title(f"Table {number}", what, chosen), _note(chosen), header, lines, BRIEF)


def _local_fairness(chosen: Sequence[PaperSummary], digits: int) -> Grid:
    """Table 2 for one data set: the risk difference of each client group of the test set."""
    lines = []
    for s in chosen:
        reported = s.paper.client_risk_differences if s.paper else ()
        cells = [s.method]
        for k, spread in enumerate(s.client_risk_differences):
            cells += [spread.text(digits), f"{reported[k]:.{digits}f}" if reported else ""]
        names = ("test_risk_difference", "paper test_risk_difference", "test_accuracy")
        lines.append((*cells, *(_cell(s, name, digits) for name in (*names, "majority_rate"))))
    groups = range(1, len(chosen[0].client_risk_differences) + 1)
    header = ("method", *(name for k in groups for name in (f"group {k} RD", "paper")))
    header = (*header, "global RD", "paper", "global accuracy", "majority rate")
    source = DATASETS[chosen[0].dataset]
    note = (
        f"Group 1: {source.shift.column} {source.shift.values[0]}; group 2: others. {_note(chosen)}"
    )
    title = _title("Table 2", "local and global fairness", chosen)
    return Grid(title, note, header, lines, range(len(header) - 2))


def _by_clients(curve: Sequence[PaperSummary], digits: int) -> Grid:
    """Figure 3 in numbers: a line per number of clients, a column per method."""
    methods = list(dict.fromkeys(s.method for s in curve))
    texts = {(s.clients, s.method): s["test_accuracy"].text(digits) for s in curve}
    counts = sorted({s.clients for s in curve})
    lines = tuple((str(p), *(texts.get((p, m), "none") for m in methods)) for p in counts)
    title = _title("Figure 3", "test accuracy by number of clients", curve)
    return Grid(title, _note(curve), ("clients", *methods), lines)


def _cell(s: PaperSummary, name: str, digits: int) -> str:
    """A number of ours, or after the word 'paper' the paper's, empty where it gives none."""
    if not name.startswith("paper "):
        return s[name].text(digits)
    reported_value = getattr(s.paper, name.removeprefix("paper "), None)
    return "" if reported_value is None else f"{reported_value:.{digits}f}"


def _title(what: str, about: str, chosen: Sequence[PaperSummary]) -> str:
    seeds = max(s.seeds for s in chosen)
    return f"{what}. {chosen[0].dataset.capitalize()}, {about}, {seeds} seed{'s'[: seeds > 1]}"


def _note(chosen: Sequence[PaperSummary]) -> str:
    rate, labels = chosen[0]["majority_rate"], chosen[0]["label_risk_difference"]
    worst = "Worst RD: the largest in a subgroup with rows enough, of which an overall limit knows nothing."
    return f"{worst} Test set: majority rate {rate.mean:.4f}, label RD {labels.mean:.4f}."


def document(grids: Iterable[Grid], made_by: str) -> str:
    """The head and every table."""
    tables = (f"### {g.title}\n\n{g.note}\n\n{table(g.header, g.lines)}\n" for g in grids)
    return "\n".join([f"{HEAD}\n", f"{made_by}\n", *tables])
