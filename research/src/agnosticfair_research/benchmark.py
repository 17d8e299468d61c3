"""The benchmark: fairness where nobody trained, with settings that are functions of training rows.

Two protocols. *balanced*: a false positive and a false negative cost what makes both labels weigh alike, which every
entrant is told in its own terms, so that no constant wins. *rate*: the share of positives is that of the training
labels, so that nobody wins by saying yes less often. A third, *promise*, asks of our default what a certificate said
before a natural shift and what happened (``promises``).

Every entrant is asked for the differences in REQUESTS. A method of others is measured at each on deployments that
nobody saw, and competes with all of them. Of ours one is chosen by a rule: each is fitted on some folds of the
training rows and tried on the others. It keeps the limit if its worst difference over subgroups (single values and
pairs) of the rows tried, less twice its standard error, is at most the limit. Of those that keep it the one of
highest balanced accuracy is taken, or, of all within one standard error of that, the one whose p90 over these
subgroups is lowest; where none keeps it, the one nearest to it. It alone is fitted again on all training rows, and
measured. See research/docs/benchmark.md.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from agnosticfair.data.table import Table, concatenate
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.threads import walked
from agnosticfair_research.datasets import DATASETS, dataset, load_dataset
from agnosticfair_research.deployments import (
    BEYOND,
    KINDS,
    MEASURES,
    Row,
    Suite,
    deployments,
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
from agnosticfair_research.splits import Split, shift

OURS = "rule"
PROTOCOLS = ("balanced", "rate", "promise")
LIMITS = (0.05, 0.1, 0.2)
REQUESTS = (0.25, 0.12, 0.06, 0.03, 0.01)
"""Differences that an entrant is asked for, one after the other."""

FOLDS = 2
ALIKE = 1.0  # standard errors of a difference in utility that decide nothing (Breiman's rule)
CHECKED = 2000  # rows by which an entrant is seen to look at the sensitive feature
DEVELOPMENT, REPORTED = range(20), range(40, 60)


@dataclass(frozen=True)
class Cell:
    """One entrant on one split of one data set, in one protocol, at all limits; file: where it is, if outside this
    package."""

    dataset: str
    seed: int
    protocol: str
    entrant: str
    limits: tuple[float, ...] = LIMITS
    request: tuple[float, ...] = REQUESTS
    folder: str | None = None
    file: str | None = None

    @property
    def key(self) -> str:
        """Its name, by which it is run again alone."""
        return key_of(vars(self))


def key_of(row: Mapping[str, Any]) -> str:
    """The name of a cell.

    >>> key_of({"dataset": "adult", "seed": 3, "protocol": "rate", "entrant": "fl"})
    'adult-03-rate-fl'
    """
    return f"{row['dataset']}-{row['seed']:02d}-{row['protocol']}-{row['entrant']}"


def cells(
    datasets: Iterable[str],
    seeds: Iterable[int],
    entrants: Iterable[str],
    protocols: Iterable[str] = PROTOCOLS,
    *,
    limits: Sequence[float] = LIMITS,
    request: Sequence[float] = REQUESTS,
    folder: str | None = None,
) -> list[Cell]:
    """Every cell asked for that there is, a seed after the other, those of a split together.

    >>> [cell.key for cell in cells(["adult"], [0], ["rule", "boosted-moved"])]
    ['adult-00-balanced-rule', 'adult-00-balanced-boosted-moved', 'adult-00-rate-rule', 'adult-00-promise-rule']
    """
    seeds, files, protocols = [*dict.fromkeys(seeds)], _files(entrants), [*protocols]
    for name in protocols:
        if name not in PROTOCOLS:
            raise SettingsError(f"no protocol {name!r}; there are: {', '.join(PROTOCOLS)}")
    for seed in seeds:
        if seed not in DEVELOPMENT and seed not in REPORTED:
            raise SettingsError(
                f"seed {seed} is neither for development (0 to 19) nor for reporting (40 to 59): name one that is"
            )
    for limit in limits:
        if not 0 < limit <= 1:
            raise SettingsError(f"limit {limit} is no difference of two rates: give one up to 1")
    wanted = [
        Cell(dataset(data).name, seed, protocol, name, tuple(limits), tuple(request), folder, file)
        for seed in seeds
        for data in dict.fromkeys(datasets)
        for protocol in protocols
        for name, file in files.items()
        if _there_is(protocol, name, file)
    ]
    if not wanted:
        raise SettingsError("nothing is left to run: name data sets, seeds and entrants")
    return wanted


def _there_is(protocol: str, name: str, file: str | None) -> bool:
    if protocol == "promise":
        return name == OURS
    return protocol == "balanced" or _entrant(name, file).rates


def _entrant(name: str, file: str | None) -> Entrant:
    return ENTRANTS[name] if file is None else from_file(file)


def _files(entrants: Iterable[str]) -> dict[str, str | None]:
    """Entrants by name, each with its file if it is not of this package."""
    files: dict[str, str | None] = {}
    for word in entrants:
        name = from_file(word).name if is_file(word) else word
        if is_file(word) and (name in ENTRANTS or name in files):
            raise SettingsError(f"{word!r} is not the only entrant {name!r}: give it another name")
        if not is_file(word) and name not in ENTRANTS:
            known = ", ".join(ENTRANTS)
            raise SettingsError(f"no entrant {name!r}; there are: {known}; or name a file, mine.py")
        files[name] = str(Path(word).expanduser().resolve()) if is_file(word) else None
    return files


def parsed(seeds: str) -> list[int]:
    """Numbers and ranges with commas between.

    >>> parsed("0-2, 7")
    [0, 1, 2, 7]
    """
    numbers: list[int] = []
    for piece in seeds.split(","):
        first, _, last = piece.strip().partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            raise SettingsError(f"seeds {seeds!r} are no numbers and ranges: write 0-4 or 0,3")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def here(names: Iterable[str], folder: str | None) -> tuple[list[str], dict[str, str]]:
    """The data sets that can be loaded, and why each of the others cannot."""
    loaded, absent = [], {}
    for name in names:
        try:
            load_dataset(name, folder)
            loaded.append(name)
        except DataError as error:
            absent[name] = str(error)
    return loaded, absent


@dataclass(frozen=True)
class Fold:
    """Training rows without a fold, by client, and those in it."""

    train: Train
    out: Table


@dataclass(frozen=True)
class Prepared:
    """A split with what all of its entrants share.

    folds: of the training rows.  tried: all rows in the folds' order.  subgroups: the subgroups of these that the
    rule looks at.  suite: the deployments.
    """

    split: Split
    train: Train
    folds: Sequence[Fold]
    tried: Table
    subgroups: Suite
    suite: Suite

    def under(self, protocol: str) -> Prepared:
        """For a cell: with the rate of positives that the protocol fixes, if it does; what was learned is shared."""
        halves = self.train.cache.get("halves", (self.train, None))[0]
        for train in (self.train, halves, *(fold.train for fold in self.folds)):
            train.begin_path()
        if protocol != "rate":
            return self
        folds = [replace(fold, train=_at_rate(fold.train)) for fold in self.folds]
        return replace(self, train=_at_rate(self.train), folds=folds)


def _at_rate(train: Train) -> Train:
    return replace(train, positive_rate=float(train.pooled.y.mean()))


@lru_cache(maxsize=1)
def prepared(name: str, seed: int, folder: str | None) -> Prepared:
    """A split of a data set, with what its entrants share; the last one is kept."""
    source, table = dataset(name), load_dataset(name, folder)
    split = shift(table, source, None, seed)
    train = Train(split.train, source.positive, source.sensitive_features, seed)
    rng = np.random.default_rng([seed, FOLDS])
    dealt = {k: rng.permutation(np.arange(len(t)) % FOLDS) for k, t in split.train.items()}
    folds = []
    for fold in range(FOLDS):
        within = {k: t.take(dealt[k] != fold) for k, t in split.train.items()}
        out = concatenate([t.take(dealt[k] == fold) for k, t in split.train.items()])
        folds.append(Fold(replace(train, clients=within, cache={}), out))
    tried = concatenate([fold.out for fold in folds])
    natural = natural_subgroups(split, source.shift)
    return Prepared(
        split,
        train,
        folds,
        tried,
        named_suite(tried, source.sensitive_features),
        deployments(split.test, train.encoding, seed, source.sensitive_features, natural),
    )


def run_cell(cell: Cell) -> Row:
    """The rows of a cell, one a limit; what an entrant cannot do is said in ``why``."""
    head = {k: getattr(cell, k) for k in ("dataset", "seed", "protocol", "entrant")}
    entrant = _entrant(cell.entrant, cell.file)
    about = {k: getattr(entrant, k) for k in ("note", "sees", "pooled", "ours")}
    about |= {} if cell.file is None else {"file": digest(cell.file)}
    row = head | about | {"rows": []}
    if not entrant.installed:
        return row | {"why": f"{' or '.join(entrant.packages)} is not installed"}
    begin = time.process_time()
    # one thread: a sum split over threads is rounded in another order
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what another library says to its own authors
        split = prepared(cell.dataset, cell.seed, cell.folder).under(cell.protocol)
        try:
            row |= _of_protocol(cell, entrant, split)
        except Exception as error:  # a row of the table, not the end of the run
            row |= {"why": _said(error)}
    return row | {"seconds": round(time.process_time() - begin, 2)}


def _of_protocol(cell: Cell, entrant: Entrant, split: Prepared) -> Row:
    if cell.protocol == "promise":
        from agnosticfair_research.promises import promised

        return {"rows": [promised(split, limit) for limit in cell.limits]}
    requests = cell.request if entrant.asks else cell.request[:1]
    if not entrant.ours:
        settings = [_tried_out(entrant, split, a) for a in requests]
        if all("why" in setting for setting in settings):
            raise SettingsError(f"every fit failed, the last one so: {settings[-1]['why']}")
        within = [max((a for a in requests if a <= k), default=requests[-1]) for k in cell.limits]
        rows = [{"limit": k, "request": a} for k, a in zip(cell.limits, within, strict=True)]
        return {"rows": rows, "settings": settings}
    tried = [_cross_fitted(entrant, split, a) for a in requests]
    rows = [_taken(tried, limit) for limit in cell.limits]
    taken = {row["request"] for row in rows}
    return {
        "tried": [setting.brief() for setting in tried],
        "rows": rows,
        "settings": [_measured(entrant, split, a) for a in requests if a in taken],
    }


def _tried_out(entrant: Entrant, split: Prepared, request: float) -> Row:
    """What a setting does; or, if it fails, why."""
    try:
        return _measured(entrant, split, request)
    except Exception as error:
        return {"request": request, "why": _said(error)}


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


@dataclass(frozen=True)
class Tried:
    """A setting on the folds it was not fitted on. right: (n,), what each row is worth that is decided as its label
    says, so that the mean is balanced accuracy.  worst, p90: of the differences over subgroups; beyond: the largest
    less BEYOND standard errors.  why: what went wrong."""

    request: float
    right: np.ndarray = field(default_factory=lambda: np.zeros(1), compare=False)
    worst: float = np.inf
    beyond: float = np.inf
    p90: float = np.inf
    why: str = ""

    @property
    def utility(self) -> float:
        return float(self.right.mean())

    def brief(self) -> Row:
        """What the rule goes by, for who would check it."""
        if self.why:
            return {"request": self.request, "why": self.why}
        names = ("utility", "worst", "beyond", "p90")
        return {"request": self.request} | {k: round(getattr(self, k), 5) for k in names}

    def as_useful_as(self, other: Tried) -> bool:
        """Whether its utility is lower by at most ALIKE standard errors of the difference, which is on the same
        rows."""
        less = other.right - self.right
        return bool(less.mean() <= ALIKE * less.std() / np.sqrt(len(less)))


def _cross_fitted(entrant: Entrant, split: Prepared, request: float) -> Tried:
    try:
        p = np.concatenate(
            [decided(entrant.fit(fold.train, request), fold.out) for fold in split.folds]
        )
    except Exception as error:
        return Tried(request, why=_said(error))
    y = split.tried.labels(split.train.positive)
    s = split.tried.column(split.train.sensitive_features).codes
    measures = measure_all(split.subgroups, y, p, s)
    rd, error_of = measures["risk_difference"], measures["risk_difference_error"]
    minimum, p90 = float((rd - BEYOND * error_of).max()), float(np.quantile(rd, 0.9))
    return Tried(request, worth(y, p), float(rd.max()), minimum, p90)


def worth(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    """What every row adds to balanced accuracy, (n,), whose mean is it.

    >>> float(worth(np.array([1, 0, 0, 0]), np.array([1.0, 1.0, 0.0, 0.0])).mean())
    0.8333333333333333
    """
    counts = np.bincount(y.astype(np.int64), minlength=2)
    return (1.0 - np.abs(y - p)) * (len(y) / (2.0 * counts))[y.astype(np.int64)]


def chosen(tried: Sequence[Tried], limit: float) -> tuple[Tried, bool]:
    """The rule: which setting is taken at a limit, and whether it keeps the limit.

    Of those that keep it and are as useful, within error, as the most useful of them: the one whose p90 is lowest,
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
    keeping = [t for t in there if t.beyond <= limit]
    if not keeping:
        return min(there, key=lambda t: t.beyond), False
    best = max(keeping, key=lambda t: t.utility)
    return min((t for t in keeping if t.as_useful_as(best)), key=lambda t: t.p90), True


