"""A model as an ONNX graph, encoding and all: raw columns in, decisions out, no Python of ours needed.

The graph does in float64 what ``encode`` and ``Model`` do: its features are the same to the last bit,
and distances differ only by the order in which a sum is made.  What the model would refuse, a
category unseen in training or a number that is missing or too large, sends a ``Gather`` beyond its
table, which ONNX defines as an error; the node is named after the column, so the error is, too.
Of a rule it makes every head's probability, then the score with what each subgroup adds
(``learners.decisions``): weights and coefficients are on grids, and add up to the same bits in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agnosticfair.data import wire
from agnosticfair.data.axes import Binning
from agnosticfair.data.encoding import FEATURE_BITS, Encoding
from agnosticfair.errors import SettingsError, existing, needing
from agnosticfair.learners.estimates import LEARNERS, Head, learned
from agnosticfair.learners.trees import binning_of, forests_of
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.scores import COEFFICIENT_BITS, PROBABILITY_BITS
from agnosticfair.mathematics.subgroups import SITE, SubgroupSet
from agnosticfair.mathematics.trees import LEAF, MAX_CODES, Bins, Forest, empty, ranks
from agnosticfair.model import Model

OPSETS = {"": 17, "ai.onnx.ml": 3}
IR_VERSION = 8  # what came with these opsets: older runtimes read it, too
Layers = Sequence[tuple[np.ndarray, np.ndarray]]


def to_onnx(model: Model) -> Any:
    """The model as an ``onnx.ModelProto``; needs the extra ``onnx``.

    Inputs: (n,) for each column of the encoding, under its own name, numbers as float64 and
    categories as strings.  Outputs, (n,) each: ``prediction``, the label as a string;
    ``probability``, of the positive label; ``decision``, the signed distance.  An output takes an
    underscore behind its name where a column has that name.
    """
    about = {
        "positive": model.positive,
        "negative": model.negative,
        "sensitive_feature": model.sensitive_feature,
    }
    about |= {"method": str(model.method["name"]), "agnosticfair": model.version}
    if model.rule is not None:
        check_rule(model)
        graph = _Graph(model.encoding)
        score, probability = rule_score(graph, model)
        d = graph.add("Identity", score, wish="decision")
        return graph.finish(d, about, graph.add("Identity", probability, wish="probability"))
    return graph_of(model.encoding, layers_of(model), about)


def layers_of(model: Model) -> Layers:
    """The model's dense layers, from encoded rows to the distance; a network's inputs are centred and
    scaled by its first one."""
    if model.network is None:
        return [(model.w[:-1, None], model.w[-1:])]
    name, hidden = model.network["name"], model.network["hidden"]
    if name not in ("mlp", "linear"):
        raise SettingsError(f"network {name!r} is your own: export it by torch.onnx")
    d, layers = model.encoding.width, list[tuple[np.ndarray, np.ndarray]]()
    centre, scale, rest = model.w[:d], model.w[d : 2 * d], model.w[2 * d :]
    for out in (*(hidden if name == "mlp" else ()), 1):
        W, b, rest = (
            rest[: d * out].reshape(out, d).T,
            rest[d * out : (d + 1) * out],
            rest[(d + 1) * out :],
        )
        if not layers:
            W = W / scale[:, None]
            b = b - centre @ W
        layers.append((W, b))
        d = out
    return layers


def graph_of(encoding: Encoding, layers: Layers, about: Mapping[str, str]) -> Any:
    """The encoding, then dense layers, then the labels that ``about`` calls positive and negative.

    layers: W (d_in, d_out) and b (d_out,) of each, SiLU between two (x times its sigmoid), d_out = 1 at the
    end.
    about: what the file says of itself.
    """
    graph = _Graph(encoding)
    d = graph.dense(graph.features(encoding), layers)
    return graph.finish(d, about)


class _Graph:
    """The nodes so far.  Every name is unlike those of the columns, which a user's file chose."""

    def __init__(self, encoding: Encoding) -> None:
        with needing("onnx", "ONNX files are made by the package 'onnx'"):
            import onnx
        self.onnx, self.number, self.text = onnx, onnx.TensorProto.DOUBLE, onnx.TensorProto.STRING
        columns = {name: self.number for name, _, _ in encoding.numeric}
        columns |= {name: self.text for name, _ in encoding.categorical}
        self.inputs = [self.vector(name, kind) for name, kind in columns.items()]
        self.names, self.nodes, self.constants = {*columns}, list[Any](), list[Any]()

    def vector(self, name: str, kind: int) -> Any:
        return self.onnx.helper.make_tensor_value_info(name, kind, ["n"])

    def name(self, wish: str) -> str:
        while wish in self.names:
            wish += "_"
        self.names.add(wish)
        return wish

    def constant(self, value: Any) -> str:
        name = self.name(f"constant {len(self.constants)}")
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, op: str, *inputs: str, message: str = "", wish: str = "", **about: Any) -> str:
        """A node, and the name of what it makes.  message: its own name, which errors show."""
        output = self.name(wish or f"{op} {len(self.nodes)}")
        domain = "ai.onnx.ml" if op in ("LabelEncoder", "TreeEnsembleRegressor") else ""
        messages = {node.name for node in self.nodes} if message else set()
        while message in messages:
            message += " again"  # a node's name is its own
        node = self.onnx.helper.make_node(
            op, inputs, [output], message or output, domain=domain, **about
        )
        self.nodes.append(node)
        return output

    def features(self, encoding: Encoding) -> str:
        scaled = [
            self.scaled(name, low, high, encoding.scale, name in encoding.missing)
            for name, low, high in encoding.numeric
        ]
        hot = [self.one_hot(*entry) for entry in encoding.categorical]
        sizes = zip(encoding.bins, encoding.bin_sizes(), strict=True)
        cut = [
            self.add("Gather", self.constant(np.eye(size)), self.reached(*entry))
            for entry, size in sizes
        ]
        return self.add("Concat", *scaled, *hot, *cut, axis=1)

    def read(self, column: str, kind: int) -> None:
        """Make sure that a column is an input: one that names subgroups may be no feature."""
        if column not in self.names:
            self.inputs.append(self.vector(column, kind))
            self.names.add(column)

    def refusing(self, good: str, message: str) -> str:
        """0 for every row, (n,), or an error that says why a row is not good."""
        place = self.add("Cast", self.add("Not", good), to=self.onnx.TensorProto.INT64)
        return self.add(
            "Gather", self.constant([0.0]), place, message=message
        )  # has no second place

    def reached(self, column: str, edges: Sequence[float], checked: bool = False) -> str:
        """How many edges a number has reached, (n,), one more than there are where it is missing; checked: one that is
        infinite or too large is refused."""
        missing = self.add("Cast", self.add("IsNaN", column), to=self.onnx.TensorProto.INT64)
        if checked:
            large = self.add("Greater", self.add("Abs", column), self.constant(wire.LARGEST))
            message = f"column {column!r} has a number that is infinite or too large"
            column = self.add("Add", column, self.refusing(self.add("Not", large), message))
        if not len(edges):
            return missing
        v = self.add("Unsqueeze", column, self.constant([1]))
        reached = self.add("GreaterOrEqual", v, self.constant(np.asarray(edges, np.float64)))
        as_numbers = self.add("Cast", reached, to=self.onnx.TensorProto.INT64)
        known = self.add("ReduceSum", as_numbers, self.constant([1]), keepdims=0)
        beyond = self.add("Mul", missing, self.constant(len(edges) + 1))  # NaN reaches no edge
        return self.add("Add", known, beyond)

    def scaled(self, column: str, low: float, high: float, scale: bool, missing: bool) -> str:
        """(n, 1): (v - low) / (high - low) on the grid; 0 where that was constant in training, or is missing."""
        if missing:
            filled = self.constant(low if scale else 0.0)
            column = self.add("Where", self.add("IsNaN", column), filled, column)
        good = self.add("LessOrEqual", self.add("Abs", column), self.constant(wire.LARGEST))
        place = self.add("Cast", self.add("Not", good), to=self.onnx.TensorProto.INT64)
        message = f"column {column!r} has a number that is missing, infinite or too large"
        low, high = (low, high) if scale else (0.0, 1.0)
        lows = self.add(
            "Gather", self.constant([low]), place, message=message
        )  # has no second place
        v = self.add("Sub", column, lows)
        if not high - low > 1 / wire.LARGEST:
            v = self.add("Mul", v, self.constant(0.0))
        elif scale:
            grid = self.constant(2.0**FEATURE_BITS)
            v = self.add("Div", v, self.constant(high - low))
            v = self.add("Div", self.add("Round", self.add("Mul", v, grid)), grid)
        return self.add("Unsqueeze", v, self.constant([1]))

    def one_hot(self, column: str, categories: tuple[str, ...]) -> str:
        """(n, k): a row of the identity each; an unknown category has the place behind the last."""
        k = len(categories)
        codes: dict[str, Any] = {"keys_strings": categories, "values_int64s": range(k)}
        place = self.add("LabelEncoder", column, default_int64=k, **codes)
        message = f"column {column!r} has a category unseen in training"
        return self.add("Gather", self.constant(np.eye(k)), place, message=message)

    def dense(self, X: str, layers: Layers) -> str:
        """(n,): what the layers make of X."""
        for k, (W, b) in enumerate(layers):
            X = self.add("Mul", X, self.add("Sigmoid", X)) if k else X
            X = self.add("MatMul", X, self.constant(np.asarray(W, np.float64)))
            X = self.add("Add", X, self.constant(np.asarray(b, np.float64)))
        return self.add("Squeeze", X, self.constant([1]), wish="decision")

    def finish(self, d: str, about: Mapping[str, str], probability: str = "") -> Any:
        """The checked model, whose outputs are labels, probabilities, by default the sigmoid of d, and distances d."""
        labels = [self.constant(np.array(about[k], dtype=object)) for k in ("positive", "negative")]
        chosen = self.add("Greater", d, self.constant(0.0))
        outputs = [
            self.vector(self.add("Where", chosen, *labels, wish="prediction"), self.text),
            self.vector(probability or self.add("Sigmoid", d, wish="probability"), self.number),
            self.vector(d, self.number),
        ]
        helper = self.onnx.helper
        graph = helper.make_graph(self.nodes, "agnosticfair", self.inputs, outputs, self.constants)
        opsets = [helper.make_opsetid(*opset) for opset in OPSETS.items()]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="agnosticfair"
        )
        helper.set_model_props(model, about)
        self.onnx.checker.check_model(model, full_check=True)
        return model


