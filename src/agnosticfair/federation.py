"""Assembly: run a method over an engine, from the summary statistics to the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from hashlib import sha256
from operator import add
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agnosticfair import __version__
from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.records import taken_apart
from agnosticfair.data.rows import Fold
from agnosticfair.data.schema import Schema, under
from agnosticfair.data.storage import trained_on
from agnosticfair.data.stream import Stream
from agnosticfair.data.summary import (
    SummaryStatistics,
    check_groups_known,
    check_labels_known,
    counted,
    merge,
)
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError, FederationError, SettingsError, SolverError
from agnosticfair.fitted import Fit as Fit
from agnosticfair.fitted import fit_of
from agnosticfair.mathematics.basis import check_seed
from agnosticfair.methods import Method
from agnosticfair.methods import method as build_method
from agnosticfair.model import Model
from agnosticfair.protocol.engines import Engine
from agnosticfair.protocol.engines.seam import InProcess
from agnosticfair.protocol.faults import Coordinator, Missing, Policy, check_enough, policy
from agnosticfair.protocol.messages import Broadcast, check_candidates
from agnosticfair.protocol.requests import UNCOUNTED, Counts
from agnosticfair.protocol.secure.keys import Roster
from agnosticfair.server import checkpoints, rule, solvers
from agnosticfair.server import plan as server
from agnosticfair.server.plan import Beginning, Start
from agnosticfair.server.plan import checked_centres as checked_centres
from agnosticfair.site.guard import rehearsed
from agnosticfair.threads import cpus, one_thread


def in_process(tables: Mapping[str, Table | Stream], device: str | None = None) -> InProcess:
    """An engine whose clients hold these tables, answered for by that many processes, which share the
    processors for what is streamed.  device: of PyTorch, on which a rule's rows are added up."""
    if not tables:
        raise SettingsError("there are no clients: give at least one table")
    handlers = {
        key: partial(answer, Client(key, table, cpus(), device)) for key, table in tables.items()
    }
    return InProcess(handlers)


def fit(
    clients: Mapping[str, Table | Stream] | Engine,
    method: str | Method = "fl",
    *,
    sensitive_features: str | Sequence[str] | None = None,
    positive: str | None = None,
    seed: int = 0,
    scale: bool = True,
    start: Start | None = None,
    strict: bool = False,
    on_round: Callable[[dict], None] | None = None,
    deadline: float | None = None,
    on_failure: str | Policy = "stop",
    checkpoint: str | Path | None = None,
    secure: bool | Roster = False,
    schema: Schema | None = None,
    fold: Fold | None = None,
) -> Fit:
    """Train one classifier over clients whose rows stay with them.

    Parameters
    ----------
    clients : mapping of str to Table or Stream, or Engine
        Rows per client, or what carries requests to them.
    method : str or Method
        A name of ``METHODS``, or a method.
    sensitive_features : str or sequence of str, optional
        Those to protect, where the data has several.
    positive : str, optional
        The label that counts as 1; by default by what two labels say.
    seed : int
        Draws the kernels' centres.
    scale : bool
        Columns of numbers are scaled to [0, 1] by their range.
    start : Start, optional
        Another fit's, to begin there.
    strict : bool
        A fit that does not converge is an error.
    on_round : callable, optional
        Called with each round's record.
    deadline : float, optional
        Seconds a client has for an answer.
    on_failure : {'stop', 'wait', 'drop'} or Policy
        What is done about an answer that does not come.
    checkpoint : path, optional
        A folder; a fit that was interrupted goes on from what is there.
    secure : bool or mapping of str to str
        Every client's sums masked, so that only totals can be read; the model is the same to the last bit. True
        rehearses it among clients of this process; over an engine, the sites' long-term public keys.
    schema : Schema, optional
        Agreed on, so that clients are asked for counts only, neither for extremes nor for lists of values.
    fold : Fold, optional
        Of the rows to fit on, which every client deals by their content.

    Examples
    --------
    >>> from agnosticfair import iid, load_dataset
    >>> fit(iid(load_dataset("adult").take(np.arange(1000)), clients=2).train, "fl").outcome
    'converged'
    """
    begin = perf_counter()
    method = build_method(method) if isinstance(method, str) else method
    if schema is not None and isinstance(clients, Mapping):
        clients = {key: under(schema, rows, f"client {key!r}") for key, rows in clients.items()}
    engine = in_process(clients) if isinstance(clients, Mapping) else clients
    consents = server.consents(method)
    coordinator = coordinator_for(
        engine, policy(on_failure), deadline, secure, consents, fold, schema
    )
    check_enough(coordinator.keys, coordinator.policy)
    run = FitArguments(
        method,
        sensitive_features=sensitive_features,
        positive=positive,
        seed=seed,
        scale=scale,
        start=start,
        folder=None if checkpoint is None else Path(checkpoint),
        schema=schema,
        tables=rows_here(clients, fold),
    )
    with one_thread():
        state = _until_answered(coordinator, run, on_round)
    fitted = _ended(state, coordinator, perf_counter() - begin, strict)
    return replace(fitted, model=knowing(fitted.model, clients, fold))


