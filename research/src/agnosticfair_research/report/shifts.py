"""The shift suite in tables and figures, from its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from agnosticfair.report.figures import BLUE, GREEN, GREY, ORANGE, RED, Style, canvas, tidy
from agnosticfair.report.tables import Grid
from agnosticfair_research.deployments import KINDS
from agnosticfair_research.report.figures import FAIR, NAMES, _blank, _legend
from agnosticfair_research.report.tables import MeanDeviation, Row, outcome
from agnosticfair_research.shifts import DONE, MOVED, PEERS, TUNED

PUBLISHED = {
    "FedAvg": (0.8452, 0.1765),
    "FairFed": (0.8073, 0.0983),
    "FedFB": (0.8185, 0.0751),
    "FCFL": (0.8191, 0.0845),
    "FedFACT": (0.8283, 0.0173),
}
"""Accuracy and demographic parity gap on Adult, five clients, Dirichlet of concentration 0.5."""

HEAD = (
    "# Deployments that no method saw\n\n"
    "Means over the seeds. RD is the risk difference between the groups, best at 0. A deployment is "
    "the test set, what the split holds back, a subgroup with a name (one to three values of columns, "
    "features or not), the test set tilted towards one of its rows, or a mixture of subgroups, each worth at "
    "least 400 rows and with 5% of each group; no method saw any of them. "
    "*Certified* is the largest RD of the decisions over every reweighting of the training rows by "
    "200 Gaussian kernels of width 1 and bound 5, drawn with another seed than the method's, in "
    "which each group keeps 5% of the mass."
)
NOTES = {
    "fairfl-moved": "threshold raised until as accurate on the training rows as agnosticfair",
    "fairfl-moved-balanced": "the same for balanced accuracy",
    TUNED: "tau 0.0425, temperature 0.75, chosen on the splits of seeds 100 to 119",
    **{name: peer.note for name, peer in PEERS.items()},
}

SPREADS = {
    "test_risk_difference": "test set",
    "group_risk_difference": "client groups",
    "mean_risk_difference": "mean",
    "p90_risk_difference": "p90",
    "max_risk_difference": "max",
    "certified_risk_difference": "certified",
}
RIGHT = {
    "test_accuracy": "test set",
    "mean_accuracy": "mean",
    "min_accuracy": "min",
    "mean_balanced_accuracy": "balanced",
    "mean_positive_rate": "positives",
    "seconds": "seconds",
}


@dataclass(frozen=True)
class SuiteSummary:
    """One method on one data set over its seeds; ``rows`` are those that have measures."""

    dataset: str
    setting: str
    method: str
    seeds: int
    numbers: Mapping[str, MeanDeviation]
    worst: str
    outcome: str
    rows: Sequence[Row]


def summarise(rows: Iterable[Row]) -> list[SuiteSummary]:
    """A summary per data set, setting and method, in order of appearance, without the frontier."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if not row["frontier"]:
            groups.setdefault((row["dataset"], row["setting"], row["method"]), []).append(row)
    found = []
    for key, group in groups.items():
        there = [row for row in group if "worst" in row]
        numbers = {
            name: MeanDeviation.of(row.get(name) for row in there)
            for name in (*SPREADS, *RIGHT, "test_balanced_accuracy")
        }
        subgroups = zip(*(row["subgroup_risk_differences"] for row in there), strict=True)
        means = [MeanDeviation.of(values) for values in subgroups]
        numbers["group_risk_difference"] = max(
            means, key=lambda s: s.mean, default=numbers["group_risk_difference"]
        )
        worst, times = (
            Counter(row["worst"] for row in there).most_common(1)[0] if there else ("", 0)
        )
        often = f" ({times} of {len(there)})" if len(there) > 1 else ""
        found.append(SuiteSummary(*key, len(group), numbers, worst + often, _outcome(group), there))
    return found


def _outcome(rows: Sequence[Row]) -> str:
    """How the fits ended; a peer without a stopping rule says so itself."""
    told = {row["outcome"] for row in rows}
    return told.pop() if told == {DONE} else outcome(rows)


def grids(summaries: Sequence[SuiteSummary], spread: bool = True) -> list[Grid]:
    """Three tables for each data set and setting; for *dirichlet*, the published numbers first."""
    made = []
    for data, setting in dict.fromkeys((s.dataset, s.setting) for s in summaries):
        chosen = [s for s in summaries if (s.dataset, s.setting) == (data, setting)]
        if setting == "dirichlet":
            made.append(_beside_published(chosen))
        count = max((len(r["deployments"]) for s in chosen for r in s.rows), default=0)
        seeds = chosen[0].seeds
        about = f"{NAMES.get(data, data)}, {setting} split, {count} deployments, {seeds} seed"
        about += "s" if seeds > 1 else ""
        for what, names in (("Risk difference", SPREADS), ("Accuracy", RIGHT)):
            lines = [(s.method, *(_cell(s, name, spread) for name in names)) for s in chosen]
            made.append(Grid(f"{what}. {about}", "", ("method", *names.values()), lines))
        ends = [(s.method, s.worst, s.outcome) for s in chosen]
        header = ("method", "worst deployment", "outcome")
        made.append(Grid(f"Worst deployment. {about}", _notes(chosen), header, ends))
    return made


