"""The audit: what a model's decisions may do under every reweighing in A, for a model of anybody.

All that is needed are sums of K over the rows of each cell (group, label, decision), psi of shape
(G, 2, 2, M + 1) with a last column that counts rows; so a certificate over clients is the pooled
one.  The module is not called ``audit``: it would hide the package's function of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, permutations
from math import inf, isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agnosticfair.auditing.beyond import Wanted, bounded, check_clients, check_held_out, fitted_on
from agnosticfair.auditing.certificate import Certificate, Group, Tilt
from agnosticfair.auditing.inputs import (
    Features,
    check_labels,
    codes,
    features,
    features_of,
    labels_and_decisions,
    table_of,
)
from agnosticfair.auditing.parts import (
    Asked,
    Subpopulations,
    asked_parts,
    own_axes,
    own_counts,
)
from agnosticfair.client.answers import tally
from agnosticfair.client.client import CHUNK
from agnosticfair.data.census import Census
from agnosticfair.data.encoding import shown
from agnosticfair.data.stream import Stream
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.federation import (
    agree_on_centres,
    asking,
    census_of_all,
    checked_centres,
    in_process,
    summaries,
)
from agnosticfair.mathematics import notions
from agnosticfair.mathematics.ambiguity import (
    Ambiguity,
    Worst,
    check,
    worst_linear,
)
from agnosticfair.mathematics.basis import (
    Basis,
    Reweighing,
    check_seed,
    checked,
    comes_with_rows,
    constant,
    design,
    gaussian,
    is_apart,
    is_centred,
    row_priorities,
    settled,
    subpopulations,
)
from agnosticfair.mathematics.fairness import worst_pair
from agnosticfair.mathematics.notions import NOTIONS, PARITY, notion_of
from agnosticfair.mathematics.parts import Axis, Part
from agnosticfair.methods import Fairness, Method
from agnosticfair.model import Model
from agnosticfair.protocol.engines import Engine
from agnosticfair.protocol.faults import Asker, Policy
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.questions import Architecture, Decisions, PartDecisions
from agnosticfair.protocol.secure.keys import Roster
from agnosticfair.server import named
from agnosticfair.server import plan as server
from agnosticfair.settings import NATURAL, POSITIVE, SHARE, Kind, require

COARSE = 1e-3
"""Tolerance of the search in a resample: well under the resamples' own spread."""

BOUND = 5.0
"""Of alpha, where kernels are asked for without one."""

MOST_ROWS = 100
"""Rows of the worst deployment that a certificate names."""

MEASURES = ("worst_difference", "difference", "worst_accuracy", "accuracy")
Progress = Callable[[int, int], None]
_DEFAULT = gaussian(200, 1.0)


@dataclass(frozen=True)
class _Question:
    """What is asked, whoever holds the rows."""

    basis: Basis
    bound: float
    floor: float
    tolerance: float
    bootstrap: int
    confidence: float
    notion: str

    def __post_init__(self) -> None:
        notion_of(self.notion)
        require(POSITIVE, bound=self.bound, tolerance=self.tolerance)
        require(SHARE, floor=self.floor)
        require(NATURAL, bootstrap=self.bootstrap)
        require(Kind("between 0 and 1", lambda v: 0 < v < 1), confidence=self.confidence)


