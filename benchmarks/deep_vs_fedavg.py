"""A round of the local solver at a client against plain FedAvg of the same network: equal local steps.

Plain is what one would write: batches of the same rows, log loss, torch's SGD with momentum, the same
threads. Ours besides weighs rows by kernels, takes the full gradient and all sums at the round's
start, and corrects the drift.

    python benchmarks/deep_vs_fedavg.py [--repeats 20] [--hidden 32] [--steps 30] [--batch 2048]
"""

import argparse

import torch
from timing import in_turn, say

from agnosticfair import federation
from agnosticfair.client import Client, answer
from agnosticfair.data.datasets import dataset, load
from agnosticfair.data.splits import shift
from agnosticfair.deep import networks
from agnosticfair.deep.steps import _key
from agnosticfair.methods import Network, method


class Recorder:
    """An engine that remembers the questions of each step."""

    def __init__(self, inner):
        self.inner, self.asked = inner, {}

    def clients(self):
        return self.inner.clients()

    def exchange(self, step, payload, deadline=None, only=None):
        self.asked[step] = payload
        return self.inner.exchange(step, payload, deadline, only)


def plain(client: Client, broadcast, network: Network):
    """A round of FedAvg as a function without arguments."""
    rows = client.prepare(broadcast.task)
    net = networks.flat(
        broadcast.task.settings["network"], rows.X.shape[1] - 1, broadcast.arrays["w"]
    )
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
            d = module(z[rows])[:, 0]
            torch.nn.functional.binary_cross_entropy_with_logits(d, y[rows]).backward()
            optimiser.step()
        return torch.nn.utils.parameters_to_vector(module.parameters())

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--data-folder", default=None)
    parser.add_argument("--hidden", default="32")
    parser.add_argument("--steps", type=int, default=Network().steps)
    parser.add_argument("--batch", type=int, default=Network().batch)
    parser.add_argument("--repeats", type=int, default=20)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    source = dataset(asked.dataset)
    (key, table), *_ = shift(load(asked.dataset, asked.data_folder), source, 1, 0).train.items()
    hidden = tuple(int(width) for width in asked.hidden.split(","))
    network = Network("mlp", hidden, asked.steps, asked.batch)
    for name in ("fl", "agnosticfair"):
        engine = Recorder(federation.in_process({key: table}))
        made = method(name, network=network, rounds=4)
        federation.fit(engine, made, attribute=source.sensitive, positive=source.positive)
        client, broadcast = Client(key, table), engine.asked["train"]
        answer(client, "train", broadcast)
        what = f"{asked.dataset}, {len(table)} rows, MLP {asked.hidden}, {network.steps} steps of {network.batch}"
        # what a client has at hand when a round begins: its gradient of the round before
        before = (_key(broadcast.arrays, "_before"), client.deep["before"][1])

        def ours(client=client, broadcast=broadcast, before=before):
            client.deep["before"] = before
            return answer(client, "train", broadcast)

        times = in_turn(plain(client, broadcast, network), ours, asked.repeats, 1)
        say(f"{what}: {name} / plain FedAvg", *times)


if __name__ == "__main__":
    main()
