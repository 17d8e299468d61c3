"""Secure sums among clients of this process: the same messages, masks and checks, with keys made on the spot.

It shows that nothing is lost, and what it costs. It protects nobody: all keys are in one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agnosticfair.data.schema import Schema
from agnosticfair.errors import SettingsError, needing
from agnosticfair.protocol.engines import Engine
from agnosticfair.protocol.engines.in_process import InProcess
from agnosticfair.protocol.secure.keys import Roster, check_roster, new_identity
from agnosticfair.protocol.secure.site import OPEN_STEPS, SecureSite


def rehearsed(
    engine: Engine,
    may_drop: bool = False,
    open_steps: Iterable[str] = (),
    schema: Schema | None = None,
    rows: Mapping[str, str] | None = None,
) -> tuple[InProcess, Roster]:
    """The engine with every client behind a ``SecureSite``, and their public keys.  rows: of clients that add noise,
    a hash of the rows of each."""
    if not isinstance(engine, InProcess):
        raise SettingsError(
            "secure sums over an engine need its sites' public keys: give them as secure={site: key}"
        )
    check_installed()
    identities = [new_identity(name) for name in engine.clients()]
    roster = {identity.site: identity.public for identity in identities}
    check_roster(roster, 2)
    allowed = OPEN_STEPS | {*open_steps}
    sites = {
        own.site: SecureSite(
            own,
            roster,
            engine.handlers[own.site],
            may_drop=may_drop,
            open_steps=allowed,
            schema=schema,
            rows=(rows or {}).get(own.site, ""),
        )
        for own in identities
    }
    return replace(engine, handlers=sites, _pool=[]), roster


def check_installed() -> None:
    """Raise, with the remedy, where the library of ciphers is missing."""
    with needing("secure", "secure sums need the package 'cryptography'"):
        import cryptography  # noqa: F401
