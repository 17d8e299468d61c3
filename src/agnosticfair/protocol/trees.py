"""Requests of trees: counts in cells, by which bins are agreed on, and histograms of a level."""

from __future__ import annotations

import numpy as np

from agnosticfair.data.axes import Binning
from agnosticfair.learners.estimates import Head
from agnosticfair.protocol.requests import Shapes, Task, request


@request(
    "fine_counts",
    fine_bin_counts="how many rows lie in each small cell of a column's range, or have no number there: with few, who "
    "they are",
    value_counts="how many rows have each category",
)
class FineCounts:
    """How many rows lie between cuts, (columns, K), of every column of numbers, and how many have each category: for
    the bins of trees (``data.axes``)."""

    cuts: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        values = sum(len(vocabulary) for _, vocabulary in task.encoding.categorical)
        rows, width = self.cuts.shape
        return {"fine_bin_counts": (rows, width + 2), "value_counts": (values,)}


@request(
    "level",
    hist="for each node of the trees that grow: how many rows have each bin or category of every column, and the "
    "sums of their gradients, which tell how many have the label or the group; an honest coordinator splits no node "
    "below min_rows rows of all sites together, which a site cannot check; a single site may have one",
    tree_loss="how well trees fit rows that they were not grown from",
)
class Level:
    """Histograms of a level of all trees that grow: of ``count``, (P, 2), models and nodes.

    forests, growing: the trees so far and those that grow, packed (``mathematics.trees``): with them any client can
    begin here.  edges, edge_sizes, codes: the bins.
    """

    heads: tuple[Head, ...]
    folds: int
    seed: int
    level: int
    edges: np.ndarray
    edge_sizes: np.ndarray
    codes: np.ndarray
    forests: np.ndarray
    growing: np.ndarray
    count: np.ndarray

    @property
    def binning(self) -> Binning:
        return Binning(self.edges, self.edge_sizes, self.codes)

    def shapes(self, task: Task) -> Shapes:
        codes = int(self.binning.bins(task.encoding).starts[-1])
        return {"hist": (len(self.count), codes, 3), "tree_loss": (len(self.heads),)}
