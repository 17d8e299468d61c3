"""An agreed schema: columns, categories, ranges and bins, declared once in a file that every site signs off.

With it nobody sends an extreme or a list of values: round zero is counts, which can be masked. What does
not fit is named, and refused or brought inside, as the schema says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.data import wire
from agnosticfair.data.axes import round_cuts
from agnosticfair.data.encoding import check_finite, shown
from agnosticfair.data.stream import Stream
from agnosticfair.data.summary import SummaryStatistics, sorted_vocabularies
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError

FORMAT = "agnosticfair-schema-1"
OUTSIDE = ("refuse", "clip")


EQUAL_BINS = 12
"""Most bins of a column of numbers for which a schema declares none: of equal width, so that no row settles them."""


@dataclass(frozen=True)
class Schema:
    """What rows look like at every site.

    target, labels: the label's column, and its values.  sensitive_features: column -> groups.  numeric: column ->
    (low, high).  categorical: column -> values.  bins: column -> edges, for the names of subgroups.  outside:
    'refuse' rows with other values, or 'clip' numbers to the range and take an unknown category as the
    declared value 'other'; labels and groups are never changed.  dates: the numeric columns that are days since 1970.
    missing: the numeric columns that rows may lack.
    """

    target: str
    labels: tuple[str, ...]
    sensitive_features: Mapping[str, tuple[str, ...]]
    numeric: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categorical: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bins: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    outside: str = "refuse"
    dates: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """What a site signs off: the same for the same content, however the file is laid out."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    @property
    def bin_edges(self) -> dict[str, tuple[float, ...]]:
        """The edges of every column's bins: declared, or round numbers, equally far apart."""
        equal = {
            name: tuple(np.unique(round_cuts(low, high, EQUAL_BINS)).tolist())
            for name, (low, high) in self.numeric.items()
            if high > low
        }
        return {**equal, **self.bins}

    def outline(self) -> SummaryStatistics:
        """Summary statistics without a count: what clients would have to send, had nobody agreed on it."""
        groups = {
            name: dict.fromkeys(values, 0) for name, values in self.sensitive_features.items()
        }
        labels = dict.fromkeys(self.labels, 0)
        columns = (dict(self.numeric), dict(self.categorical))
        more = {"dates": self.dates, "bins": self.bin_edges, "missing": self.missing}
        return SummaryStatistics(0, labels, groups, *columns, **more)  # type: ignore[arg-type]

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "bins": {}, **wire.plain(self)}


def schema_of(statistics: SummaryStatistics, target: str, outside: str = "refuse") -> Schema:
    """A draft from what rows look like: to be corrected to what is meant, and then agreed on.

    >>> seen = SummaryStatistics(2, {"no": 1, "yes": 1}, {"sex": {"f": 2}}, {"age": (17.0, 90.0)}, {})
    >>> schema_of(seen, "income").numeric
    {'age': (17.0, 90.0)}
    """
    return Schema(
        target=target,
        labels=tuple(sorted(statistics.labels)),
        sensitive_features={
            name: tuple(sorted(groups)) for name, groups in statistics.groups.items()
        },
        numeric=statistics.ranges,
        categorical=dict(statistics.categorical),
        bins={},
        outside=outside,
        dates=statistics.dates,
        missing=statistics.missing,
    )