def check_rule(model: Model) -> None:
    """Raise where a rule cannot be a graph of columns alone."""
    estimates, decision = model.estimates, model.rule
    assert estimates is not None and decision is not None  # noqa: PT018
    if estimates.aware:
        raise SettingsError(
            "the rule decides by the sensitive feature itself (aware), which is no input of the graph: use its model "
            "file, or train without aware"
        )
    exported = [name for name, learner in LEARNERS.items() if learner.linear or name == "trees"]
    if learned(estimates) and estimates.kind not in exported:
        raise SettingsError(
            f"learner {estimates.kind!r} has no ONNX graph: train with one of {', '.join(exported)}"
        )
    if decision.kernels is not None or decision.weights is not None:
        raise SettingsError(
            "a rule over kernels or clients, or for the worst subgroup (agnostic), has no ONNX graph: use its model "
            "file"
        )
    axes = () if decision.subgroups is None else decision.subgroups.agreed[0]
    if any(axis.name == SITE for axis in axes):
        raise SettingsError(
            "the rule has subgroups by site, and a graph does not know at which site it runs: use its model file, or "
            "train without them"
        )


def rule_score(graph: Any, model: Model) -> tuple[str, str]:
    """The score and the label's probability, (n,) each.  graph: of ``runs.export``."""
    decision, estimates = model.rule, model.estimates
    assert estimates is not None and decision is not None  # noqa: PT018
    P = probabilities(graph, model)
    false_positive, false_negative = decision.error_costs
    worth = graph.add("Mul", P[0], graph.constant(false_negative))
    other = graph.add("Mul", _less(graph, P[0]), graph.constant(false_positive))
    score = rounded(graph, graph.add("Sub", worth, other))
    score = graph.add("Sub", score, graph.constant(decision.shift))
    A = on_grid(np.array(decision.coefficients, float), COEFFICIENT_BITS)
    if A.any():
        numbers = {name for name, *_ in model.encoding.numeric}
        named = decision.subgroups
        hot = None if named is None else indicators(graph, named, numbers)
        for pi, a in zip(joint(graph, estimates.heads, P), A.T, strict=True):
            weighed = _weighed(graph, decision.subgroups, hot, a)
            score = graph.add("Sub", score, graph.add("Mul", pi, weighed))
    return score, P[0]


