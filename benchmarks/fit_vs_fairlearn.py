"""A robust fit against fairlearn's ExponentiatedGradient (eps 0.01, logistic regression).

Same rows, same machine, in turn: prints how many times longer ExponentiatedGradient takes, for each
number of BLAS threads, and with each side at the number that suits it best. That last ratio is the one
to quote: on a busy machine two threads make ExponentiatedGradient wait for itself, ten times over.

    python benchmarks/fit_vs_fairlearn.py [--dataset adult] [--repeats 5] [--solver lbfgs]
"""

import argparse
from statistics import median

import numpy as np
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.linear_model import LogisticRegression
from timing import in_turn, say

from agnosticfair.data.census import encoding_of, merge, take_census
from agnosticfair.data.datasets import dataset, load_dataset
from agnosticfair.data.encoding import encode
from agnosticfair.data.splits import shift
from agnosticfair.federation import fit
from agnosticfair.methods import method


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--data-folder", default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--solver", default="lbfgs", help="of scikit-learn's logistic regression")
    asked = parser.parse_args()
    source = dataset(asked.dataset)
    train = shift(load_dataset(asked.dataset, asked.data_folder), source, 2, 0).train
    encoding = encoding_of(merge({key: take_census(t, who=key) for key, t in train.items()}))
    X = np.concatenate([encode(encoding, t) for t in train.values()])
    y = np.concatenate([t.labels(source.positive) for t in train.values()])
    s = np.concatenate([t.column(source.sensitive_features).codes for t in train.values()])
    robust = method("agnosticfair", tau=source.tau, centres="rows")
    rounds = []

    def ours() -> None:  # with the census, the encoding and the kernels
        fitted = fit(
            train, robust, sensitive_features=source.sensitive_features, positive=source.positive
        )
        rounds.append((fitted.rounds, fitted.outcome))

    def theirs() -> None:  # encoded beforehand
        learner = LogisticRegression(max_iter=1000, solver=asked.solver)
        ExponentiatedGradient(learner, DemographicParity(), eps=0.01).fit(
            X, y, sensitive_features=s
        )

    what = f"{asked.dataset}, {len(X)} rows: ExponentiatedGradient ({asked.solver}) / agnosticfair"
    best = [[], []]
    for threads in (1, 2):
        times = in_turn(ours, theirs, asked.repeats, threads)
        say(f"{what}, {threads} BLAS thread{'s'[: threads > 1]}", *times)
        for those, found in zip(best, times, strict=True):
            those.append(median(found))
    print(f"{what}, each at its better number of threads: {min(best[1]) / min(best[0]):.2f}")
    print(f"agnosticfair {rounds[0][1]} in {rounds[0][0]} rounds")


if __name__ == "__main__":
    main()
