"""What commands say of the rows they read: how every column was taken, and which label is the positive one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agnosticfair.data.columns import Roles
    from agnosticfair.data.stream import Stream
    from agnosticfair.data.table import Table
    from agnosticfair.methods import Method

MOST_NAMES = 40


def with_parts(roles: Roles, method: Method) -> Roles:
    """The roles of columns, with those that name the method's parts and are no features."""
    columns = () if method.fairness is None else method.fairness.basis.own_columns
    return replace(roles, parts=columns)


def columns_of(sources: Mapping[str, Table | Stream]) -> dict[str, str]:
    """How every column was read, in words, over all clients; of streams their kinds alone."""
    from agnosticfair.data.columns import described
    from agnosticfair.data.table import Table, concatenate

    tables = [rows for rows in sources.values() if isinstance(rows, Table)]
    if len(tables) < len(sources):
        return {k: v for rows in sources.values() for k, v in rows.kinds.items()}
    found = described(concatenate(tables))
    return found | {k: how for t in tables for k, how in t.how.items() if how.startswith("dropped")}


def positive_of(
    sources: Mapping[str, Table | Stream], positive: str | None
) -> tuple[str | None, str]:
    """The positive label and why it is that, where it can be told before training; all rows in memory."""
    from agnosticfair.data.census import positive_rule

    labels: set[str] = set()
    for rows in sources.values():
        target = getattr(rows, "target", None)
        if target is None:
            return positive, "as asked"
        labels |= {target.categories[k] for k in {*target.codes.tolist()}}
    if positive is not None or len(labels) != 2:
        return positive, "as asked"
    return positive_rule(sorted(labels))


def tell(sources: Mapping[str, Table | Stream], target: str, positive: str | None) -> None:
    """Print how the columns were read and what counts as positive, before anything is trained."""
    told = columns_of(sources)
    for kind in ("numeric", "categorical"):
        names = [name for name, how in told.items() if how.startswith(kind)]
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        _say(f"{kind.capitalize()}: {', '.join(names[:MOST_NAMES]) or 'none'}{more}.")
    for name, how in told.items():
        if _notable(how):
            _say(f"{name}: {how}.")
    label, why = positive_of(sources, positive)
    if label is not None:
        other = "" if why == "as asked" else "; another by --positive"
        _say(f"Label {target}: {label!r} is the positive one ({why}{other}).")
    print(flush=True)


def _notable(how: str) -> bool:
    words = ("dropped", "one value", "missing", "written with", "days since", "too many")
    return any(word in how for word in words)


def _say(text: str) -> None:
    print(fill(text, 80, subsequent_indent="  ", break_on_hyphens=False))


def warned(found: Iterable[Mapping[str, Any]], tau: bool) -> list[str]:
    """Sentences of warning about what ``scores`` found on all rows."""
    from agnosticfair.report.words import poor

    for entry in found:
        if entry["client"] == "all rows" and entry["accuracy"] is not None:
            positive = entry["positive_rate"]
            return poor(
                entry["accuracy"], entry["majority_rate"], positive, limit="tau" if tau else "bound"
            )
    return []
