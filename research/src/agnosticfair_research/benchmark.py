"""The benchmark: fairness where nobody trained, with settings that are functions of training rows.

One rule for every entrant. It is asked for differences of ASKED, and each time fitted on some folds of the
training rows and tried on the others. A setting keeps the limit if its worst difference over subgroups (single
values and pairs of values) of the rows tried, less twice its standard error, is at most the limit. Of those that
keep it the most accurate is taken, or, of all within one standard error of its accuracy, the one whose p90 over
these subgroups is lowest; where none keeps it, the one nearest to it. It is fitted again on all training rows, and
measured on deployments that nobody saw. See research/docs/benchmark.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from agnosticfair.data.table import Table, concatenate
from agnosticfair.errors import DataError, SettingsError
from agnosticfair_research.apart import interpreter, run_apart
from agnosticfair_research.datasets import DATASETS, dataset, load_dataset
from agnosticfair_research.deployments import (
    BEYOND,
    KINDS,
    MEASURES,
    Suite,
    beyond,
    deployments,
    measure,
    measure_all,
    named_suite,
    natural_subgroups,
)
from agnosticfair_research.entrants import (
    ENTRANTS,
    Decide,
    Entrant,
    Train,
    digest,
    from_file,
    is_file,
)
from agnosticfair_research.entrants.ours import model_of
from agnosticfair_research.pool import Row, run_cells
from agnosticfair_research.sceptic import as_accurate, moved
from agnosticfair_research.splits import Split, iid, shift

SPLITS = ("shift", "iid")
LIMITS = (0.05, 0.1, 0.2)
ASKED = (0.005, 0.02, 0.05, 0.08, 0.12, 0.2)
"""Differences that an entrant is asked for: the settings among which the rule chooses."""

FOLDS = 2
ALIKE = 1.0  # standard errors of a difference in accuracy that decide nothing (Breiman's rule)
TRAINED = 0.7  # of the rows, in the split at random
DEVELOPMENT, REPORTED = range(20), range(20, 40)


@dataclass(frozen=True)
class Cell:
    """One entrant on one split of one data set, at all limits; file: where it is, if outside this package."""

    dataset: str
    split: str
    seed: int
    entrant: str
    limits: tuple[float, ...] = LIMITS
    request: tuple[float, ...] = ASKED
    folder: str | None = None
    file: str | None = None

    @property
    def key(self) -> str:
        """The name of its file."""
        return key_of(vars(self))


def key_of(row: Mapping[str, Any]) -> str:
    """The name of a cell's file."""
    return f"{row['dataset']}-{row['split']}-{row['seed']:02d}-{row['entrant']}"


def cells(
    datasets: Iterable[str],
    seeds: Iterable[int],
    entrants: Iterable[str],
    splits: Iterable[str] = ("shift",),
    *,
    limits: Sequence[float] = LIMITS,
    request: Sequence[float] = ASKED,
    folder: str | None = None,
) -> list[Cell]:
    """Every cell asked for.

    >>> [cell.key for cell in cells(["adult"], [0, 1], ["fl"])]
    ['adult-shift-00-fl', 'adult-shift-01-fl']
    """
    seeds, files, splits = [*dict.fromkeys(seeds)], _files(entrants), [*splits]
    for name in splits:
        if name not in SPLITS:
            raise SettingsError(f"no split {name!r}; there are: {', '.join(SPLITS)}")
    for seed in seeds:
        if seed not in DEVELOPMENT and seed not in REPORTED:
            raise SettingsError(
                f"seed {seed} is neither for development (0 to 19) nor for reporting (20 to 39): name one that is"
            )
    for limit in limits:
        if not 0 < limit <= 1:
            raise SettingsError(f"limit {limit} is no difference of two rates: give one up to 1")
    made = [
        Cell(dataset(data).name, split, seed, name, tuple(limits), tuple(request), folder, file)
        for data in dict.fromkeys(datasets)
        for split in splits
        for seed in seeds
        for name, file in files.items()
    ]
    if not made:
        raise SettingsError("nothing is left to run: name data sets, seeds and entrants")
    return made


def _files(entrants: Iterable[str]) -> dict[str, str | None]:
    """Entrants by name, each with its file if it is not of this package."""
    found: dict[str, str | None] = {}
    for word in entrants:
        name = from_file(word).name if is_file(word) else word
        if is_file(word) and (name in ENTRANTS or name in found):
            raise SettingsError(f"{word!r} is not the only entrant {name!r}: give it another name")
        if not is_file(word) and name not in ENTRANTS:
            known = ", ".join(ENTRANTS)
            raise SettingsError(f"no entrant {name!r}; there are: {known}; or name a file, mine.py")
        found[name] = str(Path(word).expanduser().resolve()) if is_file(word) else None
    return found


