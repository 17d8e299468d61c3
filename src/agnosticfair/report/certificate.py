"""A certificate to look at: tables for the terminal, and one figure."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agnosticfair.auditing.certificate import (
    Certificate,
    Tilt,
    lower,
    not_estimable,
    upper,
    worst_first,
)
from agnosticfair.report.figures import BLUE, GREEN, ORANGE, RED, Style, canvas, tidy
from agnosticfair.report.tables import Grid

MOST_FEATURES = 10
MOST_PARTS = 20


def grids(made: Certificate) -> list[Grid]:
    """What is certified, the groups, and what the worst deployment weighs up and down; or part by part."""
    if made.parts:
        return [
            _headline(made),
            *part_grids(made),
            *([] if made.kernels is None else _kernel_grids(made)),
        ]
    return _kernel_grids(made)


def _headline(made: Certificate) -> Grid:
    """Measured and certified side by side."""
    worst = made.worst_part
    lines = [
        (
            made.quantity,
            _rate(made.worst_difference),
            upper(made.upper),
            worst.name if worst else "",
        ),
        (
            f"{made.quantity}, everybody",
            _rate(made.parts[0].difference),
            upper(made.parts[0].high),
            "",
        ),
    ]
    if made.worst_ratio is not None and isfinite(made.upper):
        measured, least, name = made.worst_ratio
        lines.append(("impact ratio", f"{measured:.4f}", f"at least {lower(least)}", name))
    if isfinite(made.accuracy):
        lines.append(("accuracy", f"{made.accuracy:.4f}", "", ""))
    head = ("", "measured", f"at most ({made.confidence:.0%})", "worst where")
    return Grid(f"Certificate on {made.n:,} rows", " ".join(made.warnings), head, lines)


def part_grids(made: Certificate) -> list[Grid]:
    """The worst estimable parts with their intervals, what is not estimable, and the groups' impact ratios."""
    few = [_few(made)] if not_estimable(made.parts) else []
    return [_able(made), *few, _groups(made)]


def _able(made: Certificate) -> Grid:
    able = worst_first(made.parts)
    head = ("part", "rows", made.quantity, "low", "high", "impact ratio", "its low")
    lines = [
        (
            p.name,
            f"{p.rows:,}",
            f"{p.difference:.4f}",
            _rate(p.low),
            upper(p.high) if isfinite(p.high) else "none",
            _rate(p.ratio),
            lower(p.ratio_low) if isfinite(p.ratio_low) else "none",
        )
        for p in able[:MOST_PARTS]
    ]
    note = f"{len(able):,} parts, the {min(len(able), MOST_PARTS)} of the highest bound; all hold at once."
    title = f"Certified with {made.confidence:.0%} confidence"
    if not isfinite(made.upper):
        title, note = "Parts, measured", "On the rows of the fit: nothing is bounded beyond them."
    return Grid(title, note, head, lines)


def _few(made: Certificate) -> Grid:
    few = not_estimable(made.parts)
    rows = [(p.name, f"{p.rows:,}", _rate(p.difference)) for p in few[:MOST_FEATURES]]
    note = f"Too few rows for +-{made.precision:g}: measured, not certified, and not counted as 0."
    return Grid(f"Not estimable: {len(few):,} parts", note, ("part", "rows", "measured"), rows)


def _groups(made: Certificate) -> Grid:
    everybody = made.parts[0]
    rates = [
        (
            r.group,
            f"{r.rows:,}",
            _rate(r.rate),
            _rate(r.impact),
            "" if r.compared else "too few rows",
        )
        for r in everybody.rates
    ]
    note = (
        f"Rates and impact ratios as a bias audit wants them; lowest ratio {_rate(everybody.ratio)}"
    )
    if isfinite(everybody.ratio_low):
        note += f", with {made.confidence:.0%} confidence at least {lower(everybody.ratio_low)}"
    note += " (four-fifths rule: 0.8)."
    return Grid("Groups", note, ("group", "rows", "rate", "impact ratio", ""), rates)


def _kernel_grids(made: Certificate) -> list[Grid]:
    """What is certified over kernels, the groups, and what the worst deployment weighs up and down."""
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


def forest(made: Certificate) -> Figure:
    """The parts of the highest bounds, each with its interval; then those that are not estimable, as measured."""
    able = worst_first(made.parts)[:MOST_PARTS]
    certified = isfinite(made.upper)
    few = [p for p in not_estimable(made.parts) if isfinite(p.difference)][:5]
    shown = [*able, *few]
    drawn = canvas(10.5, 1.6 + 0.34 * max(len(shown), 2))
    axes = drawn.subplots()
    for place, part in zip(range(len(shown))[::-1], shown, strict=True):
        if part.estimable:
            if certified:
                axes.plot((part.low, part.high), (place, place), color=BLUE, lw=2, marker="|", ms=8)
            axes.plot(part.difference, place, "o", color=BLUE, ms=5)
        else:
            axes.plot(part.difference, place, "o", color="#777777", mfc="white", ms=6)
    level = f"{made.confidence:.0%}"
    if certified:
        _draw_upper(axes, made.upper)
    names = [_short(p.name) + f" ({p.rows:,})" for p in shown]
    axes.set_yticks(range(len(shown))[::-1], names, fontsize=9, parse_math=False)
    right = [*(p.difference for p in shown), *(p.high for p in able), made.upper, 0.05]
    most = max(v for v in right if isfinite(v))
    axes.set(xlim=(-0.01, min(1.02, 1.06 * most)), ylim=(-0.7, len(shown) - 0.3))
    bars = (
        f"bars: {level} intervals, all at once"
        if certified
        else "dots: measured on the rows of the fit"
    )
    axes.set_xlabel(f"{made.quantity}\n{bars}; hollow: not estimable, measured only", fontsize=9)
    axes.set_title("Parts of the population (rows)", fontsize=11, loc="left", pad=16)
    tidy(axes, "x")
    return drawn


def _draw_upper(axes: Axes, bound: float) -> None:
    """The line that no estimable part is above."""
    axes.axvline(bound, color=RED, lw=1.4, ls="--")
    axes.annotate(
        f"certified at most {upper(bound, 3)}",
        (bound, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if bound > 0.6 else 4, 3),
        textcoords="offset points",
        ha="right" if bound > 0.6 else "left",
        fontsize=9,
        color=RED,
    )


def _short(name: str, most: int = 44) -> str:
    """A name on one line or, where it is long, each value of it on a line of its own."""
    lines = [name] if len(name) <= most else name.split(" and ")
    return " and\n".join(line if len(line) <= most else f"{line[: most - 1]}…" for line in lines)


def figure(made: Certificate) -> Figure:
    """The forest of parts; or, over kernels, measured against certified and how the worst deployment differs."""
    if made.parts:
        return forest(made)
    tilts = [tilt for tilt in made.profile[:MOST_FEATURES] if tilt.shift]
    heights = 0.42 * 2 * len(_bounds(made)), 0.34 * max(1, len(tilts))
    drawn = canvas(6.4, 2.0 + sum(heights))
    above, below = drawn.subplots(2, height_ratios=heights)
    drawn.suptitle(f"Certified over A: {made.about}", fontsize=12, x=0.02, ha="left")
    for axes in (above, below):
        axes.tick_params(labelsize=10)
        tidy(axes, "x")
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
        (made.quantity, "difference", made.difference, made.worst_difference, upper)
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
