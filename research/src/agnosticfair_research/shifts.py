"""The shift suite: train on one split, test on many deployments that no method saw.

A cell is a function of its cell alone: one data set, setting, method and seed. Besides our methods
and the peers there are two rows for the sceptic, who says that fewer positives alone lower any risk
difference: FairFL with its threshold raised until, on the *training* rows, it is only as accurate
(or as accurate in the balanced sense) as AgnosticFair.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import permutations
from time import perf_counter
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.federation import Fit, fit
from agnosticfair.mathematics.ambiguity import Ambiguity, Worst
from agnosticfair.mathematics.basis import gaussian_kernel, row_priorities
from agnosticfair.mathematics.fairness import Surrogate, worst_pair
from agnosticfair.methods import METHODS, Method
from agnosticfair.methods import method as method
from agnosticfair.settings import require_name
from agnosticfair_research.datasets import dataset
from agnosticfair_research.deployments import (
    Decider,
    Suite,
    deployments,
    entries,
    measure,
    measure_all,
    natural_subgroups,
    summarise,
)
from agnosticfair_research.entrants import ENTRANTS, Train
from agnosticfair_research.paper import as_printed
from agnosticfair_research.pool import Row, number
from agnosticfair_research.sceptic import matching_threshold
from agnosticfair_research.splits import Split, split_of

SETTINGS = ("shift", "iid", "dirichlet")

COMPARED = ("fl", "fairfl", "agnosticfair-printed", "agnosticfair-b", "agnosticfair")
"""Methods that are run unless others are named."""

DIRICHLET = ("fl", "fairfl", "agnosticfair")
"""The same for the dirichlet split."""

MOVED = {"fairfl-moved": "accuracy", "fairfl-moved-balanced": "balanced_accuracy"}
"""The sceptic's rows: what of AgnosticFair, on the training rows, each is brought down to."""

TUNED = "fairfl-tuned"
_TUNED = replace(method("fairfl", tau=0.0425, surrogate=Surrogate("sigmoid", 0.75)), name=TUNED)
"""FairFL for the dirichlet split: of a grid of (tau, temperature), the most accurate whose gap, plus
its standard error, is under 0.017 on the splits of seeds 100 to 119; the seeds reported are others."""

FACTORS = (0.25, 0.5, 0.75, 1.5, 2.0, 3.0)  # of the data set's tau, for agnosticfair's frontier
TAUS = (0.005, 0.05, 0.1, 0.15)  # for fairfl's frontier
KEPT = (0.8, 0.6, 0.45, 0.3, 0.2, 0.1)  # share of fairfl's positives left by a moved threshold
FRONTIER_SEEDS = 3

PEERS = {k: ENTRANTS[k] for k in ("fairlearn-eg", "fairlearn-threshold", "declearn-fairgrad")}
"""The entrants of other libraries beside our methods, an optional extra: 'agnosticfair-research[peers]'."""

ASKED, DONE = 0.01, "done"
"""The difference that peers are asked for; and how their fits end, with an outcome of their own, or none."""

BOUND, WIDTH, KERNELS, FLOOR, OTHER_SEED = 5.0, 1.0, 200, 0.05, 991
"""The set that every model is certified over; its kernels are drawn with a seed of their own."""


@dataclass(frozen=True)
class SuiteCell:
    """A fit of the suite. tau: other than the usual one.  kept: the share of positives that a moved threshold
    leaves.  frontier: a point of the frontier, of no use to the tables.  network: its name, None for the
    linear model."""

    dataset: str
    setting: str
    method: str
    seed: int
    tau: float | None = None
    kept: float | None = None
    frontier: bool = False
    strict: bool = False
    folder: str | None = None
    network: str | None = None

    @property
    def usual(self) -> float:
        """AgnosticFair's tau where no other is asked for."""
        source, fairness = dataset(self.dataset), METHODS["agnosticfair"].fairness
        assert fairness is not None
        chosen = source.tau if self.network is None else source.network_tau
        return fairness.tau if chosen is None else chosen