def parsed(seeds: str) -> list[int]:
    """Numbers and ranges with commas between.

    >>> parsed("0-2, 7")
    [0, 1, 2, 7]
    """
    found: list[int] = []
    for subgroup in seeds.split(","):
        first, _, last = subgroup.strip().partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            raise SettingsError(f"seeds {seeds!r} are no numbers and ranges: write 0-4 or 0,3")
        found += range(int(first), int(last or first) + 1)
    return found


def here(names: Iterable[str], folder: str | None) -> tuple[list[str], dict[str, str]]:
    """The data sets that can be loaded, and why each of the others cannot."""
    found, absent = [], {}
    for name in names:
        try:
            load_dataset(name, folder)
            found.append(name)
        except DataError as error:
            absent[name] = str(error)
    return found, absent


@dataclass(frozen=True)
class Prepared:
    """A split with what all of its entrants share.

    folds: each row's fold, by client.  subgroups: the subgroups of the training rows that the rule looks at.  suite:
    the deployments.  plain: seconds of a plain logistic regression.  sceptic: scores of ``fairfl`` on the
    training and the test rows, whose threshold the sceptic moves.
    """

    split: Split
    train: Train
    table: Table
    folds: Mapping[str, np.ndarray]
    subgroups: Suite
    suite: Suite
    plain: float
    sceptic: tuple[np.ndarray, np.ndarray]


@lru_cache(maxsize=1)
def prepared(name: str, split_name: str, seed: int, folder: str | None) -> Prepared:
    """A split of a data set, with what its entrants share; the last one is kept."""
    source, table = dataset(name), load_dataset(name, folder)
    natural = None
    if split_name == "shift":
        split = shift(table, source, None, seed)
        natural = natural_subgroups(split, source.shift)
    else:
        split = iid(table, 2, seed, TRAINED)
    train = Train(split.train, source.positive, source.sensitive_features, seed)
    rng = np.random.default_rng([seed, FOLDS])
    folds = {k: rng.permutation(np.arange(len(t)) % FOLDS) for k, t in split.train.items()}
    pooled = concatenate([*split.train.values()])
    return Prepared(
        split,
        train,
        pooled,
        folds,
        named_suite(pooled, source.sensitive_features),
        deployments(split.test, train.encoding, seed, source.sensitive_features, natural),
        _plain_seconds(train),
        _scores(train, split),
    )


def _plain_seconds(train: Train) -> float:
    from sklearn.linear_model import LogisticRegression

    rows, begin = train.pooled, perf_counter()
    LogisticRegression(max_iter=1000).fit(rows.X, rows.y)
    return perf_counter() - begin


def _scores(train: Train, split: Split) -> tuple[np.ndarray, np.ndarray]:
    model = model_of(train, "fairfl")
    table_here = np.concatenate([model.decision(table) for table in split.train.values()])
    return table_here, model.decision(split.test)


def run_cell(cell: Cell) -> Row:
    """The rows of a cell, one a limit; what an entrant cannot do is said in ``why``."""
    head = {"dataset": cell.dataset, "split": cell.split, "seed": cell.seed}
    entrant = ENTRANTS[cell.entrant] if cell.file is None else from_file(cell.file)
    about = {k: getattr(entrant, k) for k in ("note", "sees", "pooled", "ours")}
    about |= {} if cell.file is None else {"file": digest(cell.file)}
    made = head | {"entrant": cell.entrant, **about, "rows": []}
    if not entrant.installed or cell.file is not None:
        python = interpreter(cell.entrant, this=entrant.installed)
        if python is not None:
            return made | run_apart(cell, python)
    if not entrant.installed:
        return made | {"why": f"{' or '.join(entrant.packages)} is not installed"}
    # one thread: a sum split over threads is rounded in another order
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what another library says to its own authors
        held = prepared(cell.dataset, cell.split, cell.seed, cell.folder)
        try:
            tried = _tried(entrant, held, cell.request)
            made["tried"] = [setting.told(tried) for setting in tried]
            return made | {"rows": _measured(entrant, held, tried, cell.limits)}
        except (
            Exception
        ) as error:  # another's failure is a row of the table, not the end of the run
            return made | {"why": f"{type(error).__name__}: {error}"[:300]}


