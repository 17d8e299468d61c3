"""Whether what is asked is what is decided: every data set, metric and tau, 70/30, over two clients.

For each fit: whether it converged, in how many rounds, the worst difference of the training rows' decisions over the
method's set, and accuracy and difference on the test rows. ``bounded_group_loss`` bounds a mean log loss and no
difference: its limit is the lowest that the method reaches plus tau. With ``--peers`` fairlearn's
ExponentiatedGradient is fitted to the same rows, and ``fairfl`` to the difference that it ended with.

    python benchmarks/decisions.py --seeds 0-4 --jobs 2 --out decisions.jsonl [--peers]

Fits that the file has are not done again. --peers needs scikit-learn and fairlearn.
"""

import argparse
import json
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from itertools import product
from pathlib import Path
from time import perf_counter

import numpy as np

from agnosticfair.data.encoding import encode
from agnosticfair.data.summary import encoding_of, summary_statistics
from agnosticfair.data.table import Table, concatenate
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair_research.datasets import dataset, load_dataset

DATASETS = ("adult", "dutch", "law", "compas", "oulad", "bank")
METRICS = ("demographic_parity", "equal_opportunity", "equalized_odds", "bounded_group_loss")
TAUS, METHODS = (0.02, 0.05, 0.1), ("fairfl", "agnosticfair")
TOO_LOW = 0.01
"""A mean log loss that no group can have: a fit that is held to it ends as low as it can."""


@lru_cache(maxsize=2)
def rows(name: str, sources: str | None) -> Table:
    return load_dataset(name, None if sources is None else Path(sources) / name)


def halves(table: Table, seed: int) -> tuple[dict[str, Table], Table]:
    """70% of the rows at two clients, and the rest."""
    order = np.random.default_rng(seed).permutation(len(table))
    cut = round(0.7 * len(table))
    one, two = np.array_split(np.sort(order[:cut]), 2)
    return {"one": table.take(one), "two": table.take(two)}, table.take(np.sort(order[cut:]))


def difference(decided: np.ndarray, table: Table, positive: str, column: str, metric: str) -> float:
    """The metric's largest difference of decisions between groups; their largest share of errors for a bound."""
    y, s = table.labels(positive) > 0, table.sensitive_features[column].codes
    labels = {"equal_opportunity": [y], "equalized_odds": [y, ~y]}.get(
        metric, [np.ones(len(y), bool)]
    )
    found = []
    for inside in labels:
        rates = [
            decided[inside & (s == g)].mean() for g in np.unique(s) if (inside & (s == g)).any()
        ]
        found.append(max(rates) - min(rates))
    return float(max(found))


def run(request: dict) -> dict:
    """One fit of ours."""
    source = dataset(request["dataset"])
    train, test = halves(rows(request["dataset"], request["sources"]), request["seed"])
    column, limit = source.sensitive_features, request["tau"]
    about = {"positive": source.positive, "sensitive_features": column}
    if request["metric"] == "bounded_group_loss":
        lowest = method(request["method"], metric=request["metric"], tau=TOO_LOW)
        limit += fit(train, lowest, **about).worst_surrogate
    chosen_method = method(request["method"], metric=request["metric"], tau=limit)
    begin = perf_counter()
    fitted = fit(train, chosen_method, **about)
    seconds = perf_counter() - begin
    decided = fitted.model.predict(test) > 0
    bounded = request["metric"] == "bounded_group_loss"
    worst = fitted.worst_surrogate if bounded else fitted.trained_difference
    return {
        **{k: request[k] for k in ("dataset", "seed", "metric", "tau", "method")},
        "limit": limit,
        "outcome": fitted.outcome,
        "rounds": fitted.rounds,
        "seconds": seconds,
        "decided": worst,
        "accuracy": float((decided == (test.labels(source.positive) > 0)).mean()),
        "difference": difference(decided, test, source.positive, column, request["metric"]),
        "positive_rate": float(decided.mean()),
    }


