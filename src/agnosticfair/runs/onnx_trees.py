"""Boosted trees as an ONNX graph: raw columns in, codes by comparison with edges, then ``TreeEnsembleRegressor``.

A node of the ensemble compares one number. A column of numbers comes twice, with its missing values below and above all
bins, and a split by categories has a number of its own: 1 where a row goes right. Leaves are added up in float32 there,
in float64 here: margins differ by some 1e-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agnosticfair.data.binning import Binning
from agnosticfair.data.encoding import Encoding
from agnosticfair.learners.estimates import PROBABILITY_BITS
from agnosticfair.learners.trees import binning_of, forests_of
from agnosticfair.mathematics.trees import LEAF, MAX_CODES, Bins, Forest, ranks
from agnosticfair.model import Model


def probability(graph: Any, model: Model) -> str:
    """The nodes that make the label's probability, (n,), of a model whose estimates are trees.

    graph: of ``runs.export``.
    """
    assert model.estimates is not None
    arrays, encoding = model.estimates.arrays, model.encoding
    bins, forests = forests_of(arrays, encoding, model.estimates.folds)
    inputs = _inputs(graph, encoding, binning_of(arrays), bins, forests[0])
    X = graph.add("Cast", graph.add("Concat", *inputs, axis=1), to=graph.onnx.TensorProto.FLOAT)
    margin = graph.add("TreeEnsembleRegressor", X, n_targets=1, **ensemble(forests[0], bins))
    margin = graph.add("Squeeze", margin, graph.constant([1]))
    margin = graph.add("Cast", margin, to=graph.number)
    margin = graph.add("Add", margin, graph.constant(forests[0].start))
    return rounded(graph, graph.add("Sigmoid", margin))


def rounded(graph: Any, value: str) -> str:
    """On the grid of probabilities."""
    unit = graph.constant(2.0**PROBABILITY_BITS)
    return graph.add("Div", graph.add("Round", graph.add("Mul", value, unit)), unit)


def _inputs(
    graph: Any, encoding: Encoding, binning: Binning, bins: Bins, forest: Forest
) -> list[str]:
    """What nodes compare, (n, k) each: codes with missing values first; the same with them last; splits by
    categories."""
    first, last = [], []
    for (name, _, _), edges in zip(encoding.numeric, binning.by_column, strict=True):
        code = _number(graph, name, edges)
        missing = graph.add("IsNaN", graph.add("Unsqueeze", name, graph.constant([1])))
        low, high = (graph.constant(float(v)) for v in (0, MAX_CODES))
        first.append(graph.add("Where", missing, low, code))
        last.append(graph.add("Where", missing, high, code))
    sets = np.unpackbits(forest.sets, axis=1, bitorder="little")
    column = forest.column[(forest.column != LEAF) & (forest.column >= bins.numeric)]
    hot = []
    pairs = zip(encoding.categorical, binning.categories(encoding), strict=True)
    for c, ((name, values), codes) in enumerate(pairs, bins.numeric):
        own = 1.0 - sets[column == c]  # (K, 256): 1 where a code goes right
        if len(own):
            table = own[:, np.append(codes, np.uint8(0))].T  # the last row is of values not seen
            place = graph.add(
                "LabelEncoder", name, default_int64=len(values), keys_strings=values,
                values_int64s=range(len(values)),
            )  # fmt: skip
            hot.append(graph.add("Gather", graph.constant(np.ascontiguousarray(table)), place))
    return first + last + hot


def _number(graph: Any, name: str, edges: np.ndarray) -> str:
    """The code of a column of numbers, (n, 1): one more than the edges that it has reached."""
    v = graph.add("Unsqueeze", name, graph.constant([1]))
    reached = graph.add("GreaterOrEqual", v, graph.constant(np.append(edges, np.inf)))
    number = graph.add("Cast", reached, to=graph.number)
    total = graph.add("ReduceSum", number, graph.constant([1]), keepdims=1)
    return graph.add("Add", total, graph.constant(1.0))


def ensemble(forest: Forest, bins: Bins) -> dict[str, Any]:
    """The attributes of a ``TreeEnsembleRegressor``: only nodes that rows can reach."""
    nodes: dict[str, list] = {
        k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    }  # fmt: skip
    targets: dict[str, list] = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    feature, threshold = _compared(forest, bins)
    first = forest.column.shape[1]
    for tree in range(len(forest)):
        waiting = [0]
        while waiting:
            node = waiting.pop()
            inner = node
            while inner < first and forest.column[tree, inner] == LEAF:
                inner = 2 * inner + 1  # rows go left
            entry: tuple[Any, ...] = (tree, node, 0, "LEAF", 0.0, 0, 0)
            if inner < first:
                left, right = 2 * inner + 1, 2 * inner + 2
                entry = (
                    tree,
                    node,
                    feature[tree, inner],
                    "BRANCH_LEQ",
                    threshold[tree, inner],
                    left,
                    right,
                )
                waiting += [left, right]
            else:
                value = float(forest.value[tree, inner - first])
                for k, v in zip(targets, (tree, node, 0, value), strict=True):
                    targets[k].append(v)
            for k, v in zip(nodes, entry, strict=True):
                nodes[k].append(v)
    return {f"nodes_{k}": v for k, v in nodes.items()} | {
        f"target_{k}": v for k, v in targets.items()
    }


def _compared(forest: Forest, bins: Bins) -> tuple[np.ndarray, np.ndarray]:
    """Which of the ``_inputs`` a node compares, and with what, (T, 2^D - 1) each: at most it goes left."""
    column = forest.column.astype(int)
    feature = np.where(forest.missing_right > 0, column + bins.numeric, column)
    threshold = forest.threshold.astype(float)
    hot = (column != LEAF) & (column >= bins.numeric)
    of_hot = column[hot]
    order = np.argsort(of_hot, kind="stable")  # columns one after the other, nodes in their order
    place = np.empty(len(of_hot), int)
    place[order] = np.arange(len(of_hot))
    feature[hot] = 2 * bins.numeric + place[ranks(forest, bins)[hot]]
    threshold[hot] = 0.5
    return feature, threshold
