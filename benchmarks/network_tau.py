"""How a network's tau is chosen: on training rows alone, by cross-fitting.

Every training row gets the decision of a network that did not see it (4 folds, of each client's rows). Of
these rows sub-populations and tilts are made, as the test rows' deployments are, with the clients'
shares as they are, equal, and reversed: nobody knows how clients mix where the network will decide. The rule:
the highest accuracy (equal shares) whose mean and largest risk difference are under the limits in all three.

    python benchmarks/network_tau.py [--taus 0.08,0.09,0.1,0.11,0.12,0.13] [--seeds 5] [--jobs 2]
"""

import argparse
from dataclasses import dataclass

import numpy as np
import torch

from agnosticfair.data.summary import encoding_of, merge, summary_statistics
from agnosticfair.data.table import concatenate
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair_research import deployments
from agnosticfair_research.datasets import dataset
from agnosticfair_research.pool import run_cells
from agnosticfair_research.splits import split_of

FOLDS, MIN_ROWS, MEAN, MAX = 4, 200, 0.035, 0.22
MIXES = ("own", "equal", "reversed")


@dataclass(frozen=True)
class Task:
    dataset: str
    folder: str | None
    seed: int
    tau: float


def cross_fitted(task: Task) -> dict:
    """Mean and largest risk difference and accuracy, by mix, of the decisions on unseen training rows."""
    torch.set_num_threads(1)
    source, train = (
        dataset(task.dataset),
        split_of(task.dataset, "shift", 2, task.seed, task.folder).train,
    )
    sensitive_feature, chosen_method = (
        source.sensitive_features,
        method("agnosticfair", network="mlp", tau=task.tau),
    )
    fold = {
        key: np.random.default_rng([1000 + task.seed, k]).permutation(len(table)) % FOLDS
        for k, (key, table) in enumerate(train.items())
    }
    p = {key: np.zeros(len(table)) for key, table in train.items()}
    for k in range(FOLDS):
        seen = {key: table.take(fold[key] != k) for key, table in train.items()}
        model = fit(
            seen,
            chosen_method,
            sensitive_features=sensitive_feature,
            positive=source.positive,
            seed=task.seed,
        ).model
        for key, table in train.items():
            p[key][fold[key] == k] = model.decision(table.take(fold[key] == k)) > 0
    rows, decided = concatenate([*train.values()]), np.concatenate([*p.values()])
    client = np.repeat(np.arange(len(train)), [len(table) for table in train.values()])
    y, s = rows.labels(source.positive), rows.column(sensitive_feature).codes
    encoding = encoding_of(merge({key: summary_statistics(t, who=key) for key, t in train.items()}))
    deployments.MIN_ROWS = MIN_ROWS
    places = deployments.deployments(rows, encoding, task.seed, sensitive_feature)
    share = np.bincount(client) / len(client)
    found = {"seed": task.seed, "tau": task.tau}
    for mix, wanted in zip(MIXES, (share, np.full(len(share), 1 / len(share)), share[::-1])):
        weight, rd = (wanted / share)[client], []
        for place in places:
            w = place.weights * weight
            if w.sum() ** 2 / (w @ w) < MIN_ROWS or deployments._min_share(s, w) < 0.05:
                continue
            rd.append(deployments.measure(y, decided, s, w)["risk_difference"])
        right = float(np.average(decided == y, weights=weight))
        found[mix] = (right, float(np.mean(rd)), float(np.max(rd)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--data-folder", default=None)
    parser.add_argument("--taus", default="0.08,0.09,0.1,0.11,0.12,0.13")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    request = parser.parse_args()
    taus = [float(tau) for tau in request.taus.split(",")]
    tasks = [
        Task(request.dataset, request.data_folder, k, tau)
        for k in range(request.seeds)
        for tau in taus
    ]
    rows = run_cells(cross_fitted, tasks, request.jobs, lambda row: print(row, flush=True))
    best = (0.0, None)
    for tau in taus:
        means = {
            mix: np.mean([row[mix] for row in rows if row["tau"] == tau], axis=0) for mix in MIXES
        }
        told = "; ".join(f"{mix} {a:.4f} / {b:.4f} / {c:.3f}" for mix, (a, b, c) in means.items())
        print(f"tau {tau:g}: accuracy / mean / max, {told}", flush=True)
        if all(b <= MEAN and c <= MAX for _, b, c in means.values()):
            best = max(best, (float(means["equal"][0]), tau))
    print(f"The rule picks tau {best[1]}.")


if __name__ == "__main__":
    main()
