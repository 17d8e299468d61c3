"""Arrow columns to ours. Arrow is imported where it is used: importing the package stays light."""

from __future__ import annotations

from typing import Any

import numpy as np

from agnosticfair.data.table import Column


def to_numbers(values: Any) -> np.ndarray:
    """A chunked Arrow column without nulls as float64, (n,), read-only."""
    import pyarrow as pa

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

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_boolean(values.type):
        values = pc.if_else(values, "True", "False")  # as Python and pandas write them
    encoded = values.cast(pa.string()).combine_chunks().dictionary_encode()
    categories, place = np.unique(
        np.asarray(encoded.dictionary.to_pylist(), dtype=object), return_inverse=True
    )
    codes = place.astype(np.int32)[encoded.indices.to_numpy()]
    codes.flags.writeable = False
    return Column(codes, tuple(categories.tolist()))
