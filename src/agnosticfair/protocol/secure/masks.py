"""Replies as integers modulo 2^64, exact or refused, and pairwise masks on them (Bonawitz et al., 2017): what one site
of a pair adds, the other takes off.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agnosticfair.data.records import put_together, taken_apart
from agnosticfair.errors import FederationError
from agnosticfair.protocol.messages import Broadcast, Offer, Reply, bits, joined
from agnosticfair.protocol.requests import Task
from agnosticfair.protocol.secure.keys import shared

MASK = b"agnosticfair-mask-2"
BLOCK = 16
"""Bytes of a block of AES."""
CHUNK = 8192
"""Numbers of a stream that are made at a time: few enough to stay in a core's cache."""


def request_digest(step: str, broadcast: Broadcast, roster: bytes) -> bytes:
    """A digest of all that a request asks, in its session and of its roster; the task by its own digest. It is
    one and the same before and after the wire, on which a number takes the type of its field."""
    plain, arrays = taken_apart(broadcast.request)
    sent = put_together(type(broadcast.request), json.loads(json.dumps(plain)), arrays)
    plain, arrays = taken_apart(sent)
    header = [step, broadcast.request.step, broadcast.session, broadcast.round, broadcast.task.id]
    pieces = [json.dumps([header, plain], sort_keys=True).encode(), roster]
    for name in sorted(arrays):
        value = np.asarray(arrays[name], np.float64)
        pieces += [name.encode(), str(value.shape).encode(), value.tobytes()]
    return hashlib.sha256(joined(*pieces)).digest()


@dataclass(frozen=True)
class MaskStream:
    """Numbers that a pair of sites can make, and nobody else.  combine: what this one does with them; the other does
    the opposite.  cipher: AES in counter mode under the pair's key of the session.  start: another key of theirs, of
    which it depends where the counter begins for a request; to others that is 16 random bytes."""

    combine: Any
    cipher: Any
    start: bytes

    def of(self, request: bytes) -> Any:
        """The cipher, set to this request's place: what it makes of zeros looks random."""
        self.cipher.reset_nonce(hmac.digest(self.start, request, "sha256")[:BLOCK])
        return self.cipher


def streams(
    site: str, masking: bytes, session: str, offers: Mapping[str, Offer]
) -> list[MaskStream]:
    """What this site shares with every other, by their masking keys: it adds the streams shared with later
    sites, and takes off those with earlier ones."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    streams = []
    for other, offer in offers.items():
        if other != site:
            both = shared(masking, offer.public, session, MASK, f"site {other!r}", 64)
            cipher = Cipher(algorithms.AES(both[:32]), modes.CTR(bytes(BLOCK))).encryptor()
            combine = np.add if site < other else np.subtract
            streams.append(MaskStream(combine, cipher, both[32:]))
    return streams


def mask(mask_streams: Sequence[MaskStream], request: bytes, size: int) -> np.ndarray:
    """A site's mask, (size,) uint64. Over all sites of a session they add up to zero modulo 2^64."""
    generators = [(stream.combine, stream.of(request)) for stream in mask_streams]
    total, chunk_size = np.zeros(size, np.uint64), min(size, CHUNK)
    zeros, out = memoryview(bytes(8 * chunk_size)), bytearray(8 * chunk_size + BLOCK)
    numbers = np.frombuffer(out, "<u8", chunk_size)
    for first in range(0, size, CHUNK):
        piece = total[first : first + CHUNK]
        for combine, cipher in generators:
            cipher.update_into(zeros[: 8 * len(piece)], out)
            combine(piece, numbers[: len(piece)], out=piece)
    return total


Shapes = Mapping[str, tuple[int, ...]]


def integers(value: np.ndarray, bits: Any, field: str = "a sum") -> np.ndarray:
    """value / 2^-bits modulo 2^64, as two's complement, uint64.

    No sum of honest requests comes near 2^63 (``messages.base_bits``). One that does wraps around, and one that is not
    finite counts as 0: a refusal would tell how large it is.

    >>> integers(np.array([1.5, -0.5]), 1)
    array([                   3, 18446744073709551615], dtype=uint64)
    """
    scaled = np.asarray(value, np.float64) * np.ldexp(1.0, bits)
    scaled = np.where(np.isfinite(scaled), scaled, 0.0)
    if (np.rint(scaled) != scaled).any():
        raise FederationError(
            f"{field} is not on the agreed grid: check that versions are the same"
        )
    wrapped = np.fmod(scaled, 2.0**64)
    low = np.where(wrapped >= 2.0**63, wrapped - 2.0**64, wrapped)
    return np.where(low < -(2.0**63), low + 2.0**64, low).astype(np.int64).view(np.uint64)


def floats(total: np.ndarray, bits: Any) -> np.ndarray:
    """The inverse of ``integers`` for a total; exact below 2^53, else the nearest float64.

    >>> floats(integers(np.array([1.5, -0.5]), 1), 1)
    array([ 1.5, -0.5])
    """
    return np.ldexp(total.view(np.int64).astype(np.float64), -np.asarray(bits))


def flattened(reply: Reply, task: Task) -> np.ndarray:
    """All fields of a reply, by their names in sorted order, as one vector of integers."""
    return np.concatenate(
        [integers(reply.sums[name], bits(name, task), name).ravel() for name in sorted(reply.sums)]
    )


def shaped(total: np.ndarray, round: int, task: Task, shapes: Shapes) -> Reply:
    """The reply whose fields, of these shapes, were flattened and added up."""
    sums, first = {}, 0
    for name in sorted(shapes):
        size = int(np.prod(shapes[name], dtype=int))
        piece = total[first : first + size].reshape(shapes[name])
        sums[name], first = floats(piece, bits(name, task)), first + size
    return Reply(round, sums)


def length(shapes: Shapes) -> int:
    """How many numbers a reply of these shapes has."""
    return sum(int(np.prod(shape, dtype=int)) for shape in shapes.values())
