"""Whether a limit that a fit claims is kept on fresh rows, how often none can be claimed, and at what accuracy.

A seed's rows (of the paper's shift, or iid) are cut: 70% go to ``fit_within``, which fits on one half of them and
certifies on the other; 30% are fresh, of the same population. *kept*: on the fresh rows no part that the claim covers
shows more than the limit; *refuted*: some part's exact lower bound, simultaneous over parts, is above it, which the
fresh rows' own noise does not explain. *work*, *cpu*: what the path cost, in single fits of all of the 70%: rounds
times rows, and processor time; *all*: with the certificates on rows held out. Finished cells are read from ``--out``
again.

    python benchmarks/limit.py --seeds 20-29 --jobs 16 --out limit.jsonl
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np

from agnosticfair.auditing.limit import METHOD, Asked, answered, dealt_apart, walked
from agnosticfair.auditing.parts import own_counts
from agnosticfair.auditing.proof import axes_of
from agnosticfair.data.table import concatenate
from agnosticfair.federation import fit
from agnosticfair.mathematics.confidence import differences
from agnosticfair.mathematics.metrics import accuracy
from agnosticfair.mathematics.parts import part_name
from agnosticfair.methods import method
from agnosticfair_research.datasets import dataset, load_dataset
from agnosticfair_research.splits import iid, shift

LIMITS = (0.05, 0.1, 0.15, 0.2)
FRESH = 0.3


def cell(name: str, setting: str, seed: int, folder: str | None) -> list[dict]:
    """All limits of one split."""
    source, table = dataset(name), load_dataset(name, folder)
    split = shift(table, source, 2, seed) if setting == "shift" else iid(table, 2, seed, rate=0.8)
    clients, fresh = {}, []
    for k, (key, rows) in enumerate(split.train.items()):
        out = np.random.default_rng([seed, k]).random(len(rows)) < FRESH
        clients[key] = rows.take(~out)
        fresh.append(rows.take(out))
    new = concatenate(fresh)
    how = {"sensitive_features": (source.sensitive_features,), "seed": seed}
    begin = process_time()
    single = fit(clients, method(METHOD), **how)
    one = process_time() - begin
    fitting, held = dealt_apart(clients, seed)
    half = sum(map(len, fitting.clients.values())) / sum(map(len, clients.values()))
    asked = Asked(0.95, 0.1, None, (source.sensitive_features,))
    found = []
    for limit in LIMITS:
        begin = process_time()
        path = [*walked(asked, fitting, method(METHOD), limit, **how)]
        walk = process_time() - begin
        made, promise = answered(path, limit, asked.confidence, partial(asked.certified, rows=held))
        spent = process_time() - begin
        rounds = sum(candidate.fit.rounds for candidate in path)
        found.append(
            {
                "dataset": name,
                "setting": setting,
                "seed": seed,
                "limit": limit,
                **judged(made, promise, new, split.test, source),
                "fits": len(path),
                "rounds": rounds * half / single.rounds,
                "processor": walk / one,
                "all": spent / one,
            }
        )
    return found


def judged(made, promise, new, test, source) -> dict:
    """What is claimed, and what the fresh rows and the test rows say of it."""
    (certificate,) = promise.certificates.values()
    axes, claimed = axes_of(certificate.sums), {p.name for p in certificate.parts if p.estimable}
    places = [p for p in certificate.sums["parts"] if part_name(axes, p) in claimed]
    s, y, d = (
        new.column(source.sensitive_features),
        new.labels(made.model.positive),
        made.model.predict(new),
    )
    cells = (s.aligned(tuple(certificate.groups)) * 2 + (y > 0)) * 2 + d
    counts = own_counts(new, axes, cells, len(certificate.groups))(
        [tuple(map(tuple, p)) for p in places]
    )
    seen = differences(counts, 0.05 / max(len(places), 1), "demographic_parity")
    worst, refuted = np.nanmax(seen.value, initial=0.0), (seen.low > promise.limit).any()
    return {
        "claimed": promise.kept,
        "upper": promise.smallest,
        "fresh_worst": float(worst),
        "kept": bool(worst <= promise.limit),
        "refuted": bool(refuted),
        "parts": len(claimed),
        "accuracy": accuracy(y, d),
        "positive": float(d.mean()),
        "test_accuracy": accuracy(test.labels(made.model.positive), made.model.predict(test)),
    }


def table_of(rows: list[dict]) -> None:
    print(
        "dataset setting limit  fits  work  cpu  all  claimed  kept of these  refuted  parts  upper  fresh worst"
        "  accuracy  positive"
    )
    for name, setting, limit in sorted({(r["dataset"], r["setting"], r["limit"]) for r in rows}):
        own = [
            r for r in rows if (r["dataset"], r["setting"], r["limit"]) == (name, setting, limit)
        ]
        said = [r for r in own if r["claimed"]]

        def mean(key: str, some=said or own) -> float:
            return float(np.mean([r[key] for r in some]))

        kept = f"{mean('kept'):.2f}" if said else "-"
        refuted = f"{mean('refuted'):.2f}" if said else "-"
        print(
            f"{name:8}{setting:8}{limit:5.2f}{mean('fits', own):6.1f}{mean('rounds', own):6.1f}"
            f"{mean('processor', own):5.1f}{mean('all', own):5.1f}{len(said):6}/{len(own):<3}{kept:>13}{refuted:>9}"
            f"{mean('parts'):7.0f}{mean('upper'):7.3f}{mean('fresh_worst'):13.3f}{mean('accuracy'):10.4f}{mean('positive'):10.3f}"
        )


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--datasets", default="adult,dutch")
    asked.add_argument("--settings", default="shift,iid")
    asked.add_argument("--seeds", default="0-2", help="first-last")
    asked.add_argument("--jobs", type=int, default=2)
    asked.add_argument("--data", default=None, help="folder of data that is not shipped")
    asked.add_argument("--out", type=Path, default=Path("limit.jsonl"))
    given = asked.parse_args()
    first, last = (int(s) for s in given.seeds.split("-"))
    rows = (
        [json.loads(line) for line in given.out.read_text().splitlines()]
        if given.out.exists()
        else []
    )
    done = {(r["dataset"], r["setting"], r["seed"]) for r in rows}
    cells = [
        c
        for c in product(
            given.datasets.split(","), given.settings.split(","), range(first, last + 1)
        )
        if c not in done
    ]
    with ProcessPoolExecutor(given.jobs) as pool:
        pending = [pool.submit(cell, *c, given.data) for c in cells]
        for future in as_completed(pending):
            more = future.result()
            rows += more
            with given.out.open("a") as file:
                file.writelines(json.dumps(r) + "\n" for r in more)
            print(
                f"{len({(r['dataset'], r['setting'], r['seed']) for r in rows})} cells done",
                flush=True,
            )
    table_of(rows)


if __name__ == "__main__":
    main()
