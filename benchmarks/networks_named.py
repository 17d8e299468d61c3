"""Networks over named parts and over kernels, beside the linear default at the same accuracy, on the paper's shift.

The deployments are those of ``named_parts.py``. Two measurements of every recipe: ``test``, trained on the shifted
split's training rows and measured on its test rows; and ``held out``, trained on half of every client's training rows
and measured on the other half, by which settings are chosen. Networks are small, so that a GPU waits for its
launches: several processes share it.

    python benchmarks/networks_named.py --seeds 0-2 --jobs 16 --device cuda --out networks_named.jsonl [--rows FOLDER]

Fits that the file has are not done again, and none begins after --seconds. Needs what ``named_parts.py`` needs, and
PyTorch.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatch
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import named_parts
import numpy as np
from rows import load

from agnosticfair.data.datasets import dataset
from agnosticfair.data.splits import shift
from agnosticfair.data.table import Table, concatenate
from agnosticfair.federation import fit, in_process
from agnosticfair.methods import Network, method

KINDS = ("single values", "pairs", "triples", "other columns", "tilts")
NAMED, KERNELS = "agnosticfair-named", "agnosticfair"
EACH = {"spread": None}
MIXTURE = {"spread": None, "each": False, "bound": 3.0}
NETWORKS = {
    **{f"mlp, parts, tau {t:g}": (NAMED, {"tau": t}) for t in (0.1, 0.15, 0.08, 0.12, 0.065)},
    **{f"mlp, kernels, tau {t:g}": (KERNELS, {"tau": t}) for t in (0.11, 0.15, 0.08, 0.2)},
    **{f"mlp, each part, tau {t:g}": (NAMED, {"tau": t, **EACH}) for t in (0.2, 0.12)},
    **{f"mlp, mixtures, tau {t:g}": (NAMED, {"tau": t, **MIXTURE}) for t in (0.2, 0.12)},
}
LINEAR = {f"linear, parts, tau {t:g}": (NAMED, {"tau": t}) for t in named_parts.TAUS}
RIVAL = {"fairfl": ("fairfl", {"tau": 0.02})}
PARTS = ("test", "held out")


def halves(train: dict[str, Table], seed: int) -> tuple[dict[str, Table], Table]:
    """Half of every client's rows, and the other halves together."""
    first, second = {}, []
    for k, (key, table) in enumerate(train.items()):
        chosen = np.random.default_rng([3000 + seed, k]).permutation(len(table)) % 2 == 0
        first[key] = table.take(chosen)
        second.append(table.take(~chosen))
    return first, concatenate(second)


def run(asked: dict) -> dict | None:
    """One recipe on one data set and seed; None where the time is over."""
    if time.time() > asked["until"]:
        return None
    name, seed, share = asked["dataset"], asked["seed"], asked["share"]
    recipe, changes = (NETWORKS | LINEAR | RIVAL)[asked["recipe"]]
    source, rows = dataset(name), load(name, asked["rows"], asked["sources"])
    if share < 1:
        drawn = np.random.default_rng(0).permutation(len(rows))[: int(share * len(rows))]
        rows = rows.take(np.sort(drawn))
        named_parts.LEAST_ROWS = max(1, int(400 * share))
    split = shift(rows, source, 2, seed)
    train, test = dict(split.train), split.test
    if asked["part"] == "held out":
        train, test = halves(train, seed)
    column, network = source.sensitive_features, asked["recipe"] in NETWORKS
    about = {"positive": source.positive, "sensitive_features": column}
    if network:
        changes = changes | {"network": Network(device=asked["device"] or "cpu")}
    engine = in_process(train, device=None if network else asked["device"])
    made = method(recipe, **changes | asked["changes"])
    fitted = fit(engine, made, **about)
    y, s = test.labels(source.positive) > 0, test.sensitive_features[column].codes
    kinds = named_parts.suite(concatenate(list(train.values())), test, s, seed)
    entry = {k: asked[k] for k in ("dataset", "seed", "part", "recipe")}
    entry |= {"outcome": fitted.outcome, "rounds": fitted.rounds, "seconds": fitted.seconds}
    entry |= {"worst part": fitted.worst_difference, "bytes": fitted.bytes_per_round}
    scores = fitted.model.decision(test)
    way = [[round(float(e[k]), 5) for k in ("loss", "worst")] for e in fitted.history]
    entry |= named_parts.measured(scores > 0, y, s, kinds)
    if not network:
        return entry
    rival, about_it = RIVAL["fairfl"]
    plain = fit(train, method(rival, **about_it), **about).model.decision(test)
    entry["moved"] = named_parts.measured(
        named_parts.moved(plain, y, entry["accuracy"]), y, s, kinds
    )
    return entry | {"way": way}


