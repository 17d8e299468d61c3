"""What the summary statistics settles: the task that every client works on, the kernels' centres,
and the heads that a learner trains.

It sees sums only, and never imports the client's side or an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from agnosticfair.data.summary import (
    SummaryStatistics,
    check_statistics,
    encoding_of,
    positive_label,
)
from agnosticfair.errors import DataError, SettingsError, existing
from agnosticfair.learners.estimates import LABEL, Estimates, Head, heads, learned
from agnosticfair.mathematics.basis import Basis, is_apart, is_centred, settled, width
from agnosticfair.mathematics.fairness import Comparisons, comparisons
from agnosticfair.mathematics.metrics import METRICS, metric_of
from agnosticfair.mathematics.subgroups import SITE
from agnosticfair.methods import Fairness, Method, needs_groups
from agnosticfair.protocol.messages import Broadcast, Candidates, Reply
from agnosticfair.protocol.requests import Architecture, Centres, Clusters, Task

NO_FAIRNESS = Fairness(tau=1.0)


def fairness_of(method: Method) -> Fairness:
    """The method's constraint, or one that binds nothing."""
    return method.fairness or NO_FAIRNESS


@dataclass(frozen=True)
class Plan:
    """What the summary statistics settles.  n: how many rows there are.  s_bar: the mean of the groups' numbers.
    negative: the name of the other label.  base_rate: the share of positive labels.
    declared: whether a schema says which bins columns of numbers have."""

    method: Method
    task: Task
    n: int
    s_bar: float
    compared: Comparisons
    negative: str
    base_rate: float = float("nan")
    declared: bool = False

    @property
    def clients(self) -> tuple[str, ...]:
        return self.task.clients

    @property
    def features(self) -> int:
        """d, without the intercept."""
        return self.task.encoding.width

    @property
    def kernels(self) -> tuple[int, int]:
        """M and F, how many the loss and the fairness adversary have."""
        task = self.task
        return width(task.basis, task.clients), width(task.fair_basis, task.clients)


@dataclass(frozen=True)
class Start:
    """Where a fit ended, for a similar one to begin: its weights, of a linear model with both adversaries' reweightings
    and the metric of its features.  Of a rule w are the multipliers, and estimates what was learned: on the same rows
    another fit need not learn it again."""

    w: np.ndarray
    alpha: np.ndarray | None = None
    C: np.ndarray | None = None
    second_moments: np.ndarray | None = None
    estimates: Estimates | None = None


@dataclass(frozen=True)
class Beginning:
    """How a fit begins.  seed: of all that is drawn.  start: where another fit ended.  answer: to what
    the solver asked before the first round."""

    seed: int = 0
    start: Start | None = None
    answer: Reply | None = None


def plan(
    method: Method,
    statistics: SummaryStatistics,
    clients: tuple[str, ...],
    *,
    sensitive_features: str | Sequence[str] | None = None,
    positive: str | None = None,
    scale: bool = True,
) -> Plan:
    """Agree on the encoding, the label and the groups, from what the clients' summaries add up to."""
    check_statistics(statistics)
    positive = positive_label(statistics, positive)
    others = [
        label for label, count in sorted(statistics.labels.items()) if count and label != positive
    ]
    names = sensitive_names(method, statistics, sensitive_features)
    features = [
        (name, tuple(sorted(g for g, c in statistics.groups[name].items() if c > 0)))
        for name in names
    ]
    fairness, network = fairness_of(method), method.network
    compared = comparisons(features, fairness.metric, fairness.intersections)
    counts = statistics.groups[names[0]] if len(names) == 1 else {}
    task = Task(
        encoding=encoding_of(statistics, scale),
        positive=positive,
        sensitive_features=tuple(features),
        by_label=METRICS[fairness.metric].uses_labels,
        n=max(1, round(statistics.mass)),
        clients=clients,
        basis=method.basis,
        fair_basis=fairness.basis,
        network=None if network is None else Architecture(network.name, network.hidden),
    )
    s_bar = sum(j * counts.get(g, 0) for j, g in enumerate(task.groups)) / statistics.n
    negative = others[0] if len(others) == 1 else f"other than {positive}"
    base_rate = statistics.labels.get(positive, 0) / max(sum(statistics.labels.values()), 1)
    return Plan(method, task, statistics.n, s_bar, compared, negative, base_rate)


