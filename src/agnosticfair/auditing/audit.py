"""The audit: what a model's decisions may do under every reweighing in A, for a model of anybody.

All that is needed are sums of K over the rows of each cell (group, label, decision), psi of shape
(G, 2, 2, M + 1) with a last column that counts rows; so a certificate over clients is the pooled
one.  The module is not called ``audit``: it would hide the package's function of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agnosticfair.auditing.beyond import (
    WEIGHTED,
    bounded,
    cannot_tell,
    check_clients,
    check_held_out,
    fitted_on,
    looked_at,
)
from agnosticfair.auditing.certificate import Certificate
from agnosticfair.auditing.inputs import (
    KernelInputs,
    check_labels,
    codes,
    features,
    features_of,
    labels_and_decisions,
    table_of,
)
from agnosticfair.auditing.parts import (
    Found,
    Subpopulations,
    asked_parts,
    own_counts,
    searched,
)
from agnosticfair.auditing.proof import rows_digest
from agnosticfair.auditing.question import BOUND, AuditQuestion, opened
from agnosticfair.auditing.repeats import about_rows
from agnosticfair.auditing.worst import measured
from agnosticfair.client.answers import tally
from agnosticfair.client.client import CHUNK
from agnosticfair.data.axes import own_axes
from agnosticfair.data.census import Census
from agnosticfair.data.encoding import shown
from agnosticfair.data.rows import Fold
from agnosticfair.data.schema import Schema, under
from agnosticfair.data.stream import Stream
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.federation import (
    agree_on_centres,
    asking,
    census_of_all,
    checked_centres,
    counts_of_all,
    in_process,
    summaries,
)
from agnosticfair.mathematics.basis import (
    Basis,
    Reweighing,
    checked,
    comes_with_rows,
    constant,
    design,
    is_apart,
    is_centred,
    row_priorities,
    settled,
    subpopulations,
)
from agnosticfair.mathematics.notions import PARITY
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
from agnosticfair.settings import SHARE, require

MOST_ROWS = 100
"""Rows of the worst deployment that a certificate names."""

Progress = Callable[[int, int], None]


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

    Parameters
    ----------
    predictions_or_model : (n,) array, classifier, callable or Model
        Decisions 0/1, probabilities (positive above ``threshold``) or labels; or what gives these for X.
    X : (n, d) array, frame or Table
        The kernels see every column of numbers scaled to [0, 1] by its range, unless ``scale`` is False, and a
        table's rows as the model encodes them.
    y : (n,) array, optional
        Labels; of two the one that says yes is positive, else the last, unless ``positive`` names one. None leaves
        the accuracy out, or takes the table's own target.
    sensitive_features : (n,) array or str
        Values of two or more groups, or the name of a table's column.
    basis : Basis or callable, optional
        Gaussian kernels, or a function from X to K, (n, M).
    bound : float, optional
        Of the adversary's alpha, for kernels: larger is a larger set.
    floor : float
        Share of the mass that compared groups keep.
    centres : (M, d) array, optional
        Rows like those of X (a table's encoded); by default ``basis.kernels`` distinct rows drawn with ``seed``.
    seed : int
    tolerance : float
        Of the worst case over kernels.
    bootstrap : int, optional
        Resamples of the rows (each row Poisson(1) times), 200 unless said. For each the worst case over kernels is
        found anew while kernels, bound and floor stay: the percentiles tell the chance in the rows, not whether A
        holds the deployment you will meet. A worst case over a set leans outwards in resamples, so its interval lies
        on the cautious side.
    confidence : float
        Of ``upper``, the bound on the difference over the whole set; all that is in the set shares 1 - confidence
        evenly.
    parts : sequence of str or Basis, optional
        Names of columns, or ``subpopulations(columns, depth, least, bands)``; all columns of X and pairs of their
        values where neither parts nor a basis are asked for.
    precision : float
        Parts whose interval is wider than +- that are not estimable.
    mixtures : bool
        Bound every mixture of the estimable parts, too.
    held_out : bool
        False for rows that the model was fitted on: parts are then measured, and nothing is bounded.
    notion : str
        A key of ``NOTIONS``.
    threshold : float
        Of probabilities.
    positive : optional
        The label that counts as 1.
    scale : bool
        Scale columns of numbers to [0, 1].
    on_progress : callable, optional
        Called with (done, total).

    Returns
    -------
    Certificate

    Examples
    --------
    >>> x, s = [[0.0], [0.0], [1.0], [1.0]] * 500, ["F", "M", "F", "M"] * 500
    >>> made = audit([0, 0, 0, 1] * 500, x, [0, 0, 1, 1] * 500, sensitive_features=s)
    >>> made.parts[0].name, made.difference, made.upper >= made.worst_difference
    ('everybody', 0.5, True)
    """
    require(SHARE, threshold=threshold)
    ask = (basis, bound, centres, parts, precision, mixtures, bootstrap, seed)
    asked, wanted = opened(*ask, floor, tolerance, confidence, notion)
    if is_apart(asked.basis) or comes_with_rows(asked.basis):
        raise SettingsError(
            f"basis {asked.basis.kind!r} needs clients: give their tables to audit_clients, or here a "
            "function of X"
        )
    held = _held(predictions_or_model, X, y, sensitive_features, (scale, positive, threshold))
    K = None if wanted.own is None else checked(wanted.own, X, held.given.n)
    made, psi = _over_rows(asked, held, K, centres, seed, on_progress)
    if isinstance(X, Table) and X.weights is not None:
        made = replace(made, notes=(*made.notes, WEIGHTED))
    model = predictions_or_model if isinstance(predictions_or_model, Model) else None
    if wanted.parts is None and (not held_out or fitted_on(model, X)):
        return made
    if held_out:
        tables = [X] if isinstance(X, Table) else []
        check_held_out(model, tables)
        made = replace(made, notes=(*made.notes, *cannot_tell(model, tables)))
    wanted = replace(wanted, kernels=wanted.kernels and (K is None or K.max() <= 1))
    if wanted.parts is None:
        return bounded(made, wanted, psi)
    table = X if isinstance(X, Table) else table_of(X)
    agreed = wanted.parts.agreed
    axes = agreed.axes if agreed else own_axes(table, wanted.parts.columns, wanted.parts.bands)
    counts = own_counts(table, axes, held.cells, len(held.groups))
    if not held_out:
        return looked_at(made, wanted, axes, counts)
    made = replace(made, notes=(*made.notes, *about_rows(table, held.cells)))
    made = bounded(made, wanted, psi, axes, counts, model)
    rows = {"rows": rows_digest(table, held.cells)}
    return replace(made, sums={**(made.sums or {}), **rows})


