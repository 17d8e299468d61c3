"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write the file under another name, see it on the disk, then give it its name: a kill at any moment leaves
    the old content or the new one.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "kept.txt"
    >>> write_atomically(path, b"all of it")
    >>> path.read_bytes()
    b'all of it'
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # a name must not be on the disk before its content
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