def check_missing(method: Method, statistics: SummaryStatistics) -> None:
    """Raise where rows lack numbers that the method's learner needs."""
    if statistics.missing and (method.rule is None or not method.rule.takes_missing):
        what = f"method {method.name!r}"
        what += "" if method.rule is None else f" with learner {method.rule.learner!r}"
        raise DataError(
            f"column {statistics.missing[0]!r} is missing (NaN) in some rows, and {what} needs a number in each: take "
            "method 'rule' or 'fl' with learner 'trees' or 'additive' (--learner trees), or fill the column"
        )


def sensitive_names(
    method: Method, statistics: SummaryStatistics, sensitive_features: str | Sequence[str] | None
) -> tuple[str, ...]:
    """The sensitive features the groups come from; with one there is no choice to make, and a method without
    fairness needs none."""
    names = sorted(statistics.groups)
    if sensitive_features is None and (len(names) == 1 or not (names or needs_groups(method))):
        return tuple(names)
    wanted = (
        (sensitive_features,)
        if sensitive_features is None or isinstance(sensitive_features, str)
        else tuple(sensitive_features)
    )
    for name in wanted or (None,):
        if name not in statistics.groups:
            raise SettingsError(
                f"no sensitive feature {name!r}; there are: {', '.join(names) or 'none'}"
            )
    if len(wanted) > 1 and method.fairness is None and needs_groups(method):
        raise SettingsError(
            f"method {method.name!r} protects one sensitive feature, not {len(wanted)}: name one"
        )
    return tuple(str(name) for name in wanted)


KMEANS_ROUNDS = 6
MIN_ROWS = 10  # of a cluster: the mean of fewer would say too much of each, and stays put


def ranges_draw(plan: Plan, seed: int) -> np.ndarray:
    """Centres (M, d) that fill the space of the encoding evenly, and come from nobody's rows."""
    from scipy.stats import qmc

    encoding = plan.task.encoding
    numeric, categorical = encoding.numeric, encoding.categorical
    wanted, columns = kernels_wanted(plan.method), len(numeric) + len(categorical)
    u = qmc.Halton(columns, rng=np.random.default_rng(seed)).random(wanted)
    low, high = np.array([entry[1:] for entry in numeric], float).reshape(-1, 2).T
    uniform = u[:, : len(numeric)]
    blocks = [uniform if encoding.scale else low + uniform * (high - low)]
    for j, (_, values) in enumerate(categorical, len(numeric)):
        blocks.append(np.eye(len(values))[(u[:, j] * len(values)).astype(int)])
    drawn = dict(zip((name for name, *_ in numeric), (low + uniform * (high - low)).T, strict=True))
    for (name, edges), size in zip(encoding.bins, encoding.bin_sizes(), strict=True):
        blocks.append(np.eye(size)[np.searchsorted(edges, drawn[name], "right")])
    return np.hstack(blocks)


def clusters_request(plan: Plan, centres: np.ndarray, step: int) -> Broadcast[Clusters]:
    return Broadcast(step, plan.task, Clusters(centres))


def moved(centres: np.ndarray, total: Reply) -> np.ndarray:
    """The means of the clusters; a small one's centre stays where it is."""
    count = total.sums["count"][:, None]
    return np.where(count >= MIN_ROWS, total.sums["total"] / np.maximum(count, 1), centres)


def centres_kind(method: Method) -> str | None:
    """Where the method's centres come from; None where it has none."""
    kinds = {b.centres for b in _centred(method)}
    if len(kinds) > 1:
        raise SettingsError(f"both bases share centres, of one kind: not {' and '.join(kinds)}")
    return next(iter(kinds), None)


def consents(method: Method) -> frozenset[str]:
    """What sites under masks must consent to for this method (fields of ``site.policy.SitePolicy``): it shows more than
    totals of all sites.

    >>> from agnosticfair.methods import method
    >>> sorted(consents(method("afl")))
    ['shares_site_totals']
    """
    bases, kind = (method.basis, fairness_of(method).basis), centres_kind(method)
    shown = {"rows": "shows_rows", "kmeans": "shares_cluster_means"}.get(kind or "")
    apart = any(is_apart(basis) or SITE in (basis.columns or ()) for basis in bases)
    return frozenset(filter(None, (shown, "shares_site_totals" if apart else None)))


