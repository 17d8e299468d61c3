"""The paper's figures from summaries; a shape says the same as its colour."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from agnosticfair.methods import METHODS
from agnosticfair.report.figures import BLUE, GREEN, GREY, ORANGE, RED, Style, canvas, tidy
from agnosticfair_research.report.tables import PaperSummary

AXES = ("test_risk_difference", "test_accuracy")
FAIR = 0.05
"""The risk difference that the paper calls fair."""

Point = tuple[float, float]
Line = tuple[Point, Point]

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
    figures_made: dict[str, tuple[Figure, str]] = {}
    for data, setting in dict.fromkeys((s.dataset, s.setting) for s in summaries):
        chosen = [s for s in summaries if (s.dataset, s.setting) == (data, setting)]
        chosen = [s for s in chosen if s["test_accuracy"].count]
        where = f"{NAMES.get(data, data)}, {SETS[setting]}"
        if not chosen:
            continue
        if setting == "clients":
            text = f"Accuracy by number of clients ({where})"
            figures_made[f"figure-3-{data}.png"] = (by_clients(chosen, text), text)
            continue
        text = f"Accuracy against risk difference ({where})"
        figures_made[f"compare-{data}-{setting}.png"] = (compare(chosen, text), text)
        if setting == "shift":
            text = f"Risk difference in training and in test ({where})"
            figures_made[f"figure-2-{data}.png"] = (train_and_test(chosen, text), text)
    return figures_made


def train_and_test(chosen: Sequence[PaperSummary], title: str) -> Figure:
    """Figure 2: for each method the risk difference on the training rows and on the test set."""
    figure, axes = _blank(title, height=1.6 + 0.36 * len(chosen))
    y, means = np.arange(len(chosen))[::-1], []
    marks = (("train", "o", BLUE, "training rows"), ("test", "D", RED, "test set"))
    for piece, shape, colour, text in marks:
        spreads = [s[f"{piece}_risk_difference"] for s in chosen]
        means.append([spread.mean for spread in spreads])
        bars: Style = {"xerr": [spread.deviation for spread in spreads], "capsize": 3}
        axes.errorbar(means[-1], y, fmt=shape, color=colour, ms=7, label=text, zorder=3, **bars)
    axes.hlines(y, means[0], means[1], color="#BBBBBB", lw=3, zorder=1)
    reported = [
        (s.paper.test_risk_difference, k) for s, k in zip(chosen, y, strict=True) if s.paper
    ]
    if reported:
        hollow: Style = {
            "ms": 8,
            "mfc": "white",
            "mec": RED,
            "zorder": 2,
            "label": "test set, paper",
        }
        axes.plot(*zip(*reported, strict=True), "D", **hollow)
    labels, top = chosen[0]["label_risk_difference"].mean, len(chosen) - 0.4
    axes.axvline(FAIR, color="black", ls="--", lw=1, zorder=0.9)
    axes.text(FAIR, top, f" τ = {FAIR}", va="bottom", fontsize=10, gid="label")
    axes.axvline(labels, color="black", ls=":", lw=1, zorder=0.9)
    side = "right" if labels > axes.get_xlim()[1] / 2 else "left"
    axes.text(labels, -0.6, " true labels ", va="top", ha=side, fontsize=10, gid="label")
    axes.set(yticks=y, ylim=(-1.15, top + 0.55), xlabel="risk difference (0 is fair)")
    axes.set_yticklabels([s.method for s in chosen], fontsize=11)
    axes.set_xlim(left=0)
    _legend(axes, axes.get_legend_handles_labels()[0], columns=3)
    return figure


def compare(chosen: Sequence[PaperSummary], title: str) -> Figure:
    """Accuracy against risk difference, a point per method; hollow points are the paper's."""
    figure, axes = _blank(title, height=5.6)
    points, hollow, lines = [], [], []
    for s in chosen:
        colour, shape = KINDS[kind(s.method)]
        (x, dx), (y, dy) = ((s[n].mean, s[n].deviation) for n in AXES)
        points.append((x, y))
        lines += [((x - dx, y), (x + dx, y)), ((x, y - dy), (x, y + dy))]
        axes.errorbar(x, y, dy, dx, fmt=shape, color=colour, ms=8, zorder=3)
        if s.paper:
            hollow.append((s.paper.test_risk_difference, s.paper.test_accuracy))
            lines.append((points[-1], hollow[-1]))
            axes.plot(*zip(*lines[-1], strict=True), color=colour, lw=0.8, ls=":", zorder=1)
            axes.plot(*hollow[-1], shape, ms=8, mfc="white", mec=colour, zorder=2)
    axes.axvline(FAIR, color="black", ls=":", lw=1, zorder=0.9)
    axes.set_xlabel("risk difference on the test set (0 is fair)")
    axes.set_ylabel("accuracy on the test set")
    axes.margins(0.09)
    line = _majority(axes, chosen)
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    (low, high), rate = axes.get_ylim(), chosen[0]["majority_rate"].mean
    lines += [_level(axes, rate), ((FAIR, low), (FAIR, high))]
    _legend(axes, [*_keys([s.method for s in chosen], bool(hollow)), line])
    label(figure, axes, points, [s.method for s in chosen], hollow, lines)
    return figure


