"""A line of code knows its room and what it may import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import agnosticfair

ROOT = Path(agnosticfair.__file__).parent
MATHEMATICS = {"basis", "linear", "fairness", "ambiguity", "metrics", "quadratic"}
VOCABULARY = {"methods", "messages", "data", "model"}

ALLOWED = {
    "errors": set(),
    "settings": {"errors"},
    **{room: MATHEMATICS | {"errors", "settings"} for room in MATHEMATICS},
    **{room: MATHEMATICS | VOCABULARY | {"errors", "settings"} for room in VOCABULARY},
    "accelerated": MATHEMATICS | VOCABULARY | {"errors"},
    "device": {"accelerated", "errors", "fused"},
    "fused": {"accelerated"},
    "model": MATHEMATICS | VOCABULARY | {"errors", "deep"},
    "client": MATHEMATICS | VOCABULARY | {"errors", "accelerated", "device", "deep"},
    "deep": MATHEMATICS | VOCABULARY | {"errors", "client"},
    "solvers": MATHEMATICS | VOCABULARY | {"errors", "solvers"},
    "server": MATHEMATICS | VOCABULARY | {"errors", "solvers"},
    "engines": {"engines", "errors", "messages", "threads"},
    "faults": {"engines", "errors"},
    "checkpoints": MATHEMATICS | VOCABULARY | {"errors", "solvers", "server"},
}
KNOW_FLOWER = {"engines/flower.py", "deployment/apps.py"}


def imports(path: Path) -> set[str]:
    """Rooms of this package that a file imports."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = (
                [node.module]
                if node.module != "agnosticfair"
                else [f"agnosticfair.{a.name}" for a in node.names]
            )
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        rooms |= {n.split(".")[1] for n in names if n.startswith("agnosticfair.")}
    return rooms


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_imports_only_what_it_may(path):
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if room in ALLOWED:
        assert imports(path) <= ALLOWED[room] | {room}


def test_the_command_line_comes_last():
    files = {path.relative_to(ROOT).as_posix(): imports(path) for path in ROOT.rglob("*.py")}
    assert {name for name, rooms in files.items() if "cli" in rooms} == {"__main__.py"}
    knowing = {name for name, rooms in files.items() if "commands" in rooms}
    assert {name for name in knowing if not name.startswith("commands/")} == {"cli.py"}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_flower_is_known_in_two_files_only(path):
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            names |= {a.name.split(".")[0] for a in node.names}
    assert ("flwr" in names) == (path.relative_to(ROOT).as_posix() in KNOW_FLOWER)


def test_torch_is_known_to_networks_and_devices_only():
    for path in ROOT.rglob("*.py"):
        inside = path.relative_to(ROOT).parts[0] in ("deep", "device.py", "fused.py")
        assert inside or "import torch" not in path.read_text(), path


@pytest.mark.parametrize("room", ["ambiguity", "basis", "linear", "fairness", "metrics"])
def test_mathematics_is_numpy_and_scipy_only(room):
    tree = ast.parse((ROOT / f"{room}.py").read_text())
    outside = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            outside.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            outside |= {a.name.split(".")[0] for a in node.names}
    assert outside - set(sys.stdlib_module_names) <= {"numpy", "scipy", "agnosticfair"}


def test_import_is_light():
    code = "import sys, agnosticfair; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    heavy = {
        "pyarrow",
        "matplotlib",
        "typer",
        "rich",
        "pooch",
        "sklearn",
        "torch",
        "clarabel",
        "flwr",
        "onnx",
        "mlflow",
    }
    assert not heavy & set(modules)
