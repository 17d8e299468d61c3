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
from agnosticfair.data.census import Census, counts_shapes
from agnosticfair.learners.decisions import Decision
from agnosticfair.learners.estimates import Estimates
from agnosticfair.learners.heads import strata
from agnosticfair.mathematics.basis import is_centred, subpopulations
from agnosticfair.mathematics.parts import SITE, Axis, sizes_of
from agnosticfair.methods import Fairness, Method
from agnosticfair.protocol.messages import (
    Agreement,
    Broadcast,
    Candidates,
    Message,
    Offer,
    Reply,
    pack,
)
from agnosticfair.protocol.privacy.questions import (
    PrivateCounts,
    PrivateDecisions,
    PrivateHeads,
    PrivateMoments,
    PrivatePlan,
    PrivateRates,
    PrivateSlopes,
)
from agnosticfair.protocol.privacy.sensitivity import deviations
from agnosticfair.protocol.questions import (
    REVEALS,
    Averaged,
    AverageNetwork,
    Histograms,
    Task,
    Trained,
    TrainNetwork,
    step_of,
)
from agnosticfair.protocol.records import taken_apart
from agnosticfair.server import boosted, deciding, named, program, rule, solvers
from agnosticfair.server import plan as server
from agnosticfair.server.plan import Beginning
from agnosticfair.server.private import MOST_ACTIVE, ROUNDS
from agnosticfair.server.private_rule import MOST_ACTIVE as RULE_ACTIVE
from agnosticfair.server.private_rule import binned
from agnosticfair.server.solvers import solver_of
from agnosticfair.server.trainers import TRAINERS, completed, heads_of, learners_to_try

UNSAID = "nobody has said: ask whoever wrote the step"
"""Of a field without words; ``question`` takes them."""

BLOCKS = ("psi_", "J_", "gram", "counts")
AFTER = ("decisions", "part_decisions", "histograms")
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


def explain(method: Method, census: Census, sites: Sequence[str], share: float) -> list[Explained]:
    """The messages of a fit, in their order.

    census: what the sites' summaries add up to, as far as it is known.  share: this site's part of all
    rows, on which only the number of candidate rows depends.
    """
    server.check_missing(method, census)
    plan = server.plan(method, census, tuple(sites), sensitive_features=tuple(census.groups))
    summary = {k: _size(v) for k, v in census.to_json().items()}
    found = [
        Explained("hello", "0", "site", {"site": "its name"}, len(sites[0]), {"site": "its name"}),
        Explained("census", "0", "site", summary, len(pack(census)), _revealed(summary)),
    ]
    if method.rule is not None:
        return found + _of_rule(plan, census)
    kind, wanted, d = server.centres_kind(method), server.kernels_wanted(method), plan.features
    ask = server.centres_question(plan, 0)
    b = np.zeros((wanted, d))
    if kind == "rows" and ask is not None:
        offered = ceil(ask.asked.share * census.n * share)
        candidates = Candidates(np.zeros(offered), np.zeros((offered, d)))
        again = "0, again with four times the rows where too few differ"
        found += _asked("centres", again, ask, candidates)
    if kind == "kmeans":
        steps, around = f"0, {server.KMEANS_ROUNDS} times", server.clusters_question(plan, b, 1)
        found += _asked("clusters", steps, around, _like(around))
    if kind is not None:
        plan = server.centred(plan, b)
    rounds, first = f"1 to {method.max_rounds}, until it converges", solver_of(method).before(plan)
    moments = None if first is None else _like(first, 1.0)
    if first is not None and moments is not None:
        found += _asked(step_of(first.asked), "0", first, moments)
    broadcast = solvers.question(solvers.init(plan, Beginning(answer=moments)))
    step, later = step_of(broadcast.asked), _later(broadcast.asked)
    more = "; the fields of 'before' from the second on" if hasattr(later, "before") else ""
    broadcast = replace(broadcast, asked=later)
    found += [_message(step, rounds + more, broadcast), _message(step, rounds, _like(broadcast))]
    trials = deciding.trials_question(plan)
    if trials is not None:
        asked = Broadcast(1, plan.task, trials)
        found += _asked("trials", "some of these rounds instead", asked, _like(asked))
    return found


