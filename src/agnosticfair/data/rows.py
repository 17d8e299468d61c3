"""What a row is by its content: for folds that need no order and no place, and for a digest of all rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from agnosticfair.data.table import Column, Table

CERTAIN = 5.0
"""Standard deviations beyond chance from which on rows count as had in common."""

_MIX = np.uint64(0x9E3779B97F4A7C15)


def row_hashes(table: Table, seed: int = 0) -> np.ndarray:
    """A number of 64 bits for every row, (n,), a function of its values and the seed alone.

    >>> one = Table({"age": np.array([1.0, 2.0, 1.0])}, {}, None, {})
    >>> h = row_hashes(one)
    >>> bool(h[0] == h[2]), bool(h[0] == h[1])
    (True, False)
    """
    hashes = _hashes(table, seed, ("numeric", "categorical", "sensitive_features", "other"))
    return hashes if table.target is None else _mixed(hashes, _words(table.target, "target"))


def _hashes(table: Table, seed: int, kinds: Sequence[str]) -> np.ndarray:
    hashes = np.full(len(table), np.uint64(_word(f"seed {seed}")))
    for kind in kinds:
        for name, values in sorted(getattr(table, kind).items()):
            hashes = _mixed(hashes, _words(values, name))
    return hashes


def folds_by_features(table: Table, folds: int, seed: int = 0) -> np.ndarray:
    """The fold of every row, (n,), by its features alone: rows that look alike are judged by a model that saw none of
    them, whoever holds them.

    >>> table = Table({"age": np.array([1.0, 2.0, 1.0])}, {}, Column.of("aab"), {})
    >>> fold = folds_by_features(table, 5)
    >>> bool(fold[0] == fold[2])
    True
    """
    hashes = _hashes(table, seed, ("numeric", "categorical"))
    mixed = _mixed(hashes, np.zeros(len(hashes), np.uint64))
    return (mixed % np.uint64(max(folds, 1))).astype(np.int64)


def contents(table: Table) -> np.ndarray:
    """A number of 64 bits for every row, (n,), a function of its values and their columns' names: a column may be a
    feature here and a sensitive one there.

    >>> job = Column.of("ab")
    >>> one, other = Table({}, {"job": job}, None, {}), Table({}, {}, None, {"job": job})
    >>> bool((contents(one) == contents(other)).all())
    True
    """
    kinds = (table.numeric, table.categorical, table.sensitive_features, table.other)
    columns: dict[str, np.ndarray | Column] = {k: v for kind in kinds for k, v in kind.items()}
    hashes = np.full(len(table), np.uint64(_word("contents")))
    for name, values in sorted(columns.items()):
        hashes = _mixed(hashes, _words(values, name))
    return hashes if table.target is None else _mixed(hashes, _words(table.target, "target"))


def marked(rows: np.ndarray, key: bytes) -> np.ndarray:
    """A number of 64 bits for every row of an array, (n,), which nobody can make without the key.

    >>> marks = marked(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]), b"secret")
    >>> bool(marks[0] == marks[2]), bool(marks[0] == marks[1])
    (True, False)
    """
    packed, kind = np.unique(np.ascontiguousarray(rows), axis=0, return_inverse=True)
    data, step = packed.tobytes(), packed.nbytes // max(len(packed), 1)
    pieces = (data[at : at + step] for at in range(0, len(data), max(step, 1)))
    marks = [hashlib.blake2b(piece, digest_size=8, key=key).digest() for piece in pieces]
    return np.frombuffer(b"".join(marks), "<u8")[kind.reshape(-1)]


def folds_of(table: Table, folds: int, seed: int = 0) -> np.ndarray:
    """The fold of every row, (n,): by its content, and for equal rows by how many of them came before.

    Whoever holds a row deals it alike, so nothing moves; and a holder's rows that are equal are dealt apart, as
    independent ones are.
    """
    hashes = row_hashes(table, seed)
    order = np.argsort(hashes, kind="stable")
    first = np.searchsorted(hashes[order], hashes[order])
    before = np.empty(len(hashes), np.uint64)
    before[order] = (np.arange(len(hashes)) - first).astype(np.uint64)
    return (_mixed(hashes, before) % np.uint64(folds)).astype(np.int64)


@dataclass(frozen=True)
class Fold:
    """Some of the rows, wherever they lie: those that ``folds_of`` deals to the fold ``number`` of so many."""

    number: int
    of: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise ValueError(f"there is no fold {self.number} of {self.of}")

    def rows(self, table: Table) -> Table:
        """The rows of a table that are in this fold."""
        return table.take(folds_of(table, self.of, self.seed) == self.number)


def digest_of(tables: Iterable[Table]) -> str:
    """The same for the same rows in any order and over any clients: a sum of hashes, which add up."""
    total, n = 0, 0
    for table in tables:
        hashes = _mixed(row_hashes(table), np.zeros(len(table), np.uint64))
        total, n = (total + int(np.add.reduce(hashes, dtype=np.uint64))) % 2**64, n + len(table)
    return hashlib.sha256(f"{n} {total}".encode()).hexdigest()


def sketch_of(tables: Iterable[Table], buckets: int) -> np.ndarray:
    """How many rows fall into each of so many buckets by their content, (buckets,): counts, which add up."""
    counts = np.zeros(buckets, np.int64)
    for table in tables:
        hashes = _mixed(row_hashes(table), np.ones(len(table), np.uint64))
        counts += np.bincount((hashes % np.uint64(buckets)).astype(np.int64), minlength=buckets)
    return counts


def in_common(sketches: np.ndarray) -> np.ndarray:
    """About how many rows each two of (k, buckets) sketches have in common, (k, k); 0 where chance explains it.

    Rows in common lie in the same buckets, so that the counts go together; so do rows that are equal by chance, as
    often as within either sketch: that much is taken off (Cauchy-Schwarz), and what is left must be CERTAIN, and
    more than a quarter of it.

    >>> rows = np.random.default_rng(0).integers(0, 10**6, 3000)
    >>> both = [np.bincount(some % 4096, minlength=4096) for some in (rows[:2000], rows[1000:])]
    >>> bool(900 < in_common(np.array(both))[0, 1] < 1100)
    True
    """
    k, buckets = sketches.shape
    away = sketches - sketches.mean(axis=1, keepdims=True)
    together = away @ away.T * buckets / (buckets - 1)
    sizes = np.diag(together)
    equal = np.sqrt(np.maximum(sizes - sketches.sum(axis=1), 0.0))
    chance, noise = np.outer(equal, equal), np.sqrt(np.outer(sizes, sizes) / buckets)
    shared = together - chance
    sure = (shared > CERTAIN * noise + chance / 4) & ~np.eye(k, dtype=bool)
    return np.where(sure, shared, 0.0)


def mixed_in(columns: Sequence[object], rows: int) -> np.ndarray:
    """A number of 64 bits for every row of columns, (rows,), a function of its values and the columns' order."""
    hashes = np.full(rows, np.uint64(_word("columns")))
    for k, values in enumerate(columns):
        assert isinstance(values, np.ndarray | Column)
        hashes = _mixed(hashes, _words(values, str(k)))
    return hashes


