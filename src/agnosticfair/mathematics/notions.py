"""What fairness asks of the groups: a notion is one record, and everything that knows notions reads it.

A notion looks at *rates*: of positive decisions among the rows of some labels, compared between groups; or of
wrong decisions, each group's by itself under a bound. Training, metrics, audit, certificate, report and the
page all take a notion's labels and words from its record, so that a new one is an entry here, or a call of
``register_notion``.
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
class Notion:
    """A notion of fairness between groups.

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


NOTIONS: dict[str, Notion] = {}
"""The notions by name; ``register_notion`` adds to them."""


def register_notion(notion: Notion) -> Notion:
    """Make a notion known by its name, in this process, to everything that reads notions.

    Parameters
    ----------
    notion : Notion

    Returns
    -------
    Notion
        The same.

    Examples
    --------
    >>> made = register_notion(Notion("toy", ((0,),), "difference of false positive rates"))
    >>> NOTIONS.pop("toy") is made
    True
    """
    require(Notion, notion=notion)
    NOTIONS[notion.name] = notion
    return notion


PARITY = register_notion(Notion("demographic_parity", ((0, 1),), "risk difference", "RD"))
register_notion(Notion("equal_opportunity", ((1,),), "difference of true positive rates"))
register_notion(
    Notion("equalized_odds", ((0,), (1,)), "difference of true or false positive rates")
)
register_notion(Notion("bounded_group_loss", ((0, 1),), "error rate of a group", bounds=True))


def notion_of(name: str) -> Notion:
    """The notion of that name, or the sentence that says which there are."""
    require_name("notion", name, NOTIONS)
    return NOTIONS[name]


def ratios(
    notion: Notion, cells: np.ndarray
) -> list[tuple[tuple[int, ...], np.ndarray, np.ndarray]]:
    """labels, a and b of everything that a notion looks at: a / b are the groups' rates, (G, ...) each.

    cells: (G, 2, 2, ...), sums over the rows of each group, label and decision.

    >>> import numpy as np
    >>> ((_, a, b),) = ratios(PARITY, np.array([[[1, 1], [0, 2]], [[3, 1], [0, 0]]]))
    >>> a, b
    (array([3, 1]), array([4, 4]))
    """
    if notion.bounds:
        return [(notion.labels[0], cells[:, 0, 1] + cells[:, 1, 0], cells.sum(axis=(1, 2)))]
    chosen = [cells[:, list(labels)] for labels in notion.labels]
    return [
        (labels, part[:, :, 1].sum(axis=1), part.sum(axis=(1, 2)))
        for labels, part in zip(notion.labels, chosen, strict=True)
    ]


def gap(notion: Notion, cells: np.ndarray) -> float:
    """What a notion measures: the largest difference of two groups' rates, or the highest rate.

    cells: (G, 2, 2), of weights by group, label and decision.  A group without rows is left out; nan where too
    few are left.

    >>> import numpy as np
    >>> gap(PARITY, np.array([[[1, 1], [0, 2]], [[3, 1], [0, 0]]]))
    0.5
    """
    found = []
    for _, a, b in ratios(notion, cells):
        rates = a[b > 0] / b[b > 0]
        if len(rates) > (0 if notion.bounds else 1):
            found.append(rates.max() if notion.bounds else rates.max() - rates.min())
    return float(max(found, default=nan))
