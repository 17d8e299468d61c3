"""A certificate to look at: tables for the terminal, and one figure."""

from __future__ import annotations

from math import isfinite

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agnosticfair.auditing.certificate import Certificate, lower, upper
from agnosticfair.report.figures import BLUE, RED, canvas, tidy
from agnosticfair.report.tables import Grid

MOST_FEW = 10
MOST_PARTS = 20


def grids(made: Certificate) -> list[Grid]:
    """What is certified, the worst estimable parts with their intervals, what is not estimable, and the groups' impact
    ratios."""
    few = [_few(made)] if made.not_estimable else []
    return [_headline(made), _able(made), *few, _groups(made)]


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
        overall = made.parts[0]
        low = f"at least {lower(overall.ratio_low)}"
        lines.append(
            ("impact ratio, everybody", _rate(overall.ratio), low, "four-fifths rule: 0.8")
        )
        lines.append(("impact ratio", f"{measured:.4f}", f"at least {lower(least)}", name))
    if made.kernels is not None:
        worst_case, bound = upper(made.kernels.worst_difference), upper(made.kernels.upper)
        lines.append((f"{made.quantity}, reweighted", worst_case, bound, made.kernels.about))
    if isfinite(made.accuracy):
        lines.append(("accuracy", f"{made.accuracy:.4f}", "", ""))
    head = ("", "measured", f"at most ({made.confidence:.0%})", "worst where")
    return Grid(f"Certificate on {made.n:,} rows", " ".join(made.warnings), head, lines)


def _able(made: Certificate) -> Grid:
    able = made.worst_first
    head = ("part", "rows", made.quantity, "low", "high", "impact ratio", "its low")
    lines = [
        (
            p.name,
            f"{p.rows:,}",
            f"{p.difference:.4f}",
            _rate(p.low),
            upper(p.high),
            _rate(p.ratio),
            lower(p.ratio_low),
        )
        for p in able[:MOST_PARTS]
    ]
    note = f"{len(able):,} parts, the {min(len(able), MOST_PARTS)} of the highest bound; all hold at once."
    title = f"Certified with {made.confidence:.0%} confidence"
    if not isfinite(made.upper):
        title, note = "Parts, measured", "On the rows of the fit: nothing is bounded beyond them."
    return Grid(title, note, head, lines)


def _few(made: Certificate) -> Grid:
    few = made.not_estimable
    rows = [(p.name, f"{p.rows:,}", _rate(p.difference)) for p in few[:MOST_FEW]]
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


def figure(made: Certificate) -> Figure:
    """The parts of the highest bounds, each with its interval; then those that are not estimable, as measured."""
    able = made.worst_first[:MOST_PARTS]
    certified = isfinite(made.upper)
    few = [p for p in made.not_estimable if isfinite(p.difference)][:5]
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


def _rate(value: float) -> str:
    return f"{value:.4f}" if isfinite(value) else "none"
