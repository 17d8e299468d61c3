"""What secure sums cost: seconds of a round and bytes of a site, as ratios to the same round without, in one run.

    python benchmarks/secure_cost.py

In process all sites answer one after the other on one machine. A deployment's sites answer at the same time, each on
its own: its round is one site's answer and the coordinator's work, and what the network takes, which is
left out here, so that the ratio is the worst there is. Both are printed. Seconds are of the processor, for others may
use the machine: a round's are the least of all rounds, a site's answer is the median over sites and rounds, and all is
measured some times over, plain and masked by turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from statistics import median
from time import process_time

from write_privacy import keep

from agnosticfair.federation import fit, in_process
from agnosticfair.methods import Network, method
from agnosticfair.protocol.messages import pack
from agnosticfair.site.guard import rehearsed
from agnosticfair_research.datasets import load_dataset
from agnosticfair_research.splits import iid

ROUND = ("sums", "train", "average", "trials")


@dataclass
class Watch:
    """sites: seconds of each answer.  ends: when each round was over.  size: bytes of the last answer."""

    sites: list[float] = field(default_factory=list)
    spent: float = 0.0
    rounds: list[tuple[float, float]] = field(default_factory=list)
    size: int = 0

    def answer(self, handler, step, payload):
        """The handler's answer, timed."""
        begin = process_time()
        found = handler(step, payload)
        took = process_time() - begin
        self.spent += took
        if getattr(payload, "round", 0) > 1:
            self.sites.append(took)
            self.size = max(self.size, len(pack(found)))
        return found

    def end_of_round(self, entry: Mapping) -> None:
        self.rounds.append((process_time(), self.spent))


def measure(tables, method, secure: bool) -> tuple[float, float, float, float]:
    """Least seconds of a round in this process, median of one site's answer, least of the coordinator; bytes."""
    watch, engine, roster = Watch(), in_process(tables), False
    if secure:
        engine, roster = rehearsed(
            engine, consents=("shows_rows", "shares_site_totals", "shares_cluster_means")
        )
    timed = {key: partial(watch.answer, handler) for key, handler in engine.handlers.items()}
    fit(
        replace(engine, handlers=timed),
        method,
        positive=">50K",
        secure=roster,
        on_round=watch.end_of_round,
    )
    passed = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(watch.rounds[1:])]
    whole, coordinator = min(a for a, _ in passed), min(a - b for a, b in passed)
    return whole, median(watch.sites), coordinator, watch.size


def measured(tables, method, repeats: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Plain and masked, by turns and some times over, and of each number the least: others may use the machine."""
    found = [
        [measure(tables, method, with_masks) for with_masks in (False, True)]
        for _ in range(repeats)
    ]
    plain, secure = (tuple(map(min, zip(*runs, strict=True))) for runs in zip(*found, strict=True))
    return plain, secure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", default="2,10,100")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--fits", default="fairfl,agnosticfair,network", help="which of these")
    parser.add_argument("--keep", action="store_true", help="in benchmarks/privacy.json")
    request = parser.parse_args()
    rows = load_dataset("adult")
    known = {"fairfl": ("fairfl", {}), "agnosticfair": ("agnosticfair", {})}
    known |= {"network": ("agnosticfair", {"network": Network()})}
    methods = [known[name] for name in request.fits.split(",")]
    for sites in map(int, request.sites.split(",")):
        tables = iid(rows, sites).train
        for name, settings in methods:
            chosen_method = method(name, max_rounds=request.rounds, **settings)
            plain, secure = measured(tables, chosen_method, request.repeats)
            apart = [found[1] + found[2] for found in (plain, secure)]
            if request.keep:
                pairs = list(zip(plain, secure, strict=True))
                entry = {
                    "sites": sites,
                    "method": name + ", a network" * ("network" in settings),
                    "apart": apart[1] / apart[0],
                }
                entry |= {"site": [1e3 * t for t in pairs[1]], "bytes": secure[3] / plain[3]}
                entry |= {"coordinator": [1e3 * t for t in pairs[2]]}
                entry |= {"together": secure[0] / plain[0]}
                keep(f"cost {sites} {name}{' network' * ('network' in settings)}", entry)
            print(
                f"{sites} sites, {name}{', a network' if 'network' in settings else ''}: a site's answer "
                f"{plain[1] * 1e3:.1f} -> {secure[1] * 1e3:.1f} ms, the coordinator {plain[2] * 1e3:.0f} -> "
                f"{secure[2] * 1e3:.0f} ms; a round of sites apart {apart[1] / apart[0]:.2f} times, on one machine "
                f"{secure[0] / plain[0]:.2f} times; bytes {plain[3]} -> {secure[3]}, {secure[3] / plain[3]:.3f} times",
                flush=True,
            )


if __name__ == "__main__":
    main()
