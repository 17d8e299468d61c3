"""Boosted trees as an ONNX graph: raw columns in, codes by comparison with edges, then ``TreeEnsembleRegressor``.

A node of the ensemble compares one number. A column of numbers comes twice, with its missing values below and above all
bins, and a split by categories has a number of its own: 1 where a row goes right. The operator
adds up leaves in float32: each is there in pieces, so that the sums are those of float64 here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agnosticfair.data.axes import Binning
from agnosticfair.data.encoding import Encoding
from agnosticfair.learners.estimates import PROBABILITY_BITS
from agnosticfair.learners.trees import binning_of, forests_of
from agnosticfair.mathematics.trees import LEAF, MAX_CODES, Bins, Forest, empty, ranks
from agnosticfair.model import Model

PIECES = (10, 24, 149)
"""Of a leaf's value: bits behind the point; the last piece is what is left."""


def probabilities(graph: Any, model: Model) -> list[str]:
    """The nodes that make every learned head's probability, (n,), of a model whose estimates are trees.

    graph: of ``runs.export``.
    """
    assert model.estimates is not None
    arrays, encoding = model.estimates.arrays, model.encoding
    bins, forests = forests_of(arrays, encoding, model.estimates.folds)
    binning = binning_of(arrays)
    numbers = _numbers(graph, encoding, binning)
    return [_probability(graph, encoding, binning, bins, numbers, forest) for forest in forests]


def _probability(
    graph: Any,
    encoding: Encoding,
    binning: Binning,
    bins: Bins,
    numbers: list[str],
    forest: Forest,
) -> str:
    inputs = [*numbers, *_hot(graph, encoding, binning, bins, forest)]
    X = graph.add("Cast", graph.add("Concat", *inputs, axis=1), to=graph.onnx.TensorProto.FLOAT)
    about = ensemble(forest if len(forest) else empty(forest.depth, trees=1), bins)
    margin = graph.add("TreeEnsembleRegressor", X, n_targets=len(PIECES), **about)
    margin = graph.add("Cast", margin, to=graph.number)
    margin = graph.add("ReduceSum", margin, graph.constant([1]), keepdims=0)
    margin = graph.add("Add", margin, graph.constant(forest.start))
    return rounded(graph, graph.add("Sigmoid", margin))


def rounded(graph: Any, value: str) -> str:
    """On the grid of probabilities."""
    unit = graph.constant(2.0**PROBABILITY_BITS)
    return graph.add("Div", graph.add("Round", graph.add("Mul", value, unit)), unit)


def _numbers(graph: Any, encoding: Encoding, binning: Binning) -> list[str]:
    """The codes of columns of numbers, (n, 1) each: with missing values first, then the same with them last."""
    first, last = [], []
    for (name, _, _), edges in zip(encoding.numeric, binning.by_column, strict=True):
        code = _number(graph, name, edges)
        missing = graph.add("IsNaN", graph.add("Unsqueeze", name, graph.constant([1])))
        low, high = (graph.constant(float(v)) for v in (0, MAX_CODES))
        first.append(graph.add("Where", missing, low, code))
        last.append(graph.add("Where", missing, high, code))
    return first + last


def _hot(graph: Any, encoding: Encoding, binning: Binning, bins: Bins, forest: Forest) -> list[str]:
    """Which way every split by categories sends a row, (n, k) each: 1 for right."""
    sets = np.unpackbits(forest.sets, axis=1, bitorder="little")
    column = forest.column[(forest.column != LEAF) & (forest.column >= bins.numeric)]
    hot = []
    pairs = zip(encoding.categorical, binning.categories(encoding), strict=True)
    for c, ((name, values), codes) in enumerate(pairs, bins.numeric):
        goes_left = 1.0 - sets[column == c]  # (K, 256): 1 where a code goes right
        if len(goes_left):
            table = goes_left[
                :, np.append(codes, np.uint8(0))
            ].T  # the last row is of values not seen
            place = graph.add(
                "LabelEncoder", name, default_int64=len(values), keys_strings=values,
                values_int64s=range(len(values)),
            )  # fmt: skip
            hot.append(graph.add("Gather", graph.constant(np.ascontiguousarray(table)), place))
    return hot


def _number(graph: Any, name: str, edges: np.ndarray) -> str:
    """The code of a column of numbers, (n, 1): one more than the edges that it has reached."""
    v = graph.add("Unsqueeze", name, graph.constant([1]))
    reached = graph.add("GreaterOrEqual", v, graph.constant(np.append(edges, np.inf)))
    number = graph.add("Cast", reached, to=graph.number)
    total = graph.add("ReduceSum", number, graph.constant([1]), keepdims=1)
    return graph.add("Add", total, graph.constant(1.0))


def pieces(value: float) -> tuple[float, ...]:
    """A leaf's value as a sum of numbers on coarser and finer grids, so that float32 adds each of them up exactly.

    >>> pieces(0.5 + 2.0**-20), sum(pieces(0.1)) == 0.1
    ((0.5, 9.5367431640625e-07, 0.0), True)
    """
    terms, rest = [], value
    for bits in PIECES[:-1]:
        terms.append(round(rest * 2.0**bits) / 2.0**bits)
        rest -= terms[-1]
    return (*terms, rest)


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
                for number, value in enumerate(pieces(float(forest.value[tree, inner - first]))):
                    for k, v in zip(targets, (tree, node, number, value), strict=True):
                        targets[k].append(v)
            for k, v in zip(nodes, entry, strict=True):
                nodes[k].append(v)
    return {f"nodes_{k}": v for k, v in nodes.items()} | {
        f"target_{k}": v for k, v in targets.items()
    }


def _compared(forest: Forest, bins: Bins) -> tuple[np.ndarray, np.ndarray]:
    """Which input (``_numbers``, ``_hot``) a node compares, and with what, (T, 2^D - 1) each: at most it goes left."""
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
