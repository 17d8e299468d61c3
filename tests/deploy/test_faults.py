"""Faults of the table in docs/deploy.md that need no line: a site's answers, its log, the results."""

import asyncio
import errno
import json
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from agnosticfair.deploy import node as nodes
from agnosticfair.deploy.frames import MAX_HEAD, frame
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


def test_a_long_refusal_still_fits_into_a_frame(tmp_path, monkeypatch):
    """One of 100 kB did not: the connection ended, again and again, and the run waited for the site."""

    def refuse(*_):
        raise SettingsError("no \x1b[2J" + "a" * 100_000)

    monkeypatch.setattr(nodes, "respond", refuse)
    told = answer(joined(tmp_path), {"step": "sums"}, b"")
    assert len(frame(told)) < MAX_HEAD
    assert "\x1b" not in told["failure"]


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


def test_the_cause_of_a_refusal_is_in_the_log_although_the_run_ends_before_it_has_left(tmp_path):
    """The coordinator ends the run at the first refusal that it reads; others' logs said 'not sent' alone."""

    class Ended:
        def write(self, data):
            raise ConnectionResetError

    trail = Trail(tmp_path / "north.log")
    node = Node(joined(tmp_path), trail, lambda *_: {"failure": "no", "detail": "column 'age'"})
    with pytest.raises(ConnectionResetError):
        asyncio.run(node._answer(Ended(), {"step": "counts"}, b""))
    line = json.loads(trail.path.read_text())
    assert (line["event"], line["why"]) == ("not sent", "column 'age'")


def test_a_process_of_an_older_version_is_looked_at_by_this_one(tmp_path):
    state = {"connected": True, "why": "", "run": "3", "seen": time.time()}
    nodes.state_file(joined(tmp_path)).write_text(json.dumps(state))
    alive, words = nodes.status(joined(tmp_path))
    assert (alive, words) == (True, "site 'north' (an older version) is in run 3")


