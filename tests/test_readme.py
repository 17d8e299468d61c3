"""What the README shows is run: its Python, its main job, and the names of its commands."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from agnosticfair.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("code", [text for kind, text in BLOCKS if kind == "python"])
def test_python_runs(code):
    exec(compile(code, "README.md", "exec"), {})


def test_commands_exist():
    known = {*typer.main.get_command(app).commands}
    shown = set(
        re.findall(r"agnosticfair ([a-z]\S*)", "".join(t for kind, t in BLOCKS if kind == "bash"))
    )
    assert shown
    assert shown <= known


@pytest.mark.parametrize(("what", "target"), [("main job", "demo"), ("tests", "test")])
def test_each_of_the_two_commands_is_one_line(what, target):
    """From a fresh clone: what make would do begins with the set-up and ends with the job."""
    (command,) = re.search(f"<!-- {what} -->\n```bash\n(.*?)```", README, re.DOTALL)[1].splitlines()
    assert command == f"make {target}"
    lines = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "--always-make", target],
        cwd=ROOT,
        env={
            k: v for k, v in os.environ.items() if not k.startswith("MAKE")
        },  # make runs the tests
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert "-m venv .venv" in lines[0]
    assert "pip install" in lines[1]
    assert lines[-1].startswith(".venv/bin/")


@pytest.mark.slow
def test_the_first_command_gives_the_first_result(tmp_path):
    """The picture's numbers, from which the text beside it is written, are those that the command writes now; another
    machine's last digits may move a row or two."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    first = re.search("<!-- first -->\n```bash\n(.*?)```", README, re.DOTALL)[1]
    subprocess.run(
        ["bash", "-euc", first],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    content = json.loads((ROOT / "docs" / "figures" / "tune-adult.json").read_text())
    content_here = json.loads((tmp_path / "tune" / "frontier.json").read_text())
    remedy = "write them anew, as benchmarks/write_readme.py says"
    assert (content_here["knee"], content_here["tau"]) == (content["knee"], content["tau"]), remedy
    for name, near in {"accuracy": 0.003, "worst": 0.02, "measured": 0.01}.items():
        for one in (content_here, content):
            one[name] = [p[name] for p in (*one["points"], *one["references"].values())]
        assert content_here[name] == pytest.approx(content[name], abs=near), remedy