def audit(
    predictions_or_model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    sensitive_features: Any,
    basis: Basis | Reweighing | None = None,
    bound: float | None = BOUND,
    floor: float = 0.05,
    centres: ArrayLike | None = None,
    seed: int = 0,
    tolerance: float = 1e-4,
    bootstrap: int | None = None,
    confidence: float = 0.95,
    parts: Any = None,
    precision: float = 0.1,
    mixtures: bool = False,
    held_out: bool = True,
    notion: str = PARITY.name,
    threshold: float = 0.5,
    positive: object = None,
    scale: bool = True,
    on_progress: Progress | None = None,
) -> Certificate:
    """What a model's decisions do in every named part of the population, or under every reweighing by kernels.

    Unless ``basis`` asks for kernels, the set is named parts (``auditing.parts``): conjunctions of values of
    columns, for each of which an exact interval holds at ``confidence``, for all at once, in the population that
    the rows were drawn from.

    predictions_or_model: decisions 0/1, probabilities (positive above ``threshold``) or labels, (n,);
    or a classifier with ``predict``, or any function, that gives these for X; or a ``Model``.
    X: (n, d) numbers, an array or a data frame; or a ``Table``.  The kernels see every column of
    numbers scaled to [0, 1] by its range, unless ``scale`` is False, and a table's rows as the model
    encodes them.  y: (n,) labels; of two the last is positive, unless ``positive`` names one.  None
    leaves the accuracy out, or takes the table's own target.  sensitive_features: (n,) values of two
    or more groups, or the name of a table's column.
    basis: Gaussian kernels, or a function from X to K, (n, M).  centres: (M, d), rows like those of X
    (a table's encoded); by default ``basis.kernels`` distinct rows drawn with ``seed``.
    parts: names of columns, or ``subpopulations(columns, depth, least, bands)``; all columns of X and pairs of
    their values where neither parts nor a basis are asked for.  precision: parts whose interval is wider than +-
    that are not estimable. mixtures: bound every mixture of the estimable parts, too.  held_out: False for rows
    that the model was fitted on, beyond which nothing is then bounded.  notion: a key of NOTIONS.  on_progress:
    called with (done, total).

    ``upper`` bounds the difference over the whole set with that confidence, whatever is in it sharing 1 -
    confidence evenly. For kernels there are besides, of the worst over the rows, intervals that are percentiles
    over ``bootstrap`` (200) resamples of the rows (each row Poisson(1) times), for each of which the worst case is
    found anew while kernels, bound and floor stay: they tell the chance in the rows, not whether A holds the
    deployment you will meet.  A worst case over a set leans outwards in resamples, so its interval lies on the
    cautious side.

    >>> x, s = [[0.0], [0.0], [1.0], [1.0]] * 500, ["F", "M", "F", "M"] * 500
    >>> made = audit([0, 0, 0, 1] * 500, x, [0, 0, 1, 1] * 500, sensitive_features=s)
    >>> made.parts[0].name, made.difference, made.upper >= made.worst_difference
    ('everybody', 0.5, True)
    """
    require(SHARE, threshold=threshold)
    check_seed(seed)
    set_ = _set_of(basis, bound, centres, parts, bootstrap)
    asked = _asked(set_.basis, set_.bound, floor, tolerance, set_.bootstrap, confidence, notion)
    if is_apart(asked.basis) or comes_with_rows(asked.basis):
        raise SettingsError(
            f"basis {asked.basis.kind!r} needs clients: give their tables to audit_clients, or here a "
            "function of X"
        )
    held = _held(predictions_or_model, X, y, sensitive_features, (scale, positive, threshold))
    K = None if set_.own is None else checked(set_.own, X, held.given.n)
    made, psi = _over_rows(asked, held, K, centres, seed, on_progress)
    model = predictions_or_model if isinstance(predictions_or_model, Model) else None
    if not held_out or (set_.parts is None and fitted_on(model, X)):
        return made
    check_held_out(model, X)
    wanted = Wanted(set_.parts, precision, mixtures, set_.kernels and (K is None or K.max() <= 1))
    if set_.parts is None:
        return bounded(made, wanted, psi)
    table = X if isinstance(X, Table) else table_of(X)
    axes = own_axes(table, set_.parts)
    ask = own_counts(table, axes, held.cells, len(held.groups))
    return bounded(made, wanted, psi, axes, ask, model)


@dataclass(frozen=True)
class _Set:
    """Over what is certified: kernels (own: a user's function), where asked for, and named parts, else."""

    basis: Basis | None
    own: Reweighing | None
    bound: float | None
    bootstrap: int
    parts: Subpopulations | None
    kernels: bool


