"""The layout beside import-linter's contracts (pyproject.toml): the map, a light import, and what the wheel holds."""

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import agnosticfair

TOP = Path(__file__).parents[1]
ROOT = Path(agnosticfair.__file__).parent
SETTINGS = tomllib.loads((TOP / "pyproject.toml").read_text())
CONTRIBUTING = (TOP / "CONTRIBUTING.md").read_text()


def test_the_map_shows_every_room():
    drawn = CONTRIBUTING.partition("```text\n")[2].partition("```")[0].splitlines()
    rooms = {room for line in drawn for room in re.findall(r"\w+", line[:30])}
    layers = SETTINGS["tool"]["importlinter"]["contracts"][0]["layers"]
    listed = {room.partition(".")[0] for layer in layers for room in layer.split(" | ")}
    assert rooms | {"__main__"} == listed


def test_the_way_of_a_row_is_by_names_that_are_there():
    way = CONTRIBUTING.partition("**The way of a row")[2].partition("## ")[0]
    for name in re.findall(r"`((?:\w+\.)+\w+)`", way):
        room, _, last = name.rpartition(".")
        path = ROOT / name.replace(".", "/")
        there = path.is_dir() or path.with_suffix(".py").is_file()
        assert there or hasattr(import_module(f"agnosticfair.{room}"), last), name


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
