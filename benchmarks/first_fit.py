"""What a newcomer gets: the default ``fit`` on six data sets, beside fairlearn's ExponentiatedGradient.

Both are trained on the same 80% of the rows and measured on the rest: accuracy, beside the majority's, and the worst
difference of decisions in any subgroup with rows enough. EG is asked for the default's own tau; it decides by lot,
as its ``predict`` does. *kept*: no less accurate than EG by two points, at no larger a worst difference; else whether
the card, and the terminal, say what the limit costs, or in which subgroup of the training rows it is exceeded. *below*:
less accurate than one answer for everybody, and whether a warning says so.

    python benchmarks/first_fit.py --seeds 0-4 --jobs 16 --data-folder ../shared/data
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from agnosticfair.auditing.subgroups import searched, subgroups_in, table_counts
from agnosticfair.data.axes import axes_of_table
from agnosticfair.data.table import Table
from agnosticfair.federation import fit
from agnosticfair.mathematics.scoring import accuracy, majority_rate
from agnosticfair.methods import method
from agnosticfair.report.card import card
from agnosticfair.report.words import poor
from agnosticfair.threads import parallel
from agnosticfair_research.datasets import DATASETS, dataset, load_dataset
from agnosticfair_research.entrants.entrant import Train
from agnosticfair_research.entrants.fairlearn import exponentiated_gradient
from agnosticfair_research.splits import iid

CLOSE = 0.02
HEAD = (
    "data",
    "seed",
    "majority",
    "ours",
    "EG",
    "ours, worst subgroup",
    "EG, worst subgroup",
    "verdict",
)


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
    test, chosen_method = split.test, method("auto")
    request = {"sensitive_features": source.sensitive_features, "positive": source.positive}
    ours = fit(split.train, chosen_method, seed=seed, **request)
    train = Train(split.train, source.positive, source.sensitive_features, seed)
    decide: Callable = exponentiated_gradient(train, chosen_method.fairness.tau)
    y = test.labels(source.positive).astype(int)
    chance = decide(test)
    by_lot = (np.random.default_rng(seed).random(len(y)) < chance).astype(int)
    decisions = {"ours": ours.model.predict(test).astype(int), "EG": by_lot}
    right = {
        "ours": accuracy(y, decisions["ours"]),
        "EG": float(np.mean(np.where(y, chance, 1 - chance))),
    }
    worst = {k: worst_subgroup(test, source.sensitive_features, y, d) for k, d in decisions.items()}
    says = {point for section in card(ours, split.train, {}) for point in section.points}
    wanted = [ours.costs] if right["ours"] < right["EG"] - CLOSE else []
    wanted += [ours.exceeds] if worst["ours"] > worst["EG"] else []
    said = "card says why" if says.issuperset(wanted) else "NOT SAID"
    verdict = said if wanted else "kept"
    maximum = majority_rate(y)
    if right["ours"] < maximum - 5e-4:
        train_y = np.concatenate([t.labels(source.positive) for t in split.train.values()])
        trained = np.concatenate([ours.model.predict(t) for t in split.train.values()])
        warned = ours.collapsed or poor(
            accuracy(train_y, trained), majority_rate(train_y), float(trained.mean())
        )
        verdict += "; below, warned" if warned else "; BELOW"
    return name, seed, maximum, right["ours"], right["EG"], worst["ours"], worst["EG"], verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0-4", help="first-last")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--data-folder", default=None)
    parser.add_argument("--jobs", type=int, default=1)
    request = parser.parse_args()
    first, last = map(int, request.seeds.split("-"))
    tasks = [*product(request.datasets.split(","), range(first, last + 1))]
    print(f"| {' | '.join(HEAD)} |\n|---|{'---:|' * (len(HEAD) - 2)}---|", flush=True)

    def tell(found: tuple) -> None:
        cells = (f"{v:.4f}" if isinstance(v, float) else str(v) for v in found)
        print(f"| {' | '.join(cells)} |", flush=True)

    parallel(partial(cell, request.data_folder), tasks, request.jobs, tell)


if __name__ == "__main__":
    main()
