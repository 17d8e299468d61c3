"""Whether a limit that a fit claims is kept on fresh rows, how often none can be claimed, and at what accuracy.

A seed's rows (of the paper's shift, or iid) are cut: 70% go to ``fit_within``, which fits on one half of them and
certifies on the other; 30% are fresh, of the same population. *kept*: on the fresh rows no subgroup that the claim
covers shows more than the limit; *refuted*: some subgroup's exact lower bound, simultaneous over subgroups, is above
it, which the fresh rows' own noise does not explain. *work*, *cpu*: what the path cost, in single fits of all of the
70%: rounds times rows, and processor time; *all*: with the certificates on rows held out. Finished cells are read from
``--out`` again.

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

from agnosticfair.auditing.limit import METHOD, LimitAudit, answered, split_halves, walked
from agnosticfair.auditing.subgroups import CountedSubgroups, table_counts
from agnosticfair.data.table import concatenate
from agnosticfair.federation import fit
from agnosticfair.mathematics.confidence import differences
from agnosticfair.mathematics.scoring import accuracy
from agnosticfair.mathematics.subgroups import subgroup_name
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
    fitting, held = split_halves(clients, seed)
    half = sum(map(len, fitting.clients.values())) / sum(map(len, clients.values()))
    request = LimitAudit(0.95, 0.1, None, (source.sensitive_features,))
    found = []
    for limit in LIMITS:
        begin = process_time()
        path = [*walked(request, fitting, method(METHOD), limit, **how)]
        walk = process_time() - begin
        made, certified_limit = answered(
            path, limit, request.confidence, partial(request.certified, rows=held)
        )
        spent = process_time() - begin
        rounds = sum(candidate.fit.rounds for candidate in path)
        found.append(
            {
                "dataset": name,
                "setting": setting,
                "seed": seed,
                "limit": limit,
                **judged(made, certified_limit, new, split.test, source),
                "fits": len(path),
                "rounds": rounds * half / single.rounds,
                "processor": walk / one,
                "all": spent / one,
            }
        )
    return found


def judged(made, certified_limit, new, test, source) -> dict:
    """What is claimed, and what the fresh rows and the test rows say of it."""
    (certificate,) = certified_limit.certificates.values()
    axes, claimed = (
        CountedSubgroups.from_json(certificate.sums).axes,
        {p.name for p in certificate.subgroups if p.estimable},
    )
    places = [p for p in certificate.sums["subgroups"] if subgroup_name(axes, p) in claimed]
    s, y, d = (
        new.column(source.sensitive_features),
        new.labels(made.model.positive),
        made.model.predict(new),
    )
    cells = (s.aligned(tuple(certificate.groups)) * 2 + (y > 0)) * 2 + d
    counts = table_counts(new, axes, cells, len(certificate.groups))(
        [tuple(map(tuple, p)) for p in places]
    )
    seen = differences(counts, 0.05 / max(len(places), 1), "demographic_parity")
    worst, refuted = np.nanmax(seen.value, initial=0.0), (seen.low > certified_limit.limit).any()
    return {
        "claimed": certified_limit.holds,
        "upper": certified_limit.smallest,
        "fresh_worst": float(worst),
        "kept": bool(worst <= certified_limit.limit),
        "refuted": bool(refuted),
        "subgroups": len(claimed),
        "accuracy": accuracy(y, d),
        "positive": float(d.mean()),
        "test_accuracy": accuracy(test.labels(made.model.positive), made.model.predict(test)),
    }


def table_of(rows: list[dict]) -> None:
    print(
        "dataset setting limit  fits  work  cpu  all  claimed  kept of these  refuted  subgroups  upper  fresh worst"
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
            f"{mean('subgroups'):7.0f}{mean('upper'):7.3f}{mean('fresh_worst'):13.3f}{mean('accuracy'):10.4f}{mean('positive'):10.3f}"
        )


def main() -> None:
    request = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    request.add_argument("--datasets", default="adult,dutch")
    request.add_argument("--settings", default="shift,iid")
    request.add_argument("--seeds", default="0-2", help="first-last")
    request.add_argument("--jobs", type=int, default=2)
    request.add_argument("--data", default=None, help="folder of data that is not shipped")
    request.add_argument("--out", type=Path, default=Path("limit.jsonl"))
    arguments = request.parse_args()
    first, last = (int(s) for s in arguments.seeds.split("-"))
    rows = (
        [json.loads(line) for line in arguments.out.read_text().splitlines()]
        if arguments.out.exists()
        else []
    )
    done = {(r["dataset"], r["setting"], r["seed"]) for r in rows}
    cells = [
        c
        for c in product(
            arguments.datasets.split(","), arguments.settings.split(","), range(first, last + 1)
        )
        if c not in done
    ]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        pending = [pool.submit(cell, *c, arguments.data) for c in cells]
        for future in as_completed(pending):
            more = future.result()
            rows += more
            with arguments.out.open("a") as file:
                file.writelines(json.dumps(r) + "\n" for r in more)
            print(
                f"{len({(r['dataset'], r['setting'], r['seed']) for r in rows})} cells done",
                flush=True,
            )
    table_of(rows)


if __name__ == "__main__":
    main()