def _asked(step: str, rounds: str, *messages: Message) -> list[Explained]:
    """A question and its answer."""
    return [_message(step, rounds, message) for message in messages]


def _of_rule(plan: server.Plan, census: Census) -> list[Explained]:
    """The messages of a fit with a rule, stage by stage, with as many subgroups as there can be."""
    found: list[Explained] = []

    def answered(asked: Broadcast[Any]) -> Reply:
        reply = _like(asked, 1.0 if isinstance(asked.asked, Histograms) else float(census.n))
        found.extend(_asked(step_of(asked.asked), "between stages, once", asked, reply))
        return reply

    plan = rule.agreed(plan, census, answered)
    for name in learners_to_try(plan):
        state = replace(solvers.init(plan), stage=name)
        state = replace(state, inner=TRAINERS[name].init(plan, Beginning()))
        if not state.done:
            asked = solvers.question(state)
            found += _asked(
                step_of(asked.asked), f"the rounds of learner {name!r}", asked, _like(asked)
            )
            if isinstance(state.inner, boosted.Boosted):
                if state.inner.growth is None:
                    asked = solvers.question(
                        replace(state, inner=boosted.largest_cells(state.inner))
                    )
                    when = f"twice more for learner {name!r}, at most so large"
                    found += _asked(step_of(asked.asked), when, asked, _like(asked))
                inner = boosted.largest(state.inner)
                asked = solvers.question(replace(state, inner=inner))
                when = (
                    f"the rounds of learner {name!r}, a level of all trees each, at most so large"
                )
                found += _asked(step_of(asked.asked), when, asked, _like(asked))
    learned = completed(plan, 0, state.solver.estimates_of(state.inner, plan))  # type: ignore[union-attr]
    state = rule.decided(rule.with_estimates(state, learned), answered)
    return found + (_of_program(state) if state.stage == rule.PROGRAM else [])


def _of_program(state: solvers.SolverState) -> list[Explained]:
    """The messages of a program, which are of three sizes."""
    first = solvers.question(state)
    sizes = {
        "the first round of the program": first,
        "the other rounds of the program, at most so large": replace(
            first, asked=program.largest(first.asked)
        ),
        "the last rounds of the program, at most so large": replace(
            first, asked=program.last(first.asked)
        ),
    }
    return [
        message
        for when, asked in sizes.items()
        for message in _asked(step_of(asked.asked), when, asked, _like(asked))
    ]


def _like(broadcast: Broadcast[Any], value: float = 0.0) -> Reply:
    """An answer to this question, of one number everywhere."""
    made = {name: np.full(shape, value) for name, shape in broadcast.shapes.items()}
    return Reply(broadcast.round, made)


def _later(asked: Any) -> Any:
    """A question as it is from the second round on: a network's tells of the last round's start, too."""
    match asked:
        case TrainNetwork():
            return replace(asked, before=Trained(asked.w, asked.alpha, asked.C, asked.w))
        case AverageNetwork():
            return replace(asked, before=Averaged(asked.w, asked.alpha))
    return asked


def explain_audit(
    method: Method, census: Census, sites: Sequence[str] = ("site",)
) -> list[Explained]:
    """The messages that a certificate takes, after the last round: counts, and sums of the fit's kernels where it has
    some, for each sensitive feature."""
    M = server.kernels_wanted(method) if is_centred(server.fairness_of(method).basis) else 0
    found = list[Explained]()
    for name, groups in census.groups.items():
        when = "after the last, once" + (f" for {name!r}" if len(census.groups) > 1 else "")
        if M:
            reply = Reply(1, {"psi": np.zeros((4 * len(groups), M + 1))})
            found.append(_message("decisions", when, reply))
        found += _explain_parts(method, census, name, tuple(sites), when)
    return found


