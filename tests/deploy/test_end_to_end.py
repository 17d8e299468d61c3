"""Real sites and real runs on loopback, with TLS and keys, attacked and killed for real.

Every process is started here and stopped by its own id. All tests run in one worker (see conftest): they
share a set-up, and one federation at a time is enough for two cores.
"""

import json
import re
import signal
import socket
import ssl
import sys
import threading
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from deployed import (
    LONG,
    SITES,
    Deployed,
    deployed,
    free,
    free_ports,
    here,
    listens,
    program,
    rows_by_site,
    site_rows,
    start,
    started_for,
    wait,
    write_files,
)
from pyarrow import csv

from agnosticfair.auditing.fits import as_content, certificates
from agnosticfair.deploy import admin
from agnosticfair.deploy.door import HANDSHAKES, WAITING, raise_limit
from agnosticfair.deploy.site import versions
from agnosticfair.model import load_model
from agnosticfair.threads import one_thread

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows(adult):
    return rows_by_site(adult)


@pytest.fixture(scope="module")
def standing(rows, tmp_path_factory):
    """One set-up for all tests of this module, while it is sound."""
    kept = []
    yield kept, lambda: Deployed(tmp_path_factory.mktemp("standing") / "bank", rows)
    for one in kept:
        one.close()


@pytest.fixture
def bank(standing):
    """Two sites; new ones if a test before did not come to its end."""
    kept, make = standing
    if kept and not kept[0].sound():
        kept.pop().close()
    if not kept:
        kept.append(make())
        kept[0].consent()
        kept[0].start(*SITES)
    return kept[0]


def test_the_documented_three_commands_give_the_in_process_model_exactly(rows, tmp_path):
    """The block of docs/deploy.md, in a shell, in a folder with the two files it names."""
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    block = page.partition("## Three commands")[2].split("```")[1].partition("\n")[2]
    assert len(block.splitlines()) == 3
    if not free(8000, 1):  # somebody else's: the one thing that may differ
        block = block.replace("deploy init", f"deploy init --port {free_ports(1)}", 1)
    files = write_files(rows, tmp_path)
    script, log = f"trap 'kill $(jobs -p)' EXIT\nset -e\n{block}", tmp_path / "log"
    shell = start(["bash", "-c", script], tmp_path, log, cwd=tmp_path)
    try:
        assert shell.wait(timeout=LONG) == 0, log.read_text()
    finally:
        shell.terminate()
        shell.wait(timeout=60)
        wait(lambda: not started_for(tmp_path), "the servers to end")
    text, results = log.read_text(), tmp_path / "bank" / "results"
    # the default, which shows no row; without a schema it has no bins of features
    expected = here(files.values(), "rule", learner="linear")
    assert load_model(results / "model.safetensors").digest == expected.model.digest
    history = json.loads((results / "history.json").read_text())
    assert history["rounds"] == expected.rounds
    assert history["events"] == []
    assert max(t["sent"] + t["received"] for t in history["traffic"]) < 1_000_000
    assert "bytes per site" in text
    certificate = json.loads((results / "certificate.json").read_text())
    assert 0 <= certificate["worst_difference"] <= 1
    secret = (tmp_path / "bank" / "keys" / "north").read_text().splitlines()[1]
    assert secret not in text


def test_sites_killed_at_their_work_do_not_change_the_model(bank):
    """Under 'wait': a site that is killed and started again, and one that is told to end and comes back."""
    bank.prepare()
    run = bank.run()
    wait(lambda: bank.round() >= 1, "the first round", pause=0.02)
    bank.stop("north", signal.SIGKILL)
    bank.stop("south")
    waiting = wait(lambda: bank.state()["waiting"], "the missing site to be told")
    assert waiting["north"].startswith("it has been silent since")
    bank.start(*SITES)
    told = bank.ends(run)
    assert "site 'north'" in " ".join(told.split())
    assert bank.weights() == here(bank.files.values(), max_rounds=3).model.w.tobytes()


def test_a_network_and_its_certificate_are_the_in_process_ones_exactly(bank, rows):
    pytest.importorskip("torch")
    bank.prepare(method='"agnosticfair"', centres='"kmeans"', network='"mlp"', certify="true")
    cut = {key: table.slice(0, 2000) for key, table in rows.items()}
    files = write_files(cut, bank.folder.parent).values()
    told = bank.ends(bank.run())
    expected = here(files, "agnosticfair", centres="kmeans", network="mlp", max_rounds=3)
    assert bank.weights() == expected.model.w.tobytes()
    history = bank.result("history.json")
    assert history["history"] == list(expected.history)
    trained = [t for t in history["traffic"] if t["step"] == "train"]
    assert len(trained) == len(SITES) * 3
    assert f"{trained[-1]['sent'] + trained[-1]['received']}" in told.replace(",", "")
    tables = site_rows(files)
    with one_thread():
        certificate = as_content(*certificates(expected, tables))
    found = bank.result("certificate.json")
    assert {key: found[key] for key in certificate} == json.loads(json.dumps(certificate))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_killed_goes_on_from_the_checkpoint(bank, how):
    bank.prepare(max_rounds=4)
    run = bank.run()
    wait(lambda: bank.round() >= 2, "the second round", pause=0.02)
    run.send_signal(how)
    assert run.wait(timeout=60) == (130 if how == signal.SIGTERM else -9)
    assert (bank.folder / "state" / "checkpoint" / "checkpoint.safetensors").is_file()
    report = admin.status(bank.folder)  # nothing is silent: exit code 3
    assert not report["running"]
    assert "'agnosticfair deploy run'" in str(report["alarms"]) or "stopped" in str(
        report["alarms"]
    )
    bank.ends(bank.run())
    assert bank.weights() == here(bank.files.values(), max_rounds=4).model.w.tobytes()
    assert any(event["event"] == "resumed" for event in bank.result("history.json")["events"])
    assert admin.status(bank.folder)["alarms"] == []


