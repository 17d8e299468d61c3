"""Test rows with every method's decisions on them, as a run keeps them in its folder."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.data.arrow import to_column
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import ModelError

FORMAT = "agnosticfair-rows-1"
SITE = "site"


@dataclass(frozen=True)
class Decided:
    """Rows with a label, a group, and what every method decides on them.

    columns: what rows can be mixed by, numbers (n,) or categories.  y: (n,) labels 0 and 1.
    s: groups.  decisions: for each method (n,), the probability that a row is decided positively."""

    columns: Mapping[str, np.ndarray | Column]
    y: np.ndarray
    s: Column
    sensitive_feature: str
    positive: str
    decisions: Mapping[str, np.ndarray]

    @classmethod
    def of(
        cls,
        table: Table,
        sensitive_feature: str,
        positive: str,
        decisions: Mapping[str, np.ndarray],
        site: Column | None = None,
    ) -> Decided:
        """The rows of a table; ``site`` is where each comes from, if from several places."""
        sites = {} if site is None else {SITE: site}
        columns: dict[str, Any] = {**sites, **table.categorical, **table.other, **table.numeric}
        s = table.column(sensitive_feature)
        return cls(columns, table.labels(positive), s, sensitive_feature, positive, decisions)

    def to_bytes(self) -> bytes:
        """A Parquet file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays: dict[str, Any] = {f"x {name}": _arrow(c) for name, c in self.columns.items()}
        arrays |= {f"d {name}": pa.array(p) for name, p in self.decisions.items()}
        arrays |= {"y": pa.array(self.y), "s": _arrow(self.s)}
        about = {
            "format": FORMAT,
            "sensitive_feature": self.sensitive_feature,
            "positive": self.positive,
        }
        arrow_table = pa.table(arrays).replace_schema_metadata({"agnosticfair": json.dumps(about)})
        out = io.BytesIO()
        pq.write_table(arrow_table, out, compression="zstd")
        return out.getvalue()


def _arrow(column: np.ndarray | Column) -> Any:
    import pyarrow as pa

    if isinstance(column, np.ndarray):
        return pa.array(column)
    return pa.DictionaryArray.from_arrays(column.codes, list(column.categories))


def read_decided(path: Path) -> Decided:
    """The test rows of a run; anything else is refused with a sentence."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        about = json.loads((table.schema.metadata or {})[b"agnosticfair"])
        if about["format"] != FORMAT:
            raise ValueError(about["format"])
        columns: dict[str, Any] = {"x": {}, "d": {}}
        for name in table.column_names:
            kind, _, rest = name.partition(" ")
            if kind in columns:
                is_text = pa.types.is_dictionary(table[name].type)
                values = to_column(table[name]) if is_text else table[name].to_numpy()
                columns[kind][rest] = values
        y, s = table["y"].to_numpy(), to_column(table["s"])
        return Decided(
            columns["x"], y, s, about["sensitive_feature"], about["positive"], columns["d"]
        )
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise ModelError(
            f"{str(path)!r} holds no test rows of this version ({type(error).__name__}): run the "
            "command that wrote its folder again"
        ) from None
