"""A linear nn.Module trained by the local solver, with its usual steps and rounds, against the exact solver.

Both solve the same problem: the sets, tau and surrogate of the linear method; ridge 1e-7, because the
network's is on scaled inputs. The merit adds what the constraint is missed by, at the exact solver's price.

    python benchmarks/local_vs_exact.py [--seeds 5]
"""

import argparse
from dataclasses import replace

from agnosticfair.federation import fit
from agnosticfair.methods import Network, method
from agnosticfair.server.saddle import NU
from agnosticfair_research.datasets import dataset, load_dataset
from agnosticfair_research.splits import shift


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--data-folder", default=None)
    parser.add_argument("--seeds", type=int, default=5)
    request = parser.parse_args()
    source = dataset(request.dataset)
    how = {"sensitive_features": source.sensitive_features, "positive": source.positive}
    for seed in range(request.seeds):
        tables = shift(load_dataset(request.dataset, request.data_folder), source, 2, seed).train
        method_here = method("agnosticfair", tau=source.tau, ridge=1e-7)
        exact = fit(tables, method_here, seed=seed, **how)
        chosen_method = method(method_here, network=Network("linear", decisions=False))
        chosen_method = replace(
            chosen_method,
            basis=method_here.basis,
            bound=method_here.bound,
            fairness=method_here.fairness,
            tolerance=1e-4,
        )
        local = fit(tables, chosen_method, seed=seed, **how)
        best = min(local.history, key=lambda entry: entry["merit"])
        price, loss = NU * max(0.0, best["worst"] - source.tau), exact.history[-1]["loss"]
        print(
            f"{request.dataset}, seed {seed}: objective {best['loss'] / loss:.4f} times the exact one, merit "
            f"{(best['loss'] + price) / loss:.4f}; worst difference {best['worst']:.4f}, tau {source.tau}; "
            f"{local.rounds} rounds, {local.outcome}",
            flush=True,
        )


if __name__ == "__main__":
    main()
