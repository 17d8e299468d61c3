"""Every message of a fit, before it runs: fields, shapes, bytes, and what a field could reveal.

The messages are made and packed as in a fit, with zeros for the numbers, so the sizes are real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil, prod
from types import MappingProxyType
from typing import Any

import numpy as np

from agnosticfair.data.axes import axes_of
from agnosticfair.data.records import taken_apart
from agnosticfair.data.summary import SummaryStatistics, counts_shapes
from agnosticfair.learners.decisions import Decision
from agnosticfair.learners.estimates import Estimates, strata
from agnosticfair.mathematics.basis import is_centred, subgroups
from agnosticfair.mathematics.subgroups import SITE, Axis, sizes_of
from agnosticfair.methods import Fairness, Method
from agnosticfair.privacy.requests import (
    PrivateCounts,
    PrivateDecisions,
    PrivateGradients,
    PrivateHeads,
    PrivateMoments,
    PrivatePlan,
    PrivateRates,
    deviations,
)
from agnosticfair.privacy.server import MAX_ACTIVE, MAX_MULTIPLIERS, ROUNDS, binned
from agnosticfair.protocol.messages import (
    Agreement,
    Broadcast,
    Candidates,
    Message,
    Offer,
    Reply,
    pack,
)
from agnosticfair.protocol.requests import (
    REVEALS,
    Histograms,
    Task,
    step_of,
)
from agnosticfair.server import plan as server
from agnosticfair.server import rule, solvers, subgroup_axes
from agnosticfair.server.plan import Beginning, completed, heads_of
from agnosticfair.server.solvers import solver_of
from agnosticfair.server.trainers import TRAINERS, learners_to_try

UNSAID = "nobody has said: ask whoever wrote the step"
"""Of a field without words; ``request`` takes them."""

BLOCKS = ("psi_", "J_", "gram", "counts")
AFTER = ("decisions", "subgroup_decisions", "histograms")
"""Fields that have an entry for every kernel; and the steps of which no method has kernels of each site's own."""

SIGNED = 200
"""Bytes, or less, that a signature and a site's name add to a masked message."""


@dataclass(frozen=True)
class Explained:
    """One message: who sends it in which round, its fields with their shapes, and its bytes."""

    step: str
    rounds: str
    sender: str
    fields: Mapping[str, str]
    size: int
    reveals: Mapping[str, str]


def explain(
    method: Method, statistics: SummaryStatistics, sites: Sequence[str], share: float
) -> list[Explained]:
    """The messages of a fit, in their order.

    statistics: what the sites' summaries add up to, as far as it is known.  share: this site's share of all
    rows, on which only the number of candidate rows depends.
    """
    server.check_missing(method, statistics)
    plan = server.plan(
        method, statistics, tuple(sites), sensitive_features=tuple(statistics.groups)
    )
    summary = {k: _size(v) for k, v in statistics.to_json().items()}
    messages = [
        Explained("hello", "0", "site", {"site": "its name"}, len(sites[0]), {"site": "its name"}),
        Explained("statistics", "0", "site", summary, len(pack(statistics)), _revealed(summary)),
    ]
    if method.rule is not None:
        return messages + _of_rule(plan, statistics)
    kind, request = server.centres_kind(method), server.centres_request(plan, 0)
    b = np.zeros((server.kernels_wanted(method), plan.features))
    if kind == "rows" and request is not None:
        offered = ceil(request.request.share * statistics.n * share)
        candidates = Candidates(np.zeros(offered), np.zeros((offered, plan.features)))
        again = "0, again with four times the rows where too few differ"
        messages += [_message("centres", again, request), _message("centres", again, candidates)]
    if kind == "kmeans":
        around = server.clusters_request(plan, b, 1)
        messages += _exchange(f"0, {server.KMEANS_ROUNDS} times", around)
    if kind is not None:
        plan = server.centred(plan, b)
    first, moments = solver_of(method).before(plan), None
    if first is not None:
        moments = _like(first, 1.0)
        messages += _exchange("0", first)
    return messages + _of_rounds(solvers.init(plan, Beginning(answer=moments)))


def _of_rounds(state: solvers.SolverState) -> list[Explained]:
    """The messages of a solver's, or a learner's, rounds."""
    plan, inner = state.plan, state.inner
    return [
        message
        for when, request in state.solver.largest_requests(inner).items()
        for message in _exchange(when, Broadcast(inner.round + 1, plan.task, request))
    ]


def _exchange(
    rounds: str, broadcast: Broadcast[Any], reply: Reply | None = None
) -> list[Explained]:
    """A request and its answer."""
    step = step_of(broadcast.request)
    return [_message(step, rounds, message) for message in (broadcast, reply or _like(broadcast))]