@dataclass(frozen=True)
class Tried:
    """A setting on the folds it was not fitted on. right: (n,), the probability that each row is decided as
    its label says.  worst, p90: of the differences over subgroups; beyond: the largest less BEYOND standard
    errors.  why: what went wrong."""

    request: float
    right: np.ndarray = field(default_factory=lambda: np.zeros(1), compare=False)
    worst: float = np.inf
    beyond: float = np.inf
    p90: float = np.inf
    why: str = ""

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())

    def told(self, others: Sequence[Tried]) -> Row:
        """What the rule goes by, for who would check it; ``behind``: each other setting that was tried, by how much
        this one is less accurate, and the standard error of that."""
        if self.why:
            return {"request": self.request, "why": self.why}
        numbers = {name: getattr(self, name) for name in ("accuracy", "worst", "beyond", "p90")}
        behind = [[t.request, *self.behind(t)] for t in others if t is not self and not t.why]
        return {"request": self.request, **numbers, "behind": behind}

    def behind(self, other: Tried) -> tuple[float, float]:
        """By how much it is less accurate, and the standard error of that difference, which is on the same rows."""
        less = other.right - self.right
        return float(less.mean()), float(less.std() / np.sqrt(len(less)))

    def as_accurate_as(self, other: Tried) -> bool:
        """Whether it is less accurate by at most ALIKE standard errors of the difference."""
        less, error = self.behind(other)
        return less <= ALIKE * error


def _tried(entrant: Entrant, prepared: Prepared, request: Sequence[float]) -> list[Tried]:
    """Every setting of an entrant, cross-fitted; one if it has no more."""
    return [_cross_fitted(entrant, prepared, a) for a in (request if entrant.asks else request[:1])]


def _cross_fitted(entrant: Entrant, prepared: Prepared, request: float) -> Tried:
    p = {name: np.empty(len(table)) for name, table in prepared.train.clients.items()}
    try:
        for fold in range(FOLDS):
            kept = {k: t.take(prepared.folds[k] != fold) for k, t in prepared.train.clients.items()}
            decide = entrant.fit(replace(prepared.train, clients=kept), request)
            for name, table in prepared.train.clients.items():
                out = prepared.folds[name] == fold
                p[name][out] = decided(decide, table.take(out))
    except Exception as error:
        return Tried(request, why=f"{type(error).__name__}: {error}"[:300])
    y = prepared.table.labels(prepared.train.positive)
    s = prepared.table.column(prepared.train.sensitive_features).codes
    table_here = np.concatenate([*p.values()])
    measures = measure_all(prepared.subgroups, y, table_here, s)
    rd, error_of = measures["risk_difference"], measures["risk_difference_error"]
    minimum, p90 = float((rd - BEYOND * error_of).max()), float(np.quantile(rd, 0.9))
    return Tried(request, 1.0 - np.abs(y - table_here), float(rd.max()), minimum, p90)


def chosen(tried: Sequence[Tried], limit: float) -> tuple[Tried, bool]:
    """The rule: which setting is taken at a limit, and whether it keeps the limit.

    Of those that keep it and are as accurate, within error, as the most accurate of them: the one whose p90 is lowest,
    which is steadier than the largest of several hundred differences.

    >>> right = np.repeat([1.0, 0.0], [80, 20])
    >>> lax, fair = Tried(0.1, right, 0.3, 0.2, 0.1), Tried(0.05, right[::-1], 0.1, 0.05, 0.02)
    >>> poor = Tried(0.01, np.zeros(100), 0.0, 0.0, 0.0)
    >>> chosen([lax, fair, poor], 0.2)[0].request, chosen([lax], 0.1)[1]
    (0.05, False)
    """
    there = [t for t in tried if not t.why]
    if not there:
        raise SettingsError(f"every fit failed, the last one so: {tried[-1].why}")
    kept = [t for t in there if t.beyond <= limit]
    if not kept:
        return min(there, key=lambda t: t.beyond), False
    best = max(kept, key=lambda t: t.accuracy)
    return min((t for t in kept if t.as_accurate_as(best)), key=lambda t: t.p90), True


def _measured(
    entrant: Entrant, prepared: Prepared, tried: Sequence[Tried], limits: Sequence[float]
) -> list[Row]:
    rows: list[Row] = []
    fits: dict[float, tuple[Decide, float]] = {}
    for limit in limits:
        setting, kept = chosen(tried, limit)
        if setting.request not in fits:
            begin = perf_counter()
            decide = entrant.fit(replace(prepared.train), setting.request)  # nothing encoded before
            fits[setting.request] = decide, perf_counter() - begin
            if not entrant.sees:
                _check_blind(decide, prepared)
        decide, seconds = fits[setting.request]
        about = {"limit": limit, "request": setting.request if entrant.asks else None, "kept": kept}
        about |= {"cross_worst": setting.worst, "cross_beyond": setting.beyond}
        about |= {"cross_accuracy": setting.accuracy, "seconds": seconds}
        rows.append(
            about | {"ratio": seconds / prepared.plain} | on_deployments(decide, prepared, limit)
        )
    return rows