def _majority(axes: Axes, chosen: Sequence[PaperSummary]) -> Line2D:
    """Draw the majority rate, unless it lies so far below that the points would shrink to a heap."""
    rate, (low, high) = chosen[0]["majority_rate"].mean, axes.get_ylim()
    far = rate < low - 0.6 * (high - low)
    text = f"majority rate {rate:.3f}{', below' if far else ''}"
    line = axes.axhline(rate, color="black", ls="--", lw=1, zorder=0.9, label=text)
    if far:
        axes.set_ylim(low, high)
    return line


def _level(axes: Axes, y: float) -> Line:
    left, right = axes.get_xlim()
    return (left, y), (right, y)


def by_clients(curve: Sequence[PaperSummary], title: str) -> Figure:
    """Figure 3: test accuracy against the number of clients, a line per method."""
    figure, axes = _blank(title, height=4.2)
    points, texts, lines = [], [], []
    for name in dict.fromkeys(s.method for s in curve):
        line = sorted((s for s in curve if s.method == name), key=lambda s: s.clients)
        colour, shape = KINDS[kind(name)]
        x = np.array([s.clients for s in line], dtype=float)
        y = np.array([s["test_accuracy"].mean for s in line])
        dy = np.array([s["test_accuracy"].deviation for s in line])
        axes.fill_between(x, y - dy, y + dy, color=colour, alpha=0.2, lw=0)
        axes.plot(x, y, f"-{shape}", color=colour, ms=7)
        dots = list(zip(x.tolist(), y.tolist(), strict=True))
        points += dots
        lines += list(pairwise(dots))
        texts += [""] * (len(x) - 1) + [name]
    axes.set(xlabel="number of clients", ylabel="accuracy on the test set")
    axes.set_xticks(sorted({s.clients for s in curve}))
    axes.margins(0.06, 0.12)
    _legend(axes, [_majority(axes, curve)])
    lines.append(_level(axes, curve[0]["majority_rate"].mean))
    label(figure, axes, points, texts, (), lines)
    return figure


def _keys(methods: Sequence[str], paper: bool) -> list[Line2D]:
    """What the marks and lines of ``compare`` mean."""
    keys = [
        Line2D([], [], ls="", marker=KINDS[k][1], color=KINDS[k][0], ms=8, label=k)
        for k in dict.fromkeys(map(kind, methods))
    ]
    if paper:
        hollow: Style = {"mfc": "white", "mec": GREY, "ms": 8, "label": "hollow: paper"}
        keys.append(Line2D([], [], ls="", marker="o", **hollow))
    return [*keys, Line2D([], [], color="black", ls=":", lw=1, label=f"τ = {FAIR}")]


