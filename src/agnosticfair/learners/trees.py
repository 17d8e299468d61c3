"""The learner of boosted trees: forests of every fold and head over agreed bins, packed as bytes.

arrays: edges, edge_sizes, codes (``data.axes``); forests, packed; sizes, the bytes of each; shape, models and heads;
gain, (heads, columns), what the splits by each column took off the loss in the model of all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from agnosticfair.data.axes import Binning
from agnosticfair.data.encoding import Encoding
from agnosticfair.data.table import Table
from agnosticfair.errors import ModelError
from agnosticfair.mathematics.linear import sigmoid
from agnosticfair.mathematics.trees import Bins, Forest, margins, pack, unpack

Arrays = Mapping[str, np.ndarray]


def binning_of(arrays: Arrays) -> Binning:
    return Binning(arrays["edges"], arrays["edge_sizes"], arrays["codes"])


def packed(
    binning: Binning, bins: Bins, forests: Sequence[Forest], heads: int, gain: np.ndarray
) -> dict[str, np.ndarray]:
    """The arrays of estimates.  forests: of model 0's heads, then of model 1's, ..."""
    return {
        "edges": np.asarray(binning.edges, np.float64),
        "edge_sizes": np.asarray(binning.edge_sizes, np.uint16),
        "codes": np.asarray(binning.codes, np.uint8),
        "forests": pack(forests, bins),
        "sizes": np.array([len(pack([forest], bins)) for forest in forests], np.float64),
        "shape": np.array([len(forests) // heads, heads], np.uint16),
        "gain": np.asarray(gain, np.float32),
    }


def forests_of(arrays: Arrays, encoding: Encoding, index: int) -> tuple[Bins, list[Forest]]:
    """The bins, and the forests of every head in one model."""
    bins = binning_of(arrays).bins(encoding)
    models, heads = np.asarray(arrays["shape"]).tolist()
    try:
        forests = unpack(arrays["forests"], bins)
    except ValueError as problem:
        raise ModelError(f"the model's trees are damaged: {problem}; save it again") from None
    if len(forests) != models * heads or not 0 <= index < models:
        raise ModelError("the model's trees are not of its heads and folds: save it again")
    return bins, forests[index * heads : (index + 1) * heads]


def predict(arrays: Arrays, encoding: Encoding, index: int, table: Table, who: str) -> np.ndarray:
    bins, forests = forests_of(arrays, encoding, index)
    columns = binning_of(arrays).columns(encoding, table, who)
    return np.array([sigmoid(margins(forest, bins, columns)) for forest in forests])


def of_all_rows(arrays: Arrays, folds: int) -> dict[str, np.ndarray]:
    models, heads = np.asarray(arrays["shape"]).tolist()
    sizes = np.asarray(arrays["sizes"])  # bytes of every forest
    begin = int(sizes[: folds * heads].sum())
    bins = {k: arrays[k] for k in ("edges", "edge_sizes", "codes", "gain")}
    return {
        **bins,
        "forests": arrays["forests"][begin:],
        "sizes": sizes[folds * heads :],
        "shape": np.array([models - folds, heads], np.uint16),
    }


def check(arrays: Arrays, encoding: Encoding, heads: int) -> None:
    """Raise ``ValueError`` unless these are one model's forests of so many heads."""
    kinds = {"edges": "f8", "edge_sizes": "u2", "codes": "u1", "forests": "u1", "sizes": "f8"}
    kinds |= {"shape": "u2", "gain": "f4"}
    if {*arrays} != {*kinds} or any(arrays[k].dtype != np.dtype(v) for k, v in kinds.items()):
        raise ValueError("the trees of the estimates")
    values = sum(len(vocabulary) for _, vocabulary in encoding.categorical)
    sizes, edges = arrays["edge_sizes"], arrays["edges"]
    if len(sizes) != len(encoding.numeric) or int(sizes.sum()) != len(edges):
        raise ValueError("the bins of the estimates")
    if len(arrays["codes"]) != values or not np.isfinite(edges).all():
        raise ValueError("the bins of the estimates")
    if arrays["shape"].tolist() != [1, heads]:
        raise ValueError("the heads of the trees")
    bins = binning_of(arrays).bins(encoding)
    if arrays["gain"].shape != (heads, len(bins.sizes)) or len(arrays["sizes"]) != heads:
        raise ValueError("the heads of the trees")
    if len(unpack(arrays["forests"], bins)) != heads:
        raise ValueError("the trees of the estimates")
