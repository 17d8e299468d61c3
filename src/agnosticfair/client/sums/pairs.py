"""In which pairs of values the objective is steep: sums by which the server chooses interactions."""

from __future__ import annotations

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.client.sums.features import features, weighed
from agnosticfair.client.sums.float64 import KERNEL_BITS
from agnosticfair.client.sums.named import WEIGHT_BITS, of_rows, pieces, places_of
from agnosticfair.mathematics.crossed import gram
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.sums import row_values
from agnosticfair.protocol.grid import base_bits
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import PairSlopes


def pair_slopes(client: Client, broadcast: Broadcast[PairSlopes]) -> Reply:
    """l' + c g', l'' and 1 over the rows of every pair of values, (I, I) each; c is what a row's parts weigh."""
    task, asked, rows = broadcast.task, broadcast.asked, client.prepare(broadcast.task)
    at, C = places_of(task), on_grid(asked.C.copy(), WEIGHT_BITS)
    d = np.einsum("ij,j->i", rows.X, asked.w)
    v, c = row_values(d, rows.y, asked.surrogate), np.zeros(len(d))
    for piece in client.kept(task, pieces):
        c[piece.rows] = of_rows(piece, at, C[piece.cell])
    V = np.stack([v.slope + c * v.g_slope, v.curve, v.one])
    weighed(V, base_bits(task.n) - KERNEL_BITS, rows.weights, axis=1)
    found = gram(client.kept(task, features).hot, V)
    return Reply(broadcast.round, dict(zip(("slope", "curve", "counts"), found, strict=True)))
