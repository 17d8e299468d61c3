"""Every code block of docs/*.md is run, in the order of the page, in a folder of its own.

A block that cannot run says so and why in a comment before it; a hidden block of Python stands in a
comment that begins with 'python'. Of ``pip install`` lines the extra that they name is looked up.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import mean

import pytest

from agnosticfair.cli import main
from agnosticfair.data.datasets import load_dataset

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(
    r"<!-- python\n(?P<hidden>.*?)-->"
    r"|(?:<!-- not run: (?P<why>.+?) -->\n)?^```(?P<kind>\S*)[^\n]*\n(?P<text>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)
NOT_RUN = 4
"""Blocks that may say they cannot run."""


def blocks(page):
    return [*BLOCK.finditer(page.read_text())]


@pytest.fixture(scope="module")
def rows():
    """Some rows of Adult as the lines of a CSV file."""
    table = load_dataset("adult")
    columns = {**table.numeric, **{k: c.values() for k, c in table.categorical.items()}}
    columns |= {"sex": table.sensitive_features["sex"].values(), "income": table.target.values()}
    lines = zip(*(values[:1500] for values in columns.values()), strict=True)
    return [",".join(columns), *(",".join(map(str, line)) for line in lines)]


@pytest.fixture
def folder(tmp_path, monkeypatch, rows):
    """A folder with the files that the pages speak of."""
    monkeypatch.chdir(tmp_path)
    for k, name in enumerate(("north", "south", "test")):
        subgroup = [rows[0], *rows[1 + 500 * k : 501 + 500 * k]]
        Path(f"{name}.csv").write_text("\n".join(subgroup) + "\n")
    return tmp_path


def run_bash(text):
    """Run the commands: one of ours in this process, which has all imported; others by the shell, with this
    interpreter's own programs first."""
    if re.fullmatch(r"(agnosticfair [^|&;<>$*`\\\n]+\n)+", text):
        for line in text.splitlines():
            with pytest.raises(SystemExit) as ended:
                main(shlex.split(line)[1:])
            assert not ended.value.code, line
        return
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = []
    for line in text.splitlines():
        if found := re.match(r"pip install 'agnosticfair\[(\w+)\]'", line):
            assert found[1] in extras["optional-dependencies"]
        else:
            lines.append(line)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        env={**os.environ, "PATH": path, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if any(b["hidden"] or b["kind"] in ("bash", "python") for b in blocks(p))],
    ids=lambda page: page.name,
)
def test_every_block_runs(page, folder):
    if page.name == "outputs.md":
        pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
    names = {"__name__": "__main__"}
    for block in blocks(page):
        if block["why"]:
            continue
        if block["hidden"] or block["kind"] == "python":
            code = compile(block["hidden"] or block["text"], page.name, "exec")
            exec(code, names)
        elif block["kind"] == "bash":
            run_bash(block["text"])
            for path in Path().glob("adult/*.csv"):  # all rows are README's, in its own test
                path.write_text("".join(path.read_text().splitlines(keepends=True)[:2001]))


def test_no_block_escapes():
    """Anything but these is neither run nor a directive of the site; and few are left out."""
    kinds = {block["kind"] for page in PAGES for block in blocks(page) if not block["hidden"]}
    assert {k for k in kinds if not k.startswith("{")} == {"bash", "python"}
    assert sum(text.count("\n```") for text in map(Path.read_text, PAGES)) == 2 * sum(
        not block["hidden"] for page in PAGES for block in blocks(page)
    )
    assert sum(bool(block["why"]) for page in PAGES for block in blocks(page)) <= NOT_RUN


@pytest.mark.slow
def test_the_site_is_built_without_warnings_and_asks_for_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("sphinx", reason="the extra 'docs' is not installed")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", ROOT / "docs", tmp_path]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for page in [*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css")]:
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=\"([^\"]+)", text)
        loaded += re.findall(r"url\([\"']?([^)\"']+)", text) + re.findall(r"@import\s+\S+", text)
        assert not [url for url in loaded if re.match(r"(https?:)?//|@import", url)], page
    assert "<math" in (tmp_path / "mathematics.html").read_text()


@pytest.mark.slow
def test_the_pictures_are_drawn(tmp_path):
    script = ROOT / "docs" / "figures" / "idea.py"
    subprocess.run([sys.executable, script, tmp_path], check=True)
    assert {p.name for p in tmp_path.iterdir()} == {"idea-reweighting.png", "idea-set.png"}


def test_the_table_of_log_losses_is_that_of_the_recorded_run():
    results = json.loads((ROOT / "benchmarks" / "trees.json").read_text())
    lines = (ROOT / "docs" / "trees.md").read_text().splitlines()
    shown = {
        line.split("|")[1].strip(): line.split("|")[2:7] for line in lines if line.startswith("| ")
    }
    assert len(results) == 7
    for name, runs in results.items():
        losses = [mean(run["log_loss"]) for run in runs.values()]
        assert all(len(run["log_loss"]) == 5 for run in runs.values())
        expected = [f"{v:.4f}" for v in losses] + [f"{losses[0] / v:.4f}" for v in losses[1:]]
        assert [stratum.strip() for stratum in shown[name]] == expected
        assert max(losses[0] / v for v in losses[1:]) < 1.005
