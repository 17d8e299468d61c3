"""Files that are written whole or not at all; and two of them: a run's test rows with every method's decisions, and the
sketch of the rows that a model was fitted on.

The sketch lies beside the model, under a secret key, for its owner alone. Rows are known by their features and label as
the model reads them, so another file or another sensitive feature does not make other rows of them. Without the key the
sketch tells nothing; with it, about how many of some rows were among those of the fit. No file that travels holds it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.reading import to_column
from agnosticfair.data.rows import in_common, marked, mixed_in
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import ModelError


def write_atomically(files: Mapping[Path, bytes], mode: int = 0o644) -> None:
    """Write files under other names, see them on the disk, then give them their names: a kill at any moment leaves
    the old content or the new one, and none has its name before all are written.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "kept.txt"
    >>> write_atomically({path: b"all of it"})
    >>> path.read_bytes()
    b'all of it'
    """
    drafts = {path: path.with_name(f".{path.name}.{os.getpid()}.part") for path in files}
    try:
        for path, content in files.items():
            opened = os.open(drafts[path], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            with os.fdopen(opened, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # a name must not be on the disk before its content
        for path, draft in drafts.items():
            draft.replace(path)
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """No other process is in here for the same file meanwhile; the lock ends with the process that holds it."""
    import fcntl

    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


ROWS_FORMAT = "agnosticfair-rows-1"
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
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays: dict[str, Any] = {f"x {name}": _arrow(c) for name, c in self.columns.items()}
        arrays |= {f"d {name}": pa.array(p) for name, p in self.decisions.items()}
        arrays |= {"y": pa.array(self.y), "s": _arrow(self.s)}
        about = {
            "format": ROWS_FORMAT,
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
        if about["format"] != ROWS_FORMAT:
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


SKETCH_FORMAT = "agnosticfair-trained-on-1"
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
        content = {
            "format": SKETCH_FORMAT,
            "model": model,
            "key": self.key.hex(),
            "rows": self.rows,
        }
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
        if (record["format"], record["model"]) != (SKETCH_FORMAT, model):
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
