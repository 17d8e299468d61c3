"""A round of the local solver at the clients against plain FedAvg of the same network: equal local steps.

Plain is what one would write: batches of the same rows, log loss, torch's SGD with momentum, the same
threads. Ours besides weighs rows by kernels, takes the full gradient and all sums at the round's
start, and corrects the drift.

    python benchmarks/deep_vs_fedavg.py [--repeats 20] [--hidden 32] [--steps 50] [--batch 2048]
"""

import argparse

import torch
from timing import in_turn, say

from agnosticfair import federation, networks
from agnosticfair.client.client import Client
from agnosticfair.client.networks import _key, network_at, prepared_rows
from agnosticfair.client.steps import answer
from agnosticfair.methods import Network, method
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


def plain(client: Client, broadcast, network: Network):
    """A round of FedAvg as a function without arguments."""
    rows = client.prepare(broadcast.task)
    net = network_at(client, broadcast.task, "cpu", broadcast.request.w)
    z, y = net.inputs(rows.X[:, :-1]), torch.tensor(rows.y, dtype=torch.float32)
    module = networks.build(network.name, network.hidden, z.shape[1])
    start = {k: v.clone() for k, v in module.state_dict().items()}

    def run() -> torch.Tensor:
        module.load_state_dict(start)
        optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
        order, first = torch.randperm(len(z)), 0
        for _ in range(network.steps):
            if first + network.batch > len(z):
                order, first = torch.randperm(len(z)), 0
            rows = order[first : first + network.batch]
            first += network.batch
            optimiser.zero_grad()
            d = module(z.index_select(0, rows))[:, 0]
            torch.nn.functional.binary_cross_entropy_with_logits(
                d, y.index_select(0, rows)
            ).backward()
            optimiser.step()
        return torch.nn.utils.parameters_to_vector(module.parameters())

    return run


def turns(client: Client, broadcast, network: Network):
    """A round at one client: plain, and ours with at hand what it has when a round begins."""
    answer(client, "train", broadcast)
    held = client.cached(broadcast.task, prepared_rows)
    before = (_key(broadcast.request.before), held.before[1])

    def ours():
        held.before = before
        return answer(client, "train", broadcast)

    return plain(client, broadcast, network), ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--data-folder", default=None)
    parser.add_argument("--hidden", default="32")
    parser.add_argument("--steps", type=int, default=Network().steps)
    parser.add_argument("--batch", type=int, default=Network().batch)
    parser.add_argument("--repeats", type=int, default=20)
    request = parser.parse_args()
    torch.set_num_threads(1)
    source = dataset(request.dataset)
    tables = shift(load_dataset(request.dataset, request.data_folder), source, 2, 0).train
    hidden = tuple(int(width) for width in request.hidden.split(","))
    network = Network("mlp", hidden, request.steps, request.batch)
    for name in ("fl", "agnosticfair"):
        engine = Recorder(federation.in_process(tables))
        chosen_method = method(name, network=network, max_rounds=4)
        federation.fit(
            engine,
            chosen_method,
            sensitive_features=source.sensitive_features,
            positive=source.positive,
        )
        last = engine.request["train"]
        pairs = [turns(Client(k, t), last, network) for k, t in tables.items()]
        what = f"{request.dataset}, MLP {request.hidden}, {network.steps} steps of {network.batch}"
        times = in_turn(
            *(lambda fs=fs: [f() for f in fs] for fs in zip(*pairs)), request.repeats, 1
        )
        say(f"{what}, all clients: {name} / plain FedAvg", *times)
        largest = max(range(len(pairs)), key=lambda k: len([*tables.values()][k]))
        rows = len([*tables.values()][largest])
        say(f"the largest ({rows} rows) alone", *in_turn(*pairs[largest], request.repeats, 1))


if __name__ == "__main__":
    main()