def fit_along(
    clients: Mapping[str, Table],
    methods: Sequence[Method],
    *,
    strict: bool = False,
    on_round: Callable[[dict], None] | None = None,
    **how: Any,
) -> Iterator[Fit]:
    """Fit methods that differ in tau alone, each from where the one before ended: rows are counted, encoded and sorted
    into subgroups once.  how: of ``FitArguments``.  The models do not know the rows again that they were trained on."""

    def after(state: solvers.SolverState) -> None:
        if on_round is not None:
            on_round(state.last)

    coordinator = coordinator_for(in_process(clients), policy("stop"), None, False)
    run = FitArguments(methods[0], tables=rows_here(clients), **how)
    with one_thread():
        plan = planned(coordinator, run, summarised(coordinator, run))
    for each in methods:
        begin = perf_counter()
        chosen = build_method(plan.method, tau=server.fairness_of(each).tau)
        plan_of_tau = replace(plan, method=chosen)
        with one_thread():
            try:
                state = _solved(coordinator, begun(coordinator, run, plan_of_tau), after)
            except SolverError:  # a start may be a bad one
                if run.start is None:
                    raise
                cold = begun(coordinator, replace(run, start=None), plan_of_tau)
                state = _solved(coordinator, cold, after)
        fitted = _ended(state, coordinator, perf_counter() - begin, strict)
        run = replace(run, start=fitted.start)
        yield fitted


def _ended(
    state: solvers.SolverState, coordinator: Coordinator, seconds: float, strict: bool
) -> Fit:
    """The record of a fit that ended in this state."""
    plan, inner, w, rule_fields = state.plan, state.inner, state.inner.w, {}
    if strict:
        _check_converged(state)
    if plan.method.rule is not None:
        w, rule_fields = np.zeros(0), rule.model_fields(state)
    model = model_of(plan, w, inner.outcome, seed=state.seed, **rule_fields)
    return fit_of(state, model, tuple(coordinator.events), seconds)


def coordinator_for(
    engine: Engine,
    policy: Policy,
    deadline: float | None,
    secure: bool | Roster,
    consents: frozenset[str] = frozenset(),
    fold: Fold | None = None,
    schema: Schema | None = None,
) -> Coordinator:
    """Who asks the clients: for their sums, or where it is to be secure for totals only.  consents: what clients of
    this process consent to, for they were asked for it by name; sites of their own have it in their files."""
    roster = None if isinstance(secure, bool) else secure
    if secure is True:
        engine, roster = rehearsed(engine, policy.then == "drop", consents, schema)
    if roster is not None and fold is not None and schema is None:
        raise SettingsError(
            "folds under masks need a schema, for no site tells ranges and categories of some of its rows: agree on one"
        )
    return Coordinator(engine, engine.clients(), policy, deadline, secure=roster, fold=fold)


def knowing(
    model: Model, clients: Mapping[str, Table | Stream] | Engine, fold: Fold | None = None
) -> Model:
    """The model with what knows its rows again, where they lie in tables here."""
    tables = rows_here(clients, fold)
    if not tables:
        return model
    return replace(model, training=trained_on(model.reading, tables))


def rows_here(
    clients: Mapping[str, Table | Stream] | Engine, fold: Fold | None = None
) -> tuple[Table, ...]:
    """The rows, where all lie in tables here; none elsewhere."""
    all_rows = [*clients.values()] if isinstance(clients, Mapping) else []
    tables = tuple(table for table in all_rows if isinstance(table, Table))
    if len(tables) < len(all_rows):
        return ()
    return tables if fold is None else tuple(fold.rows(table) for table in tables)