def _set_of(
    basis: Any, bound: float | None, centres: Any, parts: Any, bootstrap: int | None
) -> _Set:
    """What a user's arguments ask for."""
    if isinstance(basis, Basis) and basis.kind == "named":
        basis, parts = None, basis if parts is None else parts
    if basis is not None and not isinstance(basis, Basis):
        require(Kind("a Basis, or a function from X to K", callable, object), basis=basis)
    kernels = basis is not None or centres is not None or bound != BOUND
    asked = None if kernels and parts is None else asked_parts(parts)
    if not kernels:
        return _Set(constant(), None, None, bootstrap or 0, asked, False)
    data, own = (basis, None) if isinstance(basis, Basis) else (None, basis)
    return _Set(data, own, bound, 200 if bootstrap is None else bootstrap, asked, True)


@dataclass(frozen=True)
class _Held:
    """Rows in one place.  cells: (n,) (group * 2 + label) * 2 + decision.  units: of the features, where the
    user's centres are in others."""

    given: Features
    groups: tuple[str, ...]
    cells: np.ndarray
    labelled: bool
    units: tuple[Any, Any]


def _held(
    predictions_or_model: Any, X: Any, y: Any, sensitive_features: Any, how: tuple[bool, Any, float]
) -> _Held:
    """The rows, their groups, labels and decisions as plain arrays.  how: scale, positive, threshold."""
    scale, positive, threshold = how
    model = predictions_or_model if isinstance(predictions_or_model, Model) else None
    given = features(X, model.encoding if model else None, scale)
    label, decided = labels_and_decisions(
        predictions_or_model, X, y, given.n, positive=positive, threshold=threshold
    )
    if isinstance(X, Table) and isinstance(sensitive_features, str):
        sensitive_features = X.column(sensitive_features).values()
    s, groups = codes(sensitive_features, "sensitive_features", given.n)
    if len(groups) < 2:
        raise DataError(
            f"sensitive_features has one group ({shown(groups)}); fairness needs at least two: "
            "check the column"
        )
    units = (0.0, 1.0) if isinstance(X, Table) else (given.low, given.span)
    cells = (s * 2 + (0 if label is None else label)) * 2 + decided
    return _Held(given, groups, cells, label is not None, units)


def _over_rows(
    asked: _Question,
    held: _Held,
    K: np.ndarray | None,
    centres: ArrayLike | None,
    seed: int,
    on_progress: Progress | None,
) -> tuple[Certificate, np.ndarray]:
    """What holds on the rows over the set of kernels, with the rows weighed most; and the sums psi."""
    given, (low, span), b = held.given, held.units, None
    if K is not None:
        asked = replace(asked, basis=Basis("given", K.shape[1]))
    elif is_centred(asked.basis):
        if centres is None:
            b = _drawn(given, asked.basis.kernels, seed)
        else:
            b = (checked_centres(centres, len(given.names)) - low) / span
        asked = replace(asked, basis=settled(replace(asked.basis, kernels=len(b)), b))
    tell = _counter(on_progress, len(_parts(given.n)) + asked.bootstrap)
    d = len(given.names)

    def kernels(x: np.ndarray) -> np.ndarray:
        return x[:, d:] if K is not None else design(asked.basis, x, b, "", ("",))

    def at(part: slice) -> np.ndarray:  # kernels that were made beforehand travel with their rows
        return given.at(part) if K is None else np.hstack([given.at(part), K[part]])

    def rows(part: slice) -> np.ndarray:
        tell()
        return at(part)

    rng, cells = np.random.default_rng(seed), 4 * len(held.groups)
    sums = tally(rows, kernels, held.cells, cells, asked.bootstrap, rng)
    sums |= {"psi_x": sums["psi_x"][:, :d], "x_squares": sums["x_squares"][:d]}
    made = _certificate(asked, sums, held.groups, given, held.labelled, tell)
    alpha = made.alpha_difference
    theta = np.concatenate([kernels(at(part)) @ alpha for part in _parts(given.n)])
    most = np.argsort(-theta, kind="stable")[:MOST_ROWS]
    shown_centres = None if b is None else low + span * b
    made = replace(made, worst_rows=most, worst_weights=theta[most], centres=shown_centres)
    return made, sums["psi"][0]


