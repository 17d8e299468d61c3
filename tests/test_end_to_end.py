"""A real SuperLink and real SuperNodes on loopback, with TLS and authentication, killed for real.

Every process is started here and stopped by its own id.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs agnosticfair[flower]")

import pyarrow as pa
from pyarrow import csv

from agnosticfair.cli import main
from agnosticfair.data.datasets import dataset
from agnosticfair.data.files import Roles, read_clients
from agnosticfair.data.splits import shift
from agnosticfair.deployment.folder import certificates, key_pair
from agnosticfair.deployment.runner import flwr, register, status_of
from agnosticfair.federation import fit
from agnosticfair.model import load_model

pytestmark = pytest.mark.slow

SITES = ("north", "south")
BIN = str(Path(sys.executable).parent)


def command(*arguments):
    """A command of ours, to its good end."""
    with pytest.raises(SystemExit) as ended:
        main([str(part) for part in arguments])
    assert ended.value.code in (0, None)


def free_ports(count):
    """The first of some neighbouring ports that nobody listens on."""
    for first in range(18500, 30000, 10):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    pytest.skip("no free ports on loopback")


@pytest.fixture(scope="module")
def files(adult, tmp_path_factory):
    """Adult shift, a file per site."""
    folder = tmp_path_factory.mktemp("adult")
    train = shift(adult, dataset("adult"), 2, 0).train
    for key, table in zip(SITES, train.values(), strict=True):
        columns = {**table.numeric, "income": table.target.values()}
        for kept in (table.categorical, table.sensitive):
            columns |= {name: column.values() for name, column in kept.items()}
        rows = pa.table({name: pa.array(values) for name, values in columns.items()})
        csv.write_csv(rows, folder / f"{key}.csv")
    return {key: folder / f"{key}.csv" for key in SITES}


class Deployed:
    """A deployment's folder and the processes of its scripts, each known by its id."""

    def __init__(self, folder, files, method):
        self.folder, self.processes, self.port = folder, {}, free_ports(5)
        sites = ",".join(f"{key}={path}" for key, path in files.items())
        named = ("--target", "income", "--sensitive", "sex", "--method", method)
        command("deploy", "init", folder, "--sites", sites, *named, "--port", self.port)

    def start(self, name):
        log = (self.folder / f"{name}.log").open("ab")
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        script = ["sh", str(self.folder / f"start-{name}.sh")]
        with log:
            self.processes[name] = subprocess.Popen(
                script, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        if name == "superlink":
            self.wait(lambda: self.listens(self.port), "the SuperLink to listen")

    def stop(self, name, how=signal.SIGTERM):
        process = self.processes.pop(name)
        process.send_signal(how)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=20)

    def listens(self, port):
        with socket.socket() as there:
            return there.connect_ex(("127.0.0.1", port)) == 0

    def wait(self, ready, what, seconds=120):
        end = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < end, f"waited {seconds} s for {what}"
            time.sleep(0.3)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def round(self):
        """The last round that the ServerApp told of."""
        try:
            told = json.loads((self.folder / "results" / "progress.json").read_text())
        except FileNotFoundError:
            return 0
        return told["round"]["round"]

    def model(self):
        return load_model(self.folder / "results" / "model.safetensors")

    def history(self):
        return json.loads((self.folder / "results" / "history.json").read_text())

    def running(self):
        """'deploy run' in a process of its own."""
        line = [sys.executable, "-m", "agnosticfair", "deploy", "run", str(self.folder)]
        out = (self.folder / "run.log").open("ab")
        with out:
            return subprocess.Popen(line, stdout=out, stderr=out)

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        for name in sorted(self.processes, reverse=True):
            self.stop(name)


@pytest.fixture
def deployed(files, tmp_path):
    made = []

    def make(method):
        made.append(Deployed(tmp_path / "deployment", files, method))
        return made[-1]

    yield make
    for one in made:
        one.__exit__()


def children(pid):
    """The processes that a script of ours has started."""
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def here(files, method):
    """The in-process model of the same files."""
    return fit(read_clients(files.values(), Roles("income", ("sex",))), method)


def test_three_commands_give_the_in_process_model_exactly(files, deployed, capsys):
    begin = time.monotonic()
    there = deployed("agnosticfair")
    for name in ("superlink", *SITES):
        there.start(name)
    command("deploy", "run", there.folder)
    seconds = time.monotonic() - begin
    told = capsys.readouterr().out
    expected = here(files, "agnosticfair")
    assert there.model().w.tobytes() == expected.model.w.tobytes()
    history = there.history()
    assert history["rounds"] == expected.rounds
    assert history["events"] == []
    assert max(t["sent"] + t["received"] for t in history["traffic"]) < 1_000_000
    certificate = json.loads((there.folder / "results" / "certificate.json").read_text())
    assert 0 <= certificate["worst_risk_difference"] <= 1
    assert "bytes per site" in told
    assert seconds < 300
    secret = (there.folder / "keys" / "north").read_text().splitlines()[1]
    assert not any(secret in there.log(name) for name in ("superlink", *SITES))