@dataclass(frozen=True)
class FitArguments:
    """What a fit is asked for: with it, and the same rows, a fit is the same.  tables: the rows, where all are here."""

    method: Method
    sensitive_features: str | Sequence[str] | None = None
    positive: str | None = None
    seed: int = 0
    scale: bool = True
    start: Start | None = None
    folder: Path | None = None
    schema: Schema | None = None
    tables: tuple[Table, ...] = ()

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def identity(
        self, statistics: SummaryStatistics, keys: tuple[str, ...], rows: Mapping[str, str]
    ) -> dict[str, Any]:
        """What must be the same for a checkpoint to be gone on with.  rows: digests of the clients', where known."""
        plain, warm = ({}, {}) if self.start is None else taken_apart(self.start)
        entries = {
            "method": asdict(self.method),
            "seed": self.seed,
            "version": __version__,
            **{f"the rows of site {key!r}": rows[key] for key in keys if rows.get(key)},
            "sensitive_features": self.sensitive_features,
            "positive": self.positive,
            "scale": self.scale,
            "start": [plain, _digest(*warm.values())],
            "clients": keys,
            "the clients' rows": statistics.to_json(),
        }
        return json.loads(json.dumps(entries, default=str))


def _digest(*values: ArrayLike | None) -> str:
    return sha256(
        b"".join(np.asarray(v, float).tobytes() for v in values if v is not None)
    ).hexdigest()


def _until_answered(
    coordinator: Coordinator, run: FitArguments, on_round: Callable[[dict], None] | None
) -> solvers.SolverState:
    """The last state; where clients are dropped, of the problem stated anew for those that remain."""
    while True:
        try:
            return _rounds(coordinator, run, on_round)
        except Missing as missing:
            coordinator.drop(missing)


def _rounds(
    coordinator: Coordinator, run: FitArguments, on_round: Callable[[dict], None] | None
) -> solvers.SolverState:
    """Summarise, plan, learn and decide: the last state, for the clients that the coordinator has."""
    statistics = summarised(coordinator, run)
    identity = run.identity(statistics, coordinator.sites, getattr(coordinator.engine, "rows", {}))
    restated = any(event["event"] == "restated" for event in coordinator.events)
    checkpoint = None if run.folder is None else checkpoints.load(run.folder, identity, restated)
    if checkpoint is None:
        state = begun(coordinator, run, planned(coordinator, run, statistics))
    else:
        state, coordinator.events[:0] = checkpoint
        coordinator.note("resumed", round=state.last["round"])

    def after(state: solvers.SolverState) -> None:
        if run.folder is not None:
            checkpoints.save(run.folder, identity, state, coordinator.events)
        if on_round is not None:
            on_round(state.last)

    return _solved(coordinator, state, after)


def _solved(
    coordinator: Coordinator,
    state: solvers.SolverState,
    after: Callable[[solvers.SolverState], None],
) -> solvers.SolverState:
    """The last state: round after round, and with a rule stage after stage, each round shown to ``after``."""
    while not (state := rule.onward(state, coordinator.total)).done:
        state = solvers.step(state, coordinator.total(solvers.request(state)))
        after(state)
    return state


def summaries(coordinator: Coordinator) -> dict[str, SummaryStatistics]:
    """What each client says of its rows; with secure sums without a count of anything."""
    return coordinator.send(
        "statistics" if coordinator.secure is None else "outline", None, _check_statistics
    )


def summarised(coordinator: Coordinator, run: FitArguments) -> SummaryStatistics:
    """What is known of all rows together before the first round."""
    if run.schema is not None:
        return counts_of_all(coordinator, run.schema.outline())
    of_each = summaries(coordinator)
    check_labels_known(of_each, run.positive)
    check_groups_known(of_each)
    return statistics_of_all(coordinator, of_each)


def statistics_of_all(
    coordinator: Coordinator, of_each: Mapping[str, SummaryStatistics]
) -> SummaryStatistics:
    """What the clients' summaries add up to; with secure sums their counts are requested as a total."""
    agreed = merge(of_each)
    return agreed if coordinator.secure is None else counts_of_all(coordinator, agreed)


def counts_of_all(coordinator: Coordinator, agreed: SummaryStatistics) -> SummaryStatistics:
    """The summary statistics of labels, groups, ranges and categories that are agreed on: only counts are requested."""
    statistics = counted(agreed, coordinator.total(Broadcast(0, UNCOUNTED, Counts(agreed))).sums)
    for name, groups in agreed.groups.items():
        if coordinator.secure is not None and (
            away := sorted({*groups} - {*statistics.groups[name]})
        ):
            raise DataError(
                f"no row of any site has the group {away[0]!r} of {name!r}, and under masks all groups that are agreed "
                "on are compared: take it off the schema"
            )
    return statistics