def _legend(axes: Axes, keys: Sequence[Any], columns: int = 2) -> None:
    """A legend above the axes, where it covers nothing."""
    place: Style = {"loc": "lower center", "bbox_to_anchor": (0.45, 1.0)}
    axes.legend(handles=keys, ncols=columns, frameon=False, fontsize=10, **place)


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


def label(
    figure: Figure,
    axes: Axes,
    points: Sequence[Point],
    texts: Sequence[str],
    others: Sequence[Point] = (),
    lines: Sequence[Line] = (),
) -> None:
    """Write a text beside each point, where it covers no other text and as few marks as possible.

    The places tried are around the point. An empty text only keeps its point free; ``others`` and
    ``lines`` are further points and lines that are better not covered.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what is measured from here on must stay where it is
    marks = _pixels(axes, [*points, *others])
    dots = [np.zeros((0, 2))]
    dots += [np.linspace(a, b, 60) for a, b in (_pixels(axes, line) for line in lines)]
    bboxs: list[Bbox] = []
    for at, point, text in zip(marks, points, texts, strict=False):
        if not text:
            continue
        style: Style = {"fontsize": 10, "ha": "center", "va": "center", "zorder": 4, "gid": "label"}
        arrow = {"arrowstyle": "-", "lw": 0.7, "color": GREY, "shrinkA": 0, "shrinkB": 5}
        note = axes.annotate(
            text, point, (0, 0), textcoords="offset points", arrowprops=arrow, **style
        )
        # an annotation's own extent would include its arrow
        size = np.array(Text.get_window_extent(note).size)
        boxes = [_box(at, size, radius, turn) for radius, turn in product(_RADII, _TURNS)]
        leaders = [np.linspace(at, (box.p0 + box.p1) / 2, 30) for box in boxes]
        costs = 0.4 * np.repeat(_RADII, len(_TURNS)) + [
            _cost(box, leader, bboxs, marks, np.concatenate(dots), axes.bbox)
            for box, leader in zip(boxes, leaders, strict=True)
        ]
        best = int(np.argmin(costs))
        bboxs.append(boxes[best].padded(3))
        x, y = (leaders[best][-1] - at) * 72.0 / figure.dpi  # points hold for any resolution
        note.set_position((x, y))
        if best < 2 * len(_TURNS) and note.arrow_patch is not None:
            note.arrow_patch.set_visible(False)
        else:
            dots.append(leaders[best])


_RADII = (8.0, 14.0, 22.0, 32.0, 44.0, 58.0, 74.0, 92.0)
_TURNS = tuple(np.linspace(0, 2 * np.pi, 24, endpoint=False))


def _pixels(axes: Axes, points: Sequence[Point]) -> np.ndarray:
    return axes.transData.transform(np.array(points, dtype=float).reshape(-1, 2))


def _box(at: np.ndarray, size: np.ndarray, radius: float, turn: float) -> Bbox:
    """A text's box whose edge is about ``radius`` from the point, in the direction of ``turn``."""
    centre = at + np.array([np.cos(turn), np.sin(turn)]) * (radius + size / 2)
    return Bbox([centre - size / 2, centre + size / 2])


def _cost(
    box: Bbox,
    leader: np.ndarray,
    bboxs: Sequence[Bbox],
    marks: np.ndarray,
    dots: np.ndarray,
    inside: Bbox,
) -> float:
    """Texts must not meet, nor leave the axes; covering a mark is bad, covering a line a pity."""
    meets = sum(box.overlaps(other) for other in bboxs)
    leaves = sum(not inside.contains(*corner) for corner in box.corners())
    crosses = sum(_inside(other, leader) > 0 for other in bboxs)
    covers = _inside(box.padded(7), marks)
    return (
        1e6 * meets + 1e5 * leaves + 300 * crosses + 100 * covers + 3 * _inside(box.padded(2), dots)
    )


def _inside(box: Bbox, dots: np.ndarray) -> int:
    """How many of the dots, (n, 2), lie in the box."""
    x, y = dots.T
    return int(((box.x0 <= x) & (x <= box.x1) & (box.y0 <= y) & (y <= box.y1)).sum())
