"""That a masked reply is a site's own, to this very request.

A tag (Poly1305, under a key that is used for one request) convinces the coordinator of the session and costs
next to nothing; where nobody coordinates, a signature (Ed25519) convinces everybody.
"""

from __future__ import annotations

import hashlib
import hmac

import numpy as np

from agnosticfair.errors import FederationError
from agnosticfair.protocol.secure.keys import ANSWER, Identity, Roster, shared, verify

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
    return identity.sign(ANSWER, *_content(identity.site, request, values)).hex()


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
    verify(roster, site, bytes.fromhex(proof), ANSWER, *_content(site, request, values))


def _content(site: str, request: bytes, values: np.ndarray) -> tuple[bytes, ...]:
    return site.encode(), request, hashlib.sha256(values.tobytes()).digest()