def cells(
    datasets: Iterable[str],
    setting: str = "shift",
    methods: Iterable[str] = COMPARED,
    seeds: int = 5,
    *,
    peers: Iterable[str] = (),
    frontier: bool = False,
    strict: bool = False,
    folder: str | None = None,
    network: str | None = None,
) -> list[SuiteCell]:
    """Every cell asked for; those that share a split are neighbours.

    >>> [t.method for t in cells(["adult"], methods=["fairfl", "agnosticfair"], seeds=1)]
    ['fairfl', 'agnosticfair', 'fairfl-moved', 'fairfl-moved-balanced']
    """
    names, datasets = list(dict.fromkeys(methods)), list(dict.fromkeys(datasets))
    for name in names:
        method(name)
    require_name("setting", setting, SETTINGS)
    if seeds < 1:
        raise SettingsError(f"{seeds} seeds leave nothing to run: ask for at least 1")
    if setting == "dirichlet" and datasets != ["adult"]:
        raise SettingsError("setting 'dirichlet' stands beside numbers on adult: ask for adult")
    if setting == "dirichlet":
        names += [TUNED] if "fairfl" in names else []
    elif {"fairfl", "agnosticfair"} <= {*names}:
        names += MOVED
    wanted = []
    for data in datasets:
        dataset(data)
        for seed in range(seeds):
            plain = SuiteCell(
                data, setting, "", seed, strict=strict, folder=folder, network=network
            )
            wanted += [replace(plain, method=name) for name in (*names, *peers)]
            if frontier and seed < FRONTIER_SEEDS and setting != "dirichlet":
                wanted += [replace(t, frontier=True) for t in _frontier(plain, names)]
    return wanted


def _frontier(plain: SuiteCell, names: Sequence[str]) -> list[SuiteCell]:
    """The points that a table does not have already."""
    usual = plain.usual
    points: dict[str, list[dict[str, Any]]] = {
        "agnosticfair": [{"tau": round(usual * factor, 4)} for factor in FACTORS],
        "fairfl": [{"tau": tau} for tau in TAUS],
        "fairfl-moved": [{"kept": kept} for kept in KEPT],
    }
    return [
        replace(plain, method=name, **point)
        for name, those in points.items()
        for point in those
        if name in names
    ]


def run_cell(cell: SuiteCell) -> Row:
    """Fit and measure one cell. A fit that diverges is a row without measures, unless strict."""
    # One thread: a sum split over threads is rounded in another order.
    with threadpool_limits(1):
        prepared_suite = _prepared(cell.dataset, cell.setting, cell.seed, cell.folder)
        try:
            decider = _decider(cell, prepared_suite)
        except SolverError as error:
            if cell.strict:
                raise
            return _head(cell) | {"outcome": "diverged", "outcomes": {}, "why": str(error)}
        return _head(cell) | _ended(decider) | _measured(decider, prepared_suite, cell)


def _head(cell: SuiteCell) -> Row:
    head = {k: v for k, v in asdict(cell).items() if k not in ("strict", "folder")}
    found = _method(cell)
    fairness = found and (found.fairness or (found.averaging if found.averaging else None))
    return head | {"tau": fairness.tau if fairness else None}


def _ended(decider: Decider) -> Row:
    names = ("outcome", "outcomes", "rounds", "seconds")
    return {k: getattr(decider, k) for k in names} | {"seconds": round(decider.seconds, 3)}


@dataclass(frozen=True)
class PreparedSuite:
    """A split with what all of its models share: the training rows, by client and in one place, and the
    deployments."""

    split: Split
    train: Train
    deployments: Suite


def clients_of(setting: str) -> int:
    return 5 if setting == "dirichlet" else 2


@lru_cache(maxsize=1)
def _prepared(name: str, setting: str, seed: int, folder: str | None) -> PreparedSuite:
    source, split = dataset(name), split_of(name, setting, clients_of(setting), seed, folder)
    natural = natural_subgroups(split, source.shift) if setting == "shift" else None
    train = Train(split.train, source.positive, source.sensitive_features, seed)
    suite = deployments(split.test, train.encoding, seed, source.sensitive_features, natural)
    return PreparedSuite(split, train, suite)


def _method(cell: SuiteCell) -> Method | None:
    """The method of a cell with its tau; None for a peer."""
    if cell.method in PEERS:
        return None
    name = "fairfl" if cell.method in MOVED else cell.method
    tau = cell.usual if name == "agnosticfair" else None
    tau = tau if cell.tau is None else cell.tau
    changes = {} if tau is None else {"tau": tau}
    chosen = _TUNED if cell.method == TUNED else METHODS[name]
    return method(chosen, network=cell.network, **changes, **as_printed(chosen))


def _decider(cell: SuiteCell, prepared_suite: PreparedSuite) -> Decider:
    if cell.method in PEERS:
        return fit_peer(cell.method, prepared_suite.train)
    moved = cell.method in MOVED
    name = "fairfl" if moved else cell.method
    fitted = _fitted(replace(cell, method=name, kept=None, frontier=False))
    threshold = _threshold(cell, fitted, prepared_suite) if moved else 0.0

    def decide(table: Table) -> np.ndarray:
        return (fitted.model.decision(table) > threshold).astype(float)

    told = fitted.outcome, fitted.rounds, fitted.seconds, dict(fitted.outcomes)
    return Decider(decide, *told, fitted)


