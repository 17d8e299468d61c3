"""A line of code knows its room and what it may import. Rooms are closed: one that is not listed fails."""

import ast
import re
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import agnosticfair

ROOT = Path(agnosticfair.__file__).parent
BASE = {"errors", "settings", "compiled"}
WORDS = BASE | {"mathematics", "data", "learners", "training", "methods", "model", "networks"}
TRAVELS = WORDS | {"protocol", "threads"}
SIDES = TRAVELS | {"server", "client"}
ASSEMBLED = SIDES | {"fitted", "federation", "auditing", "target", "private"}

ALLOWED = {
    "errors": set(),
    "compiled": set(),
    "threads": {"errors"},
    "settings": {"errors"},
    "mathematics": BASE,
    "data": BASE | {"mathematics"},
    "training": BASE,
    "learners": BASE | {"mathematics", "data"},
    "methods": BASE | {"mathematics", "learners", "training"},
    "networks": BASE,
    "model": BASE | {"mathematics", "data", "learners", "networks"},
    "protocol": TRAVELS,
    "client": TRAVELS,
    "server": TRAVELS,
    "site": TRAVELS,
    "fitted": SIDES,
    "federation": SIDES | {"fitted", "site"},
    "auditing": SIDES | {"federation"},
    "private": SIDES | {"federation", "site"},
    "target": ASSEMBLED,
    "tuning": ASSEMBLED,
    "estimator": ASSEMBLED | {"tuning"},
    "runs": ASSEMBLED,
    "monitoring": ASSEMBLED,
    "flower": ASSEMBLED | {"runs", "monitoring", "site"},
    "experiments": ASSEMBLED | {"runs"},
    "report": ASSEMBLED | {"runs", "tuning", "experiments", "monitoring"},
    "commands": ASSEMBLED
    | {"runs", "tuning", "experiments", "report", "flower", "monitoring", "site"},
    "cli": {"commands", "errors", "runs"},
    "__main__": {"cli"},
    "__init__": ASSEMBLED | {"estimator", "monitoring"},
}
KNOW_FLOWER = {"protocol/engines/flower.py"}
KNOW_FLOWER |= {
    f"flower/{n}.py" for n in ("apps", "bundle", "control", "fleet", "patience", "superlink")
}
KNOW_TORCH = {
    "networks.py",
    "client/networks.py",
    "client/averaging_networks.py",
    "client/replay.py",
}
KNOW_TORCH |= {
    "client/sums/named_device.py",
    "client/sums/torch_device.py",
    "client/sums/triton_kernel.py",
}
FILES = sorted(ROOT.rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def modules(path: Path) -> set[str]:
    """All modules that a file imports, by their full names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [a.name for a in node.names] if node.module == "agnosticfair" else []
            found |= {f"agnosticfair.{n}" for n in names} or {node.module}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
    return found


def rooms(path: Path) -> set[str]:
    """Rooms of this package that a file imports."""
    own = {m.split(".")[1] for m in modules(path) if m.startswith("agnosticfair.")}
    return own - {"__version__"}


def outside(path: Path) -> set[str]:
    return {m.split(".")[0] for m in modules(path)}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_room_imports_only_what_it_may(path):
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert room in ALLOWED, f"say in ALLOWED what the room {room!r} may import"
    assert rooms(path) <= ALLOWED[room] | {room}


def test_no_room_is_listed_that_is_not_there():
    assert {p.relative_to(ROOT).parts[0].removesuffix(".py") for p in FILES} == {*ALLOWED}


def test_tests_mirror_the_rooms():
    here = Path(__file__).parent
    folders = {p.parent.relative_to(ROOT).parts[0] for p in FILES if p.parent != ROOT}
    assert {p.parent.relative_to(here).parts[0] for p in here.glob("*/**/test_*.py")} == folders


MIRRORED = 150
ELSEWHERE = {
    "test_cli": "commands/audit commands/fit commands/leaving commands/measuring commands/options",
    "flower/test_folder": "commands/deploy",
    "server/test_reveals": "commands/messages",
    "report/test_studies": "commands/report",
    "auditing/test_audit": "auditing/certificate auditing/inputs auditing/worst report/certificate",
    "auditing/test_parts": "auditing/beyond",
    "client/sums/test_statement": "client/sums/triton_kernel",
    "data/test_files": "data/columns data/reading",
    "experiments/test_benchmark": "experiments/kept",
    "flower/test_admin": "flower/control flower/runner",
    "learners/test_decisions": "learners/kernels",
    "learners/test_estimates": "learners/heads",
    "mathematics/test_ambiguity": "mathematics/ratios",
    "mathematics/test_confidence": "mathematics/reweighed",
    "mathematics/test_growing": "mathematics/walking",
    "mathematics/test_program": "mathematics/multipliers",
    "monitoring/test_monitor": "monitoring/baseline monitoring/mix monitoring/state monitoring/verdict",
    "protocol/privacy/test_privacy": "client/private server/private",
    "protocol/secure/test_secure": "protocol/secure/keys protocol/secure/site",
    "report/test_bench": "report/bench_numbers report/bench_page",
    "server/test_exact": "server/adversaries",
    "server/test_learning": "server/solvers",
    "server/test_named": "server/limited server/plan server/stepping",
    "site/test_red_team": "site/checks site/guard site/ruled",
    "test_reductions": "server/averaging",
}
"""Where larger files are tested that have no test of their name: by what they are for, together with others."""


def test_a_larger_file_has_its_test_or_says_where_it_is_tested():
    here = Path(__file__).parent
    told = {f"{file}.py": test for test, files in ELSEWHERE.items() for file in files.split()}
    assert all((here / f"{test}.py").is_file() for test in ELSEWHERE)
    large = {name(path) for path in FILES if len(path.read_text().splitlines()) > MIRRORED}
    own = {file for file in large if (here / file).with_name(f"test_{Path(file).name}").is_file()}
    assert large - own <= {*told}, "add tests/<room>/test_<file>.py"
    assert not own & {*told}, "these have a test of their own: take them off ELSEWHERE"


CONTRIBUTING = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()


def test_the_map_shows_every_room():
    drawn = CONTRIBUTING.partition("```text\n")[2].partition("```")[0].splitlines()
    rooms = {room for line in drawn for room in re.findall(r"\w+", line[:30])}
    assert rooms | {"__init__", "__main__"} >= {*ALLOWED}
    assert rooms <= {*ALLOWED}


def test_the_way_of_a_row_is_by_names_that_are_there():
    way = CONTRIBUTING.partition("**The way of a row")[2].partition("## ")[0]
    for name in re.findall(r"`((?:\w+\.)+\w+)`", way):
        room, _, last = name.rpartition(".")
        path = ROOT / name.replace(".", "/")
        there = path.is_dir() or path.with_suffix(".py").is_file()
        assert there or hasattr(import_module(f"agnosticfair.{room}"), last), name


def test_client_and_server_do_not_know_each_other():
    for one, other in (("client", "server"), ("server", "client")):
        for path in (ROOT / one).rglob("*.py"):
            assert other not in rooms(path), path


def test_engines_know_nothing_of_algorithms():
    for path in (ROOT / "protocol" / "engines").rglob("*.py"):
        assert rooms(path) <= {"protocol", "errors", "threads"}, path


MOST_FILE, MOST_BODY, MOST_TOP = 500, 40, 16
ONE_THOUGHT = {"client/sums/triton_kernel.py": {"_sums"}}
"""Triton's compiler takes a kernel as one function: its tiles stay in registers from load to store."""


def bodies(path: Path):
    """The functions of a file with the lines of their bodies, docstrings not counted."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            first = node.body[1:] if ast.get_docstring(node) else node.body
            yield node.name, node.body[-1].end_lineno - first[0].lineno + 1 if first else 0


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_is_one_room_and_a_function_one_thought(path):
    assert len(path.read_text().splitlines()) <= MOST_FILE, "this file is two rooms"
    long = {function for function, lines in bodies(path) if lines > MOST_BODY}
    assert long == ONE_THOUGHT.get(name(path), set()), "these functions are two thoughts"


OWN_SCRIPTS = sorted(p for p in (ROOT / "report" / "static").glob("*.*s") if ".min." not in p.name)


@pytest.mark.parametrize("path", OWN_SCRIPTS, ids=name)
def test_a_page_s_script_or_style_is_one_room(path):
    assert len(path.read_text().splitlines()) <= MOST_FILE


def test_a_class_name_means_one_thing():
    trees = [ast.parse(path.read_text()) for path in FILES]
    names = Counter(n.name for tree in trees for n in tree.body if isinstance(n, ast.ClassDef))
    assert not {name for name, count in names.items() if count > 1}


def test_few_files_lie_at_the_top():
    assert len([*ROOT.glob("*.py")]) <= MOST_TOP


@pytest.mark.parametrize("path", FILES, ids=name)
def test_few_files_know_flower_and_torch(path):
    assert ("flwr" in outside(path)) == (name(path) in KNOW_FLOWER)
    assert "torch" not in outside(path) or name(path) in KNOW_TORCH


@pytest.mark.parametrize("path", sorted((ROOT / "mathematics").glob("*.py")), ids=name)
def test_mathematics_is_numpy_and_scipy_only(path):
    known = {"numpy", "scipy", "agnosticfair", "clarabel", "__future__"}
    assert outside(path) - set(sys.stdlib_module_names) <= known


def test_import_is_light():
    code = "import sys, agnosticfair; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    heavy = {"pyarrow", "matplotlib", "typer", "rich", "pooch", "sklearn", "torch", "clarabel"}
    assert not (heavy | {"flwr", "onnx", "mlflow", "numba"}) & set(found)
