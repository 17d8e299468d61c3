"""The data sets of the experiments: one record each, and one way to load them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.data import datasets as product
from agnosticfair.data.datasets import ADULT
from agnosticfair.data.reading import to_column, to_numbers
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import SettingsError
from agnosticfair_research.sources import SHIPPED, SURVEY, Source, content, locate


@dataclass(frozen=True)
class Shift:
    """Which rows train: the share ``rates[0]`` of those with one of ``values`` in ``column``, and the
    share ``rates[1]`` of the others: 0 holds these back from every client.

    drawn: instead of naming values, how many of the column's a seed holds back.  left_out: values whose rows
    neither train nor test.
    """

    column: str
    values: tuple[str, ...] = ()
    rates: tuple[float, float] = (0.8, 0.0)
    drawn: int = 0
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """A data set: what its columns are for, where it comes from, and its shift.

    numeric and categorical are the features; ``sensitive_features`` the column that is compared, ``also``
    further ones; ``other`` columns split rows or name sub-populations; those of the file that none of
    these name are dropped.  renamed: column -> value in the file -> value here, in the order of the
    vocabulary.  derived: column -> how it is made from the file's columns.  source: None if shipped.
    sites: the column whose values are natural sites.  tau: what ``agnosticfair`` is run
    with in the paper's experiments; how they were chosen stands in the documentation.
    """

    name: str
    note: str
    licence: str
    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    other: tuple[str, ...]
    target: str
    positive: str
    sensitive_features: str
    shift: Shift
    source: Source | None = None
    also: tuple[str, ...] = ()
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    derived: Mapping[str, Callable[[Any], Column]] = field(default_factory=dict)
    sites: str | None = None
    tau: float | None = None


def _quarters(rows: Any) -> Column:
    """Quarters of COMPAS's screening dates; those after March 2014 hold hardly anybody but people who
    were arrested again (an artefact of how the file was made), so they are one value."""
    dates = np.asarray(rows["compas_screening_date"].to_pylist())
    names = [f"{date[:4]} Q{(int(date[5:7]) + 2) // 3}" for date in dates]
    return Column.of(["2014 Q2 to Q4" if name > "2014 Q1" else name for name in names])


def _over_50000(rows: Any) -> Column:
    return Column.of(np.where(np.asarray(rows["salary"].to_pylist(), float) > 50_000, "yes", "no"))


def _first_two(name: str) -> Callable[[Any], Column]:
    """The first two characters of a hierarchical code: SOC's 23 major groups, the sectors of NAICS."""
    return lambda rows: Column.of([code[:2] for code in rows[name].to_pylist()])


_NOT_SHIPPED = "not stated by its source, so not shipped"

