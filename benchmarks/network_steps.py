"""Several rounds' work per message: a network's same number of local steps, in fewer and fewer rounds.

python benchmarks/network_steps.py [--seeds 3]
"""

import argparse
import statistics

from agnosticfair.federation import fit
from agnosticfair.methods import Network, method
from agnosticfair_research.datasets import dataset, load_dataset
from agnosticfair_research.splits import shift

STEPS, ROUNDS = 50, 240
LAST = 12
"""Rounds over which the end of a fit is told, for its last ones go up and down."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    request = parser.parse_args()
    print("work per message | rounds | seed | loss | worst difference | accuracy (training rows)")
    for seed in range(request.seeds):
        train = shift(load_dataset("adult"), dataset("adult"), 3, seed).train
        for times in (1, 2, 4, 8):
            network = Network("mlp", steps=STEPS * times)
            chosen = method("agnosticfair", network=network, max_rounds=ROUNDS // times)
            history = fit(train, chosen, seed=seed).history
            ends = {
                name: statistics.fmean(entry[name] for entry in history[-LAST:])
                for name in ("loss", "worst", "accuracy")
            }
            told = " | ".join(f"{value:.4f}" for value in ends.values())
            print(f"{times} | {len(history)} | {seed} | {told}", flush=True)


if __name__ == "__main__":
    main()