def probabilities(graph: Any, model: Model) -> list[str]:
    estimates = existing(model.estimates)
    learner, outputs = learned(estimates), list[str]()
    if learner and estimates.kind == "trees":
        outputs = of_trees(graph, model)
    elif learner:
        w = np.asarray(estimates.arrays["w"][estimates.folds], np.float64)  # (H, D)
        X = graph.features(model.encoding)
        scores = graph.add("MatMul", X, graph.constant(np.ascontiguousarray(w[:, :-1].T)))
        scores = graph.add("Add", scores, graph.constant(w[:, -1]))
        outputs = [
            rounded(graph, graph.add("Sigmoid", _column(graph, scores, k)))
            for k in range(len(learner))
        ]
    of_learner = dict(zip(learner, outputs, strict=True))
    return [
        of_learner[h] if h in of_learner else _given_probability(graph, estimates.columns[h])
        for h in range(len(estimates.heads))
    ]


def _given_probability(graph: Any, column: str) -> str:
    """A column that holds probabilities; others are refused."""
    off = graph.add("Abs", graph.add("Sub", column, graph.constant(0.5)))
    good = graph.add("LessOrEqual", off, graph.constant(0.5))
    message = f"column {column!r} has a number that is no probability"
    return rounded(graph, graph.add("Add", column, graph.refusing(good, message)))


