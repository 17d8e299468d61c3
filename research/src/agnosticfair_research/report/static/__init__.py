"""The benchmark's texts, and its page's style and script."""

from importlib.resources import files


def static(name: str) -> str:
    """One of the files beside this one."""
    return (files(__name__) / name).read_text(encoding="utf-8")
