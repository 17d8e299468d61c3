"""A client's answers before the first round and after the last: the summary statistics, kernel centres, decisions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from agnosticfair.client.client import CHUNK, Client, strata_of
from agnosticfair.data.axes import codes_of, histogram
from agnosticfair.data.rows import folds_by_features
from agnosticfair.data.summary import SummaryStatistics, counts_of, summary_statistics
from agnosticfair.errors import existing
from agnosticfair.learners.decisions import scores
from agnosticfair.mathematics.basis import design, row_priorities
from agnosticfair.mathematics.subgroups import counted, cross, gram, sizes_of, subgroup_sums
from agnosticfair.protocol.messages import Broadcast, Candidates, Reply
from agnosticfair.protocol.requests import (
    Centres,
    Clusters,
    Counts,
    Decisions,
    Histograms,
    Outline,
    SubgroupCounts,
    SubgroupDecisions,
    Summary,
    Task,
)


def statistics(client: Client, broadcast: Broadcast[Summary] | None = None) -> SummaryStatistics:
    table = client.rows
    if broadcast is not None and (fold := broadcast.request.by_features) is not None:
        table = table.take(folds_by_features(table, fold.of, fold.seed) == fold.number)
    return summary_statistics(table, who=client.who)


def outline(client: Client, broadcast: Broadcast[Outline] | None = None) -> SummaryStatistics:
    """Round zero of secure sums, in the open: groups, ranges and categories, and no count of anything."""
    return statistics(client).outline()


def counts(client: Client, broadcast: Broadcast[Counts]) -> Reply:
    """Round zero of secure sums, masked: how many rows there are of each label and group agreed on."""
    return Reply(
        broadcast.round, counts_of(statistics(client), broadcast.request.outline, client.who)
    )


def centres(client: Client, broadcast: Broadcast[Centres]) -> Candidates:
    """Distinct rows offered as kernel centres: those whose priority is under the share asked for."""
    X = client.prepare(broadcast.task).X[:, :-1]
    priorities, first = np.unique(row_priorities(X, broadcast.request.seed), return_index=True)
    chosen = priorities < broadcast.request.share
    return Candidates(priorities[chosen], X[first[chosen]])


def clusters(client: Client, broadcast: Broadcast[Clusters]) -> Reply:
    """One step of k-means: how many rows are nearest to each centre, and their sum."""
    X, b = client.prepare(broadcast.task).X[:, :-1], broadcast.request.centres
    count, total = np.zeros(len(b)), np.zeros_like(b)
    for first in range(0, len(X), CHUNK):
        x = X[first : first + CHUNK]
        nearest = np.argmin((b * b).sum(axis=1) - 2 * x @ b.T, axis=1)
        hot = np.eye(len(b))[nearest]
        count, total = count + hot.sum(axis=0), total + hot.T @ x
    return Reply(broadcast.round, {"count": count, "total": total})


def decisions(client: Client, broadcast: Broadcast[Decisions]) -> Reply:
    """What an audit over kernels needs of the decisions d_w(x) > 0: ``tally`` over strata (group, label, decision)."""
    task = broadcast.task
    rows = client.prepare(task)
    X, strata = rows.X[:, :-1], decided_strata(client, task, broadcast.request.w)[rows.order]

    def kernels(x: np.ndarray) -> np.ndarray:
        return design(task.basis, x, task.centres, client.key, task.clients)

    psi = tally(X.__getitem__, kernels, strata, 4 * len(task.groups))
    return Reply(broadcast.round, {"psi": psi})


def decided_strata(client: Client, task: Task, w: np.ndarray) -> np.ndarray:
    """The stratum (group * 2 + label) * 2 + decision of all rows, (n,). A rule needs no X for it, which may be wide."""
    table, d = client.rows, np.empty(len(client.rows))
    if task.rule is not None and task.estimates is not None:
        d = scores(task.rule, task.estimates, task.encoding, table, client.who, client.key)
    else:
        rows = client.prepare(task)
        d[rows.order] = _scored(task, w, rows.X)
    s, y = strata_of(client, table, task), table.labels(task.positive)
    return (s * 2 + (y > 0)) * 2 + (d > 0)


def _scored(task: Task, w: np.ndarray, X: np.ndarray) -> np.ndarray:
    if task.network is None:
        return np.asarray(X @ w)
    from agnosticfair.networks import decide

    return decide(task.network.name, task.network.hidden, w, X[:, :-1])


def subgroup_decisions(client: Client, broadcast: Broadcast[SubgroupDecisions]) -> Reply:
    """What a certificate over subgroups rests on: counts, and nothing else."""
    task = broadcast.task
    axes, subgroups = existing(task.subgroups).agreed
    strata = decided_strata(client, task, broadcast.request.w)
    codes = codes_of(client.rows, axes, client.who, client.key)
    counts = counted(codes, sizes_of(axes), subgroups, strata, 4 * len(task.groups))
    return Reply(broadcast.round, {"counts": counts.astype(float)})


def histograms(client: Client, broadcast: Broadcast[Histograms]) -> Reply:
    """How the agreed columns' numbers lie in their agreed ranges."""
    request, table = broadcast.request, client.rows
    ranges = zip(request.columns, request.low, request.high, strict=True)
    counts = [histogram(table.numeric[name], low, high) for name, low, high in ranges]
    return Reply(broadcast.round, {"counts": np.array(counts)})


def subgroup_counts(client: Client, broadcast: Broadcast[SubgroupCounts]) -> Reply:
    """How many rows each subgroup has, or each pair of values where subgroups are not chosen yet."""
    axes, subgroups = existing(broadcast.task.subgroups).agreed
    codes, ones = codes_of(client.rows, axes, client.who, client.key), np.ones(len(client.rows))
    total = (
        subgroup_sums(codes, subgroups, ones)
        if subgroups
        else gram(cross(codes, sizes_of(axes)), ones)
    )
    return Reply(broadcast.round, {"counts": total})


def tally(
    rows: Callable[[slice], np.ndarray],
    kernels: Callable[[np.ndarray], np.ndarray],
    strata: np.ndarray,
    count: int,
) -> np.ndarray:
    """Sums of (K, 1) over the rows of each stratum, (count, M + 1), in one pass of CHUNK rows at a time.

    rows: from a slice to x, (k, d).  kernels: from x to K, (k, M).  strata: (n,), each < count.
    """
    psi = np.zeros(())
    for first in range(0, len(strata), CHUNK):
        chunk = slice(first, first + CHUNK)
        order = np.argsort(strata[chunk], kind="stable")
        ends = np.searchsorted(strata[chunk][order], np.arange(count + 1))
        x = rows(chunk)[order]
        K = np.hstack([kernels(x), np.ones((len(x), 1))])
        psi = psi + np.stack([np.ones(b - a) @ K[a:b] for a, b in pairwise(ends)])
    return psi