def _of_rule(plan: server.Plan, statistics: SummaryStatistics) -> list[Explained]:
    """The messages of a fit with a rule, stage by stage, with as many subgroups as there can be."""
    messages: list[Explained] = []

    def answered(broadcast: Broadcast[Any]) -> Reply:
        counts = 1.0 if isinstance(broadcast.request, Histograms) else float(statistics.n)
        reply = _like(broadcast, counts)
        messages.extend(_exchange("between stages, once", broadcast, reply))
        return reply

    plan = rule.agreed(plan, statistics, answered)
    for name in learners_to_try(plan):
        state = replace(solvers.init(plan), stage=name)
        state = replace(state, inner=TRAINERS[name].init(plan, Beginning()))
        if not state.done:
            messages += _of_rounds(state)
    learned = completed(plan, 0, state.solver.estimates_of(state.inner, plan))  # type: ignore[union-attr]
    state = rule.decided(rule.with_estimates(state, learned), answered)
    return messages + (_of_rounds(state) if state.stage == rule.PROGRAM else [])


def _like(broadcast: Broadcast[Any], value: float = 0.0) -> Reply:
    """An answer to this request, of one number everywhere."""
    values = {name: np.full(shape, value) for name, shape in broadcast.shapes.items()}
    return Reply(broadcast.round, values)


def explain_audit(
    method: Method, statistics: SummaryStatistics, sites: Sequence[str] = ("site",)
) -> list[Explained]:
    """The messages that a certificate takes, after the last round: counts, and sums of the fit's kernels where it has
    some, for each sensitive feature."""
    M = server.kernels_wanted(method) if is_centred(server.fairness_of(method).basis) else 0
    messages = list[Explained]()
    for name, groups in statistics.groups.items():
        when = "after the last, once" + (f" for {name!r}" if len(statistics.groups) > 1 else "")
        if M:
            reply = Reply(1, {"psi": np.zeros((4 * len(groups), M + 1))})
            messages.append(_message("decisions", when, reply))
        messages += _explain_subgroups(method, statistics, name, tuple(sites), when)
    return messages


def _explain_subgroups(
    method: Method, statistics: SummaryStatistics, name: str, sites: tuple[str, ...], when: str
) -> list[Explained]:
    """The counts of subgroups that a certificate takes: overall, every value, and at most every pair (or
    three) of them, for what has too few rows is not asked for again."""
    fair_basis = server.fairness_of(method).basis
    basis = fair_basis if fair_basis.kind == "subgroups" else subgroups()
    audited = Method("audit", fairness=Fairness(basis=basis, each=True))
    plan = server.plan(audited, statistics, sites, sensitive_features=name)
    request, messages, counts = subgroup_axes.histograms_request(plan, statistics), [], {}
    if request is not None:
        reply = _like(request, 1.0)
        messages, counts = (
            [_message("histograms", when, reply)],
            subgroup_axes.by_column(request, reply),
        )
    axes = axes_of(statistics, counts, basis.bins, basis.columns, clients=sites)
    sizes = sizes_of(axes)
    sizes_by_depth = [
        sum(prod(some) for some in combinations(sizes, d)) for d in range(basis.depth + 1)
    ]
    if method.rule is not None:  # over the subgroups of the fit, all at once
        messages, sizes_by_depth = [], [sum(sizes_by_depth)]
    for depth, count in enumerate(sizes_by_depth):
        reply = Reply(1, {"counts": np.zeros((count, 4 * len(statistics.groups[name])))})
        many = depth > 1 or method.rule is not None
        when_sent = when + (", at most so many" if many else "")
        messages.append(_message("subgroup_decisions", when_sent, reply))
    return messages


def _message(step: str, rounds: str, message: Message) -> Explained:
    size = len(pack(message))
    if isinstance(message, Broadcast):
        (of_task, task_arrays), (settings, arrays) = map(
            taken_apart, (message.task, message.request)
        )
        fields = dict.fromkeys((*of_task, *settings), "setting")
        fields |= {f"task.{k}": _shape(v) for k, v in task_arrays.items()}
        fields |= {k: _shape(v) for k, v in arrays.items()}
        return Explained(step, rounds, "server", fields, size, {})
    values = message.sums if isinstance(message, Reply) else vars(message)
    fields = {k: _shape(np.asarray(v)) for k, v in values.items()}
    return Explained(step, rounds, "site", fields, size, _revealed(fields))


def _revealed(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: REVEALS.get(name.partition(" ")[0], UNSAID) for name in fields}  # 'groups sex'


def _shape(value: np.ndarray) -> str:
    return " x ".join(map(str, value.shape)) or "1"


def _size(value: object) -> str:
    return f"{len(value)} entries" if isinstance(value, Mapping) else "1"