def _cell(s: SuiteSummary, name: str, spread: bool) -> str:
    value = s.numbers[name]
    digits = 1 if name == "seconds" else 4 if spread else 3
    if not value.count:
        return "none"
    return value.text(digits) if spread else f"{value.mean:.{digits}f}"


def _notes(chosen: Sequence[SuiteSummary]) -> str:
    return " ".join(f"{s.method}: {NOTES[s.method]}." for s in chosen if s.method in NOTES)


def _beside_published(chosen: Sequence[SuiteSummary]) -> Grid:
    """Our accuracy and gap on the test set, after the published ones."""
    lines: list[tuple[str, ...]] = [
        (name, f"{right:.4f}", f"{gap:.4f}", "published")
        for name, (right, gap) in PUBLISHED.items()
    ]
    for s in chosen:
        values = (s.numbers[f"test_{n}"].text(4) for n in ("accuracy", "risk_difference"))
        lines.append((s.method, *values, s.outcome))
    title = "Adult, 5 clients by a Dirichlet draw of concentration 0.5, test set"
    return Grid(title, "", ("method", "accuracy", "parity gap", "outcome"), lines)


SKY, PURPLE = "#56B4E9", "#CC79A7"
MARKERS = (
    (RED, "*"),
    (PURPLE, "D"),
    (BLUE, "o"),
    (SKY, "."),
    (GREY, "."),
    (GREEN, "^"),
    (ORANGE, "s"),
)
DOTS = dict(zip(KINDS, MARKERS, strict=True))


def figures(rows: Sequence[Row]) -> dict[str, tuple[Figure, str]]:
    """Every figure there are rows for: file name -> the figure, and what it shows in words."""
    made: dict[str, tuple[Figure, str]] = {}
    summaries = summarise(rows)
    for data, setting in dict.fromkeys((s.dataset, s.setting) for s in summaries):
        chosen = [s for s in summaries if (s.dataset, s.setting) == (data, setting) if s.rows]
        where = f"{NAMES.get(data, data)}, {setting} split"
        if chosen:
            text = f"Risk difference of every deployment ({where})"
            made[f"deployments-{data}-{setting}.png"] = (strip(chosen, text), text)
        here = [r for r in rows if (r["dataset"], r["setting"]) == (data, setting) if "worst" in r]
        if any(row["frontier"] for row in here):
            text = f"Accuracy against risk difference ({where})"
            made[f"frontier-{data}-{setting}.png"] = (frontier(here, text), text)
    return made


def strip(chosen: Sequence[SuiteSummary], title: str) -> Figure:
    """RD of every deployment and seed, a line per method; mean, 90th percentile and maximum."""
    figure, axes = _blank(title, height=1.9 + 0.46 * len(chosen))
    for y, s in zip(range(len(chosen))[::-1], chosen, strict=True):
        for k, (name, (colour, shape)) in enumerate(DOTS.items()):
            x = [
                d["risk_difference"] for r in s.rows for d in r["deployments"] if d["kind"] == name
            ]
            up = y + np.random.default_rng(k).uniform(-0.22, 0.22, len(x)) * (name != KINDS[0])
            dots: Style = {"mec": "none", "alpha": 0.55, "zorder": 2 + (name == KINDS[0])}
            axes.plot(x, up, shape, color=colour, ms=9 if shape == "*" else 4.5, **dots)
        for name, style in MARKS.items():
            axes.plot(s.numbers[f"{name}_risk_difference"].mean, y, zorder=4, **style)
    axes.axvline(FAIR, color="black", ls=":", lw=1, zorder=0.9)
    axes.set(yticks=range(len(chosen)), ylim=(-0.6, len(chosen) - 0.4))
    axes.set_yticklabels([s.method for s in chosen][::-1], fontsize=11)
    axes.set_xlabel("risk difference (0 is fair); in black: averaged over the seeds")
    axes.set_xlim(left=0)
    keys = [
        Line2D([], [], ls="", marker=shape, color=colour, ms=9 if shape == "*" else 6, label=name)
        for name, (colour, shape) in DOTS.items()
    ]
    texts = ("mean", "90th percentile", "maximum")
    keys += [Line2D([], [], label=t, **s) for t, s in zip(texts, MARKS.values(), strict=True)]
    _legend(axes, [*keys, Line2D([], [], color="black", ls=":", lw=1, label=f"RD {FAIR}")])
    return figure


