"""Faults of the table in docs/deploy.md that need no line: a site's answers, its log, the results."""

import errno
import json
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from agnosticfair.deploy import node as nodes
from agnosticfair.deploy.node import Joined, Node, Trail, answer, site_gauges
from agnosticfair.deploy.runner import publish, run_gauges
from agnosticfair.errors import SettingsError
from agnosticfair.protocol.messages import Reply, pack

CONFIG = {"site": "north", "file": "none.csv", "target": "y", "sensitive-features": "sex"}


def joined(tmp_path, **changes):
    return Joined("", 0, "", {**CONFIG, **changes}, tmp_path / "k", tmp_path / "l")


@pytest.mark.parametrize(
    ("step", "content", "said"),
    [
        ("statistics", b"", "site 'north'"),
        ("shell", b"", "does not answer step 'shell'"),
        ("sums", b"junk", "server is damaged"),
        ("sums", pack(Reply(1, {})), "a request came as Reply"),
    ],
)
def test_a_request_that_cannot_be_answered_is_a_sentence_with_the_site(
    tmp_path, step, content, said
):
    told = answer(joined(tmp_path), {"step": step}, content)
    assert said in told["failure"]
    assert "content" not in told


def test_a_site_says_what_it_runs_on_and_pins_its_rows_by_a_keyed_digest(tmp_path):
    rows, pins = tmp_path / "rows.csv", []
    for text in ("a\n1\n", "a\n1\n", "a\n2\n"):
        rows.write_text(text)
        told = answer(joined(tmp_path, file=str(rows)), {"step": "hello"}, b"")
        assert {"python", "agnosticfair", "numpy"} <= json.loads(told["about"])["versions"].keys()
        pins.append(told["rows"])
    assert pins[0] == pins[1] != pins[2]
    assert (tmp_path / "l.pin").stat().st_mode & 0o777 == 0o600
    (tmp_path / "l.pin").unlink()
    told = answer(joined(tmp_path, file=str(rows)), {"step": "hello"}, b"")
    assert told["rows"] != pins[2]  # nobody without the key can test a guess of the rows


def test_an_error_of_another_kind_is_located_in_the_sites_own_log_without_its_words(
    tmp_path, monkeypatch
):
    """The log said: look at the site's log."""

    def broken(*_):
        raise RuntimeError("row 17 has income 12345")

    monkeypatch.setattr(nodes, "respond", broken)
    told = answer(joined(tmp_path), {"step": "sums"}, b"")
    assert told["failure"] == "RuntimeError at the site: its own log says more"
    assert told["detail"].startswith("RuntimeError at test_faults.py, line ")
    assert "12345" not in str(told)


FILES = {"model.safetensors": b"m", "history.json": b"h", "certificate.json": b"c"}


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "No space left on device"), (errno.EROFS, "Read-only file system")],
)
def test_a_disk_that_takes_nothing_is_named_and_the_last_results_stay(
    tmp_path, monkeypatch, number, said
):
    publish(tmp_path, "1", FILES)

    def full(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SettingsError, match=f"2 cannot.*{said}"):
        publish(tmp_path, "2", dict.fromkeys(FILES, b"new"))
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == FILES
    assert not [*tmp_path.glob(".*")]


def test_results_appear_together_or_not_at_all(tmp_path, monkeypatch):
    """Whenever the process is killed, the three files are of one run."""
    publish(tmp_path, "1", FILES)
    new = dict.fromkeys(FILES, b"new")
    inner, left = Path.replace, []

    def killed(self, target):
        if len(left) == stop:
            raise KeyboardInterrupt
        left.append(self)
        return inner(self, target)

    for stop in range(3):
        left.clear()
        monkeypatch.setattr(Path, "replace", killed)
        with suppress(KeyboardInterrupt):
            publish(tmp_path, f"2{stop}", new)
        monkeypatch.setattr(Path, "replace", inner)
        found = {name: (tmp_path / name).read_bytes() for name in FILES}
        assert found in (FILES, new)
    publish(tmp_path, "3", new)
    assert (tmp_path / "model.safetensors").read_bytes() == b"new"


def test_a_trail_is_appended_rotated_and_holds_no_row(tmp_path):
    trail = Trail(tmp_path / "north.log", max_bytes=400)
    for k in range(20):
        trail.write("answered", run="5", step="sums", round=str(k), answered=10, why="")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[:2] == ["north.log", "north.log.1"]
    lines = [json.loads(line) for p in tmp_path.iterdir() for line in p.read_text().splitlines()]
    assert all(
        {"time", "event", "run", "step", "round", "answered"} == line.keys() for line in lines
    )
    assert (trail.counts["answered", "sums"], trail.sent) == (20, 200)
    assert all(path.stat().st_mode & 0o007 == 0 for path in tmp_path.iterdir())


def test_health_is_measured_by_prometheus_own_library(tmp_path):
    prometheus = pytest.importorskip("prometheus_client.parser")
    text = site_gauges("north", True, {("answered", "sums"): 3}, 99).decode()
    found = {
        (s.name, s.labels.get("step", "")): s.value
        for family in prometheus.text_string_to_metric_families(text)
        for s in family.samples
    }
    assert found["agnosticfair_site_connected", ""] == 1
    assert found["agnosticfair_site_events", "sums"] == 3
    state = {"round": {"round": 4}, "waiting": {"south": "x"}, "ended": "", "seen": 1.0}
    text = run_gauges(state | {"sites": {"north": "connected", "south": "x"}}).decode()
    assert 'agnosticfair_run_site_connected{site="south"} 0.0' in text
    assert "agnosticfair_run_round 4.0" in text


def test_a_sites_metrics_are_written_where_it_says(tmp_path):
    place = Joined(**{**vars(joined(tmp_path)), "metrics": tmp_path / "north.prom"})
    made = Node(place, Trail(tmp_path / "north.log"), lambda *_: {})
    made._measure(connected=False)
    assert "agnosticfair_site_connected" in (tmp_path / "north.prom").read_text()


def test_a_process_of_an_older_version_is_looked_at_by_this_one(tmp_path):
    state = {"connected": True, "why": "", "run": "3", "seen": time.time()}
    nodes.state_file(joined(tmp_path)).write_text(json.dumps(state))
    alive, words = nodes.status(joined(tmp_path))
    assert (alive, words) == (True, "site 'north' (an older version) is in run 3")


def test_the_fault_table_is_run_by_tests():
    """Every row of docs/deploy.md names a test that is there."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "deploy.md").read_text()
    table = page.partition("## Faults")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 25
    for row in rows:
        fault, seen, code, model, test = (cell.strip() for cell in row.strip("|").split(" | "))
        assert min(map(len, (fault, seen, model))) > 2
        assert code in ("0", "2", "130", "-9", "-", "waits")
        file, _, name = test.strip("` |").partition("::")
        assert f"def {name}(" in (root / "tests" / file).read_text(), row