def _taken(tried: Sequence[Tried], limit: float) -> Row:
    setting, keeps = chosen(tried, limit)
    return {"limit": limit, "request": setting.request, "kept": keeps}


def _measured(entrant: Entrant, split: Prepared, request: float) -> Row:
    """What a setting does, fitted on all training rows."""
    decide = entrant.fit(split.train, request)
    if not entrant.sees:
        _check_blind(decide, split)
    return {"request": request} | on_deployments(decide, split)


def decided(decide: Decide, table: Table) -> np.ndarray:
    """What an entrant decides, (n,), on rows whose labels it is not shown."""
    p = np.asarray(decide(replace(table, target=None)), float)
    if p.shape != (len(table),) or not ((p > -1e-6) & (p < 1 + 1e-6)).all():
        raise SettingsError(
            f"it does not decide each of {len(table)} rows by a number from 0 to 1: give the probability of a positive"
        )
    return p


def _check_blind(decide: Decide, split: Prepared) -> None:
    """Raise if an entrant that says it does not see the sensitive feature decides otherwise where that is another."""
    name, rows = split.train.sensitive_features, np.arange(min(len(split.split.test), CHECKED))
    test = split.split.test.take(rows)
    column = test.sensitive_features[name]
    other = replace(column, codes=(column.codes + 1) % len(column.categories))
    swapped = replace(test, sensitive_features={**test.sensitive_features, name: other})
    if (decided(decide, test) != decided(decide, swapped)).any():
        raise SettingsError(f"it looks at {name!r} when it decides: say sees=True in its file")