MARKS: dict[str, Style] = {
    "mean": {"ls": "", "marker": "d", "color": "black", "ms": 8},
    "p90": {"ls": "", "marker": "|", "color": "black", "ms": 14, "mew": 2.5},
    "max": {"ls": "", "marker": "x", "color": "black", "ms": 9, "mew": 2.5},
}

LINES: dict[str, tuple[str, str, str]] = {
    "agnosticfair": (GREEN, "D", "agnosticfair, τ"),
    "fairfl": (ORANGE, "s", "fairfl, τ"),
    "fairfl-moved": (PURPLE, "v", "fairfl, threshold raised"),
}
POINTS: dict[str, tuple[str, str]] = {
    "fl": (BLUE, "o"),
    "fairlearn-eg": (GREY, "P"),
    "fairlearn-threshold": (GREY, "X"),
    "declearn-fairgrad": (SKY, "p"),
}
_Y = {"test_accuracy": "accuracy, test set", "mean_balanced_accuracy": "balanced accuracy, mean"}
_X = {
    "max_risk_difference": "RD of the worst deployment",
    "mean_risk_difference": "RD, mean over deployments",
}


def frontier(rows: Sequence[Row], title: str) -> Figure:
    """(Balanced) accuracy against worst and mean RD; a line per method whose setting varies."""
    figure = canvas(6.4, 7.4)
    figure.suptitle(title, fontsize=12, x=0.02, ha="left")
    grid = figure.subplots(2, 2, sharex="col", sharey="row")
    seeds = {row["seed"] for row in rows if row["frontier"]}
    points = _points([row for row in rows if row["seed"] in seeds])
    for i, (y, y_text) in enumerate(_Y.items()):
        for j, (x, x_text) in enumerate(_X.items()):
            axes = grid[i, j]
            _draw(axes, points, x, y)
            axes.tick_params(labelsize=10)
            tidy(axes)
            axes.set_xlabel(x_text if i == 1 else "", fontsize=11)
            axes.set_ylabel(y_text if j == 0 else "", fontsize=11)
    for axes, y in zip(grid[:, 0], _Y, strict=True):
        # a threshold raised far ruins accuracy; its path may leave the frame below
        steady = ({*LINES} | {*POINTS}) - {*MOVED}
        there = [p[y] for name in steady for p in points.get(name, ())]
        lowest = min(there) - 0.5 * (max(there) - min(there))
        axes.set_ylim(bottom=max(lowest, axes.get_ylim()[0]))
    for axes in grid[-1]:
        axes.set_xlim(left=0)
    keys = []
    for name, (colour, shape, text) in LINES.items():
        if name in points:
            ends = f"{points[name][0]['value']:.2g} to {points[name][-1]['value']:.2g}"
            words = text if name in MOVED else f"{text} {ends}"
            keys.append(Line2D([], [], marker=shape, color=colour, ms=7, label=words))
    keys += [
        Line2D([], [], ls="", marker=shape, color=colour, ms=9, label=name)
        for name, (colour, shape) in POINTS.items()
        if name in points
    ]
    ring: Style = {"mfc": "white", "mec": "black", "mew": 1.5, "label": "as in the table"}
    keys.append(Line2D([], [], ls="", marker="o", ms=10, **ring))
    figure.legend(handles=keys, ncols=2, frameon=False, fontsize=10, loc="outside lower center")
    return figure


def _points(rows: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    """Means over the seeds of each point, a method's from the strictest to the laxest."""
    groups: dict[tuple[str, float, bool], list[Row]] = {}
    for row in rows:
        path = row["method"] in MOVED
        if path and row["kept"] is None:
            continue  # the sceptic's own rows lie on the path or near it
        value = row["kept"] if path else row["tau"] or 0.0
        groups.setdefault((row["method"], value, row["frontier"]), []).append(row)
    found: dict[str, list[dict[str, Any]]] = {}
    for (name, value, extra), group in sorted(groups.items()):
        means = {k: float(np.mean([row[k] for row in group])) for k in (*_X, *_Y)}
        found.setdefault(name, []).append({"value": value, "table": not extra, **means})
    if "fairfl-moved" in found:  # all positives kept is FairFL itself
        found["fairfl-moved"] += [point for point in found["fairfl"] if point["table"]]
    return found


def _draw(axes: Axes, points: Mapping[str, Sequence[Mapping[str, Any]]], x: str, y: str) -> None:
    for name, (colour, shape, _) in LINES.items():
        those = points.get(name, ())
        axes.plot([p[x] for p in those], [p[y] for p in those], color=colour, lw=1.5, zorder=2)
        for point in those:
            table: Style = {"mec": "black", "mew": 1.5, "ms": 9} if point["table"] else {"ms": 6}
            if name != "fairfl-moved" or not point["table"]:
                axes.plot(point[x], point[y], shape, color=colour, zorder=3, **table)
    for name, (colour, shape) in POINTS.items():
        for point in points.get(name, ()):
            axes.plot(point[x], point[y], shape, color=colour, ms=9, zorder=4)