_KNOWN = (
    Dataset(
        **vars(ADULT),
        shift=Shift("workclass", ("Private",), (0.8, 0.2)),
        tau=0.11,
    ),
    Dataset(
        name="dutch",
        note="Dutch census 2001, 60,420 rows, from a folder you name or downloaded once",
        licence=_NOT_SHIPPED,
        numeric=("age", "edu_level"),
        categorical=(
            *("household_size", "prev_residence_place", "citizenship", "country_birth"),
            *("economic_status", "cur_eco_activity", "Marital_status"),
        ),
        other=("household_position",),
        target="occupation",
        positive="2_1",
        sensitive_features="sex",
        shift=Shift("household_position", ("1122",), (0.8, 0.4)),
        source=Source(
            "dutch",
            "dutch_census_2001.arff",
            "0e7e3f32668919c239db820f625815e1ea834c71402cdea595e03ef08c8616ef",
            f"{SURVEY}/Dutch_census/dutch_census_2001.arff",
        ),
        renamed={
            "occupation": {"5_4_9": "5_4_9", "2_1": "2_1"},
            "sex": {"2": "female", "1": "male"},
        },
        tau=0.052,
    ),
    Dataset(
        name="oulad",
        note="Open University students (2013-14), 21,562 rows, shipped with the package",
        licence="CC BY 4.0",
        numeric=("num_of_prev_attempts", "studied_credits"),
        categorical=("code_module", "highest_education", "imd_band", "age_band", "disability"),
        other=("region", "code_presentation"),
        target="final_result",
        positive="Pass",
        sensitive_features="gender",
        shift=Shift("region", drawn=4),
        sites="region",
    ),
    Dataset(
        name="bank",
        note="UCI Bank Marketing (2008-10, married or single), 40,004 rows, shipped with the package",
        licence="CC BY 4.0",
        numeric=("age", "balance", "day", "campaign", "pdays", "previous"),
        categorical=(*("job", "education", "default", "housing", "loan", "contact", "poutcome"),),
        other=("month", "quarter"),
        target="y",
        positive="yes",
        sensitive_features="marital",
        shift=Shift("quarter", ("2008 Q2", "2008 Q3", "2008 Q4", "2009 Q1", "2009 Q2"), (0.8, 0.0)),
    ),
    Dataset(
        name="law",
        note="LSAC bar passage study (1991-97), 20,798 rows, from a folder you name or downloaded once",
        licence=_NOT_SHIPPED,
        numeric=("decile1b", "decile3", "lsat", "ugpa", "zfygpa", "zgpa", "fam_inc"),
        categorical=("fulltime",),
        other=("tier",),
        target="pass_bar",
        positive="pass",
        sensitive_features="race",
        also=("male",),
        shift=Shift("tier", ("3", "4", "5", "6"), (0.8, 0.0)),
        source=Source(
            "law",
            "law_school_clean.csv",
            "23c1b173f3480beb7afc4957b107a9917dfc4a8dc9d87ea6034ec35222152452",
            f"{SURVEY}/experiments/data/law_school_clean.csv",
            (("law.csv", "23c1b173f3480beb7afc4957b107a9917dfc4a8dc9d87ea6034ec35222152452"),),
        ),
        renamed={
            "pass_bar": {"0.0": "fail", "1.0": "pass"},
            "male": {"0.0": "no", "1.0": "yes"},
            "fulltime": {"1.0": "yes", "2.0": "no"},
            "tier": {f"{k}.0": f"{k}" for k in range(1, 7)},
        },
        sites="tier",
    ),
    Dataset(
        name="compas",
        note="COMPAS two-year recidivism (2013-14), 6,172 rows, from a folder you name or downloaded once",
        licence="public records, terms not stated, so not shipped",
        numeric=("age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"),
        categorical=("c_charge_degree",),
        other=("quarter",),
        target="two_year_recid",
        positive="no",
        sensitive_features="race",
        also=("sex",),
        shift=Shift(
            "quarter", ("2013 Q1", "2013 Q2", "2013 Q3"), (0.8, 0.0), left_out=("2014 Q2 to Q4",)
        ),
        source=Source(
            "compas",
            "compas-scores-two-years_clean.csv",
            "5683fadcfeb018521a9751688acdd454dc0664bcbceaa999c3d057546313cf92",
            f"{SURVEY}/experiments/data/compas-scores-two-years_clean.csv",
            (("compas.csv", "cfb9aad4b14caf7d7239068640c52b63954ed78ec843c8434fb50e37074d835f"),),
        ),
        renamed={
            "two_year_recid": {"1": "yes", "0": "no"},
            "race": {
                "African-American": "African-American",
                **dict.fromkeys(
                    ("Asian", "Caucasian", "Hispanic", "Native American", "Other"), "other"
                ),
            },
        },
        derived={"quarter": _quarters},
    ),
    Dataset(
        name="govcensus",
        note="US government employees (ACS 2018), 204,309 rows in 9 regions, from a folder you name",
        licence="public domain, prepared under the GPL, so not shipped",
        numeric=(
            *("age", "family_size", "children", "education_level", "english_level"),
            *("hours_worked", "weeks_worked"),
        ),
        categorical=(
            *("hispanic_origin", "citizenship", "nativity", "marital"),
            *("occupation_group", "industry_sector"),
        ),
        other=("economic_region",),
        target="salary_over_50000",
        positive="yes",
        sensitive_features="sex",
        also=("race",),
        shift=Shift("economic_region", rates=(1 / 3, 0.0), drawn=4, left_out=("Abroad",)),
        source=Source(
            "govcensus",
            "gov_census_2018.csv.gz",
            "2fca86cace359f477cfd580660e832f7a154f5e45d58a17016204b7cc9c50f94",
            "the table gov_census of the R package fairadapt",
            download=False,
        ),
        renamed={
            "citizenship": {
                "1.0": "born in the US",
                "2.0": "born in a US territory",
                "3.0": "born abroad of US parents",
                "4.0": "naturalised",
                "5.0": "not a citizen",
            }
        },
        derived={
            "salary_over_50000": _over_50000,
            "occupation_group": _first_two("occupation"),
            "industry_sector": _first_two("industry"),
        },
        sites="economic_region",
    ),
)