def centres_request(plan: Plan, seed: int, share: float = 0.0) -> Broadcast[Centres] | None:
    """Ask for candidate centres; None where no basis needs any.

    The first share is about half more than are needed if all rows differ. Equal rows count once, so
    where too few came back (``enough``) the same question is asked again with four times the share.
    """
    wanted = kernels_wanted(plan.method)
    if not wanted:
        return None
    share = min(1.0, 4 * share or (1.5 * wanted + 20) / plan.n)
    return Broadcast(0, plan.task, Centres(seed, share))


def enough(plan: Plan, request: Broadcast[Centres], offered: Candidates) -> bool:
    """Whether there are centres enough, or no more to be had."""
    wanted = kernels_wanted(plan.method)
    return request.request.share >= 1.0 or len(offered.lowest(wanted)) == wanted


def kernels_wanted(method: Method) -> int:
    """How many centres the method's bases use."""
    return max((b.kernels for b in _centred(method)), default=0)


def _centred(method: Method) -> list[Basis]:
    bases = (method.basis, fairness_of(method).basis)
    return [basis for basis in bases if is_centred(basis)]


def with_centres(plan: Plan, offered: Candidates) -> Plan:
    """The plan with its centres drawn from the rows that clients offered."""
    return centred(plan, offered.lowest(kernels_wanted(plan.method)))


def centred(plan: Plan, centres: np.ndarray) -> Plan:
    """The plan with its centres, (M, d); fewer distinct rows than kernels means fewer kernels."""
    method, fairness = plan.method, plan.method.fairness
    method = replace(method, basis=settled(method.basis, centres))
    if fairness is not None:
        fairness = replace(fairness, basis=settled(fairness.basis, centres))
        method = replace(method, fairness=fairness)
    of_fair = fairness_of(method).basis
    task = replace(plan.task, basis=method.basis, fair_basis=of_fair, centres=centres)
    return replace(plan, method=method, task=task)


def checked_centres(centres: ArrayLike, d: int) -> np.ndarray:
    """Centres as an array (M, d), or the sentence that says why they are not."""
    try:
        b = np.asarray(centres, float)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"centres are not numbers ({error}): give them as (M, {d})") from None
    if b.ndim != 2 or b.shape[1] != d or not len(b) or not np.isfinite(b).all():
        raise SettingsError(
            f"centres have shape {b.shape} where X has {d} columns: give finite numbers, (M, {d})"
        )
    return b


def heads_of(plan: Plan) -> tuple[Head, ...]:
    """All heads that the method needs: of the label alone where nothing is compared."""
    fairness = plan.method.fairness
    if fairness is None:
        return (LABEL,)
    metric = metric_of(fairness.metric)
    if metric.bounds:
        raise SettingsError(
            f"method {plan.method.name!r} compares groups' rates, and {metric.name!r} bounds each group's loss: take "
            "'fairfl' for it"
        )
    return heads(plan.task.sensitive_features, metric.labels, fairness.intersections)


def blank(plan: Plan, seed: int) -> Estimates:
    rule, heads = existing(plan.method.rule), heads_of(plan)
    if len(rule.probability) > len(heads):
        raise SettingsError(
            f"probability names {len(rule.probability)} columns, and there are {len(heads)} heads "
            f"({', '.join(head.name for head in heads)}): name one each, in this order"
        )
    known = {name: (low, high) for name, low, high in plan.task.encoding.numeric}
    for name in rule.probability:
        if name not in known:
            raise SettingsError(
                f"probability {name!r} is no column of numbers; there are: {', '.join(sorted(known)) or 'none'}"
            )
        low, high = known[name]
        if low < 0 or high > 1:
            raise SettingsError(
                f"probability {name!r} has numbers from {low:g} to {high:g}: give probabilities, from 0 to 1, not "
                "scores or percentages"
            )
    columns = (*rule.probability, *("",) * (len(heads) - len(rule.probability)))
    return Estimates("given", heads, 0, seed, columns=columns, aware=rule.aware)


def trained_heads(plan: Plan, seed: int = 0) -> tuple[Head, ...]:
    estimates = blank(plan, seed)
    return tuple(estimates.heads[h] for h in learned(estimates))


def completed(plan: Plan, seed: int, of_learner: Estimates) -> Estimates:
    """A learner's estimates with the heads that are given."""
    estimates = blank(plan, seed)
    if not learned(estimates):
        return estimates
    return replace(
        estimates, kind=of_learner.kind, folds=of_learner.folds, arrays=dict(of_learner.arrays)
    )