TESTS = """
A stranger at the port, without a key, with another, or one that a site signed
    deploy/test_door.py::test_who_has_no_registered_key_gets_no_further_than_the_handshake
4 x 300 MB, 1,000 silent connections, half and slow handshakes, odd paths
    deploy/test_end_to_end.py::test_strangers_exhaust_neither_memory_nor_files_and_sites_go_on
A site sends what nobody asked for, or too much
    deploy/test_door.py::test_what_is_no_awaited_frame_is_refused_unread_and_named
An answer is sent twice
    deploy/test_door.py::test_an_answer_counts_once_and_only_where_it_was_asked
A local user looks for a port or a token
    deploy/test_end_to_end.py::test_the_only_port_is_the_door_and_it_is_shut_between_runs
The port's own thread fails
    deploy/test_door.py::test_a_port_that_fails_ends_the_run
A key not registered, replaced or removed
    deploy/test_door.py::test_an_old_key_is_cut_off_from_its_rotation_on
Two processes of one site
    deploy/test_door.py::test_the_second_process_of_a_site_is_refused_while_the_first_lives
Two sites with one key
    deploy/test_admin.py::test_two_sites_with_one_key_are_named
A TLS certificate of another authority
    deploy/test_door.py::test_a_site_trusts_the_authority_of_its_file_only
An expired TLS certificate
    deploy/test_door.py::test_an_expired_certificate_is_named_at_both_ends
Clocks that differ by an hour
    deploy/test_door.py::test_no_clock_matters_within_a_day
A site that was never started
    protocol/engines/test_remote.py::test_who_is_waited_for_is_told_live
A site that hangs
    deploy/test_door.py::test_a_silent_site_is_let_go_and_named
A site is killed, or cut off
    deploy/test_end_to_end.py::test_sites_killed_at_their_work_do_not_change_the_model
A relay is killed, and a site below another
    deploy/test_relay.py::test_three_relays_of_five_have_the_bits_of_one_process
A run that is killed
    deploy/test_end_to_end.py::test_a_run_that_is_killed_goes_on_from_the_checkpoint
`deploy stop`, Ctrl-C
    deploy/test_end_to_end.py::test_a_run_is_stopped_by_name_and_refuses_a_second
A run past its `--timeout`
    protocol/engines/test_remote.py::test_a_run_ends_when_its_time_is_up_and_says_who_held_it_up
A late answer
    protocol/engines/test_remote.py::test_a_late_answer_still_counts_by_policy
A malformed answer, or one in another's name
    protocol/engines/test_remote.py::test_an_answer_that_is_none_ends_the_fit_by_name_at_once
A site with another message format
    deploy/test_end_to_end.py::test_a_site_of_another_version_works_or_is_refused_by_name
A file changes in a run, or before it is resumed
    protocol/engines/test_remote.py::test_rows_that_change_in_a_run_or_before_it_is_resumed_are_refused_with_the_site
A site is lost while the certificate is made, under `stop`
    protocol/engines/test_remote.py::test_a_site_lost_in_the_certificates_phase_ends_the_run_and_keeps_the_checkpoint
Escapes, newlines or 50 kB in a site's refusal
    protocol/engines/test_remote.py::test_what_a_site_sends_is_shown_without_escapes_and_in_short
A port that is in use
    deploy/test_admin.py::test_a_used_port_is_said_at_once
A package is not installed
    deploy/test_folder.py::test_without_the_packages_a_sentence_says_what_to_install
Files that disagree in a column
    deploy/test_end_to_end.py::test_a_site_whose_schema_disagrees_is_named_before_any_training
Too few rows in a group, under `drop` and `--plain`
    deploy/test_end_to_end.py::test_a_site_that_declines_is_dropped_and_the_rest_has_its_own_certificate
Fewer sites than `min-sites` remain
    protocol/engines/test_remote.py::test_a_model_of_too_few_sites_is_no_success
One site is left under masks
    deploy/test_end_to_end.py::test_a_total_of_one_site_is_refused
An older list of keys, or one not signed by its keeper
    deploy/test_masking.py::test_a_site_takes_a_later_list_of_its_keeper_and_no_other
A request that is not the site's task
    site/test_red_team.py::test_whatever_is_refused_the_sentence_is_one
A file that does not fit the schema, under masks
    site/test_red_team.py::test_a_file_that_does_not_fit_the_schema_is_named_at_the_site_only
A public key is not in the folder
    deploy/test_admin.py::test_a_missing_public_key_is_named_with_its_site
A private key that others can read
    deploy/test_node.py::test_a_key_that_others_can_read_is_refused
A site's data file that moved
    deploy/test_faults.py::test_a_request_that_cannot_be_answered_is_a_sentence_with_the_site
Two runs at once
    deploy/test_admin.py::test_two_runs_at_once_are_refused_by_a_lock_that_dies_with_its_holder
A full, or read-only, disk
    deploy/test_faults.py::test_a_disk_that_takes_nothing_is_named_and_the_last_results_stay
A crash while results are written
    deploy/test_faults.py::test_results_appear_together_or_not_at_all
Files of two runs in one folder
    protocol/engines/test_remote.py::test_results_of_two_runs_are_not_reported_as_one
"""
"""By fault of the table in docs/deploy.md, the test that runs it."""


def test_the_fault_table_is_run_by_tests():
    """Every row of docs/deploy.md has a test that is there."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "deploy.md").read_text()
    table = page.partition("## Faults")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    lines = [line.strip() for line in TESTS.strip().splitlines()]
    tests = dict(zip(lines[::2], lines[1::2], strict=True))
    for row in rows:
        fault, seen, code, model = (cell.strip() for cell in row.strip("|").split(" | "))
        assert min(map(len, (fault, seen, model))) > 2
        assert code in ("0", "2", "130", "-9", "-", "waits")
        file, _, name = tests.pop(fault).partition("::")
        assert f"def {name}(" in (root / "tests" / file).read_text(), row
    assert not tests
