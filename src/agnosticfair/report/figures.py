"""What all figures share: colours (Okabe and Ito's), an empty canvas, tidy axes, PNG. There is no global state.
And a frontier of tau, as a table and as a figure."""

from __future__ import annotations

from io import BytesIO
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.report.words import Grid
from agnosticfair.tuning import Frontier

BLUE, ORANGE, GREEN, RED, GREY = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#555555")
Style = dict[str, Any]


def png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as a PNG file; the same figure gives the same bytes."""
    content = BytesIO()
    figure.savefig(content, format="png", dpi=dpi, metadata={"Software": None})
    return content.getvalue()


def canvas(width: float, height: float) -> Figure:
    """An empty figure of this size, in inches, that needs no screen."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Axes, along: Literal["both", "x", "y"] = "both") -> None:
    """Axes without a box, with a pale grid behind what is drawn."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis=along, color="#E5E5E5")


BESIDE = {"fl": "no limit", "fairfl": "an overall limit alone"}
"""What the methods beside the path are, in a figure."""


def frontier_grid(frontier: Frontier) -> Grid:
    """One line per tau, the knee marked, then the methods beside the path."""
    marks = ["one answer" * p.one_answer for p in frontier.points]
    marks[frontier.knee] = "knee"
    named = [(f"{p.tau:g}", p, mark) for p, mark in zip(frontier.points, marks, strict=True)]
    named += [(name, p, "") for name, p in frontier.references.items()]
    lines = tuple(
        (
            name,
            f"{p.accuracy:.4f} ± {p.standard_errors[0]:.4f}",
            f"{p.worst:.4f} ± {p.standard_errors[1]:.4f}",
            f"{p.measured:.4f}",
            f"{p.positive:.4f}",
            *(f"{other.accuracy - p.accuracy:+.4f}" for other in frontier.references.values()),
            mark,
        )
        for name, p, mark in named
    )
    what = METRICS[frontier.metric].quantity
    costs = (f"cost to {name}" for name in frontier.references)
    header = ("tau", "accuracy", f"worst {what}", "overall", "decided positive", *costs, "")
    note = (
        f"Means over {frontier.folds} held-out folds, ± one standard error. Worst: the largest difference in a "
        "subgroup with rows enough. Cost: the accuracy lost to that method."
    )
    return Grid("Accuracy against fairness", note, header, lines)


def frontier_figure(frontier: Frontier) -> Figure:
    """Accuracy over the worst difference, with tau at every point."""
    drawn = canvas(6.4, 4.4)
    axes = drawn.subplots()
    x, y = [p.worst for p in frontier.points], [p.accuracy for p in frontier.points]
    y_error, x_error = zip(*(p.standard_errors for p in frontier.points), strict=True)
    line: Style = {"color": BLUE, "ecolor": "#BBBBBB", "marker": "o", "ms": 5, "lw": 1.5}
    line["label"] = "a limit on every subgroup, by tau"
    axes.errorbar(x, y, xerr=x_error, yerr=y_error, **line)
    best = frontier.points[frontier.knee]
    axes.plot(best.worst, best.accuracy, "D", color=RED, ms=9, zorder=5)
    near, last = (np.ptp(x) / 20, np.ptp(y) / 20), (np.inf, np.inf)
    for at, taus in _together(frontier).items():
        on_path = best.tau in taus
        text = ", ".join(f"{tau:g}" for tau in taus)
        look: Style = {"fontsize": 10, "color": RED} if on_path else {"fontsize": 8, "color": GREY}
        close = bool(np.all(np.abs(np.subtract(at, last)) < near))
        style: Style = {
            "xytext": (-8, 6) if close else (8, -11),
            "ha": "right" if close else "left",
        }
        axes.annotate(
            f"knee, tau {text}" if on_path else text,
            at,
            textcoords="offset points",
            **style,
            **look,
        )
        last = (np.inf, np.inf) if close else at
    for shape, (name, p) in zip("sv", frontier.references.items(), strict=False):
        label = f"{name}: {BESIDE.get(name, '')}"
        axes.plot(
            p.worst, p.accuracy, shape, color=ORANGE if shape == "s" else GREY, ms=9, label=label
        )
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    axes.set_xlabel(
        f"worst {METRICS[frontier.metric].quantity} in a subgroup, on held-out rows", fontsize=10
    )
    axes.set_ylabel("accuracy on held-out rows", fontsize=10)
    axes.set_title("Every point is a tau: pick yours", fontsize=11, loc="left")
    axes.margins(x=0.08, y=0.1)
    tidy(axes)
    return drawn


def _together(frontier: Frontier) -> dict[tuple[float, float], list[float]]:
    """The taus of every place on the figure, for a laxer one may do what a stricter one does."""
    places: dict[tuple[float, float], list[float]] = {}
    for p in frontier.points:
        places.setdefault((p.worst, p.accuracy), []).append(p.tau or 0.0)
    return places
