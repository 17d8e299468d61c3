"""What a newcomer gets: the default ``fit`` beside the learner's own decisions, and these at every other threshold.

Fitted on 80% of the rows, measured on the rest: accuracy, and the worst difference of decisions in any subgroup with
rows enough. *keeps*: no subgroup of the learner's own decisions differs by more than tau, and the fit keeps them.
*threshold*: of one threshold for everybody, the highest accuracy at no larger worst difference than the fit's; a fit
is *beaten* where that is more accurate than it is.

    python benchmarks/first_fit.py --seeds 0-2 --jobs 2 --data-folder ../shared/data
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import product

import numpy as np

from agnosticfair.auditing.subgroups import searched, subgroups_in, table_counts
from agnosticfair.data.axes import axes_of_table
from agnosticfair.data.table import Table
from agnosticfair.federation import fit
from agnosticfair.mathematics.scoring import accuracy, majority_rate
from agnosticfair.methods import method
from agnosticfair.threads import parallel
from agnosticfair_research.datasets import DATASETS, dataset, load_dataset
from agnosticfair_research.splits import iid

THRESHOLDS = np.linspace(0.02, 0.98, 49)
HEAD = ("data", "seed", "majority", "learner", "worst", "fit", "worst", "threshold", "verdict")


def worst_subgroup(table: Table, name: str, y: np.ndarray, decided: np.ndarray) -> float:
    """The largest difference of decisions in a subgroup of these rows that is estimable."""
    request = subgroups_in(method("auto").fairness.basis)
    axes, s = axes_of_table(table, request.columns, request.bins), table.column(name)
    cells = (s.codes * 2 + y) * 2 + decided
    counts = table_counts(table, axes, cells, len(s.categories))
    return searched(axes, request, counts).worst("demographic_parity")[0]


def cell(folder: str | None, task: tuple[str, int]) -> tuple:
    """One data set and seed."""
    name, seed = task
    source = dataset(name)
    split = iid(load_dataset(name, folder), 2, seed)
    test, sensitive_feature = split.test, source.sensitive_features
    about = {"sensitive_features": sensitive_feature, "positive": source.positive}
    fitted = fit(split.train, method("auto"), seed=seed, **about)
    y = test.labels(source.positive).astype(int)

    def measured(decisions: np.ndarray) -> tuple[float, float]:
        decided = decisions.astype(int)
        return accuracy(y, decided), worst_subgroup(test, sensitive_feature, y, decided)

    p = fitted.model.probabilities(test)
    learner, ours = measured(p > 0.5), measured(fitted.model.predict(test))
    moved = [measured(p > threshold) for threshold in THRESHOLDS]
    threshold = max((right for right, worst in moved if worst <= ours[1]), default=np.nan)
    verdict = "beaten" if threshold > ours[0] else "better"
    verdict = "keeps" if fitted.optimum is not None and fitted.optimum.unchanged else verdict
    return name, seed, majority_rate(y), *learner, *ours, float(threshold), verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0-2", help="first-last")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--data-folder", default=None)
    parser.add_argument("--jobs", type=int, default=1)
    request = parser.parse_args()
    first, last = map(int, request.seeds.split("-"))
    tasks = [*product(request.datasets.split(","), range(first, last + 1))]
    print(f"| {' | '.join(HEAD)} |\n|---|{'---:|' * (len(HEAD) - 2)}---|", flush=True)

    def tell(line: tuple) -> None:
        cells = (f"{v:.3f}" if isinstance(v, float) else str(v) for v in line)
        print(f"| {' | '.join(cells)} |", flush=True)

    parallel(partial(cell, request.data_folder), tasks, request.jobs, tell)


if __name__ == "__main__":
    main()