def cells_of(own: list[dict]) -> np.ndarray:
    """Accuracy, difference, and mean, p90 and max of every kind: means over seeds."""
    return np.mean(
        [[e["accuracy"], e["difference"], *(v for k in KINDS for v in e[k])] for e in own], axis=0
    )


def at_accuracy(frontier: list[np.ndarray], accuracy: float) -> np.ndarray | None:
    """What a frontier has at this accuracy, between its two points around it."""
    points = np.array(sorted(frontier, key=lambda v: v[0]))
    if not len(points) or not points[0, 0] <= accuracy <= points[-1, 0]:
        return None
    return np.array([np.interp(accuracy, points[:, 0], v) for v in points.T])


def summary(found: list[dict]) -> None:
    """Means over seeds; each network is followed by the linear frontier at its accuracy, where that reaches so far, and
    by ``fairfl`` with its threshold moved to that accuracy."""
    for name, part in product(sorted({e["dataset"] for e in found}), PARTS):
        own = [e for e in found if (e["dataset"], e["part"]) == (name, part)]
        if not own:
            continue
        print(f"{name}, {part}: accuracy / difference | " + " | ".join(KINDS) + " | outcomes")
        linear = {
            seed: [cells_of([e]) for e in own if e["seed"] == seed and e["recipe"] in LINEAR]
            for seed in {e["seed"] for e in own}
        }
        for recipe in [
            r for r in (*RIVAL, *LINEAR, *NETWORKS) if any(e["recipe"] == r for e in own)
        ]:
            fits = [e for e in own if e["recipe"] == recipe]
            print(f"  {recipe}: {_shown(cells_of(fits))} | {_ended(fits)}")
            if recipe not in NETWORKS:
                continue
            beside = [at_accuracy(linear[e["seed"]], e["accuracy"]) for e in fits]
            if all(v is not None for v in beside):
                print(f"    linear there: {_shown(np.mean(beside, axis=0))}")
            print(f"    fairfl moved: {_shown(cells_of([e['moved'] for e in fits]))}")


def _shown(cells: np.ndarray) -> str:
    kinds = ["/".join(f"{v:.3f}" for v in cells[k : k + 3]) for k in range(2, len(cells), 3)]
    return " | ".join([f"{cells[0]:.4f} / {cells[1]:.3f}", *kinds])


def _ended(fits: list[dict]) -> str:
    return ", ".join(f"{e['outcome']} {e['rounds']} in {e['seconds']:.0f} s" for e in fits)


def jobs_of(asked: argparse.Namespace, found: list[dict]) -> list[dict]:
    """What is still to be done, tests first, networks before linear models."""
    done = {(e["dataset"], e["seed"], e["part"], e["recipe"]) for e in found}
    first, _, last = asked.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    wanted = asked.only.split(";")
    recipes = [r for r in (*NETWORKS, *LINEAR, *RIVAL) if any(fnmatch(r, name) for name in wanted)]
    parts = asked.parts.split(",")
    about = {"rows": asked.rows, "sources": asked.data_folder, "device": asked.device}
    about |= {"share": asked.share, "changes": json.loads(asked.changes)}
    about["until"] = time.time() + asked.seconds
    return [
        {"dataset": name, "seed": seed, "part": part, "recipe": recipe, **about}
        for part, recipe, seed, name in product(parts, recipes, seeds, asked.datasets.split(","))
        if (name, seed, part, recipe) not in done
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--datasets", default="adult,dutch")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--only", default="*", help="recipes by name, with ; between")
    parser.add_argument("--changes", default="{}", help="settings of every recipe, as JSON")
    parser.add_argument("--device", default=None, help="cuda, or nothing for the CPU")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="of the rows")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--rows", default=None, help="folder that rows.py wrote")
    parser.add_argument("--data-folder", default=None, help="holds a folder for each data set")
    parser.add_argument("--out", default="networks_named.jsonl")
    asked = parser.parse_args()
    path = Path(asked.out)
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    with (
        ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool,
        path.open("a", buffering=1) as file,
    ):
        futures = [pool.submit(run, job) for job in jobs_of(asked, found)]
        for future in as_completed(futures):
            if (entry := future.result()) is not None:
                found.append(entry)
                file.write(json.dumps(entry) + "\n")
    summary(found)


if __name__ == "__main__":
    main()
