"""Membership inference: how well a model's loss tells its training rows from others, with and without privacy.

    python benchmarks/membership.py

A model is fitted to few rows of Adult, where it remembers most, and its loss on these rows is compared with that
on as many others: the area under the curve (0.5 is a guess) and the best advantage of a threshold, both means
over seeds. Read the second digit with care.
"""

from __future__ import annotations

import argparse

import numpy as np
from write_privacy import keep

from agnosticfair.data.schema import schema_of
from agnosticfair.data.summary import summary_statistics
from agnosticfair.federation import fit
from agnosticfair.mathematics.linear import log_loss
from agnosticfair.methods import Network, method
from agnosticfair.privacy.fit import Budget, fit_private
from agnosticfair_research.datasets import load_dataset


def attack(model, members, others) -> tuple[float, float]:
    """Area under the curve and largest advantage of a threshold on the loss."""
    losses = [log_loss(model.decision(t), t.labels(">50K")) for t in (members, others)]
    cuts = np.sort(np.concatenate(losses))
    shares = [np.searchsorted(np.sort(v), cuts, side="right") / len(v) for v in losses]
    area = float(np.trapezoid(shares[0], shares[1]))
    return area, float(np.max(shares[0] - shares[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--keep", action="store_true", help="in benchmarks/privacy.json")
    request, told = parser.parse_args(), []
    table = load_dataset("adult")
    schema = schema_of(summary_statistics(table, "adult"), "income")
    fair = method("fairfl", tau=0.02)
    network = method("fairfl", tau=0.02, network=Network(), max_rounds=60)

    def exact(chosen_method):
        return lambda tables, seed: (
            fit(tables, chosen_method, positive=">50K", seed=seed, schema=schema, secure=True).model
        )

    def private(epsilon):
        return lambda tables, seed: (
            fit_private(tables, fair, budget=Budget(epsilon), schema=schema, positive=">50K").model
        )

    fits = {"fairfl, secure sums": exact(fair), "fairfl, a network": exact(network)}
    fits |= {f"fairfl, epsilon {e:g}": private(e) for e in (9.0, 3.0, 1.0)}
    for name, make in fits.items():
        found = []
        for seed in range(request.seeds):
            order = np.random.default_rng(seed).permutation(len(table))
            members, others = (
                table.take(order[k * request.rows : (k + 1) * request.rows]) for k in (0, 1)
            )
            half = np.arange(request.rows) < request.rows // 2
            model = make({"a": members.take(half), "b": members.take(~half)}, seed)
            found.append(attack(model, members, others))
        (area, advantage), spread = np.mean(found, axis=0), np.std(found, axis=0, ddof=1)
        entry = {"fit": name, "area": area, "area_spread": spread[0], "advantage": advantage}
        told.append(entry)
        print(
            f"{name}: area {area:.3f} +- {spread[0]:.3f}, advantage {advantage:.3f}; {request.seeds} seeds",
            flush=True,
        )
    if request.keep:
        keep("membership", {"rows": request.rows, "seeds": request.seeds, "found": told})


if __name__ == "__main__":
    main()