def audit_clients(
    model: Model,
    clients: Mapping[str, Table | Stream] | Engine,
    *,
    sensitive_features: str | None = None,
    basis: Basis | None = None,
    bound: float | None = BOUND,
    floor: float = 0.05,
    centres: ArrayLike | None = None,
    seed: int = 0,
    tolerance: float = 1e-4,
    bootstrap: int | None = None,
    confidence: float = 0.95,
    parts: Any = None,
    precision: float = 0.1,
    mixtures: bool = False,
    held_out: bool = True,
    notion: str = PARITY.name,
    on_progress: Progress | None = None,
    deadline: float | None = None,
    secure: bool | Roster = False,
) -> Certificate:
    """The certificate of ``audit`` for a model of ours, over clients whose rows stay with them.

    clients: a table or a stream each, or an engine.  sensitive_features: the name of one, by default the model's.
    centres: (M, d), in the encoding; by default drawn from the clients' rows, which shows these to
    all.  Besides, a client sends one message of sums, with resamples that it draws by itself; and counts for
    named parts, whose axes are agreed on by counts: the bounds are the pooled ones, bit for bit.  secure: as in
    ``fit``.
    in ``fit``.
    """
    check_seed(seed)
    set_ = _set_of(basis, bound, centres, parts, bootstrap)
    if isinstance(clients, Mapping) and held_out and set_.parts is not None:
        check_clients(model, clients)
    bootstrap = set_.bootstrap
    asked = _asked(set_.basis, set_.bound, floor, tolerance, bootstrap, confidence, notion)
    engine = in_process(clients) if isinstance(clients, Mapping) else clients
    kind = asked.basis.centres if is_centred(asked.basis) and centres is None else None
    asker = asking(engine, Policy(), deadline, secure, kind)
    census = census_of_all(asker, summaries(asker))
    check_labels(model, census.labels)
    if sensitive_features is None and len(model.sensitive_features) != 1:
        raise SettingsError(
            f"the model protects {model.sensitive_feature or 'nobody'}: name one by sensitive_features"
        )
    name = sensitive_features or model.sensitive_feature
    b = None if centres is None else checked_centres(centres, model.encoding.width)
    chosen = asked.basis if b is None else replace(asked.basis, kernels=len(b))
    method = Method("audit", basis=chosen)
    plan = server.plan(
        method, census, engine.clients(), sensitive_features=name, positive=model.positive
    )
    own = model.network
    network = None if own is None else Architecture(own["name"], tuple(own["hidden"]))
    plan = replace(plan, task=replace(plan.task, encoding=model.encoding, network=network))
    plan = agree_on_centres(plan, asker, seed, b)
    asked = replace(asked, basis=plan.method.basis)
    sums = asker.total(Broadcast(1, plan.task, Decisions(seed, bootstrap, model.w))).sums
    encoded, tell = features_of(model.encoding), _counter(on_progress, bootstrap)
    made = _certificate(asked, sums, plan.task.groups, encoded, True, tell)
    made = replace(made, centres=plan.task.centres)
    if not held_out:
        return made
    wanted = Wanted(set_.parts, precision, mixtures, set_.kernels)
    psi = sums["psi"][0]
    if set_.parts is None:
        return bounded(made, wanted, psi)
    axes, ask = _asking_parts(asker, census, plan, set_.parts, model)
    return bounded(made, wanted, psi, axes, ask, model)


def _asking_parts(
    asker: Asker, census: Census, plan: server.Plan, asked: Subpopulations, model: Model
) -> tuple[Sequence[Axis], Asked]:
    """The axes that clients agree on by counts, and a function that asks them for those of parts."""
    set_ = subpopulations(asked.columns, asked.depth, asked.least, asked.bands)
    fairness = Fairness(basis=set_, each=True)
    own = replace(plan, method=Method("audit", fairness=fairness))
    question = named.histograms_question(own, census)
    counts = {} if question is None else named.by_column(question, asker.total(question))
    own = named.with_axes(own, census, counts)
    axes = named.axes_in(own)

    def ask(parts: Sequence[Part]) -> np.ndarray:
        there = named.with_parts(own, axes, parts)
        total = asker.total(Broadcast(1, there.task, PartDecisions(model.w)))
        cells = np.round(total.sums["counts"]).astype(np.int64)
        return cells.reshape(len(parts), -1, 2, 2)

    return axes, ask


