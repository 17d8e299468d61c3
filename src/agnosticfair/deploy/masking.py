"""Secure sums over sites: the files of keys, and a site that answers under masks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from agnosticfair.data.storage import write_atomically
from agnosticfair.errors import SettingsError
from agnosticfair.protocol.messages import KeyList, Reply, hexadecimal, key_list
from agnosticfair.protocol.secure.keys import (
    KEEPER,
    Identity,
    Roster,
    check_newer,
    check_roster,
    check_signed,
    listed,
    new_identity,
)
from agnosticfair.protocol.secure.site import SecureSite
from agnosticfair.site.policy import SitePolicy

LIST, KEEPERS_KEY = "masking.json", "masking.key"
"""The list of all sites' long-term public keys, of which every site holds a copy; the secret key that signs it."""

BRING = "key_list"
"""The step that brings a site a later version of the list."""


def masking_files(sites: Iterable[str]) -> dict[str, str]:
    """By file name: a secret key for each site, the keeper's, and the first version of the list.

    A test's folder has all of them. Between organisations each site makes its own (it does so at its first
    start), and somebody whom the sites trust keeps the list and its key: who signs it could stand in between.

    >>> sorted(masking_files(["north", "south"]))
    ['masking.json', 'masking.key', 'north.mask', 'south.mask']
    """
    identities, keeper = [new_identity(site) for site in sites], new_identity(KEEPER)
    secret = {f"{identity.site}.mask": secret_text(identity) for identity in identities}
    first = listed(keeper, 1, {identity.site: identity.public for identity in identities})
    return secret | {KEEPERS_KEY: secret_text(keeper), LIST: list_text(first)}


def secret_text(identity: Identity) -> str:
    """A secret key as its file has it."""
    return identity.secret.hex() + "\n"


def list_text(content: KeyList) -> str:
    """A list of keys as its file has it."""
    return json.dumps(vars(content), indent=1) + "\n"


def keeper_of(secret: str) -> str:
    """The public key that belongs to the keeper's secret one; empty where there is none."""
    return Identity(KEEPER, bytes.fromhex(secret)).public if secret else ""


def next_list(keys: Path, change: Callable[[Roster], Roster]) -> KeyList:
    """The list that follows the one in a folder of keys, signed with the keeper's key that is there."""
    if not (keys / KEEPERS_KEY).is_file():
        raise SettingsError(
            f"the key of who keeps the list, {KEEPERS_KEY!r}, is not in {str(keys)!r}: put it there for this change, "
            "for sites take no list that it did not sign"
        )
    key_list, keeper = read_key_list(keys / LIST), read_secret(keys / KEEPERS_KEY, KEEPER)
    sites = change(key_list.sites)
    check_roster(sites, 2)
    return listed(keeper, key_list.version + 1, sites)


def read_key_list(path: str | Path, min_sites: int = 2, keeper: str = "") -> KeyList:
    """The list of keys from its file; one that cannot be used is refused in a sentence.  keeper: the public key of
    who signed it, where the site has pinned one."""
    try:
        entries = key_list(json.loads(Path(path).read_text()))
    except OSError as error:
        raise SettingsError(
            f"cannot read the list of keys {str(path)!r}: {error.strerror}"
        ) from None
    except ValueError as error:
        why = "it is not JSON" if isinstance(error, json.JSONDecodeError) else str(error)
        raise SettingsError(
            f"the list of keys {str(path)!r} cannot be used ({why}): copy it again"
        ) from None
    check_roster(entries.sites, min_sites)
    if keeper:
        check_signed(entries, keeper, f"the list of keys {str(path)!r}")
    return entries


def take_list(path: str | Path, identity: Identity, keeper: str, new: KeyList) -> Reply:
    """Put a later version of the list in the place of a site's, if its keeper signed it and the site is on it."""
    if check_newer(new, read_key_list(path), keeper, identity.site):
        check_roster(new.sites, 2)
        if new.sites.get(identity.site) != identity.public:
            raise SettingsError(
                f"version {new.version} of the list of keys does not have site {identity.site!r} with the key that it "
                "holds: let the keeper put its public key there ('deploy rotate-key --mask-public')"
            )
        write_atomically({Path(path): list_text(new).encode()}, 0o644)
    return Reply(0, {})


def load_secret(path: Path, site: str) -> Identity:
    """A site's long-term secret key; one that is not there is made, and its public half said where to send."""
    if not path.exists():
        identity = new_identity(site)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically({path: secret_text(identity).encode()}, 0o600)
        write_atomically(
            {path.with_name(path.name + ".pub"): f"{identity.public}\n".encode()}, 0o644
        )
        print(
            f"Made a masking key: send {path}.pub to who keeps the list of keys, who puts it there by 'deploy "
            "rotate-key --mask-public'.",
            flush=True,
        )
    return read_secret(path, site)


def read_public(path: Path) -> str:
    """The public half of a masking key, from the file that a site made."""
    try:
        return hexadecimal(path.read_text().strip(), 32)
    except OSError as error:
        raise SettingsError(f"cannot read the public key {str(path)!r}: {error.strerror}") from None
    except ValueError:
        raise SettingsError(
            f"{str(path)!r} is no public masking key of 64 hexadecimal digits: take the site's NAME.mask.pub"
        ) from None


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
    keys: str | Path,
    policy: SitePolicy,
    answer: Callable[..., Any],
    keeper: str = "",
    **how: Any,
) -> SecureSite:
    """A site that answers in masked sums only; its sessions are kept beside the secret key, for its
    process may end between two requests.  answer: behind the policy.  keeper: the public key of who keeps the list.
    how: as ``SecureSite`` has it."""
    roster = read_key_list(keys, policy.min_sites, keeper).sites
    path, identity = Path(secret).with_suffix(".sessions"), read_secret(secret, policy.site)
    how |= {"may_drop": policy.may_drop, "open_steps": policy.open_steps, "path": path}
    return SecureSite(identity, roster, answer, policy.min_sites, **how)
