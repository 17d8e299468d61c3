"""A light import, and what the wheel holds."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
SETTINGS = tomllib.loads((TOP / "pyproject.toml").read_text())


def test_import_is_light():
    code = "import sys, agnosticfair; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    heavy = {"pyarrow", "matplotlib", "typer", "rich", "sklearn", "torch", "clarabel"}
    assert not (heavy | {"flwr", "onnx", "numba"}) & set(found)


def test_the_wheel_has_the_product_and_nothing_of_the_research():
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="the extra 'test' has hatchling")
    held = {f.distribution_path for f in wheel.WheelBuilder(str(TOP)).recurse_included_files()}
    assert {path.partition("/")[0] for path in held} == {"agnosticfair"}
    assert "agnosticfair/data/files/adult.parquet" in held
    assert not {p for p in held if p.endswith(".parquet")} - {
        "agnosticfair/data/files/adult.parquet"
    }
    needed = " ".join(SETTINGS["project"]["dependencies"])
    assert "pooch" not in needed
    assert "research" not in needed