def planned(
    coordinator: Coordinator, run: FitArguments, statistics: SummaryStatistics
) -> server.Plan:
    """The plan: what is learned of which columns, and what is compared where."""
    server.check_missing(run.method, statistics)
    plan = server.plan(
        run.method,
        statistics,
        coordinator.sites,
        sensitive_features=run.sensitive_features,
        positive=run.positive,
        scale=run.scale,
    )
    plan = agree_on_centres(plan, coordinator, run.seed)
    if plan.method.rule is not None:  # centres lie in the space without bins
        return rule.agreed(plan, statistics, coordinator.total)
    if server.fairness_of(plan.method).basis.kind == "subgroups":
        raise SettingsError(
            f"method {plan.method.name!r} has subgroups to limit and no rule to do it by: take 'rule'"
        )
    return plan


def begun(coordinator: Coordinator, run: FitArguments, plan: server.Plan) -> solvers.SolverState:
    """The state before the first round: before the program's, where estimates are known, or a classifier learns from
    rows that are here."""
    if plan.method.rule is not None and run.start is not None and run.start.estimates is not None:
        return rule.warm(plan, run.seed, run.start, coordinator.total)
    if plan.method.rule is not None and not isinstance(plan.method.rule.learner, str):
        return rule.trained_here(plan, run.tables, run.seed, coordinator.total, run.start)
    first = solvers.solver_of(plan.method).before(plan)
    answer = None if first is None else coordinator.total(first)
    return solvers.init(plan, Beginning(run.seed, run.start, answer))


def agree_on_centres(
    plan: server.Plan, coordinator: Coordinator, seed: int = 0, centres: ArrayLike | None = None
) -> server.Plan:
    """The plan with the kernels' centres, where its bases have any: given, or found as they say."""
    kind = server.centres_kind(plan.method)
    if kind is None:
        if centres is not None:
            raise SettingsError(f"method {plan.method.name!r} has no gaussian kernels to centre")
        return plan
    if centres is not None:
        return server.centred(plan, checked_centres(centres, plan.features))
    if kind == "given":
        raise SettingsError("centres are 'given' and none were: give an array, (M, d)")
    if kind == "rows":
        return _sampled(plan, coordinator, seed)
    b = server.ranges_draw(plan, seed)
    for k in range(1, 1 + (server.KMEANS_ROUNDS if kind == "kmeans" else 0)):
        b = server.moved(b, coordinator.total(server.clusters_request(plan, b, k)))
    return server.centred(plan, b)


def _sampled(plan: server.Plan, coordinator: Coordinator, seed: int) -> server.Plan:
    """The plan with distinct rows of the clients as centres, drawn by their content and the seed."""
    check = partial(check_candidates, width=plan.features)
    request = server.centres_request(plan, seed)
    while request is not None:
        offered = reduce(add, coordinator.send("centres", request, check).values())
        if server.enough(plan, request, offered):
            return server.with_centres(plan, offered)
        request = server.centres_request(plan, seed, request.request.share)
    return plan


def _check_statistics(answer: object, key: str) -> SummaryStatistics:
    if not isinstance(answer, SummaryStatistics):
        raise FederationError(
            f"client {key!r} answered with {type(answer).__name__}, not summary statistics"
        )
    return answer


def _check_converged(state: solvers.SolverState) -> None:
    inner, method = state.inner, state.plan.method
    if inner.outcome != "converged" and method.averaging is None:
        last = inner.history[-1]
        raise SolverError(
            f"{method.name} did not converge in {inner.round} rounds (loss {last['loss']:.4f}, "
            f"worst difference {last['worst']:.4f}): allow more rounds or raise tau"
        )


def model_of(plan: server.Plan, w: np.ndarray, outcome: str, **about: Any) -> Model:
    """The model with all that is needed to use it and to know where it came from."""
    task = plan.task
    return Model(
        w=w,
        encoding=task.encoding,
        positive=task.positive,
        negative=plan.negative,
        sensitive_features=tuple(name for name, _ in task.sensitive_features),
        groups=task.groups,
        method=asdict(plan.method),
        rows=plan.n,
        clients=len(task.clients),
        outcome=outcome,
        network=None if task.network is None else asdict(task.network),
        **about,
    )
