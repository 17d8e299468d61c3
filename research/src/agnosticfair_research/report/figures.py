"""The paper's figures from summaries; a shape says the same as its colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agnosticfair.methods import METHODS
from agnosticfair.report.figures import BLUE, GREEN, GREY, ORANGE, RED, Style, canvas, tidy
from agnosticfair_research.report.tables import PaperSummary

AXES = ("test_risk_difference", "test_accuracy")
FAIR = 0.05
"""The risk difference that the paper calls fair."""

KINDS = {
    "no fairness constraint": (BLUE, "o"),
    "fair under training weights": (ORANGE, "s"),
    "Algorithm 2 as printed": (RED, "^"),
    "fair over the whole set A": (GREEN, "D"),
    "other": (GREY, "P"),
}
NAMES = {"adult": "Adult", "dutch": "Dutch"}
SETS = {"shift": "shifted test set", "iid": "iid test set", "clients": "shifted test set"}


def kind(name: str) -> str:
    """What a method's constraint holds for: a key of KINDS.

    >>> kind("fl"), kind("localfair")
    ('no fairness constraint', 'fair under training weights')
    """
    method = METHODS.get(name)
    if method is None:
        return "other"
    if method.fairness is not None:
        whole = method.fairness.basis.kind != "constant" and not method.fairness.each
        return "fair over the whole set A" if whole else "fair under training weights"
    printed = method.averaging is not None and method.averaging.penalty is not None
    return "Algorithm 2 as printed" if printed else "no fairness constraint"


def figures(summaries: Sequence[PaperSummary]) -> dict[str, tuple[Figure, str]]:
    """Every figure there are rows for: file name -> the figure, and what it shows in words."""
    made: dict[str, tuple[Figure, str]] = {}
    for data, setting in dict.fromkeys((s.dataset, s.setting) for s in summaries):
        chosen = [s for s in summaries if (s.dataset, s.setting) == (data, setting)]
        chosen = [s for s in chosen if s["test_accuracy"].count]
        where = f"{NAMES.get(data, data)}, {SETS[setting]}"
        if not chosen:
            continue
        if setting == "clients":
            text = f"Accuracy by number of clients ({where})"
            made[f"figure-3-{data}.png"] = (by_clients(chosen, text), text)
            continue
        text = f"Accuracy against risk difference ({where})"
        made[f"compare-{data}-{setting}.png"] = (compare(chosen, text), text)
        if setting == "shift":
            text = f"Risk difference in training and in test ({where})"
            made[f"figure-2-{data}.png"] = (train_and_test(chosen, text), text)
    return made


def train_and_test(chosen: Sequence[PaperSummary], title: str) -> Figure:
    """Figure 2: for each method the risk difference on the training rows and on the test set."""
    figure, axes = _blank(title, height=1.6 + 0.36 * len(chosen))
    y, means = np.arange(len(chosen))[::-1], []
    marks = (("train", "o", BLUE, "training rows"), ("test", "D", RED, "test set"))
    for rows, shape, colour, text in marks:
        spreads = [s[f"{rows}_risk_difference"] for s in chosen]
        means.append([spread.mean for spread in spreads])
        bars: Style = {"xerr": [spread.deviation for spread in spreads], "capsize": 3}
        axes.errorbar(means[-1], y, fmt=shape, color=colour, ms=7, label=text, zorder=3, **bars)
    axes.hlines(y, means[0], means[1], color="#BBBBBB", lw=3, zorder=1)
    paper = [(s.paper.test_risk_difference, k) for s, k in zip(chosen, y, strict=True) if s.paper]
    if paper:
        hollow: Style = {"ms": 8, "mfc": "white", "mec": RED, "label": "test set, paper"}
        axes.plot(*zip(*paper, strict=True), "D", **hollow)
    labels = chosen[0]["label_risk_difference"].mean
    axes.axvline(FAIR, color="black", ls="--", lw=1, zorder=0.9, label=f"τ = {FAIR}")
    axes.axvline(labels, color="black", ls=":", lw=1, zorder=0.9, label="true labels")
    axes.set(yticks=y, xlabel="risk difference (0 is fair)")
    axes.set_yticklabels([s.method for s in chosen], fontsize=11)
    axes.set_xlim(left=0)
    _legend(axes, columns=3)
    return figure


def compare(chosen: Sequence[PaperSummary], title: str) -> Figure:
    """Accuracy against risk difference, a point per method; hollow points are the paper's."""
    figure, axes = _blank(title, height=6.4)
    for s, shade in zip(chosen, _shades(chosen), strict=True):
        shape = KINDS[kind(s.method)][1]
        (x, dx), (y, dy) = ((s[n].mean, s[n].deviation) for n in AXES)
        axes.errorbar(x, y, dy, dx, fmt=shape, color=shade, ms=8, zorder=3, label=s.method)
        if s.paper:
            there = (s.paper.test_risk_difference, s.paper.test_accuracy)
            axes.plot(*zip((x, y), there, strict=True), color=shade, lw=0.8, ls=":", zorder=1)
            axes.plot(*there, shape, ms=8, mfc="white", mec=shade, zorder=2)
    axes.axvline(FAIR, color="black", ls=":", lw=1, zorder=0.9, label=f"τ = {FAIR}")
    if any(s.paper for s in chosen):
        axes.plot([], [], "o", ms=8, mfc="white", mec=GREY, label="hollow: paper")
    axes.set_xlabel("risk difference on the test set (0 is fair)")
    axes.set_ylabel("accuracy on the test set")
    axes.margins(0.09)
    _majority(axes, chosen)
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    _legend(axes, columns=3)
    return figure


