"""What can go wrong, in sentences a person can act on. Imports nothing heavy."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

Value = TypeVar("Value")


class AgnosticFairError(Exception):
    """Base of every error this package raises on purpose: one sentence, the value and the remedy."""


class DataError(AgnosticFairError, ValueError):
    """A file, column, label, group or row that cannot be used."""


class SettingsError(AgnosticFairError, ValueError):
    """A setting, method or bound that makes no sense."""


class FederationError(AgnosticFairError):
    """A client failed, was silent, or sent a reply that does not fit the request."""


class SolverError(AgnosticFairError):
    """A fit that diverged, or that did not converge where the caller asked for an error."""


class ModelError(AgnosticFairError):
    """A model file that is corrupt, foreign, or does not fit the data."""


def plain(text: object, maximum: int = 2000) -> str:
    r"""A text from elsewhere as one line for a terminal: no escapes or other control characters, no more than
    ``maximum``.

    >>> plain("\x1b[31mred\n\u202etxt"), plain("long", 3)
    ('[31mred txt', 'lo…')
    """
    line = "".join(c if c.isprintable() else " " for c in str(text)[: 8 * maximum])
    line = " ".join(line.split())
    return line if len(line) <= maximum else line[: maximum - 1] + "…"


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Says what is missing where an import in its body fails, and how to install it.

    >>> with needing("charts", "a chart needs the package 'charts'"):
    ...     import charts
    Traceback (most recent call last):
    agnosticfair.errors.SettingsError: a chart needs the package 'charts': pip install 'agnosticfair[charts]'
    """
    try:
        yield
    except ImportError:
        raise SettingsError(f"{what}: pip install 'agnosticfair[{extra}]'") from None


def existing(value: Value | None) -> Value:
    """The value, which is never None here; what calls it has seen to that."""
    assert value is not None
    return value