def _explain_parts(
    method: Method, census: Census, name: str, sites: tuple[str, ...], when: str
) -> list[Explained]:
    """The counts of named parts that a certificate takes: everybody, every value, and at most every pair (or
    three) of them, for what has too few rows is not asked for again."""
    own = server.fairness_of(method).basis
    basis = own if own.kind == "named" else subpopulations()
    audited = Method("audit", fairness=Fairness(basis=basis, each=True))
    plan = server.plan(audited, census, sites, sensitive_features=name)
    asked, found, counts = named.histograms_question(plan, census), [], {}
    if asked is not None:
        reply = _like(asked, 1.0)
        found, counts = [_message("histograms", when, reply)], named.by_column(asked, reply)
    axes = axes_of(census, counts, basis.bands, basis.columns, clients=sites)
    sizes = sizes_of(axes)
    parts = [sum(prod(some) for some in combinations(sizes, d)) for d in range(basis.depth + 1)]
    if method.rule is not None:  # over the subgroups of the fit, all at once
        found, parts = [], [sum(parts)]
    for depth, most in enumerate(parts):
        reply = Reply(1, {"counts": np.zeros((most, 4 * len(census.groups[name])))})
        many = depth > 1 or method.rule is not None
        told = when + (", at most so many" if many else "")
        found.append(_message("part_decisions", told, reply))
    return found


def _message(step: str, rounds: str, message: Message) -> Explained:
    size = len(pack(message))
    if isinstance(message, Broadcast):
        (of_task, given), (settings, arrays) = map(taken_apart, (message.task, message.asked))
        fields = dict.fromkeys((*of_task, *settings), "setting")
        fields |= {f"task.{k}": _shape(v) for k, v in given.items()}
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
    found: Sequence[Explained], census: Census, sites: int, method: Method
) -> list[Explained]:
    """The same messages under secure sums: a site's numbers are masked, and what they could reveal is said of
    the total of all sites; where a total has a block of each site's own, of that site."""
    needs, columns = server.consents(method), server.fairness_of(method).basis.columns or ()
    after = () if SITE in columns else AFTER
    outline = {k: v for k, v in found[1].fields.items() if k not in ("n", "weight")}
    open_says = {k: REVEALS[k] for k in ("numeric", "categorical", "other")}
    names = {k: f"which {k} occur, without a count" for k in ("labels", "groups")}
    counts = {k: np.zeros(shape) for k, shape in counts_shapes(census).items()}
    begun = [
        *_session(sites),
        Explained(
            "outline",
            "0, not with a schema",
            "site",
            outline,
            len(pack(census.outline())),
            {**open_says, **names},
        ),
        _masked(_message("counts", "0", Reply(0, counts)), frozenset()),
    ]
    return [found[0], *begun, *(_masked(message, needs, after) for message in found[2:])]


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
    own = "shares_site_totals" in needs and message.step not in after
    says = {
        name: f"OF THIS SITE, in a block of its own (refused without shares-site-totals): {text}"
        if own and name.startswith(BLOCKS)
        else f"of this site nothing; of the total: {text}"
        for name, text in message.reveals.items()
    }
    return replace(message, size=message.size + SIGNED, reveals=says)


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
    census: Census,
    sites: Sequence[str],
    multipliers: Mapping[str, float],
    axes: Sequence[Axis] = (),
    most: int = 0,
    bands: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> list[Explained]:
    """The messages of a differentially private fit.

    method: as it is under noise (``private_recipe``).  multipliers: of each step's noise.  axes: whose single values
    are its parts, where it has any; all of them are counted, and those of enough rows asked for later on.  most: rows
    that a site adds at most, where whole sites are hidden.  bands: declared bins of columns, by which a rule learns.
    """
    plan = server.plan(method, census, tuple(sites), sensitive_features=tuple(census.groups))
    plan = binned(plan, bands)
    if axes:
        plan = named.with_parts(plan, axes, named.single_values(axes))
    task, fewer = plan.task, " (at most: parts of few rows are left out)" if axes else ""
    w, first = np.zeros(task.encoding.width + 1), np.cumsum([1, *(len(a.values) for a in axes)])
    active = np.r_[0.0, first[:-1][:MOST_ACTIVE]]  # of as many axes as can be
    slopes = {"temperature": 1.0, "w": w, "active": active}
    rounds: tuple[Asked, ...] = (
        (PrivateSlopes, slopes, f"1 to {ROUNDS}{fewer}", task),
        (PrivateDecisions, {"w": w}, f"after the last, once{fewer}", task),
    )
    kinds: tuple[Asked, ...] = (
        (PrivateCounts, {}, "0", replace(task, n=0)),
        (PrivateMoments, {}, "0", task),
        *(rounds if method.rule is None else _private_rule(plan, fewer)),
    )
    secure = len(sites) > 1
    found = _session(len(sites), noisy=True) if secure else []
    session = "0" * 32 if secure else ""
    times = ROUNDS if method.rule is None else 3 * ROUNDS
    planned = PrivatePlan("0" * 64, False, np.zeros(times + len(kinds) - 1))
    begin = Broadcast(0, task, planned, session)
    reply = _message("private_plan", "0 and at the end", _like(begin))
    found += [
        _message("private_plan", "0 and at the end", begin),
        replace(reply, size=reply.size + SIGNED * secure),
    ]
    for kind, more, when, own in kinds:
        asked = kind(z=multipliers[step_of(kind)], most=most, **more)
        broadcast = Broadcast(1, own, asked, session)
        found += [_message(step_of(kind), when, broadcast), _noisy(when, broadcast)]
    return found