def kinds_of(columns: Sequence[np.ndarray], share: float) -> tuple[np.ndarray, np.ndarray] | None:
    """One row of every kind, and how many rows are of it, both (kinds,); None where there are more kinds than this
    share of the rows.  columns: (n,) each; rows that are equal in all of them are of one kind.

    >>> first, counts = kinds_of([np.array([1.0, 2.0, 1.0, 1.0])], 0.7)
    >>> sorted(zip(first.tolist(), counts.tolist(), strict=True))
    [(0, 3.0), (1, 1.0)]
    """
    key = mixed_in(columns, len(columns[0]))
    _, first, kind, counts = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    if len(first) > share * len(key) or any((v[first][kind] != v).any() for v in columns):
        return None
    return first, counts.astype(float)


def _words(values: np.ndarray | Column, name: str) -> np.ndarray:
    salt = np.uint64(_word(name))
    if isinstance(values, Column):
        words = np.array([_word(text) for text in values.categories], np.uint64)
        return words[values.codes] ^ salt if len(words) else np.full(len(values.codes), salt)
    # + 0.0 turns -0.0 into 0.0, which is the same number with other bits; a missing one has many kinds of bits
    numbers = np.ascontiguousarray(values + 0.0, np.float64)
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.uint64) ^ salt


def _word(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _mixed(hashes: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Both made one, every bit of which hangs on every bit."""
    with np.errstate(over="ignore"):
        hashes = (hashes ^ words) * _MIX
        hashes ^= hashes >> np.uint64(29)
        hashes *= np.uint64(0xBF58476D1CE4E5B9)
        return hashes ^ (hashes >> np.uint64(32))