def on_deployments(decide: Decide, split: Prepared) -> Row:
    """What a decision is worth on the test rows, and its differences over the deployments."""
    test, train, suite = split.split.test, split.train, split.suite
    y, s = test.labels(train.positive), test.column(train.sensitive_features).codes
    measures = measure_all(suite, y, decided(decide, test), s)
    rd, kinds = measures["risk_difference"], np.array(suite.kinds)
    return {
        "test": {name: round(float(measures[name][0]), 5) for name in MEASURES},
        "all": _summary(rd) | {"worst": suite.names[int(rd.argmax())]},
        "kinds": {k: _summary(rd[kinds == k])["p90"] for k in KINDS if (kinds == k).any()},
    }


def _summary(rd: np.ndarray) -> Row:
    values = {"mean": rd.mean(), "p90": np.quantile(rd, 0.9), "max": rd.max()}
    return {"count": len(rd)} | {k: round(float(v), 5) for k, v in values.items()}


@dataclass(frozen=True)
class _Split:
    """The cells of one split, and when no further one is begun."""

    cells: tuple[Cell, ...]
    until: float

    def rows(self) -> Iterator[Row]:
        for cell in self.cells:
            if time.time() < self.until:
                yield run_cell(cell)


def run(
    todo: Sequence[Cell], jobs: int, on_done: Callable[[Row], None], budget: float = np.inf
) -> list[Row]:
    """Run the cells; ``on_done`` keeps each as it arrives.  budget: seconds after which none is begun.

    Those of a split follow each other in one process, for what they share is made once.
    """
    for name, folder in {(cell.dataset, cell.folder) for cell in todo}:
        load_dataset(
            name, folder
        )  # what is missing or altered is said, or downloaded, once and first
    place = [*DATASETS].index
    groups: dict[tuple[int, int], list[Cell]] = {}
    for cell in sorted(todo, key=lambda c: (c.seed, place(c.dataset))):
        groups.setdefault((cell.seed, place(cell.dataset)), []).append(cell)
    splits = [_Split(tuple(group), time.time() + budget) for group in groups.values()]
    return [row for rows in walked(_Split.rows, splits, jobs, on_done) for row in rows]
