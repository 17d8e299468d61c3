"""The named set on the paper's shift: accuracy against differences in parts of one, two and three values, and tilts.

Trains on the shifted split, tests on deployments of at least 400 test rows with 5% of each group: single values of the
features (bands of numbers at the training rows' quartiles), pairs, 150 triples, values of columns that are no features,
and 40 Gaussian tilts. Rivals: ``fairfl``, and the sceptic's ``fairfl`` whose threshold is moved until it is as accurate
as the fit it is compared with; and the Gaussian set.

    python benchmarks/named_parts.py --seeds 0-2 --jobs 2 --out named_parts.jsonl [--rows FOLDER] [--more interactions]

Fits that the file has are not done again. Needs numpy, scipy and clarabel; pyarrow without --rows (see rows.py).
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path

import numpy as np
from rows import load

from agnosticfair.data.axes import axes_of, codes_of, histogram
from agnosticfair.data.census import encoding_of, take_census
from agnosticfair.data.datasets import dataset
from agnosticfair.data.encoding import encode
from agnosticfair.data.splits import shift
from agnosticfair.data.table import Table, concatenate
from agnosticfair.federation import fit
from agnosticfair.mathematics.basis import gaussian_kernel
from agnosticfair.mathematics.parts import members, named_parts, sizes_of, triples
from agnosticfair.methods import method

TAUS = (0.15, 0.12, 0.1, 0.08, 0.065, 0.05, 0.035)
RECIPES = {
    "fairfl": ("fairfl", {"tau": 0.02}),
    **{f"named, tau {t:g}": ("agnosticfair-named", {"tau": t}) for t in TAUS},
    **{f"gaussian, tau {t:g}": ("agnosticfair", {"tau": t}) for t in (0.05, 0.11)},
}
PRODUCTS = {"products": 0.05, "ridge": 1e-4}
MORE = {
    "products": {
        f"named with products, tau {t:g}": ("agnosticfair-named", {"tau": t, **PRODUCTS})
        for t in TAUS
    },
    "interactions": {
        f"named with interactions, tau {t:g}": (
            "agnosticfair-named",
            {"tau": t, "interactions": 32},
        )
        for t in TAUS
    },
    "mlp": {
        f"named, mlp, tau {t:g}": ("agnosticfair-named", {"tau": t, "network": "mlp"}) for t in TAUS
    },
}
LEAST_ROWS, LEAST_SHARE, TRIPLES, TILTS = 400, 0.05, 150, 40


def suite(train: Table, test: Table, s: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Weights (k, n) over the test rows, of every kind of deployment."""
    census = take_census(train, "the rows")
    counts = {k: histogram(train.numeric[k], *limits) for k, limits in census.numeric.items()}
    axes = axes_of(census, counts)
    codes, rng = codes_of(test, axes), np.random.default_rng(seed + 1000)

    def kept(masks: list[np.ndarray]) -> list[np.ndarray]:
        shares = [np.bincount(s[m], minlength=2) / max(m.sum(), 1) for m in masks]
        good = [
            m.sum() >= LEAST_ROWS and p.min() >= LEAST_SHARE
            for m, p in zip(masks, shares, strict=True)
        ]
        return [m for m, g in zip(masks, good, strict=True) if g]

    parts = named_parts(codes, sizes_of(axes), LEAST_ROWS / len(test))
    deeper = triples(parts)
    deeper = [deeper[i] for i in rng.permutation(len(deeper))[: 20 * TRIPLES]]
    other = [c.codes == v for _, c in sorted(test.other.items()) for v in range(len(c.categories))]
    X = encode(encoding_of(census), test)
    tilts = gaussian_kernel(X, X[rng.choice(len(X), TILTS, replace=False)], 1.0).T
    found = {
        "single values": kept([members(codes, p) for p in parts if len(p) == 1]),
        "pairs": kept([members(codes, p) for p in parts if len(p) == 2]),
        "triples": kept([members(codes, p) for p in deeper])[:TRIPLES],
        "other columns": kept(other),
        "tilts": tilts,
    }
    return {kind: np.array(weights, float) for kind, weights in found.items()}


