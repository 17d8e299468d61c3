"""Relays under masks beside the plain, flat federation: the same bits, and what every part does a round.

python benchmarks/relays.py [--relays 100] [--sites 100]
"""

import argparse
import resource
import time
from typing import Any

from threadpoolctl import threadpool_limits

from agnosticfair.federation import fit, in_process
from agnosticfair.methods import method
from agnosticfair.protocol.engines.relay import Relay
from agnosticfair.protocol.engines.seam import InProcess
from agnosticfair.protocol.secure.keys import relays
from agnosticfair.site.guard import rehearsed
from agnosticfair_research.datasets import dataset, load_dataset
from agnosticfair_research.splits import iid

SOURCE = dataset("adult")
CHOSEN = method("fairfl", max_rounds=3)


class Timed:
    """Relays that know how long each step's answers took."""

    def __init__(self, inner: Relay) -> None:
        self.inner, self.seconds = inner, dict[str, list[float]]()

    def clients(self) -> tuple[str, ...]:
        return self.inner.clients()

    def exchange(self, step: str, payload: Any, keys: Any, deadline: float) -> Any:
        begin = time.process_time()
        answers = self.inner.exchange(step, payload, keys, deadline)
        self.seconds.setdefault(step, []).append(time.process_time() - begin)
        return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--relays", type=int, default=100)
    parser.add_argument("--sites", type=int, default=100, help="below each relay")
    request = parser.parse_args()
    count = request.relays * request.sites
    rows = iid(load_dataset("adult"), count, 0).train.values()
    tables = {f"s{k % request.sites:03}@r{k // request.sites:03}": t for k, t in enumerate(rows)}
    how = {"sensitive_features": SOURCE.sensitive_features, "positive": SOURCE.positive}
    with threadpool_limits(1):
        flat = fit(tables, CHOSEN, **how)
        begin = time.process_time()
        sites, roster = rehearsed(in_process(tables))
        below = {
            relay: InProcess({site: sites.handlers[site] for site in names})
            for relay, names in relays(roster).items()
        }
        timed = Timed(Relay(below))
        fitted = fit(timed, CHOSEN, secure=roster, **how)
        total = time.process_time() - begin
    same = fitted.model.to_bytes() == flat.model.to_bytes()
    answered = sum(map(sum, timed.seconds.values()))
    print(f"{count:,} sites below {request.relays} relays, masked: same bits as plain: {same}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"processor: {total:.0f} s in all, {total - answered:.1f} s of it the coordinator's; {peak:.1f} GiB"
    )
    for step, seconds in timed.seconds.items():
        each = sum(seconds) / len(seconds) / count
        print(f"  {step}: {len(seconds)} times, {1e3 * each:.2f} ms a site and relay share")


if __name__ == "__main__":
    main()
