"""The data sets' rows as plain files of numpy, so that a benchmark runs where neither pyarrow nor the sources are.

    python benchmarks/rows.py FOLDER --data-folder SOURCES

``load`` reads what this writes, and the data sets themselves where it is given no folder.
"""

import argparse
from pathlib import Path

import numpy as np

from agnosticfair.data.table import Column, Table
from agnosticfair_research.datasets import DATASETS, dataset, load_dataset

KINDS = ("categorical", "sensitive_features", "other")


def save(folder: Path, name: str, table: Table) -> None:
    """Write a table's columns to FOLDER/NAME.npz."""
    arrays = {f"numeric|{k}": v for k, v in table.numeric.items()}
    columns = {f"{kind}|{k}": c for kind in KINDS for k, c in getattr(table, kind).items()}
    assert table.target is not None
    for key, column in {**columns, "target|": table.target}.items():
        arrays[key] = column.codes
        arrays[f"values of {key}"] = np.array(column.categories)
    np.savez_compressed(folder / f"{name}.npz", **arrays)


def load(name: str, folder: str | None, sources: str | None = None) -> Table:
    """The rows of a data set, from FOLDER if one is given."""
    if folder is None:
        found = None if sources is None else Path(sources) / name
        return load_dataset(name, found)
    with np.load(Path(folder) / f"{name}.npz") as arrays:
        subgroups: dict[str, dict] = {kind: {} for kind in ("numeric", *KINDS, "target")}
        for key in arrays.files:
            kind, _, column = key.partition("|")
            if kind == "numeric":
                subgroups[kind][column] = arrays[key]
            elif kind in subgroups:
                values = tuple(map(str, arrays[f"values of {key}"]))
                subgroups[kind][column] = Column(arrays[key], values)
    target = subgroups.pop("target")[""]
    return Table(
        subgroups["numeric"],
        subgroups["categorical"],
        target,
        subgroups["sensitive_features"],
        subgroups["other"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--data-folder", default=None, help="holds a folder for each data set")
    request = parser.parse_args()
    Path(request.folder).mkdir(parents=True, exist_ok=True)
    for name in DATASETS:
        table = load(name, None, request.data_folder)
        save(Path(request.folder), name, table)
        print(f"{name}: {len(table):,} rows, sensitive {dataset(name).sensitive_features}")


if __name__ == "__main__":
    main()
