"""Figures of the benchmark, from its summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agnosticfair.report.figures import BLUE, GREEN, GREY, ORANGE, RED, canvas, tidy
from agnosticfair_research.benchmark import OURS
from agnosticfair_research.datasets import DATASETS
from agnosticfair_research.deployments import KINDS
from agnosticfair_research.verdict import MAIN_LIMIT, Json, is_constant, mean

MARKS = {
    OURS: (GREEN, "D"),
    "rule-overall": (GREEN, "o"),
    "linearpost": (RED, "^"),
    "fairlearn-eg": (ORANGE, "s"),
    "fairlearn-eg-control": (ORANGE, "v"),
    "fedfb": (BLUE, "P"),
    "boosted": (GREY, "*"),
    "boosted-moved": (GREY, "X"),
}
"""Colour and shape of the entrants that figures show."""


def figures(summary: Json) -> dict[str, Figure]:
    """Every figure there are cells for, by its file's name."""
    lines = summary["lines"]
    return {"trade.png": trade(lines), "kinds.png": kinds(lines)}


def trade(lines: Sequence[Json], protocol: str = "balanced") -> Figure:
    """Balanced accuracy against p90, a panel for each data set: our default at every limit, others at every setting."""
    chosen = [line for line in lines if line["protocol"] == protocol and line["seeds"]]
    data = [name for name in DATASETS if any(line["dataset"] == name for line in chosen)]
    figure = canvas(9.6, 2.6 * -(-len(data) // 3) + 0.6)
    panels = figure.subplots(-(-len(data) // 3), 3, squeeze=False).ravel()
    for axes, name in zip(panels, data, strict=False):
        for entrant, (colour, shape) in MARKS.items():
            points = sorted(
                (mean(line, "p90"), mean(line, "balanced"))
                for line in chosen
                if (line["dataset"], line["entrant"]) == (name, entrant)
                and (line["ours"] or "request" in line)
                and not is_constant(line)
            )
            if points:
                x, y = zip(*points, strict=True)
                axes.plot(x, y, ls=":", lw=0.8, marker=shape, ms=6, color=colour, label=entrant)
        _tidied(axes, name)
    for axes in panels[len(data) :]:
        axes.set_axis_off()
    handles: dict[str, Any] = {}
    for axes in panels:
        handles |= {label: h for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(
        [*handles.values()], [*handles], loc="outside lower center", ncols=4, frameon=False
    )
    return figure


def _tidied(axes: Axes, name: str) -> None:
    axes.set_title(name, fontsize=11, loc="left")
    axes.set_xlabel("p90 of differences", fontsize=9)
    axes.set_ylabel("balanced accuracy", fontsize=9)
    axes.tick_params(labelsize=9)
    axes.set_xlim(left=0)
    tidy(axes)


def kinds(lines: Sequence[Json], protocol: str = "balanced", limit: float = MAIN_LIMIT) -> Figure:
    """p90 by kind of deployment less our default's, the mean over the data sets where neither is constant."""
    at = [x for x in lines if (x["protocol"], x.get("limit")) == (protocol, limit) and x["seeds"]]
    by = {(x["entrant"], x["dataset"]): x["kinds"] for x in at if not is_constant(x)}
    figure = canvas(9.6, 4.0)
    axes = figure.subplots()
    for k, (name, (colour, shape)) in enumerate(MARKS.items()):
        both = [(by[name, d], by[OURS, d]) for d in DATASETS if {(name, d), (OURS, d)} <= {*by}]
        values = [[a[kind] - b[kind] for a, b in both if kind in a and kind in b] for kind in KINDS]
        places = [i + (k - len(MARKS) / 2) / 14 for i, v in enumerate(values) if v]
        axes.plot(places, [np.mean(v) for v in values if v], shape, color=colour, ms=7, label=name)
    axes.set_xticks(range(len(KINDS)), KINDS, fontsize=9)
    axes.set_ylabel("p90 of differences, less the rule's", fontsize=9)
    axes.axhline(0, color="black", lw=0.8)
    tidy(axes)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return figure
