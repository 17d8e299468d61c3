"""Faults of the table in docs/deploy.md that need no server: a site, its connection, the door, the results."""

import errno
import json
import os
import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

import httpx
from agnosticfair.deploy.causes import why_missing
from agnosticfair.deploy.fleet import WireRequest

from agnosticfair.deploy import node as nodes
from agnosticfair.deploy.node import Joined, Node, cause
from agnosticfair.deploy.prometheus import site_gauges, superlink_gauges
from agnosticfair.deploy.results import publish
from agnosticfair.deploy.trail import Trail
from agnosticfair.errors import SettingsError
from agnosticfair.protocol.messages import Reply, pack

CONFIG = {"site": "north", "file": "none.csv", "target": "y", "sensitive-features": "sex"}


class FakeFleet:
    """Requests in order; what was answered to each."""

    def __init__(self, *requests, app="a" * 64, taken=True, broken=None):
        self.requests, self.told, self.app = [*requests], [], app
        self.taken, self.broken, self.left = taken, broken, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def activate(self):
        if self.broken:
            raise self.broken

    def beat(self):
        pass

    def leave(self):
        self.left += 1

    def pull(self):
        return self.requests.pop(0) if self.requests else None

    def app_of(self, run):
        return self.app

    def push(self, one_request, told, seconds):
        self.told.append(told)
        return self.taken


def node(tmp_path, fleet, **changes):
    joined = Joined(
        "localhost:1", "", "a" * 64, {**CONFIG, **changes}, tmp_path / "k", tmp_path / "l"
    )
    return Node(joined, Trail(tmp_path / "north.log"), lambda: fleet)


def request(step, content=b"", run=5):
    return WireRequest(run, step, content, "1")


def trail(tmp_path):
    return [json.loads(line) for line in (tmp_path / "north.log").read_text().splitlines()]


def test_a_site_answers_no_run_of_another_app(tmp_path):
    fleet = FakeFleet(request("statistics"), app="b" * 64)
    node(tmp_path, fleet).answer(fleet, fleet.pull())
    said = "site 'north' does not answer run 5: its app bbbbbbbbbbbb is not the registered aaaaaaaaaaaa"
    assert fleet.told[0]["failure"].startswith(said)
    assert "content" not in fleet.told[0]
    (event,) = trail(tmp_path)
    assert (event["event"], event["step"], event["answered"]) == ("refused", "statistics", 0)


@pytest.mark.parametrize(
    ("step", "content", "said"),
    [
        ("statistics", b"", "the file of site 'north' is not"),
        ("shell", b"", "does not answer step 'shell'"),
        ("sums", b"junk", "the message of the server is damaged"),
        ("sums", pack(Reply(1, {})), "a request came as Reply"),
    ],
)
def test_a_request_that_cannot_be_answered_is_a_sentence_with_the_site(
    tmp_path, step, content, said
):
    fleet = FakeFleet(request(step, content))
    node(tmp_path, fleet).answer(fleet, fleet.pull())
    assert said in fleet.told[0]["failure"]


def test_a_site_says_what_it_runs_on_and_pins_its_rows_by_a_keyed_digest(tmp_path):
    rows, pins = tmp_path / "rows.csv", []
    for text in ("a\n1\n", "a\n1\n", "a\n2\n"):
        rows.write_text(text)
        fleet = FakeFleet(request("hello"))
        node(tmp_path, fleet, file=str(rows)).answer(fleet, fleet.pull())
        about = json.loads(fleet.told[0]["about"])
        assert about["app"] == "a" * 64
        assert {"python", "agnosticfair", "numpy"} <= about["versions"].keys()
        pins.append(fleet.told[0]["rows"])
    assert pins[0] == pins[1] != pins[2]
    assert (tmp_path / "l.pin").stat().st_mode & 0o777 == 0o600
    (tmp_path / "l.pin").unlink()
    fleet = FakeFleet(request("hello"))
    node(tmp_path, fleet, file=str(rows)).answer(fleet, fleet.pull())
    assert fleet.told[0]["rows"] != pins[2]  # nobody without the key can test a guess of the rows


def test_an_answer_to_a_run_that_has_ended_is_written_down_and_the_site_goes_on(tmp_path):
    fleet = FakeFleet(request("hello"), taken=False)
    node(tmp_path, fleet).answer(fleet, fleet.pull())
    assert trail(tmp_path)[-1]["event"] == "not taken"


def test_an_answer_is_written_down_when_it_was_sent_and_not_before(tmp_path):
    fleet = FakeFleet(request("hello"))
    site = node(tmp_path, fleet)

    def broken(*_):
        assert not (tmp_path / "north.log").exists()
        raise httpx.ReadError("gone")

    fleet.push = broken
    with pytest.raises(httpx.ReadError):
        site.answer(fleet, fleet.pull())
    assert [event["event"] for event in trail(tmp_path)] == ["not sent"]
    assert site.trail.sent == 0


