"""From a file to an Arrow table, and its columns to ours. Arrow is imported where it is used: importing the package
stays light.

A CSV file's separator and encoding are detected by a stated rule, or given by a ``Dialect``.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.data.table import Column
from agnosticfair.errors import DataError, SettingsError

BINARY = (".parquet", ".arrow", ".feather")
"""The endings of files that have types of their own, and can be streamed."""

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
MISSING = "?"
"""How a missing text is called where it is a category of its own."""

MAX_COLUMNS = 10_000
_SAMPLE = 1 << 23  # bytes that are looked at to find the separator
_INDEX = re.compile(r"__index_level_\d+__")  # pandas' row index is not a feature


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written; what is None is found out from the file.

    separator: one character, or 'tab'.  encoding: as Python names it, such as 'latin-1'.

    >>> Dialect("tab").separator
    '\\t'
    """

    separator: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.separator in ("tab", "\\t"):
            object.__setattr__(self, "separator", "\t")
        if self.separator is not None and (
            len(self.separator) != 1 or self.separator in '"\r\n' or not self.separator.isascii()
        ):
            raise SettingsError(
                f"separator {self.separator!r} is not one character: give ',', ';', '|' or 'tab'"
            )
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise SettingsError(
                    f"encoding {self.encoding!r} is unknown: give 'utf-8', 'latin-1' or 'utf-16'"
                ) from None


def called(path: str | Path) -> str:
    """How a file is named in errors."""
    return f"file {Path(path).name or str(path)!r}"


def feature_names(names: Iterable[str]) -> list[str]:
    """The names without pandas' row index."""
    return [name for name in names if not _INDEX.fullmatch(name)]


def open_rows(
    path: str | Path, text: Iterable[str], who: str, dialect: Dialect
) -> tuple[Any, Dialect]:
    """The file as an Arrow table with at least one row and distinct column names; and how a CSV file
    turned out to be written.  text: columns to take as they are written, so that '01234' stays that."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in (".csv", ".tsv", *BINARY):
        raise DataError(f"{who} is neither .csv nor .parquet nor .arrow: convert it to one of them")
    if not path.is_file():
        raise DataError(f"{who} is not in {str(path.parent)!r}: check the path")
    if path.stat().st_size == 0:
        raise DataError(f"{who} is empty: check how it was written")
    with readable(who):
        if ending in BINARY:
            rows = _read_binary(path)
        else:
            dialect = detected_dialect(path, dialect, who)
            rows = _read_csv(path, text, dialect, who)
        names = rows.column_names
    check_names(names, who)
    if rows.num_rows == 0:
        raise DataError(f"{who} has no rows: drop it or check how it was written")
    return rows, dialect


def read_columns(
    path: str | Path, names: Sequence[str], who: str, dialect: Dialect
) -> dict[str, list[Any]]:
    """Some columns of a file, as texts in a CSV file; 'all' are all of them, a gap is empty."""
    if not names:
        return {}
    rows, _ = open_rows(path, names, who, dialect)
    wanted = rows.column_names if "all" in names and "all" not in rows.column_names else names
    for name in wanted:
        if name not in rows.column_names:
            raise DataError(f"{who} has no column {name!r} to keep: name one that is there")
    if wanted is not names:
        rows, _ = open_rows(path, wanted, who, dialect)
    return {
        name: ["" if value is None else value for value in rows[name].to_pylist()]
        for name in wanted
    }


def detected_dialect(path: Path, dialect: Dialect, who: str) -> Dialect:
    """The dialect with nothing left open.

    The encoding is what the byte order mark says, else UTF-8 if all bytes are that, else Windows' and
    then plain latin-1.  The separator is the one that cuts the first twenty lines into the same number
    of columns, of several the one that makes most; else a comma.
    """
    encoding = dialect.encoding or _encoding(path, who)
    if dialect.separator is not None:
        return Dialect(dialect.separator, encoding)
    sample = _sample(path, encoding, who)
    best = (False, 1, ",")
    for separator in SEPARATORS:
        widths = [len(line) for line in _cut(sample, separator, 20) if line]
        if widths and widths[0] > 1:
            alike = len({*widths}) == 1
            best = max(best, (alike, widths[0], separator), key=lambda candidate: candidate[:2])
    return Dialect(best[2], encoding)


def _cut(sample: str, separator: str, limit: int) -> list[list[str]]:
    """The first lines by columns, up to one with a value longer than the csv module reads, as a whole line may be that
    another separator cuts.

    >>> _cut("a;b\\n1;2\\n", ";", 1), _cut("a" * 200_000, ";", 1)
    ([['a', 'b']], [])
    """
    lines: list[list[str]] = []
    with suppress(csv.Error):
        lines.extend(islice(csv.reader(io.StringIO(sample), delimiter=separator), limit))
    return lines


def _encoding(path: Path, who: str) -> str:
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if head[1::2].count(0) > len(head) // 4:
        return "utf-16-le"
    if head[0::2].count(0) > len(head) // 4:
        return "utf-16-be"
    if 0 in head:
        raise DataError(f"{who} cannot be read (it holds bytes that are no text): write it again")
    return next(name for name in ("utf-8", "cp1252", "latin-1") if _decodes(path, name))


def _decodes(path: Path, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                decoder.decode(block)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _sample(path: Path, encoding: str, who: str) -> str:
    """The beginning of a file, up to the end of a line; the whole of a small one."""
    with path.open("rb") as file:
        raw = file.read(_SAMPLE)
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(raw)
    except UnicodeError:
        raise DataError(
            f"{who} cannot be read as {encoding}: name its encoding, such as latin-1"
        ) from None
    return text if len(raw) < _SAMPLE else text[: text.rfind("\n") + 1] or text


def _read_csv(path: Path, text: Iterable[str], dialect: Dialect, who: str) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow

    sample = _sample(path, str(dialect.encoding), who)
    header = next(filter(None, _cut(sample, str(dialect.separator), 20)), [])
    if len(header) > MAX_COLUMNS:
        raise DataError(f"{who} has {len(header)} columns: keep at most {MAX_COLUMNS} of them")
    wanted = {*text}
    rows = arrow.read_csv(
        path,
        read_options=arrow.ReadOptions(use_threads=False, encoding=dialect.encoding),
        parse_options=arrow.ParseOptions(delimiter=dialect.separator, newlines_in_values=True),
        convert_options=arrow.ConvertOptions(
            column_types={raw: pa.string() for raw in header if raw.strip() in wanted},
            strings_can_be_null=True,
            true_values=[],  # 'True' and 'true' stay as they are written
            false_values=[],
            timestamp_parsers=[arrow.ISO8601, "%Y/%m/%d"],
        ),
    )
    rows = rows.rename_columns([name.strip() for name in rows.column_names])
    rows = rows.select([j for j, name in enumerate(rows.column_names) if name or _tells(rows[j])])
    for place, name in enumerate(rows.column_names):
        if pa.types.is_string(rows.schema.field(place).type):
            rows = rows.set_column(place, name, _trimmed(rows.column(place)))
    return rows


def _tells(values: Any) -> bool:
    """Whether a column without a name says something: neither empty, as behind a last separator, nor
    the row index of pandas."""
    import pyarrow as pa

    if values.null_count == len(values):
        return False
    return not (pa.types.is_integer(values.type) and values.to_pylist() == [*range(len(values))])


def _trimmed(values: Any) -> Any:
    """Texts without blanks around them, and without those that say 'missing'."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow

    values = pc.utf8_trim_whitespace(values)
    gaps = pa.array([MISSING, *arrow.ConvertOptions().null_values])
    return pc.if_else(pc.is_in(values, gaps), pa.scalar(None, pa.string()), values)


