"""Digests of every method's weights on Adult, two clients: what a move of code must leave as it was.

    python benchmarks/digests.py --every 5 > before    # and after the move: diff
    python benchmarks/digests.py                       # all rows; benchmarks/digests.txt has those of this version

Bits are of one machine and its linear algebra; where another differs, the sum of the weights' sizes says by how much.
"""

import argparse
from hashlib import sha256

import numpy as np
from threadpoolctl import threadpool_limits

from agnosticfair import METHODS, fit, load_dataset
from agnosticfair.data.splits import iid

if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--every", type=int, default=1, help="take every such row")
    table = load_dataset("adult")
    train = iid(table.take(np.arange(0, len(table), given.parse_args().every)), seed=0).train
    with threadpool_limits(1):
        for name in sorted(METHODS):
            fitted = fit(train, name, sensitive_features="sex", positive=">50K")
            w = fitted.model.w
            digest = sha256(w.tobytes()).hexdigest()[:16]
            print(
                f"{name:21} {digest}  {fitted.rounds:3} rounds  {np.abs(w).sum():.9f}", flush=True
            )
