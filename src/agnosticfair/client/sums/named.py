"""Counts by which axes and subgroups are agreed on."""

from __future__ import annotations

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.data.axes import histogram
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import Histograms

BATCHES = 2
"""Of a stream that are added up at a time: each time costs as much again as some thousands of rows."""


def histograms(client: Client, broadcast: Broadcast[Histograms]) -> Reply:
    """How the agreed columns' numbers lie in their agreed ranges."""
    asked, table = broadcast.asked, client.rows
    ranges = zip(asked.columns, asked.low, asked.high, strict=True)
    found = [histogram(table.numeric[name], low, high) for name, low, high in ranges]
    return Reply(broadcast.round, {"counts": np.array(found)})
