"""What the rows themselves say, beside which a model's accuracy and difference are to be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from agnosticfair.data.decided import Decided
from agnosticfair.mathematics import metrics


def of_rows(rows: Decided) -> dict[str, Any]:
    """The labels' own rate, commonest answer and difference between groups."""
    return {
        "base_rate": float(np.mean(rows.y)),
        "majority_rate": metrics.majority_rate(rows.y),
        "label_difference": metrics.risk_difference(rows.y, rows.s.codes),
    }


def of_decisions(rows: Decided, method: str) -> list[str]:
    """A method's accuracy beside what it is to be read against, in a sentence; and warnings about it.

    rows: with decisions, 0 or 1.
    """
    y, y_hat, names = rows.y, rows.decisions[method], rows.s.categories
    found = metrics.positive_rates(y_hat, rows.s.codes, y, len(names))
    right, base = metrics.accuracy(y, y_hat), metrics.positive_rate(y)
    majority, positive = metrics.majority_rate(y), metrics.positive_rate(y_hat)
    shown = ", ".join(f"{name} {p:.3f}" for name, p in zip(names, found.tolist(), strict=True))
    said = (
        f"Right on {right:.4f} of the rows, one answer for everybody on {majority:.4f}; positive labels "
        f"{base:.4f}, positive decisions {positive:.4f}; true-positive rates: {shown}."
    )
    return [said, *(f"Warning: {text}" for text in poor(right, majority, positive))]


def of_scores(score: Mapping[str, Any]) -> dict[str, Any]:
    """The same from what a fit keeps of its training rows."""
    names = {"base_rate": "base_rate", "majority_rate": "majority_rate"}
    names["label_difference"] = "label_risk_difference"
    return {name: score[key] for name, key in names.items() if score.get(key) is not None}


def poor(
    accuracy: float, majority: float, positive: float, who: str = "The model", limit: str = "tau"
) -> list[str]:
    """Sentences of warning about a model that is hardly better than one answer for everybody.

    positive: its share of positive decisions.

    >>> poor(0.75, 0.76, 0.3)
    ['The model is right less often (0.750) than one answer for everybody (0.760): try a larger tau or method fl.']
    """
    found = []
    if accuracy < majority - 5e-4:
        found.append(
            f"{who} is right less often ({accuracy:.3f}) than one answer for everybody "
            f"({majority:.3f}): try a larger {limit} or method fl."
        )
    if metrics.nearly_constant(accuracy, majority, positive):
        answer = "positively" if positive > 0.5 else "negatively"
        found.append(
            f"{who} decides nearly everybody ({max(positive, 1 - positive):.1%}) {answer}: equal, "
            f"and hardly a decision; try a larger {limit}, more columns or another positive label."
        )
    return found