def load_schema(path: str | Path) -> Schema:
    """Read a schema's file; anything that is not one is refused with a sentence."""
    try:
        return _parse(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise DataError(f"cannot read the schema {str(path)!r}: {error.strerror}") from None
    except (ValueError, TypeError) as error:
        why = str(error) if type(error) is ValueError else "it is not JSON"
        raise DataError(
            f"the schema {str(path)!r} cannot be used: {why}; correct the file"
        ) from None


def _parse(data: object) -> Schema:
    entries = wire.mapping(data, "the file")
    if entries.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    schema = wire.record(Schema, {k: v for k, v in entries.items() if k != "format"})
    if schema.outside not in OUTSIDE:
        raise ValueError(f"'outside' should be {' or '.join(OUTSIDE)}, not {schema.outside!r}")
    for name, (low, high) in schema.numeric.items():
        wire.in_order(low, high, f"the range of {name!r}")
    for name, edges in schema.bins.items():
        wire.ascending(edges, f"the bins of {name!r}")
    vocabularies = (*schema.sensitive_features.items(), *schema.categorical.items())
    for name, values in (
        *vocabularies,
        *((k, getattr(schema, k)) for k in ("labels", "dates", "missing")),
    ):
        wire.distinct(values, f"the list {name!r}")
    if wrong := sorted({*schema.missing, *schema.bins} - {*schema.numeric}):
        raise ValueError(f"column {wrong[0]!r} of 'missing' or 'bins' is not numeric")
    if twice := sorted({*schema.numeric} & {*schema.categorical}):
        raise ValueError(f"column {twice[0]!r} is both numeric and categorical")
    return replace(
        schema,
        sensitive_features=sorted_vocabularies(schema.sensitive_features),
        categorical=sorted_vocabularies(schema.categorical),
        dates=tuple(sorted(schema.dates)),
        missing=tuple(sorted(schema.missing)),
    )


def applied(schema: Schema, table: Table, who: str) -> Table:
    """The rows as the schema has them: its columns only, every value inside, or a sentence that names it.

    who: holds the rows, e.g. "client 'north'".
    """
    target = _check_columns(schema, table, who)
    return replace(
        table,
        numeric={k: _inside(schema, k, table.numeric[k], who) for k in schema.numeric},
        categorical={
            k: _known(table.categorical[k], v, f"column {k!r} of {who}", schema.outside)
            for k, v in schema.categorical.items()
        },
        target=_known(target, schema.labels, f"the label of {who}", "refuse"),
        sensitive_features={
            k: _known(table.sensitive_features[k], v, f"sensitive feature {k!r} of {who}", "refuse")
            for k, v in schema.sensitive_features.items()
        },
    )


def brought(schema: Schema, table: Table, who: str) -> Table:
    """The rows as the schema has them, without a refusal that depends on a row: numbers are brought to the range, an
    unknown category is taken as 'other' where that is declared, and rows with other unknown values are left out.

    >>> schema = Schema("y", ("no", "yes"), {}, {"age": (0.0, 9.0)})
    >>> rows = Table({"age": np.array([5.0, 50.0, 1.0])}, {}, Column.of(["no", "yes", "?"]), {})
    >>> brought(schema, rows, "the site").numeric["age"]
    array([5., 9.])
    """
    target = _check_columns(schema, table, who)
    columns = [("other" in v, table.categorical[k], v) for k, v in schema.categorical.items()]
    columns += [
        (False, table.sensitive_features[k], v) for k, v in schema.sensitive_features.items()
    ]
    columns.append((False, target, schema.labels))
    fits = np.ones(len(table), bool)
    for other, column, values in columns:
        fits &= other | (column.aligned(values) >= 0)
    inside = {
        name: np.clip(_filled(table.numeric[name], low, name in schema.missing), low, high)
        for name, (low, high) in schema.numeric.items()
    }
    rows = replace(table, numeric={**table.numeric, **inside}).take(fits)
    return applied(replace(schema, outside="clip"), rows, who)


def _filled(values: np.ndarray, low: float, missing: bool) -> np.ndarray:
    """Values without those that are missing, unless they may be; infinite ones are brought to the range."""
    return values if missing else np.where(np.isnan(values), low, values)


def _check_columns(schema: Schema, table: Table, who: str) -> Column:
    """The label; raise where it, or another column of the schema, is not there."""
    if table.target is None:
        raise DataError(f"{who} has no label: the schema's is {schema.target!r}")
    for name in (*schema.numeric, *schema.categorical, *schema.sensitive_features):
        kind = "numeric" if name in schema.numeric else "categorical"
        there = (
            table.numeric
            if name in schema.numeric
            else {**table.categorical, **table.sensitive_features}
        )
        if name not in there:
            raise DataError(
                f"{who} has no {kind} column {name!r}, which the schema declares: add it, or agree on another schema"
            )
    return table.target


def _inside(schema: Schema, name: str, values: np.ndarray, who: str) -> np.ndarray:
    check_finite(name, values, who, name in schema.missing)
    low, high = schema.numeric[name]
    beyond = (values < low) | (values > high)
    if beyond.any() and schema.outside == "refuse":
        raise DataError(
            f"column {name!r} of {who} has {int(beyond.sum())} values outside the schema's range {low:g} to "
            f"{high:g}: correct them, or agree on a wider range or on 'outside': 'clip'"
        )
    return np.clip(values, low, high)


def _known(column: Column, values: tuple[str, ...], what: str, outside: str) -> Column:
    codes = column.aligned(values)
    unknown = codes < 0
    if unknown.any():
        if outside == "refuse" or "other" not in values:
            new = sorted({str(v) for v in column.values()[unknown]})
            raise DataError(
                f"{what} has {shown(new)} in {int(unknown.sum())} rows, which the schema does not declare: correct "
                "them, or agree on a schema that does"
            )
        codes = np.where(unknown, values.index("other"), codes)
    return Column(codes.astype(np.int32), values)


def under(schema: Schema, rows: Table | Stream, who: str) -> Table | Stream:
    """Rows in memory as the schema has them; a stream's are brought under it as they are read."""
    if isinstance(rows, Table):
        return applied(schema, rows, who)
    return replace(rows, table=partial(_read_under, schema, rows.table))


def _read_under(schema: Schema, table: Callable[..., Table], *arguments: Any, who: str) -> Table:
    return applied(schema, table(*arguments, who=who), who)


def check_agreed(schema: Schema, outline: SummaryStatistics, site: str) -> None:
    """Raise where others ask for what this site did not sign off."""
    requested, declared = (
        json.dumps(c.to_json(), sort_keys=True) for c in (outline, schema.outline())
    )
    if requested != declared:
        raise DataError(
            f"the schema that is asked for is not the one that site {site!r} signed off "
            f"({schema.digest[:12]}): compare the files"
        )
