"""A site that answers private steps only: clipped sums, with its share of the noise, within its budget."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import sqrt
from types import MappingProxyType
from typing import Any

import numpy as np

from agnosticfair.errors import FederationError, needing
from agnosticfair.privacy.ledger import Ledger
from agnosticfair.privacy.requests import SHARES, PrivatePlan, check_private, deviations
from agnosticfair.protocol.grid import bits
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import step_of
from agnosticfair.protocol.secure.masks import request_digest

PLAN = step_of(PrivatePlan)
NOBODY: Mapping[str, str] = MappingProxyType({})
MAX_INTEGER = 2.0**61
"""Of a sum in units of its grid: with its noise it stays below 2^63."""


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


def _unit(max_rows: int) -> str:
    return f"itself as a whole, of at most {max_rows} rows" if max_rows else "rows"


@dataclass
class PrivateSite:
    """answer: from (step, payload) to the site's clipped sums.  ledger: its budget, and the noisy answers that it
    gave, so that asking again shows nothing new.  colluding: how many other sites may pool what they know with the
    coordinator, and the rows stay as private.  max_rows: rows that it adds at most, where the site as a whole is to be
    hidden; 0 where its rows are.  rows: a fingerprint of its rows: other rows are another request."""

    name: str
    answer: Callable[[str, Any], Any]
    ledger: Ledger
    colluding: int = 1
    max_rows: int = 0
    sampler: Callable[[float, int], np.ndarray] = discrete_gaussian
    rows: str = ""

    def __call__(self, step: str, broadcast: Any, roster: Mapping[str, str] = NOBODY) -> Reply:
        """The noisy answer to one step.  roster: the sites of its session, as it agreed with them by their signed keys,
        and a hash of the rows of each: the noise is shared among them. Without a session it adds all of the noise."""
        if step not in (*SHARES, PLAN) or not isinstance(broadcast, Broadcast):
            raise FederationError(
                f"site {self.name!r} answers private steps only, not {step!r}: its sums need noise"
            )
        if step == PLAN:
            return self._reserved(broadcast)
        if broadcast.request.max_rows != self.max_rows:
            raise FederationError(
                f"site {self.name!r} hides {_unit(self.max_rows)} and was asked for sums that hide "
                f"{_unit(broadcast.request.max_rows)}: agree on one"
            )
        check_private(broadcast, self.name)
        # where another site is there, or has other rows, it adds other noise: the difference of two totals with the
        # same noise of this site would have the other's share of the noise alone
        about = [self.rows, self.colluding, sorted(roster.items())]
        request = request_digest(step, broadcast, json.dumps(about).encode()).hex()
        noisy = partial(self._noisy, step, broadcast, share_of(len(roster), self.colluding))
        return self.ledger.answer(request, broadcast.request.z, f"site {self.name!r}", noisy)

    def _reserved(self, broadcast: Broadcast[PrivatePlan]) -> Reply:
        """Room in the ledger for a whole fit, or what is left of it given back."""
        request = broadcast.request
        fit = hashlib.sha256(json.dumps([request.fit, self.rows]).encode()).hexdigest()
        if request.ends:
            self.ledger.end(fit)
        else:
            self.ledger.reserve(fit, request.multipliers.ravel().tolist(), f"site {self.name!r}")
        return Reply(broadcast.round, {"reserved": np.array(1.0)})

    def _noisy(self, step: str, broadcast: Broadcast[Any], share: float) -> Reply:
        reply = self.answer(step, broadcast)
        if reply.sums.keys() != SHARES[step].keys():
            raise FederationError(
                f"step {step!r} has fields that have no sensitivity: check versions"
            )
        sums = {}
        for name, sigma in deviations(broadcast.request, broadcast.task).items():
            value, unit = np.asarray(reply.sums[name]), 2.0 ** bits(name, broadcast.task)
            noise = self.sampler(sigma * share * unit, value.size).reshape(value.shape)
            # whole numbers are added, so that rounding to a float comes after the noise
            whole = np.clip(np.rint(value * unit), -MAX_INTEGER, MAX_INTEGER).astype(np.int64)
            sums[name] = (whole + noise.astype(np.int64)).astype(np.float64) / unit
        return replace(reply, sums=sums)
