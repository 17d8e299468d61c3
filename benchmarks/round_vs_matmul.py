"""One round at a client against the matrix products in it that nobody can avoid, bare in numpy.

The products: K^T [l' X], K^T [g' X] for each group, X^T [h X], on the same arrays and with the same
threads; what stands in brackets is made beforehand, so forming it counts against us.

    python benchmarks/round_vs_matmul.py [--repeats 20] [--method agnosticfair]
"""

import argparse

import numpy as np
from timing import in_turn, say

from agnosticfair import federation
from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.client.sums import kernels
from agnosticfair.mathematics.fairness import surrogate_values
from agnosticfair.mathematics.linear import log_loss_derivatives
from agnosticfair.methods import method
from agnosticfair_research.datasets import dataset, load_dataset
from agnosticfair_research.splits import shift


class Recorder:
    """An engine that remembers the last request of each step."""

    def __init__(self, inner):
        self.inner, self.request = inner, {}

    def clients(self):
        return self.inner.clients()

    def exchange(self, step, payload, keys, deadline):
        self.request[step] = payload
        return self.inner.exchange(step, payload, keys, deadline)


def products(client: Client, broadcast):
    """The bare products of this round as a function without arguments."""
    task, request = broadcast.task, broadcast.request
    rows, everything = client.prepare(task), slice(None)
    K_L, K_F = (kernels(client, task, b)(everything) for b in (task.basis, task.fair_basis))
    X, d = rows.X, rows.X @ request.w
    gradient, curve = log_loss_derivatives(d, rows.y)
    _, g_gradient, _ = surrogate_values(request.surrogate, d)
    of_loss, of_fair, of_hessian = (
        X * gradient[:, None],
        X * g_gradient[:, None],
        X * curve[:, None],
    )
    groups = [slice(a, b) for a, b in zip(rows.starts[:-1], rows.starts[1:], strict=True)]

    def bare() -> list[np.ndarray]:
        fair = [K_F[subgroup].T @ of_fair[subgroup] for subgroup in groups]
        return [K_L.T @ of_loss, *fair, X.T @ of_hessian]

    return bare, (len(X), X.shape[1], K_L.shape[1], K_F.shape[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--data-folder", default=None)
    parser.add_argument("--method", default="agnosticfair")
    parser.add_argument("--repeats", type=int, default=20)
    request = parser.parse_args()
    source = dataset(request.dataset)
    (key, table), *_ = shift(
        load_dataset(request.dataset, request.data_folder), source, 1, 0
    ).train.items()
    engine = Recorder(federation.in_process({key: table}))
    chosen = method(request.method, max_rounds=4)
    federation.fit(
        engine, chosen, sensitive_features=source.sensitive_features, positive=source.positive
    )
    client, broadcast = Client(key, table), engine.request["sums"]
    bare, (n, width, loss, fair) = products(client, broadcast)
    what = (
        f"{request.dataset}, {n} rows of {width}, {loss} and {fair} kernels: round / bare products"
    )
    for threads in (1, 2):
        times = in_turn(bare, lambda: answer(client, "sums", broadcast), request.repeats, threads)
        say(f"{what}, {threads} BLAS thread{'s'[: threads > 1]}", *times)


if __name__ == "__main__":
    main()
