"""What a notebook shows: a fit (how it ended, where a rule had to act, its rounds) and a frontier of tau."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agnosticfair.federation import Fit
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.report import rule
from agnosticfair.report.figures import BLUE, GREY, ORANGE, RED, Style, canvas, tidy
from agnosticfair.report.tables import Grid
from agnosticfair.runs import ruled
from agnosticfair.tuning import Frontier

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


def fit_grids(fitted: Fit) -> list[Grid]:
    """How it ended, and its worst subgroups where it has any."""
    last, fairness = fitted.history[-1], fitted.method.fairness
    facts = {
        "ended": f"{'converged' if fitted.converged else 'did not converge'} after {fitted.rounds} rounds",
        "training rows": f"{fitted.model.rows:,} of {fitted.model.clients} clients",
        "right on them": _number(last.get("accuracy")),
        "decided positive": _number(last.get("positive")),
        "tau": "none" if fairness is None else f"{fairness.tau:g}",
        "difference that training saw": _number(fitted.trained_difference),
    }
    all_grids = [Grid(fitted.method.name, fitted.method.summary, ("", ""), [*facts.items()])]
    if (about := ruled.about(fitted)) is not None:
        return all_grids + _of_rule(about, fitted.model.positive)
    if fitted.trained_subgroups:
        lines = [(name, f"{value:.3f}") for name, value in fitted.trained_subgroups]
        all_grids.append(Grid("Subgroups that differ most", "", ("subgroup", "difference"), lines))
    return all_grids


def _of_rule(about: Mapping[str, Any], positive: str) -> list[Grid]:
    """What is said of a rule, where it had to act, and how its estimates agree with the rows."""
    lines = [(text,) for text in (*about["statements"], about["proxy"])]
    shown_grids = [Grid("How it decides", "", (rule.learner_words(about),), lines)]
    acted, off = rule.acted_lines(about), rule.calibrated_lines(about, positive)
    if acted:
        shown_grids.append(Grid(rule.ACTED, "", acted[0], [*acted[1:]]))
    if off:
        title = "Subgroups in which estimates are furthest off"
        shown_grids.append(Grid(title, "", off[0], [*off[1:]]))
    return shown_grids


def fit_figure(fitted: Fit) -> Figure:
    """Where a rule had to act; else the worst subgroups against tau, where there are any, and the loss by round."""
    if fitted.multipliers:
        about = ruled.about(fitted)
        assert about is not None
        return rule.acted(about)
    drawn = canvas(9.6 if fitted.trained_subgroups else 5.6, 3.6)
    if fitted.trained_subgroups:
        left, right = drawn.subplots(1, 2)
        _subgroups(left, fitted)
    else:
        right = drawn.subplots()
    _rounds(right, fitted)
    return drawn


def _subgroups(axes: Axes, fitted: Fit) -> None:
    names, values = zip(*reversed(fitted.trained_subgroups), strict=True)
    axes.barh(names, values, color=BLUE)
    if fitted.method.fairness is not None:
        axes.axvline(fitted.method.fairness.tau, color=RED, ls="--")
        axes.annotate(
            f"tau {fitted.method.fairness.tau:g}",
            (fitted.method.fairness.tau, 1.0),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            fontsize=9,
            color=RED,
        )
    axes.set_xlabel("difference of decisions, training rows", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _rounds(axes: Axes, fitted: Fit) -> None:
    there = [entry for entry in fitted.history if "loss" in entry]
    rounds = [entry["round"] for entry in there]
    axes.plot(rounds, [entry["loss"] for entry in there], color=BLUE, marker="o", ms=4)
    axes.set_xlabel("round", fontsize=9)
    axes.set_ylabel("loss", fontsize=9, color=BLUE)
    worst = [(entry["round"], entry["worst"]) for entry in fitted.history if "worst" in entry]
    if worst and fitted.method.fairness is not None:
        other = axes.twinx()
        other.plot(*zip(*worst, strict=True), color=ORANGE, marker="s", ms=4, ls=":")
        other.set_ylabel("worst difference over the set", fontsize=9, color=GREY)
        other.spines["top"].set_visible(False)
    axes.spines["top"].set_visible(False)


def _number(value: float | None) -> str:
    return "not known" if value is None or not isfinite(value) else f"{value:.4f}"