def explain_secure(
    messages: Sequence[Explained], statistics: SummaryStatistics, sites: int, method: Method
) -> list[Explained]:
    """The same messages under secure sums: a site's numbers are masked, and what they could reveal is said of
    the total of all sites; where a total has a block of each site's own, of that site."""
    needs, columns = server.consents(method), server.fairness_of(method).basis.columns or ()
    after = () if SITE in columns else AFTER
    outline = {k: v for k, v in messages[1].fields.items() if k not in ("n", "weight")}
    open_says = {k: REVEALS[k] for k in ("numeric", "categorical", "other")}
    names = {k: f"which {k} occur, without a count" for k in ("labels", "groups")}
    counts = {k: np.zeros(shape) for k, shape in counts_shapes(statistics).items()}
    begun = [
        *_session(sites),
        Explained(
            "outline",
            "0, not with a schema",
            "site",
            outline,
            len(pack(statistics.outline())),
            {**open_says, **names},
        ),
        _masked(_message("counts", "0", Reply(0, counts)), frozenset()),
    ]
    return [messages[0], *begun, *(_masked(message, needs, after) for message in messages[2:])]


def _session(sites: int, noisy: bool = False) -> list[Explained]:
    """The messages that begin a session of secure sums.  noisy: whether sites say if their rows are the same."""
    key = Offer("x" * 8, "0" * 32, "0" * 64, "0" * 128, "0" * 32 if noisy else "")
    agreed = Agreement("0" * 32, (key,) * sites)
    fields, nothing = {"public": "32 bytes"}, {"public": "nothing: a key for this session"}
    if noisy:
        fields["rows"] = "16 bytes"
        nothing["rows"] = (
            "whether the rows are those of an earlier fit: a hash under a key of the site"
        )
    return [
        Explained("keys", "0", "site", fields, len(pack(key)), nothing),
        Explained("agree", "0", "server", {"offers": f"{sites} keys"}, len(pack(agreed)), {}),
    ]


def _masked(message: Explained, needs: frozenset[str], after: tuple[str, ...] = AFTER) -> Explained:
    """A site's message under masks; rows stay what they are, and are refused unless a site allows them.  needs: what
    sites must consent to.  after: steps that have no block of each site's own."""
    if message.sender == "server" or message.step == "centres":
        return message
    is_site_total = "shares_site_totals" in needs and message.step not in after
    reveals_of = {
        name: f"OF THIS SITE, in a block of its own (refused without shares-site-totals): {text}"
        if is_site_total and name.startswith(BLOCKS)
        else f"of this site nothing; of the total: {text}"
        for name, text in message.reveals.items()
    }
    return replace(message, size=message.size + SIGNED, reveals=reveals_of)


def learned(method: Method, *, secure: bool, epsilon: float | None, schema: bool) -> dict[str, str]:
    """What each adversary learns from a run of this method.

    Parameters
    ----------
    method : Method
    secure : bool
        Whether sums are masked.
    epsilon : float or None
        Of differential privacy, if there is any; sums are then masked, too.
    schema : bool
        Whether there is a schema.

    Returns
    -------
    dict
        Who -> what.

    Examples
    --------
    >>> from agnosticfair.methods import method
    >>> learned(method("fl"), secure=True, epsilon=None, schema=True)["a site that lies"]
    'the model of each round; it can spoil the model by false sums, and nothing finds that out'
    """
    needs, outline = (
        server.consents(method),
        "" if schema else ", each site's ranges and categories",
    )
    whole = {"shows_rows": "rows of each site", "shares_site_totals": "each site's own sums"}
    whole["shares_cluster_means"] = "means of clusters of rows, single rows where a cluster has one"
    more = "".join(f", {whole[need]} (by consent)" for need in sorted(needs))
    lies = {
        "a site that lies": "the model of each round; it can spoil the model by false sums, and nothing finds that out"
    }
    outside = {"an outsider on the network": "sizes and times of messages"}
    if epsilon is not None:
        noisy = f"totals with noise: of a row no more than epsilon {epsilon:g} bounds"
        return {
            "an honest coordinator": noisy,
            "a coordinator that lies": "the same; what is not the agreed task is refused by one sentence",
            "a coordinator with all sites but one": "that site's sums, with its own share of the noise",
            **lies,
            **outside,
            "who holds the model file": "weights and what the schema says; of a row as above",
        }
    model = {
        "who holds the model file": "weights, ranges and categories; what a model remembers of its rows"
    }
    if not secure:
        every = f"every site's own sums, by group and subgroup{outline}{more}; one that lies, rows"
        return {"any coordinator": every, **lies, **outside, **model}
    return {
        "an honest coordinator": f"totals of all sites{outline}{more}",
        "a coordinator that lies": "totals under models of its own choice, which can single out a person, though not "
        "the site; what is not the agreed task is refused by one sentence",
        "a coordinator with all sites but one": "that site's own sums, by subtraction",
        **lies,
        **outside,
        **model,
    }


