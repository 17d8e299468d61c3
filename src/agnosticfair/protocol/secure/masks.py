"""Pairwise masks (Bonawitz et al., 2017): what one site of a pair adds, the other takes off."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from agnosticfair.errors import FederationError
from agnosticfair.protocol.messages import Broadcast, Offer, pack
from agnosticfair.protocol.secure.keys import joined


def question_digest(step: str, broadcast: Broadcast, roster: bytes) -> bytes:
    """A digest of all that a question asks, in its session and of its roster."""
    return hashlib.sha256(joined(step.encode(), roster, pack(broadcast))).digest()


def shared_secrets(site: str, masking: bytes, offers: Mapping[str, Offer]) -> dict[str, bytes]:
    """What this site and every other can compute, and nobody else: X25519 of their masking keys."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    own = X25519PrivateKey.from_private_bytes(masking)
    found = {}
    for other, offer in offers.items():
        if other == site:
            continue
        try:
            found[other] = own.exchange(
                X25519PublicKey.from_public_bytes(bytes.fromhex(offer.public))
            )
        except ValueError:
            raise FederationError(
                f"the masking key of site {other!r} is no usable key: let it begin a new session"
            ) from None
    return found


def keystream(secret: bytes, salt: bytes, question: bytes, size: int) -> np.ndarray:
    """``size`` numbers modulo 2^64 that look random to whoever lacks the secret; others for each question."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(SHA256(), 32, salt, b"agnosticfair-mask-1" + question).derive(secret)
    # a key is used for one stream only, so that its counter may begin at zero
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(8 * size)), "<u8")


def mask(
    site: str, secrets: Mapping[str, bytes], session: str, question: bytes, size: int
) -> np.ndarray:
    """The site's mask: plus the stream shared with every later site, minus that with every earlier one.

    Over all sites of a session they add up to zero modulo 2^64.
    """
    total = np.zeros(size, np.uint64)
    for other in sorted(secrets):
        stream = keystream(secrets[other], session.encode(), question, size)
        if site < other:
            total += stream
        else:
            total -= stream
    return total