def _read_binary(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    parquet = path.suffix.lower() == ".parquet"
    rows = (
        pq.ParquetFile(path).read()
        if parquet
        else pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    )
    return rows.select(feature_names(rows.column_names))


def check_names(names: Sequence[str], who: str) -> None:
    """Raise unless every column has a name of its own."""
    for name, times in Counter(names).items():
        if times > 1:
            raise DataError(f"{who} has {times} columns named {name!r}: rename all but one")
        if not name.strip():
            raise DataError(f"{who} has a column without a name: name it or remove it")


@contextmanager
def readable(who: str) -> Iterator[None]:
    """Arrow's complaints about a file as one sentence of ours; its own may quote a row, which must not
    leave the file."""
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except OSError as problem:
        why = problem.strerror or "it is damaged or cut short"
        raise DataError(f"{who} cannot be read ({why}): write it again") from None
    except (pa.ArrowException, ValueError) as problem:
        match = re.search(r"(Row #\d+: )?Expected \d+ columns, got \d+", str(problem))
        why = match[0] if match else "it is damaged, cut short or not UTF-8"
        raise DataError(f"{who} cannot be read ({why}): write it again") from None


def to_numbers(values: Any) -> np.ndarray:
    """A chunked Arrow column as float64, (n,), read-only; dates as days since 1970, and NaN where it is null."""
    import pyarrow as pa

    if pa.types.is_date(values.type) or pa.types.is_timestamp(values.type):
        microseconds = values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        days = np.asarray(microseconds.to_numpy(), dtype=np.float64) / 86_400e6
        days.flags.writeable = False
        return days

    numbers = np.asarray(values.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    numbers.flags.writeable = False
    return numbers


def to_column(values: Any) -> Column:
    """A chunked Arrow column without nulls as a Column: sorted vocabulary of the values that occur.

    >>> import pyarrow as pa
    >>> to_column(pa.chunked_array([["b", "a"], ["b"]]))
    Column(codes=array([1, 0, 1], dtype=int32), categories=('a', 'b'))
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    encoded = values.unify_dictionaries().combine_chunks()
    texts = encoded.dictionary
    if pa.types.is_boolean(texts.type):
        texts = pc.if_else(texts, "True", "False")  # as Python and pandas write them
    codes = encoded.indices.to_numpy()
    there = np.zeros(len(texts), bool)
    there[codes] = True
    categories, place = np.unique(
        np.asarray(texts.cast(pa.string()).to_pylist(), dtype=object)[there], return_inverse=True
    )
    position = np.zeros(len(texts), np.int32)
    position[there] = place
    codes = position[codes]
    codes.flags.writeable = False
    return Column(codes, tuple(categories.tolist()))
