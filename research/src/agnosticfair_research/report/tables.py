"""The paper's tables from rows of results, beside the paper's own numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agnosticfair.report.words import Grid
from agnosticfair_research.datasets import DATASETS
from agnosticfair_research.paper import Reported, reported
from agnosticfair_research.report.bench import table

Row = Mapping[str, Any]

HEAD = (
    "# What the paper reports, and what was measured here\n\n"
    "Mean ± standard deviation over the seeds; *paper* is the number printed in the paper. "
    "RD is the risk difference between the sexes, best at 0; the worst RD is the largest in a subgroup "
    "with rows enough, which an overall limit hides. "
    "Always answering the commonest label is right at the *majority rate*; *label RD* is the risk difference of the "
    "true labels."
)
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


def spread(values: Iterable[float | None], digits: int) -> str:
    """Mean and sample standard deviation of the values that there are.

    >>> spread([1.0, 3.0, None], 1), spread([0.5], 2), spread([None], 2)
    ('2.0 ± 1.4', '0.50', 'none')
    """
    there = [value for value in values if value is not None]
    deviation = f" ± {np.std(there, ddof=1):.{digits}f}" if len(there) > 1 else ""
    return f"{np.mean(there):.{digits}f}{deviation}" if there else "none"


@dataclass(frozen=True)
class Fits:
    """One method in one setting, over its seeds."""

    dataset: str
    setting: str
    method: str
    rows: list[Row]

    @property
    def paper(self) -> Reported | None:
        """What the paper says of it."""
        return reported(self.dataset, self.setting, self.method)

    @property
    def local(self) -> list[tuple[float, ...]]:
        """The risk differences of each client group of the test set."""
        there = [r["client_risk_differences"] for r in self.rows if r["client_risk_differences"]]
        return [*zip(*there, strict=True)]

    def text(self, name: str, digits: int) -> str:
        """A number of ours, or after the word 'paper' the paper's, empty where it gives none."""
        if not name.startswith("paper "):
            return spread((row.get(name) for row in self.rows), digits)
        value = getattr(self.paper, name.removeprefix("paper "), None)
        return "" if value is None else f"{value:.{digits}f}"


def summarise(rows: Sequence[Row]) -> list[Fits]:
    """Rows by data set, setting and method, in order of appearance."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        key = (row["dataset"], row["setting"], row["method"])
        groups.setdefault(key, []).append(row)
    return [Fits(*key, group) for key, group in groups.items()]


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


def grids(summaries: Sequence[Fits], digits: int = 4) -> list[Grid]:
    """The paper's Tables 1, 2 and 3, as far as there are rows for them."""
    all_grids = []
    for number, setting in ((1, "shift"), (3, "iid")):
        for dataset in dict.fromkeys(s.dataset for s in summaries):
            chosen = [s for s in summaries if (s.dataset, s.setting) == (dataset, setting)]
            if chosen:
                all_grids.append(_performance(number, chosen, digits))
            local = [s for s in chosen if s.method in LOCAL and s.local]
            if local and setting == "shift":
                all_grids.append(_local_fairness(local, digits))
    return all_grids


def _performance(number: int, chosen: Sequence[Fits], digits: int) -> Grid:
    """Table 1 or 3 for one data set."""
    lines = [
        (s.method, *(s.text(name, digits) for name in COLUMNS), outcome(s.rows)) for s in chosen
    ]
    what = "shifted test set" if number == 1 else "iid test set"
    header = ("method", *COLUMNS.values(), "outcome")
    return Grid(_title(f"Table {number}", what, chosen), _note(chosen), header, lines, BRIEF)


def _local_fairness(chosen: Sequence[Fits], digits: int) -> Grid:
    """Table 2 for one data set: the risk difference of each client group of the test set."""
    lines = []
    for s in chosen:
        reported = s.paper.client_risk_differences if s.paper else ()
        cells = [s.method]
        for k, values in enumerate(s.local):
            cells += [spread(values, digits), f"{reported[k]:.{digits}f}" if reported else ""]
        names = ("test_risk_difference", "paper test_risk_difference", "test_accuracy")
        lines.append((*cells, *(s.text(name, digits) for name in (*names, "majority_rate"))))
    groups = range(1, len(chosen[0].local) + 1)
    header = ("method", *(name for k in groups for name in (f"group {k} RD", "paper")))
    header = (*header, "global RD", "paper", "global accuracy", "majority rate")
    source = DATASETS[chosen[0].dataset]
    note = (
        f"Group 1: {source.shift.column} {source.shift.values[0]}; group 2: others. {_note(chosen)}"
    )
    title = _title("Table 2", "local and global fairness", chosen)
    return Grid(title, note, header, lines, range(len(header) - 2))


def _title(what: str, about: str, chosen: Sequence[Fits]) -> str:
    seeds = max(len(s.rows) for s in chosen)
    return f"{what}. {chosen[0].dataset.capitalize()}, {about}, {seeds} seed{'s'[: seeds > 1]}"


def _note(chosen: Sequence[Fits]) -> str:
    names = ("majority_rate", "label_risk_difference")
    rate, labels = (np.mean([row[name] for row in chosen[0].rows if row[name]]) for name in names)
    worst = "Worst RD: the largest in a subgroup with rows enough, of which an overall limit knows nothing."
    return f"{worst} Test set: majority rate {rate:.4f}, label RD {labels:.4f}."


def document(grids: Iterable[Grid], made_by: str) -> str:
    """The head and every table."""
    tables = (f"### {g.title}\n\n{g.note}\n\n{table(g.header, g.lines)}\n" for g in grids)
    return "\n".join([f"{HEAD}\n", f"{made_by}\n", *tables])