def test_a_supernode_killed_in_mid_run_comes_back_to_the_same_model(files, deployed):
    there = deployed("fairfl")
    for name in ("superlink", *SITES):
        there.start(name)
    run = there.running()
    there.wait(lambda: there.round() >= 1, "the first round")
    (supernode,) = children(there.processes["south"].pid)
    os.kill(supernode, signal.SIGKILL)  # its script starts it anew
    assert run.wait(timeout=400) == 0, (there.folder / "run.log").read_text()
    assert there.model().w.tobytes() == here(files, "fairfl").model.w.tobytes()


def test_a_superlink_killed_in_mid_run_resumes_from_the_checkpoint(files, deployed):
    there = deployed("fairfl")
    for name in ("superlink", *SITES):
        there.start(name)
    run = there.running()
    there.wait(lambda: there.round() >= 2, "the second round")
    there.stop("superlink", signal.SIGKILL)
    run.terminate()
    run.wait(timeout=30)
    for name in SITES:
        there.stop(name)
    assert (there.folder / "state" / "checkpoint" / "checkpoint.safetensors").is_file()
    for name in ("superlink", *SITES):
        there.start(name)
    command("deploy", "run", there.folder)
    assert there.model().w.tobytes() == here(files, "fairfl").model.w.tobytes()
    assert any(event["event"] == "resumed" for event in there.history()["events"])


def test_who_has_no_registered_key_no_ca_or_no_tls_is_refused(files, deployed, tmp_path):
    there = deployed("fl")
    there.start("superlink")
    for key in SITES:
        register(there.folder, key)
    other = tmp_path / "other"
    other.mkdir()
    foreign = {"key": key_pair()[""], "ca.crt": certificates("127.0.0.1")["certificates/ca.crt"]}
    for name, text in foreign.items():
        (other / name).write_text(text)
        (other / name).chmod(0o600)
    script = (there.folder / "start-north.sh").read_text()
    key, ca = there.folder / "keys" / "north", there.folder / "certificates" / "ca.crt"
    tls, identity = f"--root-certificates \\\n  {ca}", f"--auth-supernode-private-key \\\n  {key}"
    changes = {
        "stranger": {str(key): str(other / "key")},
        "wrong-ca": {str(ca): str(other / "ca.crt")},
        "no-tls": {tls: "--insecure", identity: "--max-retries 3"},
        "no-key": {identity: "--max-retries 3"},
    }
    for number, (name, parts) in enumerate(changes.items(), 1):
        changed = script.replace(str(there.port + 1), str(there.port + number))
        for old, new in parts.items():
            assert old in changed
            changed = changed.replace(old, new)
        (there.folder / f"start-{name}.sh").write_text(changed)
        there.start(name)
    time.sleep(15)
    nodes = flwr(there.folder, "supernode", "list")["nodes"]
    assert len(nodes) == 2
    assert not any(node["status"] == "online" for node in nodes)
    assert not any("SuperNode ID" in there.log(name) for name in changes)
    there.start("north")
    there.wait(lambda: "SuperNode ID" in there.log("north"), "the site with the right key")


def test_a_run_that_fails_is_told_with_its_reason(files, deployed, capsys):
    there = deployed("fl")
    script = there.folder / "start-south.sh"
    script.write_text(script.read_text().replace("least-rows=10", "least-rows=999999"))
    app = there.folder / "app" / "pyproject.toml"
    app.write_text(app.read_text().replace('on-failure = "wait"', 'on-failure = "stop"'))
    for name in ("superlink", *SITES):
        there.start(name)
    with pytest.raises(SystemExit) as ended:
        main(["deploy", "run", str(there.folder)])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "ended as finished:failed: step 'census' failed at client 'south'" in told
    assert "fewer than 999999 rows" in told


def test_the_folder_keeps_its_secrets_to_its_owner(deployed):
    there = deployed("fl")
    for path in (there.folder / "keys" / "north", there.folder / "certificates" / "server.key"):
        assert path.stat().st_mode & 0o077 == 0
    shutil.rmtree(there.folder)


def test_status_of_an_unknown_run_is_told(deployed, monkeypatch):
    from agnosticfair.deployment import runner
    from agnosticfair.errors import FederationError

    monkeypatch.setattr(runner, "LOST", 0.0)
    there = deployed("fl")
    with pytest.raises(FederationError, match="gives no news of run 12"):
        status_of(there.folder, "12")