def by_clients(curve: Sequence[PaperSummary], title: str) -> Figure:
    """Figure 3: test accuracy against the number of clients, a line per method."""
    figure, axes = _blank(title, height=4.4)
    for name in dict.fromkeys(s.method for s in curve):
        line = sorted((s for s in curve if s.method == name), key=lambda s: s.clients)
        colour, shape = KINDS[kind(name)]
        x = np.array([s.clients for s in line], dtype=float)
        y = np.array([s["test_accuracy"].mean for s in line])
        dy = np.array([s["test_accuracy"].deviation for s in line])
        axes.fill_between(x, y - dy, y + dy, color=colour, alpha=0.2, lw=0)
        axes.plot(x, y, f"-{shape}", color=colour, ms=7, label=name)
    axes.set(xlabel="number of clients", ylabel="accuracy on the test set")
    axes.set_xticks(sorted({s.clients for s in curve}))
    axes.margins(0.06, 0.12)
    _majority(axes, curve)
    _legend(axes, columns=2)
    return figure


def _shades(chosen: Sequence[PaperSummary]) -> list[Any]:
    """A colour of its kind's for every method: the first is full, further ones are lighter."""
    shades, seen = [], dict.fromkeys(KINDS, 0)
    for s in chosen:
        full = np.array([int(KINDS[kind(s.method)][0][k : k + 2], 16) / 255 for k in (1, 3, 5)])
        light = min(0.17 * seen[kind(s.method)], 0.85)
        shades.append(tuple(full + (1 - full) * light))
        seen[kind(s.method)] += 1
    return shades


def _majority(axes: Axes, chosen: Sequence[PaperSummary]) -> None:
    """Draw the majority rate, unless it lies so far below that the points would shrink to a heap."""
    rate, (low, high) = chosen[0]["majority_rate"].mean, axes.get_ylim()
    far = rate < low - 0.6 * (high - low)
    text = f"majority rate {rate:.3f}{', below' if far else ''}"
    axes.axhline(rate, color="black", ls="--", lw=1, zorder=0.9, label=text)
    if far:
        axes.set_ylim(low, high)


def _legend(axes: Axes, columns: int) -> None:
    """A legend above the axes, where it covers nothing."""
    place: Style = {"loc": "lower center", "bbox_to_anchor": (0.45, 1.0)}
    axes.legend(ncols=columns, frameon=False, fontsize=10, **place)


def _blank(title: str, height: float) -> tuple[Figure, Axes]:
    """A figure as wide as a phone shows legibly, with one pair of axes."""
    figure = canvas(6.4, height)
    axes = figure.add_subplot()
    figure.suptitle(title, fontsize=12, x=0.02, ha="left")
    axes.tick_params(labelsize=10)
    axes.xaxis.label.set_fontsize(11)
    axes.yaxis.label.set_fontsize(11)
    tidy(axes)
    return figure, axes
