"""What fairness asks of the groups: a metric is one record, and everything that knows metrics reads it.

A metric looks at *rates*: of positive decisions among the rows of some labels, compared between groups; or of
wrong decisions, each group's by itself under a bound. Training, metrics, audit, certificate, report and the
page all take a metric's labels and words from its record, so that a new one is an entry here, or a call of
``register_metric``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING

from agnosticfair.settings import Kind, require, require_name

if TYPE_CHECKING:
    import numpy as np  # the command line reads the records, and starts without it

_LABELS = Kind(
    "tuples of labels, each 0, 1 or both: ((0, 1),) looks at all rows, ((1,),) at those of label 1",
    lambda v: len(v) > 0 and all(set(labels) and set(labels) <= {0, 1} for labels in v),
    tuple,
)


@dataclass(frozen=True)
class Metric:
    """A fairness metric between groups.

    Parameters
    ----------
    name : str
    labels : tuple of tuples
        Among the rows of which labels rates are taken, each tuple by itself.
    quantity : str
        What is compared, or bounded, in words: "risk difference".
    short : str
        The same as the head of a column; by default in full.
    bounds : bool
        Every group's share of wrong decisions (in training its mean loss) is bounded by tau, instead of
        differences of positive rates.
    """

    name: str
    labels: tuple[tuple[int, ...], ...]
    quantity: str
    short: str = ""
    bounds: bool = False

    def __post_init__(self) -> None:
        require(str, name=self.name, quantity=self.quantity, short=self.short)
        require(_LABELS, labels=self.labels)
        require(bool, bounds=self.bounds)

    @property
    def uses_labels(self) -> bool:
        """Whether rows of one label are looked at by themselves."""
        return any(len(labels) == 1 for labels in self.labels)

    @property
    def needs_labels(self) -> bool:
        """Whether rows without labels can say nothing about it."""
        return self.bounds or self.uses_labels

    @property
    def ratio(self) -> str:
        """The lowest rate over the highest, in words; '' where rates are bounded alone.

        >>> PARITY.ratio, METRICS["equal_opportunity"].ratio
        ('impact ratio', 'ratio of true positive rates')
        """
        if self.bounds:
            return ""
        return self.quantity.replace("difference", "ratio") if self.uses_labels else "impact ratio"


METRICS: dict[str, Metric] = {}
"""The metrics by name; ``register_metric`` adds to them."""


def register_metric(metric: Metric) -> Metric:
    """Make a metric known by its name, in this process, to everything that reads metrics.

    Parameters
    ----------
    metric : Metric

    Returns
    -------
    Metric
        The same.

    Examples
    --------
    >>> made = register_metric(Metric("toy", ((0,),), "difference of false positive rates"))
    >>> METRICS.pop("toy") is made
    True
    """
    require(Metric, metric=metric)
    METRICS[metric.name] = metric
    return metric


PARITY = register_metric(Metric("demographic_parity", ((0, 1),), "risk difference", "RD"))
register_metric(Metric("equal_opportunity", ((1,),), "difference of true positive rates"))
register_metric(
    Metric("equalized_odds", ((0,), (1,)), "difference of true or false positive rates")
)
register_metric(Metric("bounded_group_loss", ((0, 1),), "error rate of a group", bounds=True))


def metric_of(name: str) -> Metric:
    """The metric of that name, or the sentence that says which there are."""
    require_name("metric", name, METRICS)
    return METRICS[name]


def ratios(
    metric: Metric, strata: np.ndarray
) -> list[tuple[tuple[int, ...], np.ndarray, np.ndarray]]:
    """labels, a and b of everything that a metric looks at: a / b are the groups' rates, (G, ...) each.

    strata: (G, 2, 2, ...), sums over the rows of each group, label and decision.

    >>> import numpy as np
    >>> ((_, a, b),) = ratios(PARITY, np.array([[[1, 1], [0, 2]], [[3, 1], [0, 0]]]))
    >>> a, b
    (array([3, 1]), array([4, 4]))
    """
    if metric.bounds:
        return [(metric.labels[0], strata[:, 0, 1] + strata[:, 1, 0], strata.sum(axis=(1, 2)))]
    chosen = [strata[:, list(labels)] for labels in metric.labels]
    return [
        (labels, counts[:, :, 1].sum(axis=1), counts.sum(axis=(1, 2)))
        for labels, counts in zip(metric.labels, chosen, strict=True)
    ]


def gap(metric: Metric, strata: np.ndarray) -> float:
    """What a metric measures: the largest difference of two groups' rates, or the highest rate.

    strata: (G, 2, 2), of weights by group, label and decision.  A group without rows is left out; nan where too
    few are left.

    >>> import numpy as np
    >>> gap(PARITY, np.array([[[1, 1], [0, 2]], [[3, 1], [0, 0]]]))
    0.5
    """
    gaps = []
    for _, a, b in ratios(metric, strata):
        rates = a[b > 0] / b[b > 0]
        if len(rates) > (0 if metric.bounds else 1):
            gaps.append(rates.max() if metric.bounds else rates.max() - rates.min())
    return float(max(gaps, default=nan))
