"""Secure sums among clients of this process: the same messages, masks and checks, with keys made on the spot.

It shows that nothing is lost, and what it costs. It protects nobody: all keys are in one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agnosticfair.data.schema import Schema
from agnosticfair.errors import SettingsError, needing
from agnosticfair.protocol.engines import Engine
from agnosticfair.protocol.engines.in_process import InProcess
from agnosticfair.protocol.secure.keys import Roster, check_roster, new_identity
from agnosticfair.protocol.secure.site import SecureSite
from agnosticfair.site.guard import guarded
from agnosticfair.site.policy import SitePolicy


def rehearsed(
    engine: Engine,
    may_drop: bool = False,
    consents: Iterable[str] = (),
    schema: Schema | None = None,
    epsilon: float = 0.0,
    site_rows: int = 0,
    rows: Mapping[str, str] | None = None,
) -> tuple[InProcess, Roster]:
    """The engine with every client behind a policy and masks, and their public keys.

    Parameters
    ----------
    engine : InProcess
    may_drop : bool
        Whether clients go on without some.
    consents : iterable of str
        What the clients consent to: fields of ``SitePolicy`` that are True.
    schema : Schema, optional
    epsilon, site_rows : float, int
        As ``SitePolicy`` has them, of clients that add noise.
    rows : mapping of str to str, optional
        Of these clients, a hash of the rows of each.

    Returns
    -------
    InProcess, Roster
    """
    if not isinstance(engine, InProcess):
        raise SettingsError(
            "secure sums over an engine need its sites' public keys: give them as secure={site: key}"
        )
    check_installed()
    identities = [new_identity(name) for name in engine.clients()]
    roster = {identity.site: identity.public for identity in identities}
    check_roster(roster, 2)
    common = rehearsal_policy(tuple(sorted(roster)), schema, epsilon, site_rows, consents)
    sites = {}
    for one in identities:
        policy = replace(common, site=one.site, masks=True, may_drop=may_drop)
        answer = guarded(policy, engine.handlers[one.site])
        sites[one.site] = SecureSite(
            one,
            roster,
            answer,
            may_drop=may_drop,
            open_steps=policy.open_steps,
            rows=(rows or {}).get(one.site, ""),
        )
    return replace(engine, handlers=sites, _pool=[]), roster


def rehearsal_policy(
    sites: tuple[str, ...],
    schema: Schema | None,
    epsilon: float = 0.0,
    site_rows: int = 0,
    consents: Iterable[str] = (),
) -> SitePolicy:
    """What clients of this process answer, whose own people are whoever calls.

    >>> rehearsal_policy(("north", "south"), None).min_rows
    1
    """
    common = SitePolicy("", sites, False, epsilon, schema, min_rows=1, site_rows=site_rows)
    values: dict[str, Any] = dict.fromkeys(consents, True)
    return replace(common, fold_seed=None, rehearsal=True, **values)


def check_installed() -> None:
    """Raise, with the remedy, where the library of ciphers is missing."""
    with needing("secure", "secure sums need the package 'cryptography'"):
        import cryptography  # noqa: F401
