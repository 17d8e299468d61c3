"""What a newcomer gets: the default ``fit`` beside the learner's own decisions, and these at every other threshold.

Fitted on half of the rows, measured on the rest: accuracy, and the worst difference of decisions in any subgroup with
rows enough. *keeps*: the limit changes none of the learner's decisions. *threshold*: of one threshold for everybody,
the highest accuracy at no larger worst difference than the fit's; a fit is *beaten* where that is more accurate.

    python benchmarks/first_fit.py --seeds 0-4     # adds to benchmarks/first_fit.json what is not there
    python benchmarks/first_fit.py --show          # the table of means
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np

from agnosticfair.auditing.subgroups import searched, subgroups_in, table_counts
from agnosticfair.data.axes import axes_of_table
from agnosticfair.data.table import Table
from agnosticfair.federation import fit
from agnosticfair.mathematics.scoring import accuracy, majority_rate
from agnosticfair.methods import method
from agnosticfair_research.datasets import DATASETS, dataset, load_dataset
from agnosticfair_research.splits import iid

STORE = Path(__file__).with_suffix(".json")
THRESHOLDS = np.linspace(0.02, 0.98, 49)


def worst_subgroup(table: Table, name: str, y: np.ndarray, decided: np.ndarray) -> float:
    """The largest difference of decisions in a subgroup of these rows that is estimable."""
    request = subgroups_in(method("rule").fairness.basis)
    axes, s = axes_of_table(table, request.columns, request.bins), table.column(name)
    strata = (s.codes * 2 + y) * 2 + decided
    counts = table_counts(table, axes, strata, len(s.categories))
    return searched(axes, request, counts).worst("demographic_parity")[0]


def cell(name: str, seed: int) -> dict:
    """One data set and seed."""
    source = dataset(name)
    split = iid(load_dataset(name), 2, seed)
    test, sensitive_feature = split.test, source.sensitive_features
    about = {"sensitive_features": sensitive_feature, "positive": source.positive}
    fitted = fit(split.train, method("rule"), seed=seed, **about)
    y = test.labels(source.positive).astype(int)

    def measured(decisions: np.ndarray) -> tuple[float, float]:
        decided = decisions.astype(int)
        return accuracy(y, decided), worst_subgroup(test, sensitive_feature, y, decided)

    p = fitted.model.probabilities(test)
    learner, ours = measured(p > 0.5), measured(fitted.model.predict(test))
    moved = [measured(p > threshold) for threshold in THRESHOLDS]
    threshold = max((right for right, worst in moved if worst <= ours[1]), default=None)
    unchanged = fitted.optimum is not None and fitted.optimum.unchanged
    verdict = "keeps" if unchanged else "beaten" if (threshold or 0.0) > ours[0] else "better"
    return {
        "data": name, "seed": seed, "majority": majority_rate(y), "learner": learner, "fit": ours,
        "threshold": threshold, "verdict": verdict,
    }  # fmt: skip


def shown(cells: list[dict]) -> str:
    """A line for each data set: means over its seeds."""
    lines = [
        "| data | seeds | constant | learner, worst | default fit, worst | threshold (seeds with one) | better |"
    ]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    for name in dict.fromkeys(c["data"] for c in cells):
        some = [c for c in cells if c["data"] == name]
        numbers = ([c["majority"], *c["learner"], *c["fit"]] for c in some)
        constant, right, worst, ours, our_worst = np.mean(list(numbers), axis=0)
        there = [c["threshold"] for c in some if c["threshold"]]
        threshold = f"{np.mean(there):.3f} ({len(there)})" if there else "none"
        better = sum(c["verdict"] != "beaten" for c in some)
        pairs = f"{right:.3f}, {worst:.3f} | {ours:.3f}, {our_worst:.3f}"
        lines.append(
            f"| {name} | {len(some)} | {constant:.3f} | {pairs} | {threshold} | {better} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0-4", help="first-last")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--show", action="store_true")
    request = parser.parse_args()
    cells = json.loads(STORE.read_text()) if STORE.exists() else []
    first, last = map(int, request.seeds.split("-"))
    for seed, name in product(range(first, last + 1), request.datasets.split(",")):
        if not request.show and (name, seed) not in {(c["data"], c["seed"]) for c in cells}:
            cells.append(cell(name, seed))
            cells.sort(key=lambda c: (list(DATASETS).index(c["data"]), c["seed"]))
            text = ",\n".join(json.dumps(c) for c in cells)
            STORE.write_text(f"[\n{text}\n]\n")
    print(shown(cells))


if __name__ == "__main__":
    main()