@dataclass(frozen=True)
class _Held:
    """Rows in one place.  cells: (n,) (group * 2 + label) * 2 + decision.  units: of the features, where the
    user's centres are in others."""

    given: KernelInputs
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
    asked: AuditQuestion,
    held: _Held,
    K: np.ndarray | None,
    centres: ArrayLike | None,
    seed: int,
    on_progress: Progress | None,
) -> tuple[Certificate, np.ndarray]:
    """What holds on the rows over the set of kernels, with the rows weighed most; and the sums psi."""
    given, (low, span), b = held.given, held.units, None
    if K is not None:
        asked = replace(asked, basis=Basis("function", K.shape[1]))
    elif is_centred(asked.basis):
        if centres is None:
            b = _drawn(given, asked.basis.kernels, seed)
            asked = replace(asked, basis=replace(asked.basis, centres="rows"))  # its holder's own
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
    made = measured(asked, sums, held.groups, given, held.labelled, tell)
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
    fold: Fold | None = None,
    schema: Schema | None = None,
) -> Certificate:
    """The certificate of ``audit`` for a model of ours, over clients whose rows stay with them.

    A client sends one message of sums, with resamples that it draws by itself; and counts for named parts, whose axes
    are agreed on by counts: the bounds are the pooled ones, bit for bit.

    Parameters
    ----------
    model : Model
    clients : mapping of str to Table or Stream, or Engine
    sensitive_features : str, optional
        The name of one, by default the model's.
    basis, bound, floor, seed, tolerance, bootstrap, confidence
        As in ``audit``.
    parts, precision, mixtures, held_out, notion, on_progress
        As in ``audit``.
    centres : (M, d) array, optional
        In the encoding; by default drawn from the clients' rows, which shows these to all.
    deadline : float, optional
        Seconds a client has for an answer.
    secure, fold, schema
        As in ``fit``.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> from agnosticfair import fit, load_dataset
    >>> rows = load_dataset("adult").take(np.arange(500))
    >>> audit_clients(fit({"a": rows}, "fl").model, {"a": rows}, held_out=False).n
    500
    """
    ask = (basis, bound, centres, parts, precision, mixtures, bootstrap, seed)
    asked, wanted = opened(*ask, floor, tolerance, confidence, notion)
    notes: tuple[str, ...] = ()
    if schema is not None and isinstance(clients, Mapping):
        clients = {key: under(schema, rows, f"client {key!r}") for key, rows in clients.items()}
    engine = in_process(clients) if isinstance(clients, Mapping) else clients
    consents = _consents(asked.basis, wanted.parts, centres is not None)
    asker = asking(engine, Policy(), deadline, secure, consents, fold, schema)
    b = None if centres is None else checked_centres(centres, model.encoding.width)
    chosen = asked.basis if b is None else replace(asked.basis, kernels=len(b))
    census, plan = _stated(asker, model, sensitive_features, chosen, schema)
    if isinstance(clients, Mapping) and held_out and wanted.parts is not None:
        notes = check_clients(model, clients)
    plan = agree_on_centres(plan, asker, seed, b)
    asked = replace(asked, basis=plan.method.basis)
    sums = asker.total(Broadcast(1, plan.task, Decisions(seed, asked.bootstrap, model.w))).sums
    encoded, tell = features_of(model.encoding), _counter(on_progress, asked.bootstrap)
    made = measured(asked, sums, plan.task.groups, encoded, True, tell)
    notes += () if census.weight is None else (WEIGHTED,)
    made = replace(made, centres=plan.task.centres, notes=(*made.notes, *notes))
    psi = sums["psi"][0]
    if wanted.parts is None:
        return bounded(made, wanted, psi) if held_out else made
    axes, counts = _asking_parts(asker, census, plan, wanted.parts, model)
    if not held_out:
        return looked_at(made, wanted, axes, counts)
    return bounded(made, wanted, psi, axes, counts, model)