DATASETS = {known.name: known for known in _KNOWN}


def dataset(name: str) -> Dataset:
    """The data set of that name.

    >>> dataset("adult").shift.values
    ('Private',)
    """
    if name not in DATASETS:
        raise SettingsError(f"no data set {name!r}; there are: {', '.join(DATASETS)}")
    return DATASETS[name]


def load_dataset(name: str, folder: str | Path | None = None) -> Table:
    """The rows of the data set of that name.

    Looked for in ``folder``, else in $AGNOSTICFAIR_DATA, else in the user's cache folder, else downloaded to it.
    Whatever the place, the file must have a known SHA-256.

    >>> len(load_dataset("adult"))
    45222
    """
    if name == ADULT.name:
        return product.load_dataset(name)
    source = dataset(name).source
    return _read(name, SHIPPED / f"{name}.parquet" if source is None else locate(source, folder))


@cache
def _read(name: str, path: Path) -> Table:
    known = dataset(name)
    if known.source is None:
        import pyarrow.parquet as pq

        rows = pq.read_table(path)
    else:
        body = content(known.source, path)
        rows = _parsed(gzip.decompress(body) if path.suffix == ".gz" else body, known.numeric)

    def columns(names: tuple[str, ...]) -> dict[str, Column]:
        return {column: _column(known, rows, column) for column in names}

    return Table(
        {column: to_numbers(rows[column]) for column in known.numeric},
        columns(known.categorical),
        _column(known, rows, known.target),
        columns((known.sensitive_features, *known.also)),
        columns(known.other),
    )


def fingerprint(table: Table) -> str:
    """The same for the same columns and values in the same order, whatever file they came from.

    >>> one = Table({}, {"job": Column.of("ab")}, None, {})
    >>> fingerprint(one) == fingerprint(one.take([0, 1])), fingerprint(one) == fingerprint(one.take([1, 0]))
    (True, False)
    """
    digest = hashlib.sha256()
    for kind in ("numeric", "categorical", "sensitive_features", "other"):
        for name, column in sorted(getattr(table, kind).items()):
            digest.update(f"{kind} {name}\n".encode())
            digest.update(column.tobytes() if kind == "numeric" else _values(column))
    digest.update(_values(table.target) if table.target else b"")
    return digest.hexdigest()


def _values(column: Any) -> bytes:
    """A column's values as bytes, independent of the order of its vocabulary."""
    order = tuple(sorted(column.categories))
    return json.dumps(order).encode() + column.aligned(order).tobytes()


def _parsed(body: bytes, numeric: tuple[str, ...]) -> Any:
    """A CSV file, or an ARFF file, which after @data is one, as an Arrow table: numbers and strings."""
    import pyarrow as pa
    from pyarrow import csv

    header, _, rest = body.partition(b"@data")
    lines = header.decode().splitlines() if rest else body.split(b"\n", 1)[0].decode().split(",")
    names = [line.split()[1] for line in lines if line.startswith("@attribute")]
    kinds = {name.strip('"'): pa.string() for name in names or lines}
    kinds |= dict.fromkeys(numeric, pa.float64())
    return csv.read_csv(
        io.BytesIO(rest.lstrip() or body),
        read_options=csv.ReadOptions(column_names=names),
        convert_options=csv.ConvertOptions(column_types=kinds),
        parse_options=csv.ParseOptions(newlines_in_values=True),
    )


def _column(known: Dataset, rows: Any, name: str) -> Column:
    column = known.derived[name](rows) if name in known.derived else to_column(rows[name])
    return _renamed(column, known.renamed[name]) if name in known.renamed else column


def _renamed(column: Column, names: Mapping[str, str]) -> Column:
    """The column with its vocabulary in the order of ``names``, under the new names.

    >>> _renamed(Column.of("abc"), {"c": "good", "a": "bad", "b": "bad"})
    Column(codes=array([1, 1, 0], dtype=int32), categories=('good', 'bad'))
    """
    new = tuple(dict.fromkeys(names.values()))
    place = np.array([new.index(name) for name in names.values()], dtype=np.int32)
    codes = place[column.aligned(tuple(names))]
    codes.flags.writeable = False
    return Column(codes, new)
