"""Arrow columns to ours. Arrow is imported where it is used: importing the package stays light."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from agnosticfair.data.table import Column
from agnosticfair.errors import DataError


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
