"""Private fits of Adult at equal epsilon: the rule against fairfl, on held-out rows.

    python benchmarks/private_rule.py [--epsilons 1,3] [--seeds 0-4]

70 / 30 at random, one site. ``rule, bins``: the schema declares bins, in round numbers that nobody took from the rows.
``overall``: no subgroup is limited. Single values hold 5% of the rows and 100 people of each group.
"""

import argparse
from dataclasses import replace

import numpy as np

from agnosticfair.data.axes import codes_of
from agnosticfair.data.schema import schema_of
from agnosticfair.data.summary import summary_statistics
from agnosticfair.mathematics.basis import constant
from agnosticfair.methods import method
from agnosticfair.privacy.fit import Budget, fit_private, schema_axes
from agnosticfair_research.datasets import dataset, load_dataset

BINS = {
    "age": (20.0, 25.0, 30.0, 35.0, 40.0, 50.0, 60.0),
    "education-num": (8.5, 9.5, 10.5, 12.5),
    "capital-gain": (1.0, 2000.0, 5000.0, 7500.0, 15000.0),
    "capital-loss": (1.0, 1500.0, 1800.0, 2000.0),
    "hours-per-week": (20.0, 35.0, 41.0, 50.0),
}


def halves(table, seed):
    train = np.zeros(len(table), bool)
    train[np.random.default_rng(seed).permutation(len(table))[: int(0.7 * len(table))]] = True
    return table.take(train), table.take(~train)


def measured(model, rows, axes, positive):
    """Accuracy, the difference overall, and the 90th percentile and maximum over single values."""
    d, y = model.predict(rows) > 0, rows.labels(positive) > 0
    codes, found = codes_of(rows, axes), []
    group = next(iter(rows.sensitive_features.values())).codes
    subgroups = [np.ones(len(d), bool)]
    subgroups += [codes[:, a] == v for a, axis in enumerate(axes) for v in range(len(axis.values))]
    for inside in subgroups:
        of = [inside & (group == j) for j in (0, 1)]
        if inside.mean() >= 0.05 and min(subgroup.sum() for subgroup in of) >= 100:
            found.append(abs(d[of[0]].mean() - d[of[1]].mean()))
    return (d == y).mean(), found[0], np.quantile(found[1:], 0.9), max(found[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", default="1,3")
    parser.add_argument("--seeds", default="0-4")
    request = parser.parse_args()
    first, last = map(int, request.seeds.split("-"))
    table, spec = load_dataset("adult"), dataset("adult")
    taus = {
        "fairfl": (0.02, 0.05, 0.1),
        "rule, overall": (0.02, 0.05, 0.1),
        "rule, overall, bins": (0.02, 0.05, 0.1),
        "rule": (0.05, 0.1, 0.15),
        "rule, bins": (0.05, 0.1, 0.15),
    }
    print(
        "| epsilon | method | tau | accuracy | overall | single values, p90 | max |\n"
        + "|---" * 7
        + "|"
    )
    for epsilon in map(float, request.epsilons.split(",")):
        for name, every in taus.items():
            for tau in every:
                found = []
                for seed in range(first, last + 1):
                    train, test = halves(table, seed)
                    plain = schema_of(summary_statistics(train, "all"), spec.target)
                    schema = replace(plain, bins=BINS if "bins" in name else {})
                    more = {"basis": constant()} if "overall" in name else {}
                    chosen_method = method(name.split(",")[0], tau=tau, **more)
                    own = {"budget": Budget(epsilon), "schema": schema, "positive": spec.positive}
                    model = fit_private({"a": train}, chosen_method, **own).model
                    found.append(measured(model, test, schema_axes(plain), spec.positive))
                mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
                cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error)]
                print(f"| {epsilon:g} | {name} | {tau:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
