"""Long-term keys of sites, the roster of those that take part, masking keys that they sign, and the proof that a masked
reply is a site's answer to this very request.

That proof is a tag (Poly1305, under a key that is used once), which convinces the session's coordinator and costs next
to nothing; where nobody coordinates it is a signature (Ed25519), which convinces anyone.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.protocol.messages import Invitation, KeyList, Offer, digest, joined

OFFER = b"agnosticfair-masking-key-2"
ANSWER = b"agnosticfair-masked-reply-1"
LISTED = b"agnosticfair-key-list-1"
"""What a signature is for: one for the one purpose never passes for the other."""

KEEPER = "the keeper of the list"
"""Its name as a signer: no site may have it."""

KEY = re.compile("[0-9a-f]{64}")
Roster = Mapping[str, str]
"""Sites' names and their long-term public keys (Ed25519), in hexadecimal."""


@dataclass(frozen=True)
class Identity:
    """A site's name and its long-term secret key, 32 bytes, which never leaves it and is never shown."""

    site: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Identity({self.site!r})"

    @property
    def public(self) -> str:
        """The long-term public key, in hexadecimal."""
        return _signing_key(self.secret).public_key().public_bytes_raw().hex()

    def sign(self, purpose: bytes, *content: bytes) -> bytes:
        return _signing_key(self.secret).sign(joined(purpose, *content))


