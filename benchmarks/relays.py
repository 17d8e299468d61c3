"""A tree of relays beside the flat federation: what the server gets and does per round as clients grow.

python benchmarks/relays.py [--fan 10] [--min-share 100] [--max-rows 10000]
"""

import argparse
import time
from typing import Any

from threadpoolctl import threadpool_limits

from agnosticfair.federation import fit, in_process
from agnosticfair.methods import method
from agnosticfair.protocol.engines import Engine
from agnosticfair.protocol.engines.relay import tree
from agnosticfair_research.datasets import dataset, load_dataset
from agnosticfair_research.splits import iid

SOURCE = dataset("adult")
CHOSEN = method("fairfl", max_rounds=3)


class Timed:
    """An engine that knows how long its answers took, and how many there were."""

    def __init__(self, inner: Engine) -> None:
        self.inner, self.seconds, self.answers = inner, 0.0, 0

    def clients(self) -> tuple[str, ...]:
        return self.inner.clients()

    def exchange(self, step: str, payload: Any, keys: Any, deadline: float) -> Any:
        begin = time.perf_counter()
        answers = self.inner.exchange(step, payload, keys, deadline)
        self.seconds += time.perf_counter() - begin
        self.answers += len(answers) if step == "sums" else 0
        return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fan", type=int, default=10)
    parser.add_argument("--min-share", type=int, default=100)
    parser.add_argument("--max-rows", type=int, default=10_000)
    request = parser.parse_args()
    table = load_dataset("adult")
    print(
        "| clients | way | answers per round | server's share of a round, ms | clients' share, ms | same bits |"
    )
    print("|---:|---|---:|---:|---:|---|")
    for count in (c for c in (100, 1000, 10_000) if request.min_share <= c <= request.max_rows):
        subgroups, bits = iid(table, count, 0).train, {}
        leaves = {key: in_process({key: rows}) for key, rows in subgroups.items()}
        for way, engine in (("flat", in_process(subgroups)), ("tree", tree(leaves, request.fan))):
            timed = Timed(engine)
            with threadpool_limits(1):
                begin = time.perf_counter()
                fitted = fit(
                    timed,
                    CHOSEN,
                    sensitive_features=SOURCE.sensitive_features,
                    positive=SOURCE.positive,
                )
                total = time.perf_counter() - begin
            bits[way] = fitted.model.w.tobytes()
            rounds = fitted.rounds
            numbers = [timed.answers / rounds, (total - timed.seconds) / rounds * 1e3]
            numbers.append(timed.seconds / rounds * 1e3)
            same = "yes" if len({*bits.values()}) == 1 else "no"
            cells = " | ".join(f"{number:,.0f}" for number in numbers)
            print(f"| {len(subgroups):,} | {way} | {cells} | {same} |", flush=True)


if __name__ == "__main__":
    main()