def test_a_site_connects_again_and_says_a_cause_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(nodes, "AGAIN", 0.01)
    good = FakeFleet(request("hello"))
    ways = [FakeFleet(broken=httpx.ConnectError("refused"))] * 3 + [good]
    made = node(tmp_path, None)
    made.connect = lambda: ways.pop(0)
    inner = good.push

    def push(*arguments):
        made.stopping.set()
        return inner(*arguments)

    good.push = push
    made.serve()
    events = [event["event"] for event in trail(tmp_path)]
    assert events == ["disconnected", "connected", "answered", "stopped"]
    assert capsys.readouterr().out.count("Site 'north': the SuperLink does not answer") == 1
    assert good.left == 1


NOW = 1_800_000_000.0


def refused(status, ahead=0.0):
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(NOW - ahead))
    request = httpx.Request("POST", "https://x/v1/fleet/activate-node")
    answer = httpx.Response(status, headers={"date": date}, request=request)
    return httpx.HTTPStatusError("", request=request, response=answer)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] unable to get"),
            "of another authority",
        ),
        (httpx.ConnectError("CERTIFICATE_VERIFY_FAILED: certificate has expired"), "expired"),
        (httpx.ConnectError("Connection refused"), "the SuperLink does not answer"),
        (httpx.ReadTimeout("slow"), "the SuperLink does not answer"),
        (httpx.RemoteProtocolError("x"), "the connection broke"),
        (ssl.SSLError("wrong version"), "the connection broke"),
        (refused(401), "its key is not registered"),
        (refused(412), "another process of this site was connected a moment ago"),
        (refused(401, 3600), "its clock is 3600 s ahead of the coordinator's"),
        (refused(401, -3600), "its clock is 3600 s behind the coordinator's"),
        (refused(500), "status 500"),
        (KeyError("row 17"), "KeyError when talking"),
    ],
)
def test_a_site_names_why_it_is_not_let_in(monkeypatch, error, said):
    monkeypatch.setattr(nodes.time, "time", lambda: NOW)
    told = cause(error)
    assert said in told
    assert "row 17" not in told


KNOWN = {"north": "n", "south": "s"}


@pytest.mark.parametrize(
    ("visits", "said"),
    [
        ({}, "it has not connected since the SuperLink was started"),
        ({"x": {"seen": NOW - 5, "status": 401}}, "somebody did with a key that is not registered"),
        ({"x": {"seen": NOW - 500, "status": 401}}, "it has not connected since"),
        ({"s": {"seen": NOW, "status": 200}}, "it has not connected since"),
        ({"n": {"seen": NOW, "status": 401, "clock": 3600.0}}, "its clock is 3600 s ahead"),
        ({"n": {"seen": NOW, "status": 412, "clock": 0.0}}, "its key was refused"),
        ({"n": {"seen": NOW - 14, "status": 200, "clock": 0.0}}, "it has been silent since"),
        (
            {"n": {"seen": NOW - 14, "status": 200}, "x": {"seen": NOW - 2, "status": 401}},
            "but somebody did with a key that is not registered (x)",
        ),
    ],
)
def test_the_coordinator_names_why_a_site_is_missing(visits, said):
    assert said in why_missing(visits, "n", KNOWN, NOW)


def test_a_site_at_its_work_is_no_trouble():
    assert why_missing({"n": {"seen": NOW - 3, "status": 200}}, "n", KNOWN, NOW) == ""


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
    with pytest.raises(SettingsError, match=f"run 2 cannot be written to .*{said}; make room"):
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
    progress = {"round": {"round": 4}, "waiting": {"south": "x"}}
    counts = {("/v1/fleet/pull-messages", 200): 7}
    text = superlink_gauges({"n": "north"}, {"n": {"seen": 5.0}}, counts, progress).decode()
    assert 'agnosticfair_fleet_requests{path="pull-messages",status="200"} 7.0' in text
    assert "agnosticfair_run_round 4.0" in text


def test_a_sites_metrics_are_written_where_it_says(tmp_path):
    fleet = FakeFleet()
    made = node(tmp_path, fleet)
    joined = made.joined
    made.joined = Joined(**{**vars(joined), "metrics": tmp_path / "north.prom"})
    made._measure(connected=False)
    assert "agnosticfair_site_connected" in (tmp_path / "north.prom").read_text()


def test_the_fault_table_is_run_by_tests():
    """Every row of docs/deploy.md names a test that is there."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "deploy.md").read_text()
    table = page.partition("## Faults")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 25
    for row in rows:
        fault, seen, model, test = (stratum.strip() for stratum in row.strip("|").split(" | "))
        assert min(map(len, (fault, seen, model))) > 2
        file, _, name = test.strip("` |").partition("::")
        assert f"def {name}(" in (root / "tests" / file).read_text(), row
