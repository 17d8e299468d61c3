"""The frontier of tau as a table and a figure."""

from __future__ import annotations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from agnosticfair.mathematics.notions import NOTIONS
from agnosticfair.report.figures import BLUE, GREY, RED, Style
from agnosticfair.report.tables import Grid
from agnosticfair.tuning import Frontier


def grid(found: Frontier) -> Grid:
    """One line per tau, the knee marked, then the methods beside the path."""
    named = [(f"{p.tau:g}", p, "knee" * (k == found.knee)) for k, p in enumerate(found.points)]
    named += [(name, p, "") for name, p in found.references.items()]
    lines = tuple(
        (
            name,
            f"{p.accuracy:.4f} ± {p.spread[0]:.4f}",
            f"{p.worst:.4f} ± {p.spread[1]:.4f}",
            f"{p.measured:.4f}",
            f"{p.positive:.4f}",
            *(f"{other.accuracy - p.accuracy:+.4f}" for other in found.references.values()),
            mark,
        )
        for name, p, mark in named
    )
    what = NOTIONS[found.notion].quantity
    costs = (f"cost to {name}" for name in found.references)
    header = ("tau", "accuracy", f"certified worst {what}", "measured", "positive", *costs, "")
    note = (
        f"Means over {found.folds} held-out folds, ± one standard error; cost: accuracy that it loses to a method "
        "without that limit."
    )
    return Grid("Accuracy against fairness", note, header, lines)


def figure(found: Frontier) -> Figure:
    """Accuracy over the certified worst difference, with tau at every point."""
    drawn = Figure(figsize=(6.4, 4.4), layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.subplots()
    x, y = [p.worst for p in found.points], [p.accuracy for p in found.points]
    y_error, x_error = zip(*(p.spread for p in found.points), strict=True)
    line: Style = {"color": BLUE, "ecolor": "#BBBBBB", "marker": "o", "ms": 5, "lw": 1.5}
    axes.errorbar(x, y, xerr=x_error, yerr=y_error, **line)
    best = found.points[found.knee]
    axes.plot(best.worst, best.accuracy, "D", color=RED, ms=9, zorder=5)
    for k, p in enumerate(found.points):
        own = k == found.knee
        text = f"knee, tau {p.tau:g}" if own else f"{p.tau:g}"
        style: Style = {"xytext": (7, -12), "textcoords": "offset points"}
        style |= {"fontsize": 10, "color": RED} if own else {"fontsize": 8, "color": GREY}
        axes.annotate(text, (p.worst, p.accuracy), **style)
    for shape, (name, p) in zip("sv", found.references.items(), strict=False):
        axes.plot(p.worst, p.accuracy, shape, color=GREY, ms=7)
        style = {"xytext": (7, 4), "textcoords": "offset points", "fontsize": 9}
        axes.annotate(name, (p.worst, p.accuracy), color=GREY, **style)
    axes.set_xlabel(
        f"certified worst {NOTIONS[found.notion].quantity} on held-out rows", fontsize=10
    )
    axes.set_ylabel("accuracy on held-out rows", fontsize=10)
    axes.set_title("Every point is a tau: pick yours", fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#EEEEEE")
    axes.set_axisbelow(True)
    return drawn
