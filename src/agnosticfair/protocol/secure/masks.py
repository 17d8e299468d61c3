"""Pairwise masks (Bonawitz et al., 2017): what one site of a pair adds, the other takes off."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np

from agnosticfair.errors import FederationError
from agnosticfair.protocol.messages import Broadcast, Offer
from agnosticfair.protocol.records import taken_apart
from agnosticfair.protocol.secure.keys import joined

BLOCK = 16
"""Bytes of a block of AES."""


def question_digest(step: str, broadcast: Broadcast, roster: bytes) -> bytes:
    """A digest of all that a question asks, in its session and of its roster; the task by its own digest."""
    plain, arrays = taken_apart(broadcast.asked)
    header = [step, broadcast.asked.step, broadcast.session, broadcast.round, broadcast.task.id]
    parts = [json.dumps([header, plain], sort_keys=True).encode(), roster]
    for name in sorted(arrays):
        value = np.asarray(arrays[name], np.float64)
        parts += [name.encode(), str(value.shape).encode(), value.tobytes()]
    return hashlib.sha256(joined(*parts)).digest()


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


def keystream(secret: bytes, salt: bytes, question: bytes, zeros: bytes, out: bytearray) -> None:
    """Fill ``out`` with bytes that look random to whoever lacks the secret; others for each question.  zeros: as
    many, and a block fewer than ``out`` has room for."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(SHA256(), 32, salt, b"agnosticfair-mask-1" + question).derive(secret)
    # a key is used for one stream only, so that its counter may begin at zero
    Cipher(algorithms.AES(key), modes.CTR(bytes(BLOCK))).encryptor().update_into(zeros, out)


def mask(
    site: str, secrets: Mapping[str, bytes], session: str, question: bytes, size: int
) -> np.ndarray:
    """The site's mask, (size,) uint64: plus the stream shared with every later site, minus that with every
    earlier one. Over all sites of a session they add up to zero modulo 2^64."""
    total, salt = np.zeros(size, np.uint64), session.encode()
    zeros, out = bytes(8 * size), bytearray(8 * size + BLOCK)
    stream = np.frombuffer(out, "<u8", size)
    for other, secret in secrets.items():
        keystream(secret, salt, question, zeros, out)
        if site < other:
            np.add(total, stream, out=total)
        else:
            np.subtract(total, stream, out=total)
    return total
