"""A client's rows in Parquet or Arrow files, read a batch at a time: they never need to fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from operator import add
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from agnosticfair.data.reading import readable
from agnosticfair.data.rows import Fold
from agnosticfair.data.table import Table

BATCH = 1 << 14
"""Rows that are read and encoded at a time, unless a step says otherwise."""

Item = TypeVar("Item")
Message = TypeVar("Message", bound=Any)


def summed(function: Callable[[Item], Message], items: Iterable[Item], threads: int = 1) -> Message:
    """The sum of a function over items, added in their order: the same for any number of threads.

    >>> summed(lambda item: [item, item], "ab", threads=2)
    ['a', 'a', 'b', 'b']
    """
    with ThreadPoolExecutor(threads) as pool:
        try:
            return reduce(_added, pool.map(function, items))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _added(one: Any, two: Any) -> Any:
    """The sum of two messages, of which either may be None: a piece without rows has none."""
    return two if one is None else one if two is None else add(one, two)


@dataclass(frozen=True)
class Stream:
    """pieces: (file, number) of every row group or record batch.  rows: in all of them.  kinds: of the
    features.  columns: those to read.  table: from an Arrow table of some rows, and ``who`` holds them, to
    ours.  fold: which rows are looked at, each batch dealt by itself; None for all."""

    pieces: tuple[tuple[Path, int], ...]
    rows: int
    kinds: Mapping[str, str]
    columns: tuple[str, ...]
    table: Callable[..., Table]
    fold: Fold | None = None
    streamed: ClassVar[bool] = True
    how: ClassVar[Mapping[str, str]] = {}

    def __len__(self) -> int:
        return self.rows

    def added_up(
        self, function: Callable[[Table], Message], threads: int = 1, batches: int = 1
    ) -> Message:
        """The sum of a function over all batches, so many at a time, whose values add with ``+``.

        Each thread takes whole pieces.
        """

        def of_piece(piece: tuple[Path, int]) -> Message:
            return reduce(
                _added, (function(table) for table in self.batches(*piece, batches)), None
            )

        return summed(of_piece, self.pieces, threads)

    def batches(self, path: Path, number: int, times: int = 1) -> Iterator[Table]:
        """The tables of one piece, of at most so many times BATCH rows each; of a fold, which is dealt by it, BATCH."""
        import pyarrow as pa

        who, first = f"file {path.name!r}", sum(_sizes(path)[1][:number])
        size = BATCH if self.fold is not None else times * BATCH
        with readable(who):
            for batch in _batches(path, number, self.columns, size):
                if batch.num_rows:
                    place = f"{who} after {first} rows" if first else who
                    first += batch.num_rows
                    table = self.table(pa.Table.from_batches([batch]), who=place)
                    table = table if self.fold is None else self.fold.rows(table)
                    if len(table):
                        yield table


def of_fold(rows: Table | Stream, fold: Fold) -> Table | Stream:
    return replace(rows, fold=fold) if isinstance(rows, Stream) else fold.rows(rows)


def pieces(path: Path) -> tuple[Any, list[tuple[Path, int]], int]:
    """The schema of a file, its pieces that have rows, and how many rows they have; nothing is read yet."""
    schema, sizes = _sizes(path)
    return schema, [(path, i) for i, size in enumerate(sizes) if size], sum(sizes)


def _sizes(path: Path) -> tuple[Any, list[int]]:
    """The schema of a file, and the rows of each of its pieces."""
    if path.suffix.lower() == ".parquet":
        metadata = _metadata(path)
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        return metadata.schema.to_arrow_schema(), sizes
    file = _arrow(path)
    return file.schema, [file.get_batch(i).num_rows for i in range(file.num_record_batches)]


def _batches(path: Path, number: int, columns: tuple[str, ...], size: int) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix.lower() != ".parquet":
        batch = _arrow(path).get_batch(number).select(list(columns))
        for first in range(0, batch.num_rows, size):
            yield batch.slice(first, size)
        return
    metadata = _metadata(path)
    texts = [
        field.name
        for field in metadata.schema.to_arrow_schema()
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    ]
    file = pq.ParquetFile(path, metadata=metadata, memory_map=True, read_dictionary=texts)
    with file:
        yield from file.iter_batches(size, [number], list(columns), use_threads=False)


def _metadata(path: Path) -> Any:
    status = path.stat()
    return _footer(path.absolute(), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1024)
def _footer(path: Path, changed: int, size: int) -> Any:
    """The footer of a Parquet file as it was last written."""
    import pyarrow.parquet as pq

    return pq.read_metadata(path, memory_map=True)


def _arrow(path: Path) -> Any:
    import pyarrow as pa

    return pa.ipc.open_file(pa.memory_map(str(path)))
