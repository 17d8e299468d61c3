"""FairFed (Ezzeldin et al., AAAI 2023), re-implemented from the paper.

The server weighs clients by how near their own fairness is to that of all: a client's weight falls by beta
times what its distance exceeds the mean distance. Clients reweight their rows, as the paper does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agnosticfair_research.entrants.averaging import ROUNDS, decisions, gap, local_epoch, rate_of
from agnosticfair_research.entrants.entrant import Coded, Decide, Entrant, Train, linear_decision

STRENGTH = 0.01  # beta is this over the difference that is asked for


def fairfed(train: Train, limit: float) -> Decide:
    """beta grows as less is asked for."""
    clients, rng = train.encoded, np.random.default_rng(train.seed)
    weights = [reweighting(rows) for rows in clients]
    w = np.zeros(clients[0].X.shape[1] + 1)
    sizes = np.array([len(rows.y) for rows in clients], float)
    share = sizes / sizes.sum()
    for round_ in range(ROUNDS):
        share = _closer(share, w, clients, STRENGTH / limit)
        local = [
            local_epoch(w, rows, own, rate_of(round_), rng)
            for rows, own in zip(clients, weights, strict=True)
        ]
        w = np.asarray(share @ np.array(local))
    return linear_decision(train, w)


def _closer(share: np.ndarray, w: np.ndarray, clients: Sequence[Coded], beta: float) -> np.ndarray:
    """The clients' weights after they have said how far their gap is from that of all rows."""
    d = [decisions(w, rows) for rows in clients]
    overall = gap(np.concatenate(d), np.concatenate([rows.s for rows in clients]))
    far = np.array([abs(gap(own, rows.s) - overall) for own, rows in zip(d, clients, strict=True)])
    far = np.where(np.isnan(far), np.nanmean(far), far)
    moved = np.maximum(share - beta * share * (far - far.mean()), 1e-6)
    return np.asarray(moved / moved.sum())


def reweighting(rows: Coded) -> np.ndarray:
    """Weights (n,) under which label and group are independent: P(s) P(y) / P(s, y).

    >>> reweighting(Coded(np.zeros((4, 1)), np.array([1, 1, 1, 0]), np.array([0, 0, 1, 1]))).tolist()
    [0.75, 0.75, 1.5, 0.5]
    """
    n, values = len(rows.y), np.ones(len(rows.y))
    for y in (0, 1):
        for s in np.unique(rows.s):
            cell = (rows.y == y) & (rows.s == s)
            if cell.any():
                values[cell] = (rows.y == y).sum() * (rows.s == s).sum() / (n * cell.sum())
    return values


FAIRFED = Entrant(
    "fairfed", fairfed, "re-implemented: clients weighed by fairness, rows reweighted"
)
