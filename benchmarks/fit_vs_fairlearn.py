"""Fits against scikit-learn's plain LogisticRegression and fairlearn's ExponentiatedGradient (eps 0.01).

Same rows, same machine, in turn, for each number of BLAS threads: how many times longer ours take than a plain
LogisticRegression over the features that they have themselves, and how many times longer ExponentiatedGradient takes
than ours; last with each side at the number of threads that suits it best. That is the ratio to quote: on a busy
machine two threads make ExponentiatedGradient wait for itself, ten times over. Ours have the summary statistics, the
subgroups or kernels and the encoding in their times, and the rule, with its additive learner, two targets in five
folds; the others are given encoded rows.

    python benchmarks/fit_vs_fairlearn.py [--dataset adult] [--repeats 5] [--methods rule,agnosticfair]
"""

import argparse
import warnings
from statistics import median

import numpy as np
from timing import all_in_turn, say

from agnosticfair.data.encoding import encode
from agnosticfair.federation import fit
from agnosticfair.methods import METHODS, method
from agnosticfair_research.datasets import dataset, load_dataset
from agnosticfair_research.splits import shift

KERNELS = "agnosticfair"
PLAIN, PEER = "LogisticRegression", "ExponentiatedGradient"


def rivals(train: dict, source, methods: dict, solver: str) -> tuple[dict, dict]:
    """What is timed, by name; and what the fits of ours came to."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    about = {"sensitive_features": source.sensitive_features, "positive": source.positive}
    ended, works = {}, {}
    y = np.concatenate([t.labels(source.positive) for t in train.values()])
    s = np.concatenate([t.column(source.sensitive_features).codes for t in train.values()])

    def ours(name: str):
        ended[name] = fit(train, methods[name], **about)

    def plain(X):
        LogisticRegression(solver=solver).fit(X, y)

    def peer(X):
        learner = LogisticRegression(max_iter=1000, solver=solver)
        ExponentiatedGradient(learner, DemographicParity(), eps=0.01).fit(
            X, y, sensitive_features=s
        )

    for name in methods:
        ours(name)
        X = np.concatenate([encode(ended[name].model.encoding, t) for t in train.values()])
        works[name] = lambda name=name: ours(name)
        works[f"{PLAIN}, {X.shape[1]} features"] = lambda X=X: plain(X)
    without = ended[KERNELS if KERNELS in ended else name].model.encoding
    X = np.concatenate([encode(without, t) for t in train.values()])
    works[PEER] = lambda: peer(X)
    return works, ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--data-folder", default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--methods", default=f"rule,{KERNELS}")
    parser.add_argument("--solver", default="lbfgs", help="of scikit-learn's logistic regression")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--without-peer", action="store_true")
    request = parser.parse_args()
    warnings.simplefilter("ignore")
    source = dataset(request.dataset)
    train = shift(load_dataset(request.dataset, request.data_folder), source, 2, 0).train
    known = {
        KERNELS: method(KERNELS, tau=source.tau, centres="rows"),
        "rule": method("rule", learner="additive"),
    }
    methods = {name: known.get(name, METHODS[name]) for name in request.methods.split(",")}
    works, ended = rivals(train, source, methods, request.solver)
    if request.without_peer:
        del works[PEER]
    best: dict[str, float] = {}
    for threads in request.threads:
        times = all_in_turn(works, request.repeats, threads)
        for name, found in times.items():
            best[name] = min(best.get(name, np.inf), median(found))
        for name, fitted in ended.items():
            yard = f"{PLAIN}, {fitted.model.encoding.width} features"
            say(f"{name} / {yard}, {threads} BLAS threads", times[yard], times[name])
            if PEER in times:
                say(f"{PEER} / {name}, {threads} BLAS threads", times[name], times[PEER])
    print("medians at the better number of threads, in seconds:")
    for name, seconds in best.items():
        print(f"  {name}: {seconds:.3f}")
    for name, fitted in ended.items():
        yard = f"{PLAIN}, {fitted.model.encoding.width} features"
        subgroups = 0 if fitted.subgroups is None else len(fitted.subgroups.agreed[1])
        print(
            f"{name}: {fitted.outcome} in {fitted.rounds} rounds, {subgroups or 'no'} subgroups, "
            f"{fitted.bytes_per_round:,} bytes a round; {best[name] / best[yard]:.2f} of {yard}"
            + (f"; {PEER} {best[PEER] / best[name]:.2f} of it" if PEER in best else "")
        )


if __name__ == "__main__":
    main()
