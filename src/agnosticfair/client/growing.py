"""Counts and histograms from which trees grow, exactly.

Rows are held as codes of one byte a column, streamed ones too.
"""

from __future__ import annotations

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.data.axes import fine_bin_counts, value_counts
from agnosticfair.data.rows import folds_by_features
from agnosticfair.data.table import Table
from agnosticfair.errors import FederationError
from agnosticfair.learners.estimates import targets
from agnosticfair.mathematics.boosting import GRADIENT_BITS, CodedRows
from agnosticfair.mathematics.trees import unpack
from agnosticfair.protocol.messages import Broadcast, Reply, base_bits
from agnosticfair.protocol.requests import FineCounts, Level, Task


def fine_bins(client: Client, broadcast: Broadcast[FineCounts]) -> Reply:
    """How numbers lie between the cuts, and how many rows have each category."""
    encoding, cuts = broadcast.task.encoding, broadcast.request.cuts
    counts = fine_bin_counts(encoding, client.rows, cuts, client.who)
    sums = {"fine_bin_counts": counts, "value_counts": value_counts(encoding, client.rows)}
    return Reply(broadcast.round, sums)


def prepared(client: Client, task: Task, key: bytes, *, request: Level) -> CodedRows:
    """The rows as codes, read batch by batch where they are streamed.  key: what of the request they hang on."""
    binning = request.trees.binning

    def piece(table: Table) -> list[tuple[np.ndarray, ...]]:
        t, counts = targets(request.heads, table.labels(task.positive), table.sensitive_features)
        fold = (
            folds_by_features(table, request.folds, request.seed)
            if request.folds
            else np.zeros(len(table))
        )
        weights = np.ones(len(table)) if table.weights is None else table.weights
        columns = binning.columns(task.encoding, table, client.who)
        return [(columns, t, counts, fold.astype(np.int16)[None], weights[None])]

    pieces = client.table.added_up(piece, client.threads)
    columns, t, counts, fold, weights = (
        np.concatenate(p, axis=1) for p in zip(*pieces, strict=True)
    )
    weighed = None if (weights == 1).all() else weights[0]
    bits = min(GRADIENT_BITS, base_bits(task.n))
    codes = np.ascontiguousarray(columns.T)
    bins = binning.bins(task.encoding)
    rows = CodedRows(
        bins=bins,
        codes=codes,
        columns=columns,
        target=t,
        counts=counts,
        fold=fold[0],
        folds=request.folds,
        weights=weighed,
        bits=bits,
    )
    if client.device is not None:
        from agnosticfair.client.rule_device import coded_rows

        rows = coded_rows(rows, client.device)
    return rows


def level(client: Client, broadcast: Broadcast[Level]) -> Reply:
    """The histograms of the nodes that are requested; where trees begin, the loss out of fold."""
    task, request = broadcast.task, broadcast.request
    key = request.trees.binning.key + repr((request.heads, request.folds, request.seed)).encode()
    rows = client.cached(task, prepared, key, request=request)
    try:
        done = unpack(request.trees.done, rows.bins)
        now = unpack(request.trees.growing, rows.bins)
        models = len(request.heads) * (request.folds + 1)
        count = request.count.astype(int)
        if len(done) != models or len(now) != models or not _inside(count, models, request.level):
            raise ValueError("it counts nodes that are not of its models")
    except ValueError as problem:
        raise FederationError(f"the request for a level of trees is damaged: {problem}") from None
    forests = list(zip(done, now, strict=True))
    if client.device is not None:
        from agnosticfair.client.rule_device import level_sums
    else:
        from agnosticfair.mathematics.boosting import level_sums
    sums = level_sums(rows, forests, request.level, count)
    return Reply(broadcast.round, {"hist": sums["hist"], "tree_loss": sums["loss"]})


def _inside(count: np.ndarray, models: int, level: int) -> bool:
    """Whether all of (P, 2) are a model and a node of the level."""
    if count.ndim != 2 or count.shape[1] != 2 or not 0 <= level <= 7:
        return False
    return bool(((count >= 0) & (count < [models, 2**level])).all())
