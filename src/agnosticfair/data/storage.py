"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def write_atomically(files: Mapping[Path, bytes], mode: int = 0o644) -> None:
    """Write files under other names, see them on the disk, then give them their names: a kill at any moment leaves
    the old content or the new one, and none has its name before all are written.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "kept.txt"
    >>> write_atomically({path: b"all of it"})
    >>> path.read_bytes()
    b'all of it'
    """
    drafts = {path: path.with_name(f".{path.name}.{os.getpid()}.subgroup") for path in files}
    try:
        for path, content in files.items():
            opened = os.open(drafts[path], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            with os.fdopen(opened, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # a name must not be on the disk before its content
        for path, draft in drafts.items():
            draft.replace(path)
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """No other process is in here for the same file meanwhile; the lock ends with the process that holds it."""
    import fcntl

    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
