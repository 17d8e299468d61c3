"""Counts by which axes and subgroups are agreed on."""

from __future__ import annotations

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.data.axes import codes_of, histogram
from agnosticfair.mathematics.crossed import cross, gram
from agnosticfair.mathematics.parts import part_sums, sizes_of
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import Histograms, PartCounts

BATCHES = 2
"""Of a stream that are added up at a time: each time costs as much again as some thousands of rows."""


def histograms(client: Client, broadcast: Broadcast[Histograms]) -> Reply:
    """How the agreed columns' numbers lie in their agreed ranges."""
    asked, table = broadcast.asked, client.rows
    ranges = zip(asked.columns, asked.low, asked.high, strict=True)
    found = [histogram(table.numeric[name], low, high) for name, low, high in ranges]
    return Reply(broadcast.round, {"counts": np.array(found)})


def counts(client: Client, broadcast: Broadcast[PartCounts]) -> Reply:
    """How many rows each subgroup has, or each pair of values where subgroups are not chosen yet."""
    assert broadcast.task.named is not None
    axes, parts = broadcast.task.named.agreed
    codes, ones = codes_of(client.rows, axes, client.who, client.key), np.ones(len(client.rows))
    total = part_sums(codes, parts, ones) if parts else gram(cross(codes, sizes_of(axes)), ones)
    return Reply(broadcast.round, {"counts": total})
