"""A site that answers private steps only: clipped sums, with its share of the noise, within its budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import sqrt
from typing import Any

import numpy as np

from agnosticfair.errors import FederationError, needing
from agnosticfair.protocol.grid import bits
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.privacy.ledger import Ledger
from agnosticfair.protocol.privacy.sensitivity import SHARES, deviations
from agnosticfair.protocol.secure.masks import question_digest


def share_of(sites: int, colluding: int) -> float:
    """By what each site multiplies the noise, so that those who do not collude make up the whole of it.

    >>> share_of(5, 1)
    0.5
    """
    return 1.0 / sqrt(max(1, sites - colluding))


def discrete_gaussian(scale: float, size: int) -> np.ndarray:
    """Exact samples of the discrete Gaussian, (size,) int64, by OpenDP; their randomness is the system's."""
    return np.array(_sampler(scale)([0] * size), np.int64)


@lru_cache(maxsize=64)
def _sampler(scale: float) -> Any:
    with needing("dp", "differential privacy needs more packages"):
        import opendp.prelude as dp
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l2_distance(T=float)
    return dp.m.make_gaussian(*space, scale=scale)


def _unit(most: int) -> str:
    return f"itself as a whole, of at most {most} rows" if most else "rows"


@dataclass
class PrivateSite:
    """answer: from (step, payload) to the site's clipped sums.  ledger: its budget, and the noisy answers that it
    gave, so that asking again shows nothing new.  colluding: how many other sites may pool what they know with the
    coordinator, and the rows stay as private.  most: rows that it adds at most, where the site as a whole is to be
    hidden; 0 where its rows are.  rows: a fingerprint of its rows: other rows are another question."""

    name: str
    answer: Callable[[str, Any], Any]
    ledger: Ledger
    colluding: int = 1
    most: int = 0
    sampler: Callable[[float, int], np.ndarray] = discrete_gaussian
    rows: str = ""

    def __call__(self, step: str, broadcast: Any) -> Reply:
        if step not in SHARES or not isinstance(broadcast, Broadcast):
            raise FederationError(
                f"site {self.name!r} answers private steps only, not {step!r}: its sums need noise"
            )
        if broadcast.asked.most != self.most:
            raise FederationError(
                f"site {self.name!r} hides {_unit(self.most)} and was asked for sums that hide "
                f"{_unit(broadcast.asked.most)}: agree on one"
            )
        question = question_digest(step, broadcast, self.rows.encode()).hex()
        who, noisy = f"site {self.name!r}", partial(self._noisy, step, broadcast)
        return self.ledger.answer(question, broadcast.asked.z, who, noisy)

    def _noisy(self, step: str, broadcast: Broadcast[Any]) -> Reply:
        reply = self.answer(step, broadcast)
        if reply.sums.keys() != SHARES[step].keys():
            raise FederationError(
                f"step {step!r} has fields that have no sensitivity: check versions"
            )
        share, sums = share_of(broadcast.asked.sites, self.colluding), {}
        for name, sigma in deviations(broadcast.asked, broadcast.task).items():
            value, unit = np.asarray(reply.sums[name]), 2.0 ** bits(name, broadcast.task)
            noise = self.sampler(sigma * share * unit, value.size).reshape(value.shape)
            sums[name] = value + noise / unit
        return replace(reply, sums=sums)
