"""The page's own files: its frame, style and script, and the library of charts."""

from importlib.resources import files


def static(name: str) -> str:
    """One of the files beside this one."""
    return (files(__name__) / name).read_text(encoding="utf-8")