def test_a_site_whose_schema_disagrees_is_named_before_any_training(bank, rows):
    bank.prepare()
    csv.write_csv(rows["south"].drop_columns("age"), bank.files["south"])
    told = " ".join(bank.ends(bank.run(), code=2).split())
    assert "client 'south'" in told
    assert bank.round() == 0
    assert not [*(bank.folder / "results").glob("model*")]


def test_a_site_that_declines_is_dropped_and_the_rest_has_its_own_certificate(rows, tmp_path):
    with deployed(tmp_path, rows, "--plain", "--on-failure", "drop", "--min-sites", 1) as bank:
        bank.prepare(**{"on-failure": '"drop"', "certify": "true"})
        csv.write_csv(rows["south"].slice(0, 12), bank.files["south"])  # too few for its min-rows
        told = " ".join(bank.ends(bank.run()).split())
        assert "10 rows" in told
        assert "restated" in told
        alone = here([bank.files["north"]], max_rounds=3)
        assert bank.weights() == alone.model.w.tobytes()
        assert bank.result("certificate.json")["n"] == rows["north"].num_rows


def test_a_total_of_one_site_is_refused(bank, rows):
    bank.prepare(**{"on-failure": '"drop"', "min-sites": 1})
    csv.write_csv(rows["south"].slice(0, 12), bank.files["south"])
    told = " ".join(bank.ends(bank.run(), code=2).split())
    assert "min_sites" in told
    assert not [*(bank.folder / "results").glob("model*")]


def test_a_site_opens_no_port(bank):
    for key in SITES:
        found = [pid for pid in started_for(bank.folder) if f"{key}.toml" in program(pid)]
        assert found
        assert not any(listens(pid) for pid in found)


def test_the_only_port_is_the_door_and_it_is_shut_between_runs(bank):
    """There is no path on the loopback by which a local user could take over a run, and no token in 'ps'."""
    bank.prepare()
    run = bank.run()
    wait(lambda: bank.round() >= 1, "the first round", pause=0.02)
    found = started_for(bank.folder)
    ports = {port for pid in found for port in listens(pid)}
    assert ports == {bank.port}
    secrets = [(bank.folder / "keys" / name).read_text().splitlines()[1] for name in SITES]
    assert not any(secret in program(pid) for pid in found for secret in secrets)
    bank.ends(run)
    assert not bank.listens()


def attacked(port, ended):
    """All at once, without a key: 4 x 300 MB, 1,000 connections that say nothing, half and slow handshakes, paths."""
    raise_limit()

    def pour():
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=20) as link:
            for _ in range(300):
                link.sendall(b"x" * 1_000_000)

    def shake():
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        for k in range(100):
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", port), timeout=5) as raw,
                tls.wrap_socket(raw) as link,
            ):
                link.sendall(f"POST /{k} HTTP/1.1\r\n\r\n".encode())
                link.recv(1)

    threads = [threading.Thread(target=pour) for _ in range(4)] + [threading.Thread(target=shake)]
    for thread in threads:
        thread.start()
    crowd = []
    for k in range(1000):
        with suppress(OSError):
            crowd.append(socket.create_connection(("127.0.0.1", port), timeout=5))
            crowd[-1].sendall(b"\x16\x03\x01\x02\x00"[: k % 6])
    ended.wait()
    for thread in threads:
        thread.join()
    for link in crowd:
        link.close()


def held(pid):
    """The most megabytes that a process has had, and its open files now."""
    status = Path(f"/proc/{pid}/status").read_text()
    (peak,) = re.findall(r"VmHWM:\s+(\d+)", status)
    return int(peak) / 1024, len([*Path(f"/proc/{pid}/fd").iterdir()])


