"""Pairwise masks (Bonawitz et al., 2017): what one site of a pair adds, the other takes off."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agnosticfair.protocol.messages import Broadcast, Offer
from agnosticfair.protocol.records import put_together, taken_apart
from agnosticfair.protocol.secure.keys import joined, shared

MASK = b"agnosticfair-mask-2"
BLOCK = 16
"""Bytes of a block of AES."""
CHUNK = 8192
"""Numbers of a stream that are made at a time: few enough to stay in a core's cache."""


def question_digest(step: str, broadcast: Broadcast, roster: bytes) -> bytes:
    """A digest of all that a question asks, in its session and of its roster; the task by its own digest. It is
    one and the same before and after the wire, on which a number takes the type of its field."""
    plain, arrays = taken_apart(broadcast.asked)
    sent = put_together(type(broadcast.asked), json.loads(json.dumps(plain)), arrays)
    plain, arrays = taken_apart(sent)
    header = [step, broadcast.asked.step, broadcast.session, broadcast.round, broadcast.task.id]
    parts = [json.dumps([header, plain], sort_keys=True).encode(), roster]
    for name in sorted(arrays):
        value = np.asarray(arrays[name], np.float64)
        parts += [name.encode(), str(value.shape).encode(), value.tobytes()]
    return hashlib.sha256(joined(*parts)).digest()


@dataclass(frozen=True)
class MaskStream:
    """Numbers that a pair of sites can make, and nobody else.  combine: what this one does with them; the other does
    the opposite.  cipher: AES in counter mode under the pair's key of the session.  start: another key of theirs, of
    which it depends where the counter begins for a question; to others that is 16 random bytes."""

    combine: Any
    cipher: Any
    start: bytes

    def of(self, question: bytes) -> Any:
        """The cipher, set to this question's place: what it makes of zeros looks random."""
        self.cipher.reset_nonce(hmac.digest(self.start, question, "sha256")[:BLOCK])
        return self.cipher


def streams(
    site: str, masking: bytes, session: str, offers: Mapping[str, Offer]
) -> list[MaskStream]:
    """What this site shares with every other, by their masking keys: it adds the streams shared with later
    sites, and takes off those with earlier ones."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    found = []
    for other, offer in offers.items():
        if other != site:
            both = shared(masking, offer.public, session, MASK, f"site {other!r}", 64)
            cipher = Cipher(algorithms.AES(both[:32]), modes.CTR(bytes(BLOCK))).encryptor()
            combine = np.add if site < other else np.subtract
            found.append(MaskStream(combine, cipher, both[32:]))
    return found


def mask(own: Sequence[MaskStream], question: bytes, size: int) -> np.ndarray:
    """A site's mask, (size,) uint64. Over all sites of a session they add up to zero modulo 2^64."""
    made = [(stream.combine, stream.of(question)) for stream in own]
    total, most = np.zeros(size, np.uint64), min(size, CHUNK)
    zeros, out = memoryview(bytes(8 * most)), bytearray(8 * most + BLOCK)
    numbers = np.frombuffer(out, "<u8", most)
    for first in range(0, size, CHUNK):
        part = total[first : first + CHUNK]
        for combine, cipher in made:
            cipher.update_into(zeros[: 8 * len(part)], out)
            combine(part, numbers[: len(part)], out=part)
    return total
