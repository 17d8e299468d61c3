"""Accuracy and risk difference under differential privacy: Adult, 70/30, over two sites.

    python benchmarks/private.py --seeds 10 --epsilon 1,3,9
    python benchmarks/private.py --seeds 10 --epsilon 1,3,9 --method rule --tau 0.05

Means over seeds, each a split of its own, with the epsilon that the accountant says was spent. Published at
epsilon 3: 0.775 / 0.006 (Differentially private fair binary classification, 2024), DP-FERMI 0.775 / 0.013
and 0.800 / 0.102. `rule` is over single values: categories, and the bins of age and hours, that hold a
twentieth of the rows. `inf` is `fairfl` without privacy, by the exact solver. With --site-rows whole sites are
hidden: take many (--clients 100).
"""

from __future__ import annotations

import argparse
from math import inf

import numpy as np
from write_privacy import keep

from agnosticfair.data.axes import codes_of
from agnosticfair.data.schema import schema_of
from agnosticfair.data.summary import summary_statistics
from agnosticfair.federation import fit
from agnosticfair.mathematics.subgroups import members
from agnosticfair.methods import method
from agnosticfair.privacy.fit import MIN_SUBGROUP, Budget, fit_private, schema_axes
from agnosticfair_research.datasets import load_dataset
from agnosticfair_research.splits import iid

BINS = {"age": (30.0, 40.0, 50.0), "hours-per-week": (35.0, 41.0)}


def worst_subgroup(rows, decided, schema) -> float:
    """The largest risk difference between men and women in a single value with enough rows of both."""
    axes = schema_axes(schema)
    codes, group = codes_of(rows, axes), rows.sensitive_features["sex"].codes
    found = []
    for a, axis in enumerate(axes):
        for v in range(len(axis.values)):
            inside = members(codes, ((a, v),))
            sides = [decided[inside & (group == j)] for j in (0, 1)]
            if inside.mean() >= MIN_SUBGROUP and min(map(len, sides)) >= 30:
                found.append(abs(sides[0].mean() - sides[1].mean()))
    return max(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epsilon", default="1,3,9")
    parser.add_argument("--method", default="fairfl")
    parser.add_argument("--tau", type=float, default=0.002)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--colluding", type=int, default=1)
    parser.add_argument("--site-rows", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="in benchmarks/privacy.json")
    request = parser.parse_args()
    rows = load_dataset("adult")
    # the columns of Adult are public knowledge: the schema is drawn up once, for all splits
    drawn = schema_of(summary_statistics(rows, "adult"), "income")
    schema = type(drawn)(**{**vars(drawn), "bins": BINS})
    chosen_method = method(request.method, tau=request.tau)
    for epsilon in map(float, request.epsilon.split(",")):
        found = []
        for seed in range(request.first_seed, request.first_seed + request.seeds):
            split = iid(rows, request.clients, seed, 0.7)
            if epsilon == inf:
                fitted = fit(split.train, "fairfl", positive=">50K", seed=seed, schema=schema)
                spent, maximum = inf, [np.nan]
            else:
                budget = Budget(epsilon, colluding=request.colluding, max_rows=request.site_rows)
                fitted = fit_private(
                    split.train, chosen_method, budget=budget, schema=schema, positive=">50K"
                )
                spent = fitted.model.privacy["epsilon"]
                maximum = [at_most for *_, at_most in fitted.model.privacy["subgroups"]]
            decided = fitted.model.predict(split.test)
            group = split.test.sensitive_features["sex"].codes
            rates = [decided[group == j].mean() for j in (0, 1)]
            right = (decided == split.test.labels(">50K")).mean()
            worst = worst_subgroup(split.test, decided, schema)
            found.append((right, abs(rates[1] - rates[0]), maximum[0], worst, max(maximum), spent))
        mean, spread = np.mean(found, axis=0), np.std(found, axis=0, ddof=1)
        if request.keep:
            named = ("accuracy", "difference", "overall_at_most", "worst", "at_most", "spent")
            about = {"epsilon": epsilon, "tau": request.tau, "seeds": request.seeds}
            about |= {"first_seed": request.first_seed, "spread": spread.tolist()}
            entry = {**about, **dict(zip(named, mean.tolist(), strict=True))}
            keep(f"{request.method} {epsilon:g} {request.tau:g}", entry)
        print(
            f"{request.method}, epsilon {epsilon:g} (spent {mean[5]:.3f}): accuracy {mean[0]:.4f} +- {spread[0]:.4f}, "
            f"test risk difference {mean[1]:.4f} +- {spread[1]:.4f} (certified on training rows {mean[2]:.4f}), in the "
            f"worst single value {mean[3]:.4f} +- {spread[3]:.4f}"
            + (f" (certified {mean[4]:.4f})" if request.method != "fairfl" else "")
            + f"; {request.seeds} seeds",
            flush=True,
        )


if __name__ == "__main__":
    main()
