"""The layout beside import-linter's contracts (pyproject.toml): sizes, names, the map, and what the wheel holds."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import agnosticfair

TOP = Path(__file__).parents[1]
ROOT = Path(agnosticfair.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
SETTINGS = tomllib.loads((TOP / "pyproject.toml").read_text())
CONTRIBUTING = (TOP / "CONTRIBUTING.md").read_text()


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_map_shows_every_room():
    drawn = CONTRIBUTING.partition("```text\n")[2].partition("```")[0].splitlines()
    rooms = {room for line in drawn for room in re.findall(r"\w+", line[:30])}
    layers = SETTINGS["tool"]["importlinter"]["contracts"][0]["layers"]
    listed = {room for layer in layers for room in layer.split(" | ")}
    assert rooms | {"__main__"} == listed


def test_the_way_of_a_row_is_by_names_that_are_there():
    way = CONTRIBUTING.partition("**The way of a row")[2].partition("## ")[0]
    for name in re.findall(r"`((?:\w+\.)+\w+)`", way):
        room, _, last = name.rpartition(".")
        path = ROOT / name.replace(".", "/")
        there = path.is_dir() or path.with_suffix(".py").is_file()
        assert there or hasattr(import_module(f"agnosticfair.{room}"), last), name


MAX_FILE, MAX_BODY, MAX_TOP = 500, 40, 16


def bodies(path: Path):
    """The functions of a file with the lines of their bodies, docstrings not counted."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            first = node.body[1:] if ast.get_docstring(node) else node.body
            yield node.name, node.body[-1].end_lineno - first[0].lineno + 1 if first else 0


def test_a_file_is_one_room_and_a_function_one_thought():
    scripts = [p for p in (ROOT / "report" / "static").glob("*.*s") if ".min." not in p.name]
    long = [name(p) for p in (*FILES, *scripts) if len(p.read_text().splitlines()) > MAX_FILE]
    assert not long, "these files are two rooms"
    found = {(name(path), f) for path in FILES for f, lines in bodies(path) if lines > MAX_BODY}
    assert not found, "these functions are two thoughts"


def test_a_class_name_means_one_thing():
    trees = [ast.parse(path.read_text()) for path in FILES]
    names = Counter(n.name for tree in trees for n in tree.body if isinstance(n, ast.ClassDef))
    assert not {name for name, count in names.items() if count > 1}


def test_few_files_lie_at_the_top():
    assert len([*ROOT.glob("*.py")]) <= MAX_TOP


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
