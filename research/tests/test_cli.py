"""The command line of the experiments: what it writes, and what it refuses."""

import json
import re
import shlex
from pathlib import Path

import pytest
from helpers import refused

from agnosticfair_research import reproduce
from agnosticfair_research.cli import app

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("command", ["data", "bench", "reproduce"])
def test_help_teaches_by_an_example(call, command):
    code, out, _ = call(command, "--help")
    assert code == 0
    assert f"Example: agnosticfair-research {command}" in out


def test_data_says_what_is_here(call, tmp_path, monkeypatch):
    monkeypatch.setenv("AGNOSTICFAIR_DATA", str(tmp_path))
    adult, dutch, *_ = json.loads(call("data", "--json")[1])
    assert (adult["rows"], adult["features"], adult["here"]) == (45222, 40, True)
    assert adult["groups"] == {"Female": 14695, "Male": 30527}
    assert not dutch["here"]
    assert str(tmp_path) in dutch["where"]
    assert "https://" in dutch["where"]
    assert "CC BY 4.0" in call("data")[1]


def test_reproduce_writes_results_and_tables(call, tmp_path):
    out = tmp_path / "new" / "results"
    request = ("--setting", "shift", "--methods", "fl,fairfl", "--seeds", 1, "--jobs", 1)
    code, printed, err = call("reproduce", *request, "--out", out)
    assert code == 0, err
    names = {"results.json", "tables.md"}
    assert {p.name for p in out.iterdir()} == names
    assert all(str(out / name) in printed for name in names)
    results = json.loads((out / "results.json").read_text())
    assert [r["method"] for r in results["rows"]] == ["fl", "fairfl"]
    assert f"{results['rows'][0]['test_accuracy']:.4f}" in (out / "tables.md").read_text()
    assert f"{results['rows'][0]['test_accuracy']:.3f}" in printed
    assert "majority rate" in printed


def test_reproduce_json_is_what_is_written(call, tmp_path):
    request = ("--setting", "iid", "--methods", "fl", "--seeds", 1, "--json", "--out", tmp_path)
    _, printed, _ = call("reproduce", *request)
    assert json.loads(printed) == json.loads((tmp_path / "results.json").read_text())


@pytest.mark.parametrize(
    ("one_request", "named"),
    [
        (("reproduce", "--dataset", "adlut"), "'adlut'"),
        (("reproduce", "--setting", "shfit"), "'shfit'"),
        (("reproduce", "--methods", "fl,fll"), "'fll'"),
        (("reproduce", "--seeds", "0"), "0 seeds"),
        (("reproduce", "--jobs", "0"), "0 jobs"),
        (("reproduce", "--out", "north.csv"), "'north.csv'"),
        (("reproduce", "--dataset", "dutch", "--data-folder", "."), "'.'"),
        (("reproduce", "--seeds", "x"), "x"),
        (("bench", "--seeds", "20"), "seed 20"),
        (("bench", "--protocols", "north"), "'north'"),
        (("bench", "--cell", "adult-balanced"), "'adult-balanced'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(call, files, one_request, named):
    assert named in refused(call, *one_request)


def test_an_interrupt_ends_with_130_and_leaves_nothing(call, tmp_path, monkeypatch):
    def interrupt(task):
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce, "run_cell", interrupt)
    out = tmp_path / "results"
    code, _, err = call("reproduce", "--methods", "fl", "--jobs", 1, "--out", out)
    assert code == 130
    assert "Traceback" not in err
    assert not out.exists()


@pytest.mark.slow
def test_main_job(call, tmp_path):
    makefile = (ROOT / "Makefile").read_text()
    line = re.search(r"\$\(BIN\)/agnosticfair-research (.*)", makefile).group(1)
    code, _, err = call(*shlex.split(line), "--out", tmp_path)
    assert code == 0, err
    assert {"results.json", "tables.md"} <= {p.name for p in tmp_path.iterdir()}


PAGES = [ROOT / "research/README.md", *sorted((ROOT / "research/docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_links_of_the_notes_are_there(page):
    text = page.read_text()
    known = {command.name for command in app.registered_commands}
    assert {*re.findall(r"agnosticfair-research (\w+)", text)} <= known
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert link.startswith("https:") or (page.parent / link).exists(), link
    for script in re.findall(r"benchmarks/\w+\.\w+", text):
        assert (ROOT / script).is_file(), script
