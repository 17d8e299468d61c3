"""Tables of texts, for Markdown and the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True)
class Grid:
    """A table of texts; ``brief`` has the columns that a narrow terminal shows, () for all."""

    title: str
    note: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    brief: Sequence[int] = ()


def terminal(grid: Grid) -> Group:
    """The grid's brief columns; a terminal of 80 characters holds the paper's tables."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False}
    table = Table(show_edge=False, show_header=any(grid.header), **style)
    brief = grid.brief or range(len(grid.header))
    for k in brief:
        number = any(line[k][:1].isdigit() for line in grid.lines)
        justify: Literal["right", "left"] = "right" if number else "left"
        table.add_column(Text(grid.header[k]), justify=justify, no_wrap=number or k == 0)
    for line in grid.lines:
        table.add_row(*(Text(line[k].replace(" ± ", "±")) for k in brief))
    around: list[Any] = [Text(grid.title, "bold"), table, Text(grid.note)]
    return Group(*(block for block in around if block))


def min_width(grid: Grid) -> int:
    """Characters that the table needs: names and numbers whole, of other texts the longest word."""
    total = 0
    for k in grid.brief or range(len(grid.header)):
        cells = [line[k].replace(" ± ", "±") for line in grid.lines]
        whole = k == 0 or any(cell[:1].isdigit() for cell in cells)
        words = [word for text in (grid.header[k], *cells) for word in text.split() or [""]]
        total += 2 + max(map(len, (grid.header[k], *cells) if whole else words))
    return total


def blocks(grid: Grid) -> Group:
    """The grid for a narrow terminal: for each line its name, and its values one beneath the other."""
    from rich.console import Group
    from rich.text import Text

    brief = [k for k in grid.brief or range(len(grid.header)) if k]
    wide = max((len(grid.header[k]) for k in brief), default=0)
    pieces: list[Any] = [Text(grid.title, "bold")] if grid.title else []
    for line in grid.lines:
        pieces.append(Text(line[0], "bold"))
        pieces += [Text(f"  {grid.header[k]:<{wide}}  {line[k]}") for k in brief if line[k]]
    return Group(*pieces, *([Text(grid.note)] if grid.note else []))