def decided(decide: Decide, table: Table) -> np.ndarray:
    """What an entrant decides, (n,), on rows whose labels it is not shown."""
    p = np.asarray(decide(replace(table, target=None)), float)
    if p.shape != (len(table),) or not ((p > -1e-6) & (p < 1 + 1e-6)).all():
        raise SettingsError(
            f"it does not decide each of {len(table)} rows by a number from 0 to 1: give the probability of a positive"
        )
    return p


def _check_blind(decide: Decide, prepared: Prepared) -> None:
    """Raise if an entrant that says it does not see the sensitive feature decides otherwise where that is another."""
    test, name = prepared.split.test, prepared.train.sensitive_features
    own = test.sensitive_features[name]
    other = replace(own, codes=(own.codes + 1) % len(own.categories))
    swapped = replace(test, sensitive_features={**test.sensitive_features, name: other})
    if (decided(decide, test) != decided(decide, swapped)).any():
        raise SettingsError(f"it looks at {name!r} when it decides: say sees=True in its file")


def on_deployments(decide: Decide, prepared: Prepared, limit: float) -> Row:
    """What a decision is worth on test and training rows and over the deployments, with the sceptic's beside."""
    test, train = prepared.split.test, prepared.train
    y, s = test.labels(train.positive), test.column(train.sensitive_features).codes
    p = decided(decide, test)
    measures = measure_all(prepared.suite, y, p, s)
    own = measure(
        prepared.table.labels(train.positive),
        np.concatenate([decided(decide, table) for table in train.clients.values()]),
        prepared.table.column(train.sensitive_features).codes,
    )
    y_train = prepared.table.labels(train.positive)
    sign, t = as_accurate(prepared.sceptic[0], y_train, own["accuracy"], own["positive_rate"])
    sceptic = measure_all(prepared.suite, y, moved(prepared.sceptic[1], sign, t), s)
    names = (*MEASURES, *(f"{name}_error" for name in MEASURES))
    return {
        "test": {name: float(measures[name][0]) for name in names},
        "train": own,
        **summary(prepared.suite, measures, limit),
        "sceptic": summary(prepared.suite, sceptic, limit)["all"]
        | {"accuracy": float(sceptic["accuracy"][0])},
        "deployments": measures["risk_difference"].round(4).tolist(),
        "deployment_errors": measures["risk_difference_error"].round(4).tolist(),
    }


def summary(suite: Suite, found: Mapping[str, np.ndarray], limit: float) -> Row:
    """Risk differences over all deployments and by kind: how many, mean, p90, max, mean standard error, and how
    many are over the limit beyond error; what else there is, and where it is worst."""
    rd, over, kinds = found["risk_difference"], beyond(found, limit), np.array(suite.kinds)

    def told(those: np.ndarray) -> Row:
        own = rd[those]
        return {
            "count": len(own),
            "mean": float(own.mean()),
            "p90": float(np.quantile(own, 0.9)),
            "max": float(own.max()),
            "error": float(found["risk_difference_error"][those].mean()),
            "beyond": int(over[those].sum()),
        }

    means = {f"mean_{name}": float(found[name].mean()) for name in MEASURES[1:]}
    by = {kind: told(kinds == kind) for kind in KINDS if (kinds == kind).any()}
    worst = int(rd.argmax())
    return {
        "all": told(np.ones(len(rd), bool)),
        "kinds": by,
        **means,
        "worst": suite.names[worst],
        "worst_error": float(found["risk_difference_error"][worst]),
    }


SLOW = ("agnosticfair-mlp", "declearn-fairgrad", "fairlearn-eg", "agnosticfair")


def run(todo: Sequence[Cell], jobs: int, on_done: Callable[[Row], None]) -> list[Row]:
    """Run the cells; ``on_done`` keeps each as it arrives.

    Those of a split follow each other, slow entrants first, for what they share is made once a process.
    """
    place = [*DATASETS].index
    order = sorted(todo, key=lambda c: (c.seed, place(c.dataset), c.split, c.entrant not in SLOW))
    return run_cells(run_cell, order, jobs, on_done)