def measured(decided: np.ndarray, y: np.ndarray, s: np.ndarray, kinds: dict) -> dict:
    """Accuracy, difference among all, and mean, p90 and max of the differences of every kind."""
    d = decided.astype(float)
    about = {
        "accuracy": float((decided == y).mean()),
        "difference": float(abs(d[s == 1].mean() - d[s == 0].mean())),
        "positive_rate": float(d.mean()),
    }
    for kind, W in kinds.items():
        rates = [W[:, s == g] @ d[s == g] / W[:, s == g].sum(axis=1) for g in (0, 1)]
        r = np.abs(rates[1] - rates[0])
        about[kind] = [float(r.mean()), float(np.quantile(r, 0.9)), float(r.max())]
    return about


def moved(scores: np.ndarray, y: np.ndarray, accuracy: float) -> np.ndarray:
    """Decisions by the threshold that is as accurate, with as few positives as that needs."""
    order = np.argsort(-scores)
    right = np.concatenate([[0], np.cumsum(np.where(y[order], 1, -1))]) + (~y).sum()
    near = np.flatnonzero(right / len(y) >= accuracy)
    count = int(near[0]) if len(near) else int(right.argmax())
    decided = np.zeros(len(y), bool)
    decided[order[:count]] = True
    return decided


def run(asked: dict) -> list[dict]:
    """All recipes on one data set and seed."""
    source = dataset(asked["dataset"])
    split = shift(load(asked["dataset"], asked["rows"], asked["sources"]), source, 2, asked["seed"])
    column, test = source.sensitive_features, split.test
    y, s = test.labels(source.positive) > 0, test.sensitive_features[column].codes
    kinds = suite(concatenate(list(split.train.values())), test, s, asked["seed"])
    found, plain = [], None
    every = RECIPES | {k: v for more in asked["more"] for k, v in MORE[more].items()}
    for name, (recipe, changes) in every.items():
        about = {"positive": source.positive, "sensitive_features": column}
        fitted = fit(split.train, method(recipe, **changes), **about)
        scores = fitted.model.decision(test)
        plain = scores if name == "fairfl" else plain
        entry = {"dataset": asked["dataset"], "seed": asked["seed"], "recipe": name}
        ended = {"outcome": fitted.outcome, "rounds": fitted.rounds, "seconds": fitted.seconds}
        ended |= {"worst part": fitted.worst_difference, "bytes": fitted.bytes_per_round}
        found.append(entry | ended | measured(scores > 0, y, s, kinds))
        if plain is not None and name != "fairfl":
            rival = moved(plain, y, found[-1]["accuracy"])
            found.append(
                entry | {"recipe": f"fairfl moved to {name}"} | measured(rival, y, s, kinds)
            )
    return found


def summary(found: list[dict]) -> None:
    """Means over seeds: accuracy / difference, then mean / p90 / max of every kind."""
    kinds = ("single values", "pairs", "triples", "other columns", "tilts")
    for name in sorted({e["dataset"] for e in found}):
        seeds = sorted({e["seed"] for e in found if e["dataset"] == name})
        print(f"{name}, seeds {seeds}: accuracy / difference | " + " | ".join(kinds))
        for recipe in dict.fromkeys(e["recipe"] for e in found):
            own = [e for e in found if (e["dataset"], e["recipe"]) == (name, recipe)]
            if own:
                ends = [np.mean([e[k] for e in own]) for k in ("accuracy", "difference")]
                cells = [np.mean([e[kind] for e in own], axis=0) for kind in kinds]
                shown = " | ".join("/".join(f"{v:.3f}" for v in cell) for cell in cells)
                print(f"  {recipe}: {ends[0]:.4f} / {ends[1]:.3f} | {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--datasets", default="adult,dutch")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rows", default=None, help="folder that rows.py wrote")
    parser.add_argument("--data-folder", default=None, help="holds a folder for each data set")
    parser.add_argument("--more", default="", help=f"of {', '.join(MORE)}, with commas between")
    parser.add_argument("--out", default="named_parts.jsonl")
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("-")
    path = Path(asked.out)
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(e["dataset"], e["seed"]) for e in found}
    jobs = [
        {
            "dataset": name,
            "seed": seed,
            "rows": asked.rows,
            "sources": asked.data_folder,
            "more": [more for more in asked.more.split(",") if more],
        }
        for name, seed in product(
            asked.datasets.split(","), range(int(first), int(last or first) + 1)
        )
        if (name, seed) not in done
    ]
    with ProcessPoolExecutor(asked.jobs) as pool, path.open("a") as file:
        for future in as_completed([pool.submit(run, job) for job in jobs]):
            for entry in future.result():
                found.append(entry)
                file.write(json.dumps(entry) + "\n")
            file.flush()
    summary(found)


if __name__ == "__main__":
    main()