Asked = tuple[Any, dict[str, Any], str, Task]
"""The kind of a question, its fields, when it is asked, and its task."""


def _private_rule(plan: server.Plan, fewer: str) -> tuple[Asked, ...]:
    """The questions of a private rule's rounds and of its certificate, at their largest."""
    own, D = heads_of(plan), plan.task.encoding.width + 1
    w = np.zeros((len(own), D))
    estimates = Estimates("linear", own, 0, 0, {"w": w[None]})
    K, C = 1 + (len(plan.task.named.parts) if plan.task.named else 0), len(strata(own))
    rule = Decision((1.0, 1.0), np.zeros((K, C)), 0.0, plan.task.named)
    at = {"prices": (1.0, 1.0), "eps": 1.0, "shift": 0.0, "A": np.zeros((K, C))}
    at["directions"] = np.tile([0.0, 0.0, 1.0, 1.0, 1.0], (RULE_ACTIVE if K > 1 else 1, 1))
    learned = replace(plan.task, estimates=estimates)
    ruled = replace(learned, rule=rule)
    return (
        (PrivateHeads, {"heads": own, "w": w}, f"1 to {2 * ROUNDS}", plan.task),
        (PrivateRates, at, f"0 to {ROUNDS}, after these{fewer}", learned),
        (PrivateDecisions, {"w": w[0, :0]}, f"after the last, once{fewer}", ruled),
    )


def _noisy(when: str, broadcast: Broadcast[Any]) -> Explained:
    """A site's private answer: what hides a row, or the site, in each field of the total."""
    reply, asked = _like(broadcast), broadcast.asked
    who = f"this site, of at most {asked.most} rows," if asked.most else "one row"
    says = {
        name: f"of {who} nothing certain: noise of deviation {sigma:.3g}"
        for name, sigma in deviations(asked, broadcast.task).items()
    }
    fields = {k: _shape(np.asarray(v)) for k, v in reply.sums.items()}
    return Explained(
        step_of(asked),
        when,
        "site",
        fields,
        len(pack(reply)) + SIGNED,
        {k: says[k] for k in fields},
    )