def test_strangers_exhaust_neither_memory_nor_files_and_sites_go_on(bank):
    bank.prepare(max_rounds=12)
    run = bank.run()
    wait(lambda: bank.round() >= 1, "the first round", pause=0.02)
    before, ended = held(run.pid), threading.Event()
    attack = threading.Thread(target=attacked, args=(bank.port, ended))
    attack.start()
    seen = []
    wait(lambda: seen.append(held(run.pid)) or bank.round() >= 8, "rounds under attack")
    ended.set()
    attack.join()
    bank.ends(run)
    peak, files = max(peak for peak, _ in seen), max(files for _, files in seen)
    print(f"under attack: {before[0]:.0f} -> {peak:.0f} MB, {before[1]} -> {files} files")
    assert peak < before[0] + 100
    assert files < before[1] + HANDSHAKES + 2 * WAITING + 20
    assert bank.weights() == here(bank.files.values(), max_rounds=12).model.w.tobytes()


def test_a_run_is_stopped_by_name_and_refuses_a_second(bank, call):
    bank.prepare(max_rounds=50)
    run = bank.run()
    wait(lambda: bank.round() >= 1, "the first round", pause=0.02)
    code, _, err = call("deploy", "run", bank.folder)
    assert (code, "goes on: wait for it" in " ".join(err.split())) == (2, True)
    code, out, _ = call("deploy", "status", bank.folder)
    assert (code, out.splitlines()[0], "2 of 2 sites connected" in out) == (0, "OK", True)
    assert call("deploy", "stop", bank.folder)[0] == 0
    assert run.wait(timeout=60) == 130
    assert "goes on from its checkpoint" in bank.log("run")


ANOTHER = """
from agnosticfair.cli import main
from agnosticfair.deploy import site
site.versions = lambda: {"agnosticfair": "9.9.9", "app": "0" * 16}
site.FORMAT = FORMAT or site.FORMAT
main(["deploy", "site", "sites/south.toml"])
"""


def test_a_site_of_another_version_works_or_is_refused_by_name(bank):
    """An upgrade, one machine after the other: the same files, another package at one end."""
    for spoken in ("", "agnosticfair-message-9"):
        bank.prepare()
        bank.stop("south")
        code = ANOTHER.replace("FORMAT or", f"{spoken!r} or")
        command = [sys.executable, "-c", code]
        bank.processes["south"] = start(
            command, bank.folder, bank.folder / "south.log", cwd=bank.folder
        )
        told = " ".join(bank.ends(bank.run(), code=2 if spoken else 0).split())
        if spoken:
            assert "'south': its messages (version 9.9.9) have the format" in told
        else:
            versions = bank.result("history.json")["sites"]["south"]["versions"]
            assert versions["agnosticfair"] == "9.9.9"
            assert bank.weights() == here(bank.files.values(), max_rounds=3).model.w.tobytes()
    bank.stop("south")
    bank.start("south")


def test_files_of_an_older_version_are_written_anew_and_a_site_says_which_version_it_has(
    bank, call
):
    bank.prepare()
    bank.stop("south")
    path = bank.folder / "sites" / "south.toml"
    before = path.read_text()
    decided = before.replace("min-rows = 10", "min-rows = 12")
    older = decided.replace("may-drop = false\n", "")  # what is new, and what is gone
    path.write_text(older.replace("[policy]\n", "[policy]\nkernel-noise = 3\n"))
    bank.start("south")
    assert bank.processes.pop("south").wait(timeout=LONG) == 2
    assert "'agnosticfair deploy upgrade'" in " ".join(bank.log("south").split())
    app = versions()["app"]
    for said in ("[policy] kernel-noise", "Written anew"):
        code, out, _ = call("deploy", "upgrade", bank.folder)
        assert (code, said in out, f"app's hash {app}" in out) == (0, True, True)
        assert tomllib.loads(path.read_text()) == tomllib.loads(decided)
    bank.start("south")
    for _ in range(2):  # as often as one likes
        code, out, _ = call("deploy", "check", bank.folder)
        assert (code, out.count(app)) == (0, len(SITES))
    run = bank.run()
    wait(lambda: bank.round() >= 1, "the first round", pause=0.02)
    code, out, _ = call("site", "status", path)
    assert (code, f"app {app}) is in run" in out) == (0, True)
    bank.ends(run)
    assert bank.result("history.json")["sites"]["south"]["versions"]["app"] == app
    assert bank.weights() == here(bank.files.values(), max_rounds=3).model.w.tobytes()
    path.write_text(before)
    bank.stop("south")
    bank.start("south")


def test_the_coordinator_has_the_same_model_and_no_sum(bank):
    bank.prepare(certify="true")
    bank.ends(bank.run())
    assert bank.weights() == here(bank.files.values(), max_rounds=3).model.w.tobytes()
    steps = {entry["step"] for entry in bank.result("history.json")["traffic"]}
    assert {"keys", "agree", "outline", "counts", "sums", "subgroup_decisions"} <= steps
    assert "statistics" not in steps
    assert bank.result("history.json")["certificate"]
    for name in SITES:  # a restart finds its session, for it is kept beside the key
        assert (bank.folder / "keys" / f"{name}.sessions").stat().st_mode & 0o077 == 0
        assert (bank.folder / "keys" / name).stat().st_mode & 0o077 == 0
