"""The rows of one client as plain arrays: the only form in which data enters the package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

import numpy as np

from agnosticfair.errors import DataError

Message = TypeVar("Message")

DATED = "a date, as days since 1970-01-01"
"""How a column of dates was read."""


@dataclass(frozen=True)
class Column:
    """A categorical column: ``categories[codes[i]]`` is the value of row i.

    Parameters
    ----------
    codes : (n,) array of int
    categories : tuple of str
        The vocabulary, of which not all need occur.
    """

    codes: np.ndarray
    categories: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[object]) -> Column:
        """Make a column of any values, its vocabulary sorted.

        Parameters
        ----------
        values : iterable

        Examples
        --------
        >>> Column.of(["b", "a", "b"])
        Column(codes=array([1, 0, 1], dtype=int32), categories=('a', 'b'))
        """
        categories, codes = np.unique(np.asarray([str(v) for v in values]), return_inverse=True)
        return cls(codes.astype(np.int32), tuple(categories.tolist()))

    @property
    def present(self) -> tuple[str, ...]:
        """The categories that rows have."""
        return tuple(self.categories[k] for k in np.unique(self.codes))

    def values(self) -> np.ndarray:
        """The values as strings, (n,)."""
        return np.asarray(self.categories, dtype=object)[self.codes]

    def aligned(self, categories: tuple[str, ...]) -> np.ndarray:
        """Codes of the same values in another vocabulary, -1 where it lacks the value.

        Parameters
        ----------
        categories : tuple of str

        Returns
        -------
        (n,) array of int

        Examples
        --------
        >>> Column.of(["b", "a"]).aligned(("a", "b", "c"))
        array([1, 0])
        """
        position = {c: i for i, c in enumerate(categories)}
        lookup = np.array([position.get(c, -1) for c in self.categories], dtype=np.int64)
        return lookup[self.codes] if len(lookup) else self.codes.astype(np.int64)


@dataclass(frozen=True)
class Table:
    """Rows of one client, or of a test set. Every array has one entry per row.

    Parameters
    ----------
    numeric : mapping of str to (n,) array
    categorical : mapping of str to Column
        Features, as are the numeric columns.
    target : Column or None
        The label.
    sensitive_features : mapping of str to Column
        The protected features, never used to decide.
    other : mapping of str to Column
        Only used to split rows or to name sub-populations.
    weights : (n,) array, optional
        What each row counts for; one each by default.
    kernels : (n, M) array, optional
        K, where its holder made it with a function of its own.
    how : mapping of str to str
        How each column of a file was read, in words.
    """

    numeric: Mapping[str, np.ndarray]
    categorical: Mapping[str, Column]
    target: Column | None
    sensitive_features: Mapping[str, Column]
    other: Mapping[str, Column] = field(default_factory=dict)
    weights: np.ndarray | None = None
    kernels: np.ndarray | None = None
    how: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    streamed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        sizes = {name: len(values) for name, values in self.numeric.items()}
        for columns in (self.categorical, self.sensitive_features, self.other):
            sizes |= {name: len(column.codes) for name, column in columns.items()}
        for name, size in sizes.items():
            if size != len(self):
                raise DataError(
                    f"column {name!r} has {size} rows where others have {len(self)}; "
                    "give every column one value per row"
                )

    def __len__(self) -> int:
        if self.target is not None:
            return len(self.target.codes)
        for column in (
            *self.categorical.values(),
            *self.sensitive_features.values(),
            *self.other.values(),
        ):
            return len(column.codes)
        for values in self.numeric.values():
            return len(values)
        return 0

    @property
    def dates(self) -> tuple[str, ...]:
        """The numeric columns that are dates, as days since 1970-01-01."""
        return tuple(sorted(name for name in self.numeric if self.how.get(name) == DATED))

    @property
    def kinds(self) -> dict[str, str]:
        """The features and their kinds."""
        return dict.fromkeys(self.numeric, "numeric") | dict.fromkeys(
            self.categorical, "categorical"
        )

    def added_up(
        self, function: Callable[[Table], Message], threads: int = 1, batches: int = 1
    ) -> Message:
        """A function of all rows; of a ``Stream`` the sum over its batches.

        Parameters
        ----------
        function : callable
            From a table to something that adds up.
        threads, batches : int
            For a stream's batches; unused here.

        Returns
        -------
        What the function returns.
        """
        return function(self)

    def take(self, rows: np.ndarray) -> Table:
        """The chosen rows, with every vocabulary kept.

        Parameters
        ----------
        rows : array
            Indices, or a mask.
        """

        def pick(columns: Mapping[str, Column]) -> dict[str, Column]:
            return {k: replace(c, codes=c.codes[rows]) for k, c in columns.items()}

        return Table(
            {k: v[rows] for k, v in self.numeric.items()},
            pick(self.categorical),
            None if self.target is None else replace(self.target, codes=self.target.codes[rows]),
            pick(self.sensitive_features),
            pick(self.other),
            None if self.weights is None else self.weights[rows],
            None if self.kernels is None else self.kernels[rows],
            self.how,
        )

    def column(self, name: str) -> Column:
        """The categorical, sensitive or other column of that name.

        Parameters
        ----------
        name : str
        """
        for columns in (self.categorical, self.other, self.sensitive_features):
            if name in columns:
                return columns[name]
        known = sorted({*self.categorical, *self.other, *self.sensitive_features})
        raise DataError(f"no categorical column {name!r}; there are: {', '.join(known)}")

    def labels(self, positive: str) -> np.ndarray:
        """The labels as numbers: 1 where the target is ``positive``, else 0.

        Parameters
        ----------
        positive : str

        Returns
        -------
        (n,) array
        """
        if self.target is None:
            raise DataError("these rows have no target column; name one that holds the label")
        return (self.target.aligned((positive,)) == 0).astype(np.float64)


def concatenate(tables: Sequence[Table]) -> Table:
    """All rows of tables with the same columns, in their order.

    >>> one = Table({}, {"job": Column.of("ab")}, None, {})
    >>> len(concatenate([one, one]))
    4
    """
    first = tables[0]
    kernels = [t.kernels for t in tables if t.kernels is not None]
    weights = [np.ones(len(t)) if t.weights is None else t.weights for t in tables]

    def joined(columns: Sequence[Column]) -> Column:
        names = tuple(sorted({name for column in columns for name in column.categories}))
        codes = np.concatenate([column.aligned(names) for column in columns])
        return Column(codes.astype(np.int32), names)

    def by_name(kind: str) -> dict[str, Column]:
        return {k: joined([getattr(t, kind)[k] for t in tables]) for k in getattr(first, kind)}

    return Table(
        {k: np.concatenate([t.numeric[k] for t in tables]) for k in first.numeric},
        by_name("categorical"),
        None if first.target is None else joined([t.target for t in tables if t.target]),
        by_name("sensitive_features"),
        by_name("other"),
        np.concatenate(weights) if any(t.weights is not None for t in tables) else None,
        np.concatenate(kernels) if kernels else None,
        first.how,
    )


def intersected(columns: Mapping[str, Column]) -> Column:
    """One column whose groups are those that occur together."""
    return Column.of(map(" & ".join, zip(*(c.values() for c in columns.values()), strict=True)))