def fit_peer(name: str, train: Train) -> Decider:
    """Fit a peer; the time is that of its own fit alone."""
    require_name("peer", name, PEERS)
    if not PEERS[name].installed:
        needed = " and ".join(PEERS[name].packages)
        raise SettingsError(f"{name} needs {needed}: pip install 'agnosticfair-research[peers]'")
    train.encoded  # noqa: B018 (its time is not the peer's)
    begin = perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what another library says to its own authors
            decide = PEERS[name].fit(train, ASKED)
    except Exception as error:  # another's failure is a row of the table, not the end of the suite
        raise SolverError(f"{name} failed: {error}") from error
    return Decider(decide, DONE, 0, perf_counter() - begin)


@lru_cache(maxsize=8)
def _fitted(cell: SuiteCell) -> Fit:
    """Our own fits, kept because the sceptic's rows need them again."""
    prepared_suite, chosen = (
        _prepared(cell.dataset, cell.setting, cell.seed, cell.folder),
        _method(cell),
    )
    assert chosen is not None
    return fit(
        prepared_suite.split.train,
        chosen,
        sensitive_features=prepared_suite.train.sensitive_features,
        positive=prepared_suite.train.positive,
        seed=cell.seed,
        strict=cell.strict,
    )


def _threshold(cell: SuiteCell, fitted: Fit, prepared_suite: PreparedSuite) -> float:
    """Where to put FairFL's threshold, chosen on the training rows."""
    d = _on_train(fitted, prepared_suite)
    if cell.kept is not None:
        return float(np.quantile(d[d > 0], 1 - cell.kept)) if (d > 0).any() else 0.0
    other = _on_train(_fitted(replace(cell, method="agnosticfair")), prepared_suite)
    what, rows = MOVED[cell.method], prepared_suite.train.pooled
    return matching_threshold(d, rows.y, what, measure(rows.y, other > 0, rows.s)[what])


def _on_train(fitted: Fit, prepared_suite: PreparedSuite) -> np.ndarray:
    return np.concatenate([fitted.model.decision(t) for t in prepared_suite.split.train.values()])


def _measured(decider: Decider, prepared_suite: PreparedSuite, cell: SuiteCell) -> Row:
    """What a model does on the training rows, the test set and its subgroups, and every deployment."""
    split, own = prepared_suite.split, prepared_suite.train.pooled
    train = np.concatenate([decider.decide(t) for t in split.train.values()])
    p, y = decider.decide(split.test), split.test.labels(prepared_suite.train.positive)
    s = split.test.column(prepared_suite.train.sensitive_features).codes
    found = entries(prepared_suite.deployments, measure_all(prepared_suite.deployments, y, p, s))
    subgroups = [split.test_piece == k for k in range(len(split.pieces))]
    worst = worst_reweighting(own.X, train, own.s, cell.seed + OTHER_SEED)
    return {
        **{f"train_{k}": v for k, v in measure(own.y, train, own.s).items()},
        **{f"test_{k}": v for k, v in measure(y, p, s).items()},
        "subgroup_risk_differences": [
            number(measure(y[subgroup], p[subgroup], s[subgroup])["risk_difference"])
            for subgroup in subgroups
        ],
        **summarise(found),
        "certified_risk_difference": None if worst is None else float(worst.value),
        "certified": "infeasible" if worst is None else str(worst.outcome),
        "deployments": [] if cell.frontier else found,
    }


def worst_reweighting(X: np.ndarray, p: np.ndarray, s: np.ndarray, seed: int) -> Worst | None:
    """The reweighting in A of the rows X with the largest risk difference, if there is one.

    A has BOUND and KERNELS Gaussians of WIDTH around rows drawn with ``seed``; each group keeps the
    share FLOOR of the mass.  p: (n,) probability of a positive decision.  s: (n,) group codes.
    """
    _, first = np.unique(row_priorities(X, seed), return_index=True)
    K = gaussian_kernel(X, X[first[:KERNELS]], WIDTH)
    groups = np.unique(s)
    a = np.array([K[s == j].T @ p[s == j] for j in groups])
    b = np.array([K[s == j].sum(axis=0) for j in groups])
    A = Ambiguity(K.sum(axis=0), float(len(X)), BOUND)
    worst_pair_here = worst_pair(A, a, b, [*permutations(range(len(groups)), 2)], FLOOR)
    return None if worst_pair_here is None else worst_pair_here.worst
