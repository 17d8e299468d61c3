"""Digests of every method's weights, or estimates and coefficients, on Adult, two clients: what a move of code must
leave as it was.

    python benchmarks/digests.py --every 5 > before    # and after the move: diff
    python benchmarks/digests.py                       # all rows; benchmarks/digests.txt has those of this version

Bits are of one machine and its linear algebra; where another differs, the sum of the weights' sizes says by how much.
"""

import argparse
from hashlib import sha256

import numpy as np
from threadpoolctl import threadpool_limits

from agnosticfair import METHODS, Model, fit, load_dataset
from agnosticfair.data.datasets import iid


def numbers_of(model: Model) -> list[np.ndarray]:
    """The weights; of a rule its estimates and coefficients."""
    if model.rule is None or model.estimates is None:
        return [model.w]
    arrays = model.estimates.arrays
    return [*(arrays[name] for name in sorted(arrays)), model.rule.coefficients]


def bytes_of(numbers: np.ndarray) -> bytes:
    return np.ascontiguousarray(numbers).tobytes()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take every such row")
    table = load_dataset("adult")
    train = iid(table.take(np.arange(0, len(table), parser.parse_args().every)), seed=0).train
    with threadpool_limits(1):
        for name in sorted(METHODS):
            fitted = fit(train, name, sensitive_features="sex", positive=">50K")
            numbers = numbers_of(fitted.model)
            digest = sha256(b"".join(map(bytes_of, numbers))).hexdigest()[:16]
            size = sum(float(np.abs(own.astype(float)).sum()) for own in numbers)
            print(f"{name:21} {digest}  {fitted.rounds:3} rounds  {size:.9f}", flush=True)
