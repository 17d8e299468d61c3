"""Which rows a model was fitted on, for its owner alone: a sketch under a secret key, in a file beside the model.

Rows are known by their features and their label as the model reads them, so that another sensitive feature or another
file makes no other rows of them. Without the key the sketch tells nothing; with it, it tells about how many of some
rows were among those of the fit. So it stays with who fitted, and is in no file that is made to travel.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.rows import in_common, marked, mixed_in
from agnosticfair.data.table import Table

FORMAT = "agnosticfair-trained-on-1"
BUCKETS = 1 << 16
"""Of a sketch, at most; of few rows twice as many as rows, or more."""


@dataclass(frozen=True)
class Reading:
    """How a model reads a row: its features, and the label that counts as 1."""

    encoding: Encoding
    positive: str

    def marks(self, table: Table, key: bytes) -> np.ndarray:
        """A number of 64 bits for every row, (n,), as the model reads it."""
        names = tuple(name for name, *_ in self.encoding.numeric)
        numbers = replace(self.encoding, categorical=(), bins=(), missing=names)
        pairs = zip(names, encode(numbers, table).T, strict=True)
        columns: list[object] = [np.where(np.isnan(table.numeric[k]), np.nan, x) for k, x in pairs]
        columns.append(table.labels(self.positive))
        columns += [table.categorical[name] for name, _ in self.encoding.categorical]
        return marked(mixed_in(columns, len(table)), key)


@dataclass(frozen=True)
class TrainedOn:
    """rows: how many there are.  digest: of all of them, in any order.  sketch: counts of them by buckets, (B,)."""

    key: bytes = field(repr=False)
    rows: int
    digest: str
    sketch: np.ndarray = field(repr=False)

    def among(self, reading: Reading, tables: Sequence[Table]) -> float:
        """About how many of these rows are among those of the fit."""
        marks = _marks(reading, tables, self.key)
        if _digest(marks) == self.digest:
            return float(len(marks))
        if len(self.sketch) < 2:
            return 0.0
        both = np.stack([self.sketch, _counts(marks, len(self.sketch))])
        return float(min(in_common(both)[0, 1], len(marks)))

    def to_json(self, model: str) -> str:
        """The file's text.  model: the digest of the model that it belongs to."""
        packed = b64encode(zlib.compress(self.sketch.astype("<u4").tobytes(), 9)).decode()
        content = {"format": FORMAT, "model": model, "key": self.key.hex(), "rows": self.rows}
        return json.dumps({**content, "digest": self.digest, "sketch": packed})


def trained_on(reading: Reading, tables: Sequence[Table]) -> TrainedOn:
    """The sketch of the rows of a fit, under a new key."""
    key = secrets.token_bytes(32)
    marks = _marks(reading, tables, key)
    return TrainedOn(key, len(marks), _digest(marks), _counts(marks, _buckets(len(marks))))


def beside(path: Path) -> Path:
    """The file of the sketch that belongs to a model's file.

    >>> beside(Path("model.safetensors")).name
    'model.trained-on.json'
    """
    return path.with_name(f"{path.stem}.trained-on.json")


def read_beside(path: Path, model: str) -> TrainedOn | None:
    """The sketch beside a model's file, if there is one and it is of this model."""
    try:
        record = json.loads(beside(path).read_text())
        if (record["format"], record["model"]) != (FORMAT, model):
            return None
        content = zlib.decompressobj().decompress(b64decode(record["sketch"]), 4 * BUCKETS)
        sketch = np.frombuffer(content, "<u4").astype(np.int64)
        return TrainedOn(
            bytes.fromhex(record["key"]), int(record["rows"]), str(record["digest"]), sketch
        )
    except (OSError, ValueError, KeyError, TypeError, zlib.error):
        return None


def _marks(reading: Reading, tables: Sequence[Table], key: bytes) -> np.ndarray:
    return np.concatenate([reading.marks(table, key) for table in tables])


def _digest(marks: np.ndarray) -> str:
    return hashlib.sha256(np.sort(marks).tobytes()).hexdigest()


def _buckets(rows: int) -> int:
    """A power of two, more than twice the rows: then some in common stand out against chance."""
    return min(BUCKETS, 1 << (2 * max(rows, 8)).bit_length())


def _counts(marks: np.ndarray, buckets: int) -> np.ndarray:
    return np.bincount((marks % np.uint64(buckets)).astype(np.int64), minlength=buckets)
