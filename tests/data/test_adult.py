import subprocess
import sys

import numpy as np
import pytest

from agnosticfair.data.datasets import ADULT, load_dataset
from agnosticfair.errors import SettingsError

COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status"),
    *("occupation", "relationship", "race", "sex", "capital-gain", "capital-loss"),
    *("hours-per-week", "native-country", "income"),
)


def originals(folder):
    for name in ("adult.data", "adult.test"):
        for line in (folder / name).read_text().splitlines():
            row = [value.strip() for value in line.removesuffix(".").split(",")]
            if len(row) == len(COLUMNS) and "?" not in row:
                yield row


def test_every_value_is_that_of_the_original_files(adult, shared):
    rows = originals(shared / "adult")
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    for name in ADULT.numeric:
        np.testing.assert_array_equal(adult.numeric[name], [float(v) for v in columns[name]])
    for name in (*ADULT.categorical, "education", "race", "native-country", "sex"):
        assert adult.column(name).values().tolist() == list(columns[name])
    assert adult.target.values().tolist() == list(columns["income"])
    used = {*adult.numeric, *adult.categorical, *adult.sensitive_features, *adult.other, "income"}
    assert used == set(COLUMNS)


def test_loaded_once_and_protected(adult):
    assert load_dataset("adult") is adult
    with pytest.raises(ValueError, match="read-only"):
        adult.numeric["age"][0] = 0
    with pytest.raises(ValueError, match="read-only"):
        adult.target.codes[0] = 0


def test_another_name_is_refused():
    with pytest.raises(SettingsError, match="'iris'"):
        load_dataset("iris")


def test_importing_the_data_package_is_light():
    code = (
        "import sys, agnosticfair.data.datasets, agnosticfair.data.files;"
        "print([m for m in ('pyarrow', 'requests') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