def _asked(basis: Basis | None, bound: float | None, *rest: Any) -> _Question:
    return _Question(basis or _DEFAULT, inf if bound is None else bound, *rest)


def _drawn(given: Features, kernels: int, seed: int) -> np.ndarray:
    """The distinct rows of lowest priority: those that the clients would agree on, too."""
    parts = _parts(given.n)
    priorities = np.concatenate([row_priorities(given.at(part), seed) for part in parts])
    _, first = np.unique(priorities, return_index=True)
    return np.concatenate([given.at(slice(i, i + 1)) for i in first[:kernels]])


def _parts(n: int) -> list[slice]:
    return [slice(first, min(first + CHUNK, n)) for first in range(0, n, CHUNK)]


def _counter(on_progress: Progress | None, total: int) -> Callable[[], None]:
    steps = count(1)
    return lambda: None if on_progress is None else on_progress(next(steps), total)


def _certificate(
    asked: _Question,
    sums: Mapping[str, np.ndarray],
    groups: tuple[str, ...],
    given: Features,
    labelled: bool,
    tell: Callable[[], None],
) -> Certificate:
    """The certificate from the sums of ``tally``, whoever added them up."""
    psi, *resamples = sums["psi"].reshape(1 + asked.bootstrap, len(groups), 2, 2, -1)
    if not labelled and NOTIONS[asked.notion].needs_labels:
        raise SettingsError(f"notion {asked.notion!r} compares rows of one label: give y")
    A, gap = _checked_gap(psi, asked, groups)
    alpha = gap.worst.alpha
    errors = worst_linear(A, _errors(psi)[:-1])
    found = np.full((len(resamples), len(MEASURES)), nan)
    for r, resample in enumerate(resamples):
        found[r] = _resampled(resample, asked)
        tell()
    names = MEASURES if labelled else MEASURES[:2]
    return Certificate(
        worst_difference=gap.worst.value,
        worst_accuracy=1 - errors.value / A.n if labelled else nan,
        difference=notions.gap(NOTIONS[asked.notion], psi[..., -1]),
        accuracy=1 - float(_errors(psi)[-1]) / A.n if labelled else nan,
        pair=(groups[gap.pair[0]], groups[gap.pair[1]]),
        intervals=_intervals(found, names, asked.confidence),
        confidence=asked.confidence,
        resamples=int(np.isfinite(found).all(axis=1).sum()),
        tolerance=gap.worst.tolerance,
        outcome=gap.worst.outcome,
        notion=asked.notion,
        basis=asked.basis,
        bound=asked.bound,
        floor=asked.floor,
        n=round(A.n),
        groups={
            name: _group(psi[g], gap.labels, alpha, A.n, asked.notion)
            for g, name in enumerate(groups)
        },
        under_floor=tuple(name for g, name in enumerate(groups) if g not in gap.reachable),
        alpha_difference=alpha,
        alpha_accuracy=errors.alpha if labelled else np.full_like(alpha, nan),
        profile=profile(sums, alpha, A.n, given),
    )


def _set(psi: np.ndarray, bound: float) -> Ambiguity:
    total = psi.sum(axis=(0, 1, 2))
    return Ambiguity(total[:-1], float(total[-1]), bound if isfinite(bound) else None)


def _errors(psi: np.ndarray) -> np.ndarray:
    return psi[:, 0, 1].sum(axis=0) + psi[:, 1, 0].sum(axis=0)


@dataclass(frozen=True)
class _Gap:
    """The worst gap between two groups: in which pair, among rows of which labels; and the groups
    that reach the floor under some alpha, in every comparison."""

    worst: Worst
    pair: tuple[int, int]
    labels: tuple[int, ...]
    reachable: frozenset[int]