@lru_cache(maxsize=256)
def _signing_key(secret: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(secret)


@lru_cache(maxsize=256)
def _masking_key(secret: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret)


def new_identity(site: str) -> Identity:
    """A fresh long-term key.

    >>> len(new_identity("north").public)
    64
    """
    return Identity(site, secrets.token_bytes(32))


def relay_of(site: str) -> str:
    """Who carries the messages of a site: the relay in its name, or itself.

    >>> relay_of("s1@west"), relay_of("north")
    ('west', 'north')
    """
    return site.rpartition("@")[2]


def relays(sites: Iterable[str]) -> dict[str, list[str]]:
    """The sites, sorted, by who carries their messages."""
    below: dict[str, list[str]] = {}
    for site in sorted(sites):
        below.setdefault(relay_of(site), []).append(site)
    return below


def neighbours(sites: Iterable[str], site: str) -> set[str]:
    """Those with whom a site shares masks, and itself: all, if none is below a relay; else the others of its relay and,
    of every other relay, the one at its own place. So masks cancel over all sites, and not over those of a relay.

    >>> sorted(neighbours(["a@x", "b@x", "c@y", "d@y", "e"], "a@x"))
    ['a@x', 'b@x', 'c@y', 'e']
    """
    below = relays(sites)
    place = below[relay_of(site)].index(site)
    return {
        *below[relay_of(site)],
        *(sites[place] for sites in below.values() if place < len(sites)),
    }


def check_roster(roster: Roster, min_sites: int) -> None:
    """Raise unless every site has a key of its own and there are enough of them."""
    holders: dict[str, str] = {}
    if both := {relay_of(site) for site in roster if "@" in site} & {*roster}:
        raise SettingsError(f"{both.pop()!r} is a site and a relay: give one of them another name")
    for site, public in roster.items():
        if not KEY.fullmatch(public):
            raise SettingsError(
                f"the public key of site {site!r} is not 64 hexadecimal digits: copy it again"
            )
        if public in holders:
            raise SettingsError(
                f"sites {holders[public]!r} and {site!r} have one and the same key: make a new one for one of them"
            )
        holders[public] = site
    if len(roster) < min_sites:
        raise SettingsError(
            f"a total of {len(roster)} site{'s' * (len(roster) != 1)} is not shown where min_sites is "
            f"{min_sites}: let more sites take part"
        )


def verify(roster: Roster, site: str, signature: bytes, purpose: bytes, *content: bytes) -> None:
    """Raise unless this site signed this content for this purpose."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if site not in roster:
        raise FederationError(f"site {site!r} is not on the list of keys: add its public key there")
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(roster[site]))
        key.verify(signature, joined(purpose, *content))
    except InvalidSignature:
        what = "masking key" if purpose == OFFER else "reply"
        raise FederationError(
            f"the {what} of site {site!r} is not signed with its key for this request: it was altered, "
            "replayed or swapped, and is not used"
        ) from None


def listed(keeper: Identity, version: int, sites: Roster) -> KeyList:
    """A version of the list of keys, signed by who keeps it.

    >>> keeper, north, south = (new_identity(name) for name in (KEEPER, "north", "south"))
    >>> listed(keeper, 2, {"north": north.public, "south": south.public}).version
    2
    """
    return KeyList(version, dict(sites), keeper.sign(LISTED, *_content(version, sites)).hex())


def _content(version: int, sites: Roster) -> tuple[bytes, bytes]:
    return version.to_bytes(8, "little"), digest(sites)


def check_newer(new: KeyList, key_list: KeyList, keeper: str, site: str) -> bool:
    """Whether a list is to be taken for the one that a site holds: one that follows it, of its keeper.

    keeper: the public key that the site has pinned; without one its list is its own, and stays.
    """
    if (new.version, new.sites) == (key_list.version, key_list.sites):
        return False
    if not keeper:
        raise FederationError(
            f"the list of keys of site {site!r} is its own (version {key_list.version}) and not the coordinator's "
            f"(version {new.version}): compare the two, and let the site change its own"
        )
    if not 0 <= key_list.version < new.version < 2**63:
        raise FederationError(
            f"site {site!r} holds version {key_list.version} of the list of keys and got version {new.version}: only a "
            "later one is taken; bring keys/masking.json of the coordinator up to date"
        )
    check_signed(new, keeper, f"version {new.version} of the list of keys")
    return True


def check_signed(key_list: KeyList, keeper: str, what: str) -> None:
    """Raise unless the keeper whose public key a site has pinned signed this list."""
    content, signed = _content(key_list.version, key_list.sites), bytes.fromhex(key_list.signature)
    try:
        verify({KEEPER: keeper}, KEEPER, signed, LISTED, *content)
    except FederationError:
        raise FederationError(
            f"{what} is not signed by the keeper whose key the site has pinned: it is not taken"
        ) from None


def shared(
    secret: bytes, public: str, session: str, purpose: bytes, who: str, size: int = 32
) -> bytes:
    """Bytes that the holders of two X25519 keys can compute, and nobody else, for one purpose of a session.

    secret, public: one's own key, and the other's in hexadecimal.  who: the other, for an error.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    try:
        other = X25519PublicKey.from_public_bytes(bytes.fromhex(public))
        agreed = _masking_key(secret).exchange(other)
    except ValueError:
        raise FederationError(
            f"the key of {who} for this session is no usable key: begin a new session"
        ) from None
    return HKDF(SHA256(), size, session.encode(), purpose).derive(agreed)


def public_half(secret: bytes) -> str:
    return str(_masking_key(secret).public_key().public_bytes_raw().hex())


def _promised(site: str, invitation: Invitation, public: str, rows: str) -> tuple[bytes, ...]:
    """What a site signs with its masking key: for which session, of whom, with which coordinator and rows."""
    texts = (invitation.session, site, public, invitation.coordinator, rows)
    return (*(text.encode() for text in texts), invitation.roster)


def offered(identity: Identity, invitation: Invitation, masking: bytes, rows: str = "") -> Offer:
    """The public half of a masking key, signed for this session of these sites."""
    public = public_half(masking)
    signature = identity.sign(OFFER, *_promised(identity.site, invitation, public, rows))
    return Offer(identity.site, invitation.session, public, signature.hex(), rows)


def check_offer(offer: Offer, invitation: Invitation, pinned: Roster) -> None:
    """Raise unless the offer is of this session and signed with the key that is pinned for its site."""
    if offer.session != invitation.session:
        raise FederationError(
            f"the masking key of site {offer.site!r} is of another session: it was replayed, and is not used"
        )
    content = _promised(offer.site, invitation, offer.public, offer.rows)
    verify(pinned, offer.site, bytes.fromhex(offer.signature), OFFER, *content)


REPLY = b"agnosticfair-reply-tag-1"


def reply_key(secret: bytes, public: str, session: str, who: str) -> bytes:
    """What a site and the coordinator of a session share, for the tags of that site's replies."""
    return shared(secret, public, session, REPLY, who)


def tag(key: bytes, request: bytes, values: np.ndarray) -> str:
    """The tag of masked values as the answer to this request.

    >>> len(tag(b"k" * 32, b"q", np.zeros(3, np.uint64)))
    32
    """
    from cryptography.hazmat.primitives.poly1305 import Poly1305

    once = hmac.digest(key, request, "sha256")
    return Poly1305.generate_tag(once, values.tobytes()).hex()


def signature(identity: Identity, request: bytes, values: np.ndarray) -> str:
    """The signature of masked values as the answer to this request."""
    return identity.sign(ANSWER, *_replied(identity.site, request, values)).hex()


def check_tag(key: bytes, site: str, proof: str, request: bytes, values: np.ndarray) -> None:
    """Raise unless who shares this key answered this request with these values."""
    if not hmac.compare_digest(proof, tag(key, request, values)):
        raise FederationError(
            f"the reply of site {site!r} is not marked with its key for this request: it was altered, replayed or "
            "swapped, and is not used"
        )


def check_signature(
    roster: Roster, site: str, proof: str, request: bytes, values: np.ndarray
) -> None:
    """Raise unless this site signed these values as its answer to this request."""
    verify(roster, site, bytes.fromhex(proof), ANSWER, *_replied(site, request, values))


def _replied(site: str, request: bytes, values: np.ndarray) -> tuple[bytes, ...]:
    return site.encode(), request, hashlib.sha256(values.tobytes()).digest()
