"""The audit: what a model's decisions do in named subgroups, and under reweightings by kernels, for a model of anybody.

All that is needed are counts by subgroup, group, label and decision and, for kernels, sums of K over the rows of each
cell (group, label, decision); so a certificate over clients is the pooled one.  The module is not called ``audit``: it
would hide the package's function of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agnosticfair.auditing.certificate import Certificate
from agnosticfair.auditing.certify import AuditRequest, audit_request, certified
from agnosticfair.auditing.inputs import (
    as_frame,
    codes,
    features,
    labels_and_decisions,
    table_of,
)
from agnosticfair.auditing.repeats import (
    WEIGHTED,
    about_rows,
    check_clients,
    check_held_out,
    one_of_each,
    one_of_each_note,
    rows_digest,
)
from agnosticfair.auditing.subgroups import (
    Agreed,
    CountedSubgroups,
    searched,
    subgroups_in,
    table_counts,
)
from agnosticfair.client.answers import tally
from agnosticfair.data.axes import axes_of_table, within
from agnosticfair.data.encoding import shown
from agnosticfair.data.rows import Fold
from agnosticfair.data.schema import Schema, under
from agnosticfair.data.stream import Stream
from agnosticfair.data.summary import SummaryStatistics
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError, SettingsError, existing
from agnosticfair.federation import (
    agree_on_centres,
    checked_centres,
    coordinator_for,
    counts_of_all,
    in_process,
    statistics_of_all,
    summaries,
)
from agnosticfair.mathematics.basis import (
    Basis,
    Reweighting,
    checked,
    comes_with_rows,
    constant,
    design,
    is_apart,
    is_centred,
    row_priorities,
    settled,
)
from agnosticfair.mathematics.metrics import PARITY
from agnosticfair.mathematics.subgroups import Axis, Subgroup
from agnosticfair.methods import Fairness, Method
from agnosticfair.model import Model, check_labels
from agnosticfair.protocol.engines import Engine
from agnosticfair.protocol.faults import Coordinator, Policy, policy
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.requests import Architecture, Decisions, SubgroupDecisions
from agnosticfair.protocol.secure.keys import Roster
from agnosticfair.server import plan as server
from agnosticfair.server import subgroup_axes
from agnosticfair.settings import SHARE, require


def audit(
    predictions_or_model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    sensitive_features: Any,
    subgroups: Any = None,
    confidence: float = 0.95,
    precision: float = 0.1,
    mixtures: bool = False,
    basis: Basis | Reweighting | None = None,
    bound: float | None = None,
    floor: float = 0.05,
    centres: ArrayLike | None = None,
    seed: int = 0,
    held_out: bool = True,
    cluster: Any = None,
    metric: str = PARITY.name,
    threshold: float = 0.5,
    positive: object = None,
) -> Certificate:
    """What a model's decisions do in every named subgroup of the population, at a stated confidence.

    Subgroups (``auditing.subgroups``) are conjunctions of values of columns. For each an exact interval holds, for all
    at once, in the population that the rows were drawn from.

    Parameters
    ----------
    predictions_or_model : (n,) array, classifier, callable or Model
        Decisions 0/1, probabilities (positive above ``threshold``) or labels; or what gives these for X.
    X : (n, d) array, frame or Table
    y : (n,) array, optional
        Labels; of two the one that says yes is positive, else the last, unless ``positive`` names one. None leaves
        the accuracy out, or takes the table's own target.
    sensitive_features : (n,) array or str
        Values of two or more groups, or the name of a table's column.
    subgroups : sequence of str or Basis, optional
        Names of columns, or ``subgroups(columns, depth, min_share, bins)``; all columns of X and pairs of their
        values unless said.
    confidence : float
        Of ``upper``, the bound on the difference over the whole set; all that is in the set shares 1 - confidence
        evenly.
    precision : float
        Subgroups whose interval is wider than +- that are not estimable.
    mixtures : bool
        Bound every mixture of the estimable subgroups, too.
    basis : Basis or callable, optional
        Bound reweightings by kernels, too: Gaussian ones, or a function from X to K, (n, M). They see every column
        of numbers scaled to [0, 1] by its range, and a table's rows as the model encodes them.
    bound : float, optional
        Of the adversary's alpha, for kernels: larger is a larger set; 5 unless said, infinity for none.
    floor : float
        Share of the mass that compared groups keep in mixtures and reweightings.
    centres : (M, d) array, optional
        Rows like those of X (a table's encoded); by default ``basis.kernels`` distinct rows drawn with ``seed``.
    seed : int
    held_out : bool
        False for rows that the model was fitted on: subgroups are then measured, and nothing is bounded.
    cluster : (n,) array, optional
        Which rows are one person, school or household: one row of each is audited, drawn with ``seed``.
    metric : str
        A key of ``METRICS``.
    threshold : float
        Of probabilities.
    positive : optional
        The label that counts as 1.

    Examples
    --------
    >>> x, s = [[0.0], [0.0], [1.0], [1.0]] * 500, ["F", "M", "F", "M"] * 500
    >>> made = audit([0, 0, 0, 1] * 500, x, [0, 0, 1, 1] * 500, sensitive_features=s)
    >>> made.subgroups[0].name, made.difference, made.upper >= made.worst_difference
    ('overall', 0.5, True)
    """
    require(SHARE, threshold=threshold)
    X = as_frame(X)
    level = {"confidence": confidence, "precision": precision}
    what: dict[str, Any] = {"mixtures": mixtures, "metric": metric, "floor": floor}
    request = audit_request(subgroups, basis, bound, centres, seed, **level, **what)
    chosen = None if callable(basis) else request.basis
    if chosen is not None and (is_apart(chosen) or comes_with_rows(chosen)):
        raise SettingsError(
            f"basis {chosen.kind!r} needs clients: give their tables to audit_clients, or here a function of X"
        )
    rows = _rows(predictions_or_model, X, y, sensitive_features, positive, threshold)
    notes: tuple[str, ...] = () if rows.table.weights is None else (WEIGHTED,)
    seen, units = _kernel_inputs(basis, request, rows, X)
    if cluster is not None:
        some = one_of_each(cluster, len(rows.table), seed)
        notes += (one_of_each_note(len(some), len(rows.table)),)
        rows = replace(rows, table=rows.table.take(some), strata=rows.strata[some])
        seen = None if seen is None else seen[some]
    how: dict[str, Any] = {"labelled": rows.labelled, "held_out": held_out}
    if held_out:
        notes += check_held_out(rows.model, [rows.table])
        notes += about_rows(rows.table, rows.strata)
        how["rows"] = rows_digest(rows.table, rows.strata)
        how |= {} if rows.model is None else {"model": rows.model.digest}
    if seen is not None:
        kernel_inputs = None if callable(basis) else (units, centres, seed)
        request, how["psi"], how["centres"] = _kernel_sums(request, rows, seen, kernel_inputs)
        how["beyond"] = not callable(basis) or seen.max() <= 1
    if request.agreed is not None:
        axes: Sequence[Axis] = request.agreed.axes
    else:
        encoding = None if rows.model is None else rows.model.encoding
        names, bins = request.subgroups.columns, request.subgroups.bins
        axes = axes_of_table(rows.table, names, bins, encoding)
    counts = table_counts(rows.table, axes, rows.strata, len(rows.groups))
    return certified(request, rows.groups, axes, counts, notes=notes, **how)


def _kernel_inputs(
    basis: Any, request: AuditRequest, rows: _Rows, X: Any
) -> tuple[np.ndarray | None, tuple[Any, Any]]:
    """What kernels see of the rows, (n, d), or a function's kernels themselves, (n, M), and the units of the centres;
    None where no kernels are requested."""
    units: tuple[Any, Any] = (0.0, 1.0)
    if request.basis is None:
        return None, units
    if callable(basis):
        return checked(basis, X, len(rows.table)), units
    inputs = features(X, None if rows.model is None else rows.model.encoding)
    return inputs.at(slice(None)), units if isinstance(X, Table) else (inputs.low, inputs.span)


@dataclass(frozen=True)
class _Rows:
    """Rows in one place.  strata: (n,) (group * 2 + label) * 2 + decision.  model: ours, if it is one."""

    table: Table
    groups: tuple[str, ...]
    strata: np.ndarray
    labelled: bool
    model: Model | None


def _rows(
    predictions_or_model: Any, X: Any, y: Any, sensitive_features: Any, positive: Any, at: float
) -> _Rows:
    """The rows as a table, with their groups, labels and decisions as plain arrays."""
    model = predictions_or_model if isinstance(predictions_or_model, Model) else None
    if model is not None and not isinstance(X, Table):
        raise DataError(
            f"the model reads a Table, not {type(X).__name__}: read the rows with 'read_rows'"
        )
    table = X if isinstance(X, Table) else table_of(X)
    label, decided = labels_and_decisions(
        predictions_or_model, X, y, len(table), positive=positive, threshold=at
    )
    if isinstance(X, Table) and isinstance(sensitive_features, str):
        sensitive_features = X.column(sensitive_features).values()
    s, groups = codes(sensitive_features, "sensitive_features", len(table))
    if len(groups) < 2:
        raise DataError(
            f"sensitive_features has one group ({shown(groups)}); fairness needs at least two: "
            "check the column"
        )
    strata = (s * 2 + (0 if label is None else label)) * 2 + decided
    return _Rows(table, groups, strata, label is not None, model)


def _kernel_sums(
    request: AuditRequest,
    rows: _Rows,
    x: np.ndarray,
    kernel_inputs: tuple[tuple[Any, Any], ArrayLike | None, int] | None,
) -> tuple[AuditRequest, np.ndarray, np.ndarray | None]:
    """The request with the kernels that were taken, their sums over the cells, (4 G, M + 1), and their centres in the
    user's units.  kernel_inputs: units, centres and seed; None where x are the kernels."""
    basis, b, count = existing(request.basis), None, 4 * len(rows.groups)
    if kernel_inputs is None:
        request = replace(request, basis=replace(basis, kernels=x.shape[1]))
        return request, tally(x.__getitem__, lambda K: K, rows.strata, count), None
    (low, span), centres, seed = kernel_inputs
    if is_centred(basis):
        if centres is None:
            b = _sampled(x, basis.kernels, seed)
            basis = replace(basis, centres="rows")  # its holder's own
        else:
            b = (checked_centres(centres, x.shape[1]) - low) / span
        basis = settled(replace(basis, kernels=len(b)), b)
    psi = tally(
        x.__getitem__, lambda features: design(basis, features, b, "", ("",)), rows.strata, count
    )
    return replace(request, basis=basis), psi, None if b is None else low + span * b


def audit_clients(
    model: Model,
    clients: Mapping[str, Table | Stream] | Engine,
    *,
    sensitive_features: str | None = None,
    subgroups: Any = None,
    confidence: float = 0.95,
    precision: float = 0.1,
    mixtures: bool = False,
    basis: Basis | None = None,
    bound: float | None = None,
    floor: float = 0.05,
    centres: ArrayLike | None = None,
    seed: int = 0,
    held_out: bool = True,
    metric: str = PARITY.name,
    deadline: float | None = None,
    secure: bool | Roster = False,
    fold: Fold | None = None,
    schema: Schema | None = None,
    on_failure: str | Policy = "stop",
) -> Certificate:
    """The certificate of ``audit`` for a model of ours, over clients whose rows stay with them.

    A client sends counts of subgroups, whose axes are agreed on by counts, and sums of kernels: the bounds are the
    pooled ones, bit for bit.

    Parameters
    ----------
    model : Model
    clients : mapping of str to Table or Stream, or Engine
    sensitive_features : str, optional
        The name of one, by default the model's.
    subgroups, confidence, precision, mixtures, basis, bound, floor, seed, held_out, metric
        As in ``audit``.
    centres : (M, d) array, optional
        In the encoding; by default drawn from the clients' rows, which shows these to all.
    deadline : float, optional
        Seconds a client has for an answer.
    secure, fold, schema, on_failure
        As in ``fit``; no client is left out.

    Examples
    --------
    >>> from agnosticfair import fit, load_dataset
    >>> rows = load_dataset("adult").take(np.arange(500))
    >>> audit_clients(fit({"a": rows}, "fl").model, {"a": rows}, held_out=False).n
    500
    """
    level = {"confidence": confidence, "precision": precision}
    what: dict[str, Any] = {"mixtures": mixtures, "metric": metric, "floor": floor}
    request = audit_request(subgroups, basis, bound, centres, seed, **level, **what)
    if schema is not None and isinstance(clients, Mapping):
        clients = {key: under(schema, rows, f"client {key!r}") for key, rows in clients.items()}
    engine = in_process(clients) if isinstance(clients, Mapping) else clients
    chosen = request.basis or constant()
    consents = _consents(chosen, request.subgroups, centres is not None)
    coordinator = coordinator_for(
        engine, policy(on_failure), deadline, secure, consents, fold, schema
    )
    b = None if centres is None else checked_centres(centres, model.encoding.width)
    chosen = chosen if b is None else replace(chosen, kernels=len(b))
    statistics, plan = _stated(coordinator, model, sensitive_features, chosen, schema)
    notes: tuple[str, ...] = ()
    if isinstance(clients, Mapping) and held_out:
        notes = check_clients(model, clients)
    notes += () if statistics.weight is None else (WEIGHTED,)
    psi = None
    if request.basis is not None:
        plan = agree_on_centres(plan, coordinator, seed, b)
        request = replace(request, basis=plan.method.basis)
        psi = coordinator.total(Broadcast(1, plan.task, Decisions(model.w))).sums["psi"]
    spec = request.subgroups if request.agreed is None else request.agreed
    axes, counts = _count_request(coordinator, statistics, plan, spec, model)
    how: dict[str, Any] = {"held_out": held_out, "psi": psi, "centres": plan.task.centres}
    return certified(
        request, plan.task.groups, axes, counts, notes=notes, model=model.digest, **how
    )


def counting(
    model: Model,
    clients: Mapping[str, Table | Stream] | Engine,
    *,
    sensitive_features: str,
    subgroups: Any = None,
    confidence: float = 0.95,
    fold: Fold | None = None,
    deadline: float | None = None,
    secure: bool | Roster = False,
    schema: Schema | None = None,
) -> Callable[[Model], CountedSubgroups]:
    """A function from a model to the counts of subgroups that a certificate of it would rest on.

    Clients are asked for what there is, and agree on the subgroups' axes, once for all models, which encode rows alike.
    """
    engine = in_process(clients) if isinstance(clients, Mapping) else clients
    chosen = subgroups_in(subgroups)
    coordinator = coordinator_for(
        engine, Policy(), deadline, secure, _consents(constant(), chosen), fold, schema
    )
    statistics, plan = _stated(coordinator, model, sensitive_features, constant(), schema)
    axes, count_subgroups = _count_request(coordinator, statistics, plan, chosen, model)
    rounds = count(1)

    def look(
        other: Model,
    ) -> CountedSubgroups:  # a round of its own: masks of one round serve one model
        count_of_model = partial(count_subgroups, model=other, round=next(rounds))
        return searched(axes, chosen, count_of_model, 1 - confidence)

    return look


def _consents(basis: Basis, chosen: Basis, has_centres: bool = False) -> frozenset[str]:
    """What sites under masks must consent to for this audit.  has_centres: whether the centres are."""
    kernels = replace(basis, centres="given") if has_centres else basis
    return server.consents(Method("audit", basis=kernels, fairness=Fairness(basis=chosen)))


def _stated(
    coordinator: Coordinator,
    model: Model,
    sensitive_features: str | None,
    basis: Basis,
    schema: Schema | None,
) -> tuple[SummaryStatistics, server.Plan]:
    """What there is among the clients' rows, and the audit's problem over them, as the model encodes rows."""
    statistics = (
        statistics_of_all(coordinator, summaries(coordinator))
        if schema is None
        else counts_of_all(coordinator, schema.outline())
    )
    check_labels(model, statistics.labels)
    if sensitive_features is None and len(model.sensitive_features) != 1:
        raise SettingsError(
            f"the model protects {model.sensitive_feature or 'nobody'}: name one by sensitive_features"
        )
    name = sensitive_features or model.sensitive_feature
    method = Method("audit", basis=basis)
    plan = server.plan(
        method, statistics, coordinator.sites, sensitive_features=name, positive=model.positive
    )
    module = model.network
    network = None if module is None else Architecture(module["name"], tuple(module["hidden"]))
    task = replace(plan.task, encoding=model.encoding, network=network)
    task = replace(task, estimates=model.estimates, rule=model.rule)
    return statistics, replace(plan, task=task)


def _count_request(
    coordinator: Coordinator,
    statistics: SummaryStatistics,
    plan: server.Plan,
    spec: Basis | Agreed,
    model: Model,
) -> tuple[Sequence[Axis], Callable[..., np.ndarray]]:
    """The axes of a fit, or those that clients agree on by counts; and a function that asks them for counts of
    subgroups, by default of the model."""
    basis = spec.basis if isinstance(spec, Agreed) else spec
    fairness = Fairness(basis=basis, each=True)
    plan_of_counts = replace(plan, method=Method("audit", fairness=fairness))
    axes: Sequence[Axis] = ()
    if isinstance(spec, Agreed):
        axes = spec.axes
    elif spec.columns != ():
        statistics = within(
            statistics, plan_of_counts.task.encoding
        )  # a site answers within the task's ranges alone
        request = subgroup_axes.histograms_request(plan_of_counts, statistics)
        counts = (
            {} if request is None else subgroup_axes.by_column(request, coordinator.total(request))
        )
        axes = subgroup_axes.axes_in(subgroup_axes.with_axes(plan_of_counts, statistics, counts))

    def count(some: Sequence[Subgroup], model: Model = model, round: int = 1) -> np.ndarray:
        task = subgroup_axes.with_subgroup_set(plan_of_counts, axes, some).task
        task = replace(task, estimates=model.estimates, rule=model.rule)
        total = coordinator.total(Broadcast(round, task, SubgroupDecisions(model.w)))
        strata = np.round(total.sums["counts"]).astype(np.int64)
        return strata.reshape(len(some), -1, 2, 2)

    return axes, count


def _sampled(x: np.ndarray, kernels: int, seed: int) -> np.ndarray:
    """The distinct rows of lowest priority: those that the clients would agree on, too."""
    _, first = np.unique(row_priorities(x, seed), return_index=True)
    return x[first[:kernels]]
