"""What secure sums cost: seconds of a round and bytes of a site, as ratios to the same round without, in one run.

    python benchmarks/secure_cost.py

In process all sites answer one after the other, so that a round's seconds are those of all sites: with many
sites, their masks too. Seconds are of the processor, for others may use the machine. `one site` is what a
site of its own machine would wait for: its answer, alone.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from statistics import median
from time import process_time

from agnosticfair.data.datasets import load_dataset
from agnosticfair.data.splits import iid
from agnosticfair.federation import fit, in_process
from agnosticfair.methods import Network, method
from agnosticfair.protocol.messages import pack
from agnosticfair.protocol.secure.rehearsal import rehearsed


class Timed:
    """An engine that notes how long its sites take to answer, and the bytes of a site."""

    def __init__(self, engine) -> None:
        self.engine, self.seconds, self.size, self.sites = engine, [], [], []

    def clients(self):
        return self.engine.clients()

    def exchange(self, step, payload, keys, deadline):
        begin = process_time()
        answers = self.engine.exchange(step, payload, keys, deadline)
        if step in ("sums", "train", "average"):
            self.seconds.append(process_time() - begin)
            self.size.append(max(len(pack(answer)) for answer in answers.values()))
        return answers


def measure(tables, recipe, secure: bool) -> tuple[float, float, float]:
    """Median seconds of a round, of its answers alone per site, and bytes of a site."""
    engine, roster = (
        (rehearsed(in_process(tables), open_steps=("centres",)))
        if secure
        else (in_process(tables), False)
    )
    timed, ends = Timed(engine), []
    fit(
        timed,
        recipe,
        positive=">50K",
        secure=roster,
        on_round=lambda entry: ends.append(process_time()),
    )
    rounds = [b - a for a, b in pairwise(ends[1:])]
    return median(rounds), median(timed.seconds[2:]) / len(tables), median(timed.size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", default="2,10,100")
    parser.add_argument("--rounds", type=int, default=8)
    asked = parser.parse_args()
    rows = load_dataset("adult")
    for sites in map(int, asked.sites.split(",")):
        for name, network in (
            ("fairfl", None),
            ("agnosticfair", None),
            ("agnosticfair", Network()),
        ):
            recipe = method(
                name, max_rounds=asked.rounds, **({"network": network} if network else {})
            )
            tables = iid(rows, sites).train
            plain, secure = (measure(tables, recipe, with_masks) for with_masks in (False, True))
            ratios = [b / a for a, b in zip(plain, secure, strict=True)]
            print(
                f"{sites} sites, {name}{', a network' if network else ''}: round {plain[0] * 1e3:.0f} ms, with masks "
                f"{ratios[0]:.2f} times that; one site's answer {plain[1] * 1e3:.1f} ms, {ratios[1]:.2f} times; "
                f"bytes {plain[2]:.0f}, {ratios[2]:.3f} times",
                flush=True,
            )


if __name__ == "__main__":
    main()