def run_peer(request: dict) -> dict:
    """ExponentiatedGradient, then fairfl at the difference that it has on the training rows."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    source = dataset(request["dataset"])
    train, test = halves(rows(request["dataset"], request["sources"]), request["seed"])
    whole, column = concatenate(list(train.values())), source.sensitive_features
    encoding = encoding_of(summary_statistics(whole, "all"))
    X, y = encode(encoding, whole), whole.labels(source.positive)
    s, test_s = (t.sensitive_features[column].codes for t in (whole, test))
    begin = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bound = DemographicParity(difference_bound=request["tau"])
        peer = ExponentiatedGradient(LogisticRegression(max_iter=1000), bound)
        peer.fit(X, y, sensitive_features=s)
    theirs = perf_counter() - begin
    p, test_p = (peer._pmf_predict(x)[:, 1] for x in (X, encode(encoding, test)))
    gap, test_gap = (
        abs(v[g == 1].mean() - v[g == 0].mean()) for v, g in ((p, s), (test_p, test_s))
    )
    test_y = test.labels(source.positive)
    begin = perf_counter()
    about = {"positive": source.positive, "sensitive_features": column}
    fitted = fit(train, method("fairfl", tau=max(float(gap), 1e-3)), **about)
    ours = perf_counter() - begin
    decided = fitted.model.predict(test) > 0
    return {
        **{k: request[k] for k in ("dataset", "seed", "tau")},
        "metric": "demographic_parity",
        "method": "peer",
        "peer_accuracy": float(1 - np.abs(test_y - test_p).mean()),
        "peer_difference": float(test_gap),
        "peer_decided": float(gap),
        "peer_seconds": theirs,
        "accuracy": float((decided == (test_y > 0)).mean()),
        "difference": difference(decided, test, source.positive, column, "demographic_parity"),
        "decided": fitted.trained_difference,
        "outcome": fitted.outcome,
        "seconds": ours,
    }


def key(entry: dict) -> tuple:
    return tuple(entry[k] for k in ("dataset", "seed", "metric", "tau", "method"))


def summary(found: list[dict]) -> None:
    """One line per method and metric, and one of the peers."""
    for name, metric in product(METHODS, METRICS):
        own = [
            e for e in found if (e["method"], e["metric"]) == (name, metric) and "error" not in e
        ]
        if not own:
            continue
        ended = [e for e in own if e["outcome"] == "converged"]
        broken = [e for e in ended if e["decided"] > e["limit"] + 0.002]
        rounds = np.mean([e["rounds"] for e in own])
        print(
            f"{name}, {metric}: {len(ended)} of {len(own)} converged ({len(ended) / len(own):.1%}), {len(broken)} of "
            f"them beyond tau + 0.002, rounds {rounds:.1f} in the mean and {max(e['rounds'] for e in own)} at most"
        )
    for name in DATASETS:
        own = [
            e for e in found if e["method"] == "peer" and e["dataset"] == name and "error" not in e
        ]
        if own:
            less = [e["accuracy"] - e["peer_accuracy"] for e in own]
            faster = [e["peer_seconds"] / e["seconds"] for e in own]
            print(
                f"fairfl at ExponentiatedGradient's difference, {name}: accuracy {np.mean(less):+.4f} in the mean, "
                f"{min(less):+.4f} at least, {np.median(faster):.1f} times faster"
            )
    for entry in found:
        if "error" in entry:
            print(f"{key(entry)}: {entry['error']}")


def guarded(request: dict) -> dict:
    try:
        return run_peer(request) if request["method"] == "peer" else run(request)
    except Exception as error:  # a row of the table, not the end of the benchmark
        return {**request, "error": f"{type(error).__name__}: {error}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--metrics", default=",".join(METRICS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--taus", default=",".join(map(str, TAUS)))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data-folder", default=None, help="holds a folder for each data set")
    parser.add_argument("--out", default="decisions.jsonl")
    parser.add_argument("--peers", action="store_true")
    request = parser.parse_args()
    first, _, last = request.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    taus = [float(tau) for tau in request.taus.split(",")]
    names, wanted = request.datasets.split(","), request.methods.split(",")
    todo = [*product(names, seeds, request.metrics.split(","), taus, wanted)]
    if request.peers:
        todo += product(names, seeds, ("demographic_parity",), taus, ("peer",))
    path = Path(request.out)
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {key(entry) for entry in found}
    jobs = [
        dict(zip(("dataset", "seed", "metric", "tau", "method"), one, strict=True))
        | {"sources": request.data_folder}
        for one in todo
        if one not in done
    ]
    with ProcessPoolExecutor(request.jobs) as pool, path.open("a") as file:
        for future in as_completed([pool.submit(guarded, job) for job in jobs]):
            found.append(future.result())
            file.write(json.dumps(found[-1]) + "\n")
            file.flush()
    summary(found)


if __name__ == "__main__":
    main()
