"""A model as an ONNX graph, encoding and all: raw columns in, decisions out, no Python of ours needed.

The graph does in float64 what ``encode`` and ``Model`` do: its features are the same to the last bit,
and distances differ only by the order in which a sum is made.  What the model would refuse, a
category unseen in training or a number that is missing or too large, sends a ``Gather`` beyond its
table, which ONNX defines as an error; the node is named after the column, so the error is, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agnosticfair.data import wire
from agnosticfair.data.encoding import FEATURE_BITS, Encoding
from agnosticfair.errors import SettingsError, needing
from agnosticfair.model import Model
from agnosticfair.runs import onnx_rule

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
        onnx_rule.check(model)
        graph = _Graph(model.encoding)
        score, probability = onnx_rule.scored(graph, model)
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