def _worst_gap(A: Ambiguity, psi: np.ndarray, asked: _Question, tolerance: float) -> _Gap | None:
    """The largest difference of rates over A and all ordered pairs of groups; None if there is none."""
    notion, G = NOTIONS[asked.notion], len(psi)
    looked = notions.ratios(notion, psi[..., :-1])
    a, b = (np.concatenate([entry[place] for entry in looked]) for place in (1, 2))
    pairs: list[tuple[int, int | None]] = [(j, None) for j in range(len(a))]
    if not notion.bounds:
        of_labels = range(0, len(a), G)
        pairs = [(i + j, i + k) for i in of_labels for j, k in permutations(range(G), 2)]
    found = worst_pair(A, a, b, pairs, asked.floor, tolerance)
    if found is None:
        return None
    j, k = found.pair
    reachable = frozenset(g for g in range(G) if {*range(g, len(a), G)} <= found.reachable)
    pair = (j % G, (j if k is None else k) % G)
    return _Gap(found.worst, pair, looked[j // G][0], reachable)


def _checked_gap(
    psi: np.ndarray, asked: _Question, groups: tuple[str, ...]
) -> tuple[Ambiguity, _Gap]:
    """A and the worst gap over it, or the sentence that says why there is none."""
    A = check(_set(psi, asked.bound))
    gap = _worst_gap(A, psi, asked, asked.tolerance)
    if gap is not None:
        return A, gap
    for _, _, b in notions.ratios(NOTIONS[asked.notion], psi[..., :-1]):
        check(A, b, asked.floor, groups)
    raise SettingsError(f"floor {asked.floor:g} holds for no two groups at once: lower it")


def _resampled(psi: np.ndarray, asked: _Question) -> tuple[float, ...]:
    """MEASURES on one resample; nan where it has none, as when a group's rows were not drawn."""
    A, errors = _set(psi, asked.bound), _errors(psi)
    try:
        gap = _worst_gap(check(A), psi, asked, COARSE)
    except SettingsError:
        gap = None
    if gap is None:
        return (nan,) * len(MEASURES)
    worst = gap.worst.value - gap.worst.tolerance, 1 - worst_linear(A, errors[:-1]).value / A.n
    return (
        worst[0],
        notions.gap(NOTIONS[asked.notion], psi[..., -1]),
        worst[1],
        1 - float(errors[-1]) / A.n,
    )


def _intervals(
    found: np.ndarray, names: tuple[str, ...], confidence: float
) -> dict[str, tuple[float, float]]:
    """Percentile intervals; none where less than half of the resamples have an answer."""
    there = found[np.isfinite(found).all(axis=1)]
    if not len(found) or len(there) < len(found) / 2:
        return {}
    low, high = np.quantile(there, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0).tolist()
    return {name: (low[k], high[k]) for k, name in enumerate(names)}


def _group(
    psi: np.ndarray, labels: tuple[int, ...], alpha: np.ndarray, n: float, notion: str
) -> Group:
    """One group from its cells, (2, 2, M + 1); its rates are those among its rows of these labels."""
    mass = psi.sum(axis=(0, 1))
    looked = notions.ratios(NOTIONS[notion], psi[None])
    ((a,), (b,)) = next((a, b) for own, a, b in looked if own == labels)
    rate = float(a[-1] / b[-1]) if b[-1] > 0 else nan
    worst = alpha @ b[:-1]
    worst_rate = float(alpha @ a[:-1] / worst) if worst > 0 else nan
    rows, worst_share = round(float(mass[-1])), float(alpha @ mass[:-1] / n)
    return Group(rows, rows / n, rate, worst_share, worst_rate)


def profile(
    sums: Mapping[str, np.ndarray], alpha: np.ndarray, n: float, given: Features
) -> tuple[Tilt, ...]:
    """Every feature's mean over the rows and under alpha, the most shifted first."""
    means, worst_means = sums["psi_x"][-1] / n, alpha @ sums["psi_x"][:-1] / n
    variances = np.maximum(sums["x_squares"] / n - means**2, 0.0)
    moves = variances > 1e-12  # in the units of the kernels, where less is rounding
    shifts = np.where(moves, worst_means - means, 0.0) / np.sqrt(np.where(moves, variances, 1.0))
    columns = given.low + given.span * means, given.low + given.span * worst_means, shifts
    tilts = map(Tilt, given.names, *(column.tolist() for column in columns))
    return tuple(sorted(tilts, key=lambda tilt: -abs(tilt.shift)))