def counting(
    model: Model,
    clients: Mapping[str, Table | Stream] | Engine,
    *,
    sensitive_features: str,
    parts: Any = None,
    confidence: float = 0.95,
    fold: Fold | None = None,
    deadline: float | None = None,
    secure: bool | Roster = False,
    schema: Schema | None = None,
) -> Callable[[Model], Found]:
    """A function from a model to the counts of named parts that a certificate of it would rest on.

    Clients are asked for what there is, and agree on the parts' axes, once for all models, which encode rows alike.
    """
    engine = in_process(clients) if isinstance(clients, Mapping) else clients
    chosen = asked_parts(parts)
    asker = asking(engine, Policy(), deadline, secure, _consents(constant(), chosen), fold, schema)
    census, plan = _stated(asker, model, sensitive_features, constant(), schema)
    axes, ask = _asking_parts(asker, census, plan, chosen, model)
    rounds = count(1)

    def look(other: Model) -> Found:  # a round of its own: masks of one round serve one model
        own = partial(ask, model=other, round=next(rounds))
        return searched(axes, chosen, own, 1 - confidence)

    return look


def _consents(basis: Basis, parts: Subpopulations | None, given: bool = False) -> frozenset[str]:
    """What sites under masks must consent to for this audit.  given: whether the centres are."""
    kernels = replace(basis, centres="given") if given else basis
    named_by = subpopulations(None if parts is None else parts.columns)
    return server.consents(Method("audit", basis=kernels, fairness=Fairness(basis=named_by)))


def _stated(
    asker: Asker,
    model: Model,
    sensitive_features: str | None,
    basis: Basis,
    schema: Schema | None,
) -> tuple[Census, server.Plan]:
    """What there is among the clients' rows, and the audit's problem over them, as the model encodes rows."""
    census = (
        census_of_all(asker, summaries(asker))
        if schema is None
        else counts_of_all(asker, schema.outline())
    )
    check_labels(model, census.labels)
    if sensitive_features is None and len(model.sensitive_features) != 1:
        raise SettingsError(
            f"the model protects {model.sensitive_feature or 'nobody'}: name one by sensitive_features"
        )
    name = sensitive_features or model.sensitive_feature
    method = Method("audit", basis=basis)
    plan = server.plan(method, census, asker.keys, sensitive_features=name, positive=model.positive)
    own = model.network
    network = None if own is None else Architecture(own["name"], tuple(own["hidden"]))
    task = replace(plan.task, encoding=model.encoding, network=network)
    task = replace(task, estimates=model.estimates, rule=model.rule)
    return census, replace(plan, task=task)


def _asking_parts(
    asker: Asker, census: Census, plan: server.Plan, asked: Subpopulations, model: Model
) -> tuple[Sequence[Axis], Callable[..., np.ndarray]]:
    """The axes of a fit, or those that clients agree on by counts; and a function that asks them for counts of parts,
    by default of the model."""
    set_ = subpopulations(asked.columns, asked.depth, asked.least, asked.bands)
    fairness = Fairness(basis=set_, each=True)
    own = replace(plan, method=Method("audit", fairness=fairness))
    if asked.agreed is not None:
        axes = asked.agreed.axes
    else:
        question = named.histograms_question(own, census)
        counts = {} if question is None else named.by_column(question, asker.total(question))
        axes = named.axes_in(named.with_axes(own, census, counts))

    def ask(parts: Sequence[Part], model: Model = model, round: int = 1) -> np.ndarray:
        task = named.with_parts(own, axes, parts).task
        task = replace(task, estimates=model.estimates, rule=model.rule)
        total = asker.total(Broadcast(round, task, PartDecisions(model.w)))
        cells = np.round(total.sums["counts"]).astype(np.int64)
        return cells.reshape(len(parts), -1, 2, 2)

    return axes, ask


def _drawn(given: KernelInputs, kernels: int, seed: int) -> np.ndarray:
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
