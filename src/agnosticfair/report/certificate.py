"""A certificate to look at: tables for the terminal, and one figure."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from agnosticfair.auditing.certificate import Certificate, Tilt, lower, upper
from agnosticfair.report.figures import BLUE, GREEN, ORANGE, RED, Style
from agnosticfair.report.tables import Grid

MOST_FEATURES = 10


def grids(made: Certificate) -> list[Grid]:
    """What is certified, the groups, and what the worst deployment weighs up and down."""
    share, level = f"{100 * made.floor:g}%", f"{made.confidence:.0%} interval"
    note = f"Certified over A: {made.about}; the compared groups each keep {share} of the mass."
    lines = [
        (name, f"{measured:.4f}", _between(made, key), bound(worst), _between(made, f"worst_{key}"))
        for name, key, measured, worst, bound in _bounds(made)
    ]
    groups = [
        (
            name,
            f"{g.rows:,}",
            f"{g.share:.1%}",
            f"{g.worst_share:.1%}",
            _rate(g.rate),
            _rate(g.worst_rate),
        )
        for name, g in made.groups.items()
    ]
    tilts = [(t.feature, *_means(t), f"{t.shift:+.2f}") for t in made.profile[:MOST_FEATURES]]
    worst = f"The deployment of the worst {made.quantity}"
    head = ("", "measured", level, "certified", level)
    about = ("group", "rows", "share", "worst share", "positive rate", "worst rate")
    what = ("feature", "mean or share", "worst", "shift in sd")
    return [
        Grid(f"Certificate on {made.n:,} rows", " ".join((note, *made.warnings)), head, lines),
        Grid(f"{worst}: its groups", "", about, groups),
        Grid(f"{worst}: its rows, by feature", "", what, tilts),
    ]


def figure(made: Certificate) -> Figure:
    """Measured against certified, with intervals; and how the worst deployment differs."""
    tilts = [tilt for tilt in made.profile[:MOST_FEATURES] if tilt.shift]
    heights = 0.42 * 2 * len(_bounds(made)), 0.34 * max(1, len(tilts))
    drawn = Figure(figsize=(6.4, 2.0 + sum(heights)), layout="constrained")
    FigureCanvasAgg(drawn)
    above, below = drawn.subplots(2, height_ratios=heights)
    drawn.suptitle(f"Certified over A: {made.about}", fontsize=12, x=0.02, ha="left")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=10)
        axes.set_axisbelow(True)
        axes.grid(axis="x", color="#E5E5E5")
    _draw_bounds(above, made)
    _draw_profile(below, tilts)
    return drawn


def _draw_bounds(axes: Axes, made: Certificate) -> None:
    marks = []
    for name, key, measured, worst, bound in _bounds(made):
        limit = "at most" if bound is upper else "at least"
        name = name.replace(" of ", " of\n")
        marks += [(f"{name}\nmeasured", key, measured, f"{measured:.3f}", "o", BLUE)]
        marks += [(f"certified {limit}", f"worst_{key}", worst, bound(worst, 3), "D", RED)]
    for place, (_, key, value, text, shape, colour) in zip(
        range(len(marks))[::-1], marks, strict=True
    ):
        low, high = made.intervals.get(key, (value, value))
        axes.plot((low, high), (place, place), color=colour, lw=2, marker="|", ms=14)
        axes.plot(value, place, shape, color=colour, ms=6)
        text += f" ({low:.3f} to {high:.3f})" if key in made.intervals else ""
        left = high < 0.55
        side: Style = {"ha": "left" if left else "right", "va": "center", "fontsize": 10}
        offset: Style = {"xytext": (8 if left else -8, 0), "textcoords": "offset points"}
        axes.annotate(text, (high if left else low, place), **offset, **side)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.6, len(marks) - 0.4), yticks=range(len(marks)))
    axes.set_yticklabels([mark[0] for mark in reversed(marks)], fontsize=10)
    if made.intervals:
        axes.set_xlabel(f"in brackets: {made.confidence:.0%} intervals", fontsize=10)


def _draw_profile(axes: Axes, tilts: Sequence[Tilt]) -> None:
    places, shifts = range(len(tilts))[::-1], [tilt.shift for tilt in tilts]
    axes.barh(
        places, shifts, color=[GREEN if shift > 0 else ORANGE for shift in shifts], height=0.62
    )
    axes.axvline(0, color="black", lw=1)
    axes.set_xlabel("shift in standard deviations", fontsize=10)
    names = [t.feature if len(t.feature) <= 34 else f"{t.feature[:33]}…" for t in tilts]
    axes.set_yticks(places, names, fontsize=9, parse_math=False)  # a name may hold a $
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(places, [" → ".join(_means(tilt)) for tilt in tilts], fontsize=9)
    beside.tick_params(length=0)
    beside.spines["right"].set_visible(False)
    title = "What the worst deployment weighs up and down\n(share or mean: measured → there)"
    axes.set_title(title, fontsize=10, loc="left")


def _bounds(made: Certificate) -> list[tuple[str, str, float, float, Any]]:
    """For each measure: its name, its key, measured, certified, and how a bound on it is written."""
    found: list[tuple[str, str, float, float, Any]] = [
        (
            made.quantity,
            "difference",
            made.difference,
            made.worst_difference,
            upper,
        )
    ]
    if isfinite(made.accuracy):
        found.append(("accuracy", "accuracy", made.accuracy, made.worst_accuracy, lower))
    return found


def _between(made: Certificate, key: str) -> str:
    low, high = made.intervals.get(key, (None, None))
    return "" if low is None else f"{low:.4f} to {high:.4f}"


def _rate(value: float) -> str:
    return f"{value:.4f}" if isfinite(value) else "none"


def _means(tilt: Tilt) -> tuple[str, str]:
    """Both means as texts: of a category (its feature is 'column=value') as shares."""
    largest = max(abs(tilt.mean), abs(tilt.worst_mean))
    form = "{:.0%}" if "=" in tilt.feature else "{:,.0f}" if largest >= 1000 else "{:.4g}"
    return form.format(tilt.mean), form.format(tilt.worst_mean)
