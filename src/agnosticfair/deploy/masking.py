"""Secure sums over sites: the list of their keys, and a site that answers under masks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agnosticfair.data.storage import write_atomically
from agnosticfair.deploy.secrets import identity, key_pair, read_key
from agnosticfair.errors import SettingsError
from agnosticfair.protocol.messages import KeyList, Reply, key_list
from agnosticfair.protocol.secure.keys import (
    KEEPER,
    Identity,
    Roster,
    check_newer,
    check_roster,
    check_signed,
    listed,
)
from agnosticfair.protocol.secure.sessions import SecureSite
from agnosticfair.site.policy import SitePolicy

LIST = "masking.json"  # all sites' public keys, of which every site holds a copy
KEEPERS_KEY = "masking.key"  # the secret key that signs it

BRING = "key_list"
"""The step that brings a site a later version of the list."""


def first_list(sites: Roster) -> tuple[dict[str, str], str]:
    """The first version of the list and the key of who keeps it, by file name, and that key's public half. Between
    organisations it is kept by somebody whom the sites trust."""
    secret = key_pair(KEEPER)[""]
    keeper = identity(secret, KEEPER)
    return {KEEPERS_KEY: secret, LIST: list_text(listed(keeper, 1, sites))}, keeper.public


def list_text(content: KeyList) -> str:
    """A list of keys as its file has it."""
    return json.dumps(vars(content), indent=1) + "\n"


def next_list(keys: Path, change: Callable[[Roster], Roster]) -> tuple[KeyList, str]:
    """The list that follows the one in a folder of keys, signed with the keeper's key that is there, and the public
    half of that."""
    if not (keys / KEEPERS_KEY).is_file():
        raise SettingsError(
            f"the key of who keeps the list, {KEEPERS_KEY!r}, is not in {str(keys)!r}: put it there for this change, "
            "for sites take no list that it did not sign"
        )
    key_list, keeper = read_key_list(keys / LIST), read_key(keys / KEEPERS_KEY, KEEPER)
    sites = change(key_list.sites)
    check_roster(sites, 2)
    return listed(keeper, key_list.version + 1, sites), keeper.public


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
                "holds: let the keeper put its public key there ('deploy rotate-key --public')"
            )
        write_atomically({Path(path): list_text(new).encode()}, 0o644)
    return Reply(0, {})


def masked_site(
    key: str | Path,
    keys: str | Path,
    policy: SitePolicy,
    answer: Callable[..., Any],
    keeper: str = "",
    **how: Any,
) -> SecureSite:
    """A site that answers in masked sums only; its sessions are kept beside its key, for its process may end between
    two requests.  keys: the list.  answer: behind the policy.  keeper: the public key of who keeps the list.  how: as
    ``SecureSite`` has it."""
    roster, path = read_key_list(keys, policy.min_sites, keeper).sites, Path(key)
    how |= {"may_drop": policy.may_drop, "open_steps": policy.open_steps}
    how |= {"path": path.with_suffix(".sessions")}
    return SecureSite(read_key(path, policy.site), roster, answer, policy.min_sites, **how)
