"""Counts by which axes and subgroups are agreed on."""

from __future__ import annotations

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.data.axes import codes_of, histogram
from agnosticfair.mathematics.subgroups import cross, gram, sizes_of, subgroup_sums
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import Histograms, SubgroupCounts

BATCHES = 2
"""Of a stream that are added up at a time: each time costs as much again as some thousands of rows."""


def histograms(client: Client, broadcast: Broadcast[Histograms]) -> Reply:
    """How the agreed columns' numbers lie in their agreed ranges."""
    request, table = broadcast.request, client.rows
    ranges = zip(request.columns, request.low, request.high, strict=True)
    counts = [histogram(table.numeric[name], low, high) for name, low, high in ranges]
    return Reply(broadcast.round, {"counts": np.array(counts)})


def counts(client: Client, broadcast: Broadcast[SubgroupCounts]) -> Reply:
    """How many rows each subgroup has, or each pair of values where subgroups are not chosen yet."""
    assert broadcast.task.subgroups is not None
    axes, subgroups = broadcast.task.subgroups.agreed
    codes, ones = codes_of(client.rows, axes, client.who, client.key), np.ones(len(client.rows))
    total = (
        subgroup_sums(codes, subgroups, ones)
        if subgroups
        else gram(cross(codes, sizes_of(axes)), ones)
    )
    return Reply(broadcast.round, {"counts": total})
