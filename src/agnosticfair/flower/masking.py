"""Secure sums in a deployment: the files of keys, and a site that answers under masks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from agnosticfair.data.schema import Schema
from agnosticfair.errors import SettingsError
from agnosticfair.protocol.messages import hexadecimal
from agnosticfair.protocol.secure.keys import Identity, Roster, check_roster, new_identity
from agnosticfair.protocol.secure.site import OPEN_STEPS, SecureSite

LIST = "masking.json"
"""The list of all sites' long-term public keys, which every site holds a copy of."""


def masking_files(sites: Iterable[str]) -> dict[str, str]:
    """By file name: a secret key for each site, and the list of public ones.

    A test's folder has all of them. Between organisations each site makes its own (``new_identity``), keeps
    the secret, and the public keys are exchanged by people who know each other: a coordinator who made
    up the list could stand in between.

    >>> sorted(masking_files(["north", "south"]))
    ['masking.json', 'north.mask', 'south.mask']
    """
    made = [new_identity(site) for site in sites]
    public = {identity.site: identity.public for identity in made}
    secret = {f"{identity.site}.mask": identity.secret.hex() + "\n" for identity in made}
    return secret | {LIST: json.dumps(public, indent=1) + "\n"}


def read_list(path: str | Path, least_sites: int = 2) -> dict[str, str]:
    """The sites' public keys from their file; one that cannot be used is refused in a sentence."""
    try:
        found = json.loads(Path(path).read_text())
        listed = {str(site): hexadecimal(public, 32) for site, public in found.items()}
    except OSError as error:
        raise SettingsError(
            f"cannot read the list of keys {str(path)!r}: {error.strerror}"
        ) from None
    except (ValueError, AttributeError):
        raise SettingsError(
            f"the list of keys {str(path)!r} does not map sites to public keys: copy it again"
        ) from None
    check_roster(listed, least_sites)
    return listed


def read_secret(path: str | Path, site: str) -> Identity:
    """A site's long-term secret key; a file that others can read is refused."""
    file = Path(path)
    try:
        open_to_others, text = file.stat().st_mode & 0o077, file.read_text().strip()
    except OSError as error:
        raise SettingsError(f"cannot read the secret key {str(path)!r}: {error.strerror}") from None
    if open_to_others:
        raise SettingsError(
            f"the secret key {str(path)!r} can be read by others: take that away by chmod 600"
        )
    try:
        return Identity(site, bytes.fromhex(hexadecimal(text, 32)))
    except ValueError:
        raise SettingsError(
            f"the secret key {str(path)!r} is not 64 hexadecimal digits: restore it, or make a new one"
        ) from None


def masked_site(
    secret: str | Path,
    listed: str | Path,
    site: str,
    answer: Callable[[str, Any], Any],
    *,
    least_sites: int = 2,
    may_drop: bool = False,
    shows_rows: bool = False,
    schema: Schema | None = None,
) -> SecureSite:
    """A site that answers in masked sums only; its sessions are kept beside the secret key, for a process of
    Flower's may end between two questions.  shows_rows: whether it offers rows as kernel centres."""
    roster: Roster = read_list(listed, least_sites)
    shown = OPEN_STEPS | ({"centres"} if shows_rows else set())
    return SecureSite(
        read_secret(secret, site),
        roster,
        answer,
        least_sites,
        may_drop,
        shown,
        schema,
        Path(secret).with_suffix(".sessions"),
    )