def explain_private(
    method: Method,
    statistics: SummaryStatistics,
    sites: Sequence[str],
    multipliers: Mapping[str, float],
    axes: Sequence[Axis] = (),
    max_rows: int = 0,
    bins: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> list[Explained]:
    """The messages of a differentially private fit.

    method: as it is under noise (``private_method``).  multipliers: of each step's noise.  axes: whose single values
    are its subgroups, where it has any; all of them are counted, and those of enough rows asked for later on.
    max_rows: rows that a site adds at most, where whole sites are hidden.  bins: declared bins of columns, by which a
    rule learns.
    """
    plan = server.plan(
        method, statistics, tuple(sites), sensitive_features=tuple(statistics.groups)
    )
    plan = binned(plan, bins)
    if axes:
        plan = subgroup_axes.with_subgroup_set(plan, axes, subgroup_axes.single_values(axes))
    task, fewer = plan.task, " (at most: subgroups of few rows are left out)" if axes else ""
    w, first = np.zeros(task.encoding.width + 1), np.cumsum([1, *(len(a.values) for a in axes)])
    active = np.r_[0.0, first[:-1][:MAX_ACTIVE]]  # of as many axes as can be
    gradients = {"temperature": 1.0, "w": w, "active": active}
    rounds: tuple[PlannedRequest, ...] = (
        (PrivateGradients, gradients, f"1 to {ROUNDS}{fewer}", task),
        (PrivateDecisions, {"w": w}, f"after the last, once{fewer}", task),
    )
    kinds: tuple[PlannedRequest, ...] = (
        (PrivateCounts, {}, "0", replace(task, n=0)),
        (PrivateMoments, {}, "0", task),
        *(rounds if method.rule is None else _private_rule(plan, fewer)),
    )
    secure = len(sites) > 1
    messages = _session(len(sites), noisy=True) if secure else []
    session = "0" * 32 if secure else ""
    times = ROUNDS if method.rule is None else 3 * ROUNDS
    planned = PrivatePlan("0" * 64, False, np.zeros(times + len(kinds) - 1))
    begin = Broadcast(0, task, planned, session)
    reply = _message("private_plan", "0 and at the end", _like(begin))
    messages += [
        _message("private_plan", "0 and at the end", begin),
        replace(reply, size=reply.size + SIGNED * secure),
    ]
    for kind, more, when, step_task in kinds:
        request = kind(z=multipliers[step_of(kind)], max_rows=max_rows, **more)
        broadcast = Broadcast(1, step_task, request, session)
        messages += [_message(step_of(kind), when, broadcast), _noisy(when, broadcast)]
    return messages


PlannedRequest = tuple[Any, dict[str, Any], str, Task]
"""The kind of a request, its fields, when it is asked, and its task."""


def _private_rule(plan: server.Plan, fewer: str) -> tuple[PlannedRequest, ...]:
    """The requests of a private rule's rounds and of its certificate, at their largest."""
    heads, D = heads_of(plan), plan.task.encoding.width + 1
    w = np.zeros((len(heads), D))
    estimates = Estimates("linear", heads, 0, 0, {"w": w[None]})
    K, C = (
        1 + (len(plan.task.subgroups.values) if plan.task.subgroups else 0),
        len(strata(heads)),
    )
    rule = Decision((1.0, 1.0), np.zeros((K, C)), 0.0, plan.task.subgroups)
    at = {"error_costs": (1.0, 1.0), "eps": 1.0, "shift": 0.0, "A": np.zeros((K, C))}
    at["directions"] = np.tile([0.0, 0.0, 1.0, 1.0, 1.0], (MAX_MULTIPLIERS if K > 1 else 1, 1))
    learned = replace(plan.task, estimates=estimates)
    ruled = replace(learned, rule=rule)
    return (
        (PrivateHeads, {"heads": heads, "w": w}, f"1 to {2 * ROUNDS}", plan.task),
        (PrivateRates, at, f"0 to {ROUNDS}, after these{fewer}", learned),
        (PrivateDecisions, {"w": w[0, :0]}, f"after the last, once{fewer}", ruled),
    )


def _noisy(when: str, broadcast: Broadcast[Any]) -> Explained:
    """A site's private answer: what hides a row, or the site, in each field of the total."""
    reply, request = _like(broadcast), broadcast.request
    who = f"this site, of at most {request.max_rows} rows," if request.max_rows else "one row"
    reveals_of = {
        name: f"of {who} nothing certain: noise of deviation {sigma:.3g}"
        for name, sigma in deviations(request, broadcast.task).items()
    }
    fields = {k: _shape(np.asarray(v)) for k, v in reply.sums.items()}
    return Explained(
        step_of(request),
        when,
        "site",
        fields,
        len(pack(reply)) + SIGNED,
        {k: reveals_of[k] for k in fields},
    )
