"""What a card shows of a rule: sentences, tables and pictures of ``runs.ruled.about``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agnosticfair.learners.estimates import LEARNERS
from agnosticfair.report.figures import BLUE, GREY, ORANGE, RED, canvas, tidy

Json = Mapping[str, Any]
DRAWN = 10  # subgroups in the picture of multipliers
SHOWN = 8  # lines of a table

ACTED = "Where the rule had to act, and how much"
IMPORTANCE = (
    "Gain: the share of what splits by the column took off the loss. Rise of log loss: on training rows, if the "
    "column's values are dealt to other rows."
)
COLOURS = (BLUE, ORANGE, GREY, RED)


def head_words(head: str, positive: str) -> str:
    """A head in words.

    >>> head_words("label", ">50K"), head_words("group:Male|1", ">50K"), head_words("group:Male|0", ">50K")
    ('labelled >50K', 'Male, among those labelled >50K', 'Male, among those not labelled >50K')
    """
    if head == "label":
        return f"labelled {positive}"
    group, _, label = head.removeprefix("group:").partition("|")
    among = {
        "1": f", among those labelled {positive}",
        "0": f", among those not labelled {positive}",
    }
    return group + among.get(label, "")


def learner_words(about: Json) -> str:
    """Which learner was taken, in a sentence."""
    name = about["learner"]
    if name == "given":
        return "Probabilities stand in columns, from an existing model."
    classifier = name.removeprefix("local:").partition("-")[0]
    summary = LEARNERS[name].summary if name in LEARNERS else classifier
    return f"Probabilities are estimated by {summary}."


def acted_words(about: Json) -> str:
    """In how many subgroups the rule had to act."""
    if not about["limited"]:
        return "The rule had to act nowhere: the decisions are the learner's own."
    return (
        f"Of {about['subgroups'] + 1:,} limits (every subgroup, and overall) {about['limited']:,} had to be enforced. "
        "The price says what a limit costs: accuracy (or utility, with costs) that a limit larger by 0.01 there would "
        "gain. The shift says by how much the threshold on the probability rises, there alone, for a person who is "
        "surely of the group; for others it is the mean by their probabilities. A person is in several subgroups, "
        "whose shifts add up."
    )


def acted_lines(about: Json) -> tuple[tuple[str, ...], ...]:
    """Where the rule had to act, as a table; empty where it did nowhere."""
    if not about["multipliers"]:
        return ()
    head = ("subgroup", "price of 0.01", "held back, by", "helped, by")
    return (
        head,
        *(
            (
                m["subgroup"],
                f"{0.01 * m['shadow_price']:.5f}",
                f"{m['lowered']} {m['lowered_shift']:+.3f}",
                f"{m['raised']} {m['raised_shift']:+.3f}",
            )
            for m in about["multipliers"][:SHOWN]
        ),
    )


def calibrated_words(about: Json) -> str:
    """How many estimates are off, in a sentence."""
    count, off = about["calibrated"]
    return (
        f"Estimated and counted people were compared for {count:,} pair{'s' * (count != 1)} of a subgroup and an "
        "estimate, on training "
        f"rows judged by models that had not seen them. {off:,} differ by more than four standard deviations; of so "
        "many none is expected to by chance alone. Where estimates are off, so are the rates that the rule keeps "
        "within tau."
    )


def calibrated_lines(about: Json, positive: str) -> tuple[tuple[str, ...], ...]:
    """The worst calibrated subgroups, as a table."""
    if not about["calibration"]:
        return ()
    head = ("subgroup", "estimate", "counted less estimated", "standard deviations")
    return (
        head,
        *(
            (
                c["subgroup"],
                head_words(c["head"], positive),
                f"{c['surplus']:+.1f} people",
                f"{c['z']:+.1f}",
            )
            for c in about["calibration"][:SHOWN]
        ),
    )


def importance_lines(about: Json, positive: str) -> tuple[tuple[str, ...], ...]:
    """Gain and permutation importance of every column of trees, or by how much a column of numbers moves an additive
    learner's log odds, as a table; empty of other learners."""
    if curves := about.get("curves"):
        heads = [*next(iter(curves.values()))["y"]]
        top = ("column", *(f"range of log odds, {head_words(h, positive)}" for h in heads))
        spans = {
            name: [f"{np.ptp(curve['y'][h]):.2f}" for h in heads] for name, curve in curves.items()
        }
        return (top, *((name, *span) for name, span in spans.items()))
    gains = about.get("gains") or {}
    if "label" not in gains:
        return ()
    others = [h for h in gains if h != "label"]
    rises = about.get("importances") or {}
    head = ("column", "gain, label", *(f"gain, {h.removeprefix('group:')}" for h in others[:2]))
    head += ("rise of log loss",) if rises else ()
    return (
        head,
        *(
            (
                name,
                f"{gain:.1%}",
                *(f"{gains[h][name]:.1%}" for h in others[:2]),
                *([f"{rises[name]:.4f}"] if rises else []),
            )
            for name, gain in [*gains["label"].items()][:DRAWN]
        ),
    )


