"""What goes over the line between coordinator and site: frames of a small JSON head and a body, inside TLS 1.3.

Both ends show a TLS certificate, the site that of its own key, so that every byte of a connection is the
site's: there is no signed request that somebody could repeat, and no clock that must be right.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

LENGTHS = struct.Struct(">II")
MAX_HEAD = 64_000  # bytes
MAX_BODY = 300_000_000  # bytes; it is read only where one is awaited

BEAT = 4.0
"""Seconds between two signs of life."""
SILENT = 30.0
"""Seconds without a sign after which the other side counts as gone; a process that ends is gone at once."""


class Broken(ConnectionError):
    """What came is no frame that is awaited."""


def frame(head: Mapping[str, Any], body: bytes = b"") -> bytes:
    """A frame as it is sent."""
    text = json.dumps(head).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


async def read_frame(
    reader: asyncio.StreamReader, max_body: Callable[[], int], alive: Callable[[], None]
) -> tuple[dict[str, Any], bytes]:
    """The next frame; one that is too long, or no frame, is a ``Broken`` before it is read.  max_body: bytes of a body
    that is awaited now.  alive: is called whenever some of it came."""
    head_size, body_size = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
    if head_size > MAX_HEAD or body_size > max_body():
        raise Broken(
            f"a frame of {head_size} and {body_size} bytes is too long, or nobody asked for it"
        )
    text, body = await reader.readexactly(head_size), bytearray()
    alive()
    while len(body) < body_size:
        body += (chunk := await reader.read(min(body_size - len(body), 1_000_000)))
        if not chunk:
            raise Broken("the connection ended within a frame")
        alive()
    try:
        head = json.loads(text)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict):
        raise Broken("a frame's head is no JSON object")
    return head, bytes(body)


def server_tls(folder: Path, registered: Iterable[str]) -> ssl.SSLContext:
    """The coordinator's side: it lets in who holds the key of a registered TLS certificate.  registered: as PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # a connection begins with the keys that are registered now
    context.load_cert_chain(folder / "tls" / "server.crt", folder / "tls" / "server.key")
    context.load_verify_locations(cadata="\n".join(registered))
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def site_tls(authority: str, key: Path) -> ssl.SSLContext:
    """The site's side: it trusts this authority only, and shows the TLS certificate of its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority)
    context.load_cert_chain(f"{key}.pub", key)
    return context
