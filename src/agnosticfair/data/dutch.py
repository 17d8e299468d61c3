"""The Dutch census of 2001: not ours to ship, so taken from a folder or downloaded once."""

from __future__ import annotations

import hashlib
import io
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.data.arrow import to_column, to_numbers
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError

NAME = "dutch_census_2001.arff"
SHA256 = "0e7e3f32668919c239db820f625815e1ea834c71402cdea595e03ef08c8616ef"
URL = f"https://raw.githubusercontent.com/tailequy/fairness_dataset/main/Dutch_census/{NAME}"
VARIABLE = "AGNOSTICFAIR_DATA"
NUMERIC = ("age", "edu_level")
CATEGORICAL = (
    "household_size",
    "prev_residence_place",
    "citizenship",
    "country_birth",
    "economic_status",
    "cur_eco_activity",
    "Marital_status",
)


def load_dutch(folder: str | Path | None = None) -> Table:
    """The 60,420 rows; the target is 'occupation' ('2_1' is high income), the sensitive feature 'sex'.

    Looked for in ``folder``, else in $AGNOSTICFAIR_DATA, else in the user's cache folder, else
    downloaded to it. Whatever the place, the file must have the known SHA-256.
    """
    named = folder or os.environ.get(VARIABLE)
    if not named:
        return _read(find_dutch(cache_folder()) or _download(cache_folder()))
    path = find_dutch(named)
    if path is None:
        source = "the folder named" if folder else f"the folder in ${VARIABLE}"
        raise DataError(f"no {NAME} in {str(named)!r}, {source}: download it there from {URL}")
    return _read(path)


def find_dutch(folder: str | Path) -> Path | None:
    """The data file in this folder or in its subfolder 'dutch', if there is one.

    >>> find_dutch("no such folder") is None
    True
    """
    places = (Path(folder) / NAME, Path(folder) / "dutch" / NAME)
    return next((place.resolve() for place in places if place.is_file()), None)


def cache_folder() -> Path:
    """Where a download is kept."""
    import pooch

    return Path(pooch.os_cache("agnosticfair"))


def _download(folder: Path) -> Path:
    import pooch

    try:
        return Path(pooch.retrieve(URL, known_hash=f"sha256:{SHA256}", fname=NAME, path=folder))
    except (OSError, ValueError) as problem:  # requests' errors are OSErrors, a wrong hash is not
        why = "came altered" if isinstance(problem, ValueError) else "failed"
        raise DataError(
            f"the download of {URL} {why}: try again later, or save the file yourself in a folder "
            f"and name that folder in ${VARIABLE}"
        ) from problem


@cache
def _read(path: Path) -> Table:
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise DataError(f"cannot read {str(path)!r}: {problem.strerror}") from None
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise DataError(
            f"{str(path)!r} is not the known file: its SHA-256 is {found[:12]}…, not "
            f"{SHA256[:12]}…; delete it and download it again from {URL}"
        )
    rows = _rows(content)
    return Table(
        {name: to_numbers(rows[name]) for name in NUMERIC},
        {name: to_column(rows[name]) for name in CATEGORICAL},
        _renamed(to_column(rows["occupation"]), {"5_4_9": "5_4_9", "2_1": "2_1"}),
        {"sex": _renamed(to_column(rows["sex"]), {"2": "female", "1": "male"})},
        {"household_position": to_column(rows["household_position"])},
    )


def _rows(content: bytes) -> Any:
    """The ARFF file as an Arrow table of strings: after @data it is plain CSV."""
    import pyarrow as pa
    from pyarrow import csv

    header, _, body = content.partition(b"@data")
    lines = header.decode().splitlines()
    names = [line.split()[1] for line in lines if line.startswith("@attribute")]
    return csv.read_csv(
        io.BytesIO(body.lstrip()),
        read_options=csv.ReadOptions(column_names=names),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )


def _renamed(column: Column, names: dict[str, str]) -> Column:
    """The column with its vocabulary in the order of ``names``, under the new names."""
    codes = column.aligned(tuple(names)).astype(np.int32)
    codes.flags.writeable = False
    return Column(codes, tuple(names.values()))
