"""A fit to look at in a notebook: how it ended, where a rule had to act or decisions differ most, and its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agnosticfair.federation import Fit
from agnosticfair.report import rule
from agnosticfair.report.figures import BLUE, GREY, ORANGE, RED, canvas
from agnosticfair.report.tables import Grid
from agnosticfair.runs import ruled


def grids(fitted: Fit) -> list[Grid]:
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
    grids_found = [Grid("How it decides", "", (rule.learner_words(about),), lines)]
    acted, off = rule.acted_lines(about), rule.calibrated_lines(about, positive)
    if acted:
        grids_found.append(Grid(rule.ACTED, "", acted[0], [*acted[1:]]))
    if off:
        title = "Subgroups in which estimates are furthest off"
        grids_found.append(Grid(title, "", off[0], [*off[1:]]))
    return grids_found


def figure(fitted: Fit) -> Figure:
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