def joint(graph: Any, heads: Sequence[Head], P: Sequence[str]) -> list[str]:
    columns = []
    for h, head in enumerate(heads):
        if not head.features:
            continue
        share = P[h]
        shares = [_less(graph, share), share] if head.other else [_share(graph, heads, P, h)]
        if head.label is not None:
            of_label = P[0] if head.label else _less(graph, P[0])
            shares = [graph.add("Mul", of_label, group_share) for group_share in shares]
        columns += shares
    return columns


def _share(graph: Any, heads: Sequence[Head], P: Sequence[str], h: int) -> str:
    """One of several groups' probability, over the sum of all."""
    about = (heads[h].features, heads[h].label)
    same = [P[k] for k, head in enumerate(heads) if (head.features, head.label) == about]
    total = same[0]
    for other in same[1:]:
        total = graph.add("Add", total, other)
    some = graph.add("Greater", total, graph.constant(0.0))
    below = graph.add("Where", some, total, graph.constant(1.0))
    even = graph.constant(1.0 / len(same))
    return graph.add("Where", some, graph.add("Div", P[h], below), even)


def indicators(graph: Any, named: SubgroupSet, numbers: set[str]) -> str:
    """Which values of all axes a row has, (n, I) of 0 and 1.  numbers: the names of columns of numbers."""
    outputs = []
    for axis in named.agreed[0]:
        k = len(axis.values)
        if axis.edges or axis.name in numbers:
            graph.read(axis.name, graph.number)
            rows = np.eye(len(axis.edges) + 2, k)  # a missing number may be in no subgroup
            place = graph.reached(axis.name, axis.edges, checked=True)
        else:
            graph.read(axis.name, graph.text)
            rows = np.eye(k + 1, k)  # another value is in no subgroup
            codes: dict[str, Any] = {"keys_strings": axis.values, "values_int64s": range(k)}
            place = graph.add("LabelEncoder", axis.name, default_int64=k, **codes)
        outputs.append(graph.add("Gather", graph.constant(rows), place))
    return graph.add("Concat", *outputs, axis=1)


def _weighed(graph: Any, named: SubgroupSet | None, hot: str | None, a: np.ndarray) -> str:
    """What a row's subgroups add up to, (n,) or one number: ``learners.decisions``."""
    if named is None or hot is None or not a[:-1].any():
        return graph.constant(float(a[-1]))
    at, (axes, subgroups) = named.places, named.agreed
    W = np.zeros((at.values, at.values))
    W[at.at] = a[:-1][at.shallow]
    pairs = graph.add("Mul", graph.add("MatMul", hot, graph.constant(W)), hot)
    total = graph.add("ReduceSum", pairs, graph.constant([1]), keepdims=0)
    total = graph.add("Add", total, graph.constant(float(a[-1])))
    deep = [m for m in at.deep.tolist() if a[m]]
    if not deep:
        return total
    starts = np.cumsum([0, *(len(axis.values) for axis in axes)])
    both = graph.constant(a[deep])
    for depth in range(len(subgroups[deep[0]])):
        places = [int(starts[subgroups[m][depth][0]]) + subgroups[m][depth][1] for m in deep]
        both = graph.add("Mul", both, graph.add("Gather", hot, graph.constant(places), axis=1))
    more = graph.add("ReduceSum", both, graph.constant([1]), keepdims=0)
    return graph.add("Add", total, more)


def _less(graph: Any, probability: str) -> str:
    return graph.add("Sub", graph.constant(1.0), probability)


def _column(graph: Any, values: str, k: int) -> str:
    return graph.add("Gather", values, graph.constant(np.array(k, np.int64)), axis=1)


PIECES = (10, 24, 149)
"""Of a leaf's value: bits behind the point; the last piece is what is left."""


def of_trees(graph: Any, model: Model) -> list[str]:
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
