"""What commands give out: tables and progress on the terminal, files on the disk."""

from __future__ import annotations

import csv
import io
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any

from agnosticfair.errors import SettingsError, plain

if TYPE_CHECKING:
    from agnosticfair.report.words import Grid

UNCLAIMED = 3
"""The exit code where a limit that was requested cannot be claimed; everything is written all the same."""

FIRST = 2.0  # seconds until a line first says how far the work is, where there is no terminal
EVERY = 10.0  # seconds between such lines


def grid(title: str, header: Sequence[str], lines: Iterable[Iterable[Any]]) -> Grid:
    """A table of values, each as ``cell`` has it."""
    from agnosticfair.report.words import Grid

    return Grid(title, "", header, [[cell(value) for value in line] for line in lines])


def cell(value: Any) -> str:
    """A value as a cell of a table.

    >>> cell(45222), cell(0.5), cell(None), cell({"Male": 2000, "Female": 1000})
    ('45,222', '0.5000', 'none', 'Male 2,000, Female 1,000')
    """
    if isinstance(value, dict):
        return ", ".join(f"{key} {cell(inner)}" for key, inner in value.items())
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else plain(value)


def show(table: Grid) -> None:
    """Print a table; where a line does not fit in the terminal, a block of lines instead of each."""
    from rich.console import Console

    from agnosticfair.report.words import blocks, min_width, terminal

    width = None if sys.stdout.isatty() else 160  # a pipe has no width to wrap at
    console = Console(width=width, highlight=False)
    console.print(terminal(table) if min_width(table) <= console.width else blocks(table))


@contextmanager
def progress(total: int, what: str, at_most: bool = False) -> Iterator[Callable[[str], None]]:
    """A bar on stderr with counts and time left; a line now and then where that is no terminal.

    at_most: it may end before ``total``, so that no time left is told.  total 0: nobody knows how much there is.
    """
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        time = bars.TimeElapsedColumn() if at_most else bars.TimeRemainingColumn()
        texts = bars.TextColumn(what), bars.TextColumn("{task.description}")
        columns = (texts[0], bars.BarColumn(), bars.MofNCompleteColumn(), time, texts[1])
        with bars.Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=total or None)
            yield lambda text: bar.update(task, advance=1, description=text)
        return
    done, begin, over = 0, perf_counter(), Event()

    def advance(text: str) -> None:
        nonlocal done
        done += 1

    def speak() -> None:  # by itself: one step may take minutes
        wait = FIRST
        while not over.wait(wait):
            line = how_far(done, total, what, perf_counter() - begin, at_most)
            print(line, file=sys.stderr, flush=True)
            wait = EVERY

    speaker = Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield advance
    finally:
        over.set()
        speaker.join()


def how_far(done: int, total: int, what: str, gone: float, at_most: bool = False) -> str:
    """How much is done, in a line.

    >>> how_far(5, 20, "fits", 10.0), how_far(0, 20, "fits", 2.0)
    ('5 of 20 fits, about 30 s left', '0 of 20 fits, 2 s so far')
    >>> how_far(7, 0, "rounds", 10.0)
    '7 rounds, 10 s so far'
    """
    if not total:
        return f"{done} {what}, {gone:.0f} s so far"
    left = f"about {gone / done * (total - done):.0f} s left" if done and not at_most else ""
    return f"{done} of {'at most ' * at_most}{total} {what}, {left or f'{gone:.0f} s so far'}"


def round_words(entry: Mapping[str, Any]) -> str:
    """How a round stands, in a word and a number.

    >>> round_words({"loss": 0.25}), round_words({"stage": "trees", "held_out": 0.5})
    ('loss 0.2500', 'trees 0.5000')
    """
    value = entry.get("loss", entry.get("held_out"))
    stage = entry.get("stage", "loss")
    return stage if value is None else f"{stage} {value:.4f}"


def csv_bytes(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Columns as a CSV file."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files, none before all are on the disk under another name."""
    from agnosticfair.data.storage import write_atomically

    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically({folder / name: content for name, content in files.items()})
    except OSError as error:
        why = f"{error.strerror}; name another place by --out"
        raise SettingsError(f"cannot write to {str(folder)!r}: {why}") from None


def check_folder(folder: Path, needed: bool = False, option: str = "--out") -> None:
    """Say before the work, not after it, that its results cannot be written."""
    place = folder
    while not place.exists() and not needed and place != place.parent:
        place = place.parent
    if not place.is_dir() or not _can_write(place):
        why = "there is no such folder" if not place.exists() else "it is no folder to write in"
        raise SettingsError(
            f"cannot write to {str(folder)!r} ({why}): name another place by {option}"
        )


def _can_write(folder: Path) -> bool:
    """By a file that is gone at once: permissions say too little of /proc and the like."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def check_file(
    out: Path, inputs: Iterable[Path] = (), force: bool = False, option: str = "--out"
) -> None:
    """Say before the work that its result would be written over a file that is not ours."""
    check_folder(out.parent, needed=True, option=option)
    if out.is_dir():
        raise SettingsError(f"{str(out)!r} is a folder: name a file by {option}")
    if not out.exists():
        return
    if any(file.exists() and out.samefile(file) for file in inputs):
        raise SettingsError(
            f"{str(out)!r} is one of the files that are read: name another by {option}"
        )
    if not force and not _is_ours(out):
        raise SettingsError(
            f"{str(out)!r} is there and was not written by agnosticfair: name another by {option}, or "
            "write over it with --force"
        )


def _is_ours(path: Path, looked_at: int = 1 << 16) -> bool:
    """Whether a file says that it comes from here, or lists predictions."""
    with path.open("rb") as file:
        head = file.read(looked_at)
        file.seek(max(path.stat().st_size - looked_at, 0))
        tail = file.read(looked_at)
    first = head.partition(b"\n")[0].strip()
    return not head or b"agnosticfair" in head + tail or b"prediction,probability" in first


def deliver(
    folder: Path,
    files: Mapping[str, bytes],
    tables: Iterable[Grid],
    sentence: str,
    instead: str | None,
) -> None:
    """Write the files; then print the tables, what is to be said and where all is, or something instead."""
    write_files(folder, files)
    if instead is not None:
        return print(instead, end="\n" * bool(instead))
    for table in tables:
        show(table)
        print()
    print(sentence)
    return print("Written:", *(str(folder / name) for name in files), sep="\n  ")