def pictures(facts: Json, positive: str) -> list[tuple[str, str, Figure]]:
    drawn = []
    if facts["multipliers"]:
        names = ", ".join(m["subgroup"] for m in facts["multipliers"][:3])
        drawn.append(
            (
                ACTED,
                f"Bars of price and shift; the dearest limits: {names}.",
                acted(facts),
            )
        )
    curves = facts.get("curves")
    if curves:
        about = f"A line for each estimate; the widest effects: {', '.join([*curves][:3])}."
        title = "What each column of numbers adds to the log odds"
        drawn.append((title, about, lines(curves, "log odds", positive)))
    curves = facts.get("dependences")
    if curves:
        about = f"A line for each estimate; the most important columns: {', '.join([*curves][:3])}."
        title = "Mean probability if everybody had this value (partial dependence)"
        drawn.append((title, about, lines(curves, "probability", positive)))
    return drawn


def acted(about: Json) -> Figure:
    """The dearest limits: what each costs, and by how much thresholds shift for the two groups."""
    multipliers: Sequence[Json] = about["multipliers"][:DRAWN][::-1]
    figure = canvas(9.6, 1.0 + 0.46 * len(multipliers))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.0, 1.6))
    y = np.arange(len(multipliers))
    error_costs = [0.01 * m["shadow_price"] for m in multipliers]
    left.plot(error_costs, y, "o", color=GREY)
    left.set_xscale("log")
    left.set_yticks(y, [fill(m["subgroup"], 42) for m in multipliers], fontsize=8)
    left.set_xlabel("utility that 0.01 of the limit costs", fontsize=9)
    groups = list(dict.fromkeys(g for m in multipliers for g in (m["lowered"], m["raised"])))
    for g, name in enumerate(groups):
        shift = [
            m["lowered_shift"]
            if m["lowered"] == name
            else m["raised_shift"]
            if m["raised"] == name
            else 0.0
            for m in multipliers
        ]
        offset = 0.36 * ((g + 0.5) / len(groups) - 0.5) * 2
        colour = COLOURS[g % len(COLOURS)]
        right.barh(y - offset, shift, 0.72 / len(groups), color=colour, label=f"for {name}")
    right.axvline(0.0, color="black", lw=0.8)
    right.set_xlabel("shift of the threshold on the probability", fontsize=9)
    figure.legend(loc="outside upper right", ncols=4, fontsize=8, frameon=False)
    for axes in (left, right):
        tidy(axes, "x")
        axes.tick_params(labelsize=8)
    left.grid(axis="both", color="#E5E5E5")
    return figure


def lines(curves: Mapping[str, Json], unit: str, positive: str) -> Figure:
    """A small chart for each column, with a line for each estimate."""
    columns = min(3, len(curves))
    rows = -(-len(curves) // columns)
    figure = canvas(9.6, 0.5 + 2.3 * rows)
    places = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, (name, line) in zip(places, curves.items(), strict=False):
        _line(axes, name, line, positive)
    for axes in places[len(curves) :]:
        axes.set_visible(False)
    for axes in places[::columns]:
        axes.set_ylabel(unit, fontsize=9)
    handles, names = places[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    return figure


def _line(axes: Axes, name: str, line: Json, positive: str) -> None:
    for k, (head, y) in enumerate(line["y"].items()):
        style = ("-", "--", ":", "-.")[k % 4]
        axes.plot(line["x"], y, style, color=COLOURS[k % 4], label=head_words(head, positive))
        if len(y) == len({*line["x"]}):  # a mean at each value, no line of bins
            axes.plot(line["x"], y, ".", color=COLOURS[k % 4])
    axes.set_xlabel(name, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.locator_params(axis="x", nbins=5)
    tidy(axes)
