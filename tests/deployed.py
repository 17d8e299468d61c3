"""Real sites and real runs on loopback, for tests: every process is started here and stopped by its own id."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from helpers import adult_split
from pyarrow import csv

from agnosticfair.cli import main
from agnosticfair.data.files import Roles, read_clients
from agnosticfair.deploy import runner
from agnosticfair.deploy.folder import read_settings
from agnosticfair.deploy.node import Node, Trail, answer, read_site
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair.model import load_model
from agnosticfair.site.policy import MIN_ROWS, shown_rows

SITES = ("north", "south")
BIN = str(Path(sys.executable).parent)
LONG = 600
"""Seconds until a test gives up waiting: a busy machine is no failure."""

MARK = "AGNOSTICFAIR_TEST"
"""In the environment of every process that is started here, and so of those that these start."""


MORTAL = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Runs a command that is told to end (SIGTERM) when this very process dies, as under an interrupt."""


def start(command, folder, log, **more):
    """A process of ours, known by its id and by a mark that all its children have."""
    marked = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", MARK: str(folder)}
    with log.open("ab") as out:
        line = [sys.executable, "-c", MORTAL, *map(str, command)]
        return subprocess.Popen(line, stdout=out, stderr=out, env=marked, **more)


def started_for(folder):
    """The ids of the living processes that were started for a folder, directly or not."""
    mark, found = f"{MARK}={folder}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def program(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def listens(pid):
    """The ports on which a process listens."""
    own, found = set(), []
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                own.add(str(link.readlink()))
        for name in ("tcp", "tcp6"):
            text = Path(f"/proc/{pid}/net/{name}").read_text()
            found += [line.split() for line in text.splitlines()]
    listening = [f for f in found if f[3] == "0A" and f"socket:[{f[9]}]" in own]
    return {int(line[1].rpartition(":")[2], 16) for line in listening}


def wait(ready, what, seconds=LONG, pause=0.3):
    end = time.monotonic() + seconds
    while not (found := ready()):
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(pause)
    return found


def free(first, count):
    """Whether nobody listens on some neighbouring ports."""
    with contextlib.ExitStack() as stack:
        try:
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count):
    """The first of some neighbouring free ports, under those that outgoing connections take; another worker of
    these tests, and another session of tests on this machine, begins to look elsewhere."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    begin = (os.getpid() + 500 * worker) % 1000
    for k in range(1000):
        first = 18500 + 10 * ((begin + k) % 1000)
        if free(first, count):
            return first
    pytest.skip("no free ports on loopback")


def rows_by_site(adult):
    """Adult shift, a table per site."""
    found = {}
    train = adult_split(adult).train
    for key, table in zip(SITES, train.values(), strict=True):
        columns = {**table.numeric, "income": table.target.values()}
        for kept in (table.categorical, table.sensitive_features):
            columns |= {name: column.values() for name, column in kept.items()}
        found[key] = pa.table({name: pa.array(values) for name, values in columns.items()})
    return found


def write_files(rows, folder):
    for key, table in rows.items():
        csv.write_csv(table, folder / f"{key}.csv")
    return {key: folder / f"{key}.csv" for key in rows}


class Deployed:
    """A folder of 'deploy init' and the processes of its files, each known by its id."""

    def __init__(self, folder, rows, *more):
        self.rows, self.folder, self.processes, self.port = rows, folder, {}, free_ports(1)
        self.runs, self.commands = [], {}
        folder.parent.mkdir(exist_ok=True)
        self.files = write_files(rows, folder.parent)
        sites = ",".join(f"{key}={path}" for key, path in self.files.items())
        named = ("--target", "income", "--sensitive-features", "sex", "--method", "fairfl")
        init = ["deploy", "init", folder, "--sites", sites, *named, "--port", self.port, *more]
        with pytest.raises(SystemExit) as ended:
            main([str(subgroup) for subgroup in init])
        assert ended.value.code in (0, None)

    def consent(self):
        """Every site's own people let totals have blocks of theirs, and means of clusters be seen."""
        for key in self.rows:
            path = self.folder / "sites" / f"{key}.toml"
            path.write_text(re.sub("(?m)^(shares-.*) = false$", r"\1 = true", path.read_text()))

    def start(self, *names):
        for name in names:
            (file,), log = self.folder.rglob(f"sites/{name}.toml"), self.folder / f"{name}.log"
            kind = "relay" if "\n[relay]\n" in file.read_text() else "site"
            command = self.commands.get(name, ["agnosticfair", "deploy", kind, file])
            self.processes[name] = start(command, self.folder, log)

    def stop(self, name, how=signal.SIGTERM):
        process = self.processes.pop(name)
        process.send_signal(how)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=60)

    def close(self):
        """Stop what was started, in whatever state a test has left it."""
        for run in self.runs:
            if run.poll() is None:
                run.terminate()
                run.wait(timeout=60)
        for name in sorted(self.processes, reverse=True):
            self.stop(name)
        for pid in started_for(self.folder):  # orphans of a process that was killed
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait(lambda: not started_for(self.folder), "every process to end", seconds=60)

    def sound(self):
        """Whether all servers are there, and no run is left."""
        ended = all(run.poll() is not None for run in self.runs)
        return ended and self.processes.keys() == {*SITES}

    def listens(self):
        with socket.socket() as there:
            return there.connect_ex(("127.0.0.1", self.port)) == 0

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def prepare(self, **values):
        """Settings of the next run, which begins with the sites' files as they were, and no results."""
        own = self.folder / "federation.toml"
        text = own.read_text()
        for name, value in {
            "method": '"fairfl"',
            "network": '""',
            "centres": '""',
            "max-rounds": 3,
            "certify": "false",
            "on-failure": '"wait"',
            **values,
        }.items():
            line = f"{name.replace('_', '-')} = {value}"
            text, times = re.subn(f"(?m)^{name.replace('_', '-')} = .*$", line, text)
            text += "" if times else line + "\n"  # [run] is last
        own.write_text(text)
        write_files(self.rows, self.folder.parent)
        (self.folder / "state" / "run.json").unlink(missing_ok=True)
        for folder in (self.folder / "results", self.folder / "state" / "checkpoint"):
            for path in folder.glob("*"):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def run(self):
        """'deploy run' in a process of its own."""
        log = self.folder / "run.log"
        log.unlink(missing_ok=True)
        self.runs.append(start(["agnosticfair", "deploy", "run", self.folder], self.folder, log))
        return self.runs[-1]

    def ends(self, run, code=0):
        """What a run said, at its end."""
        found, told = run.wait(timeout=LONG), self.log("run")
        assert found == code, told
        return told

    def result(self, name):
        return json.loads((self.folder / "results" / name).read_text())

    def state(self):
        """What the last run wrote of itself."""
        return runner.read_state(self.folder)

    def round(self):
        """The last round of the run that goes on."""
        return self.state().get("round", {}).get("round", 0)

    def weights(self):
        return load_model(self.folder / "results" / "model.safetensors").w.tobytes()

    @property
    def settings(self):
        return read_settings(self.folder)

    def trail(self, name):
        """A site's own log."""
        lines = (self.folder / "state" / f"{name}.log").read_text().splitlines()
        return [json.loads(line) for line in lines]


@contextlib.contextmanager
def deployed(folder, rows, *more):
    """Two sites of a test's own."""
    deployed = Deployed(folder / "bank", rows, *more)
    try:
        deployed.start(*SITES)
        yield deployed
    finally:
        deployed.close()


@contextlib.contextmanager
def living(folder, *names):
    """Sites of a folder in threads of this process, over real TLS."""
    ends = []

    def serve(node, ready):
        async def run():
            task = asyncio.create_task(node.serve())
            ends.append((asyncio.get_running_loop(), task))
            ready.set()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        asyncio.run(run())

    threads = []
    for name in names or read_settings(folder).sites:
        joined = read_site(folder / "sites" / f"{name}.toml")
        ready = threading.Event()
        made = Node(joined, Trail(joined.log), partial(answer, joined))
        threads.append(threading.Thread(target=serve, args=(made, ready)))
        threads[-1].start()
        ready.wait()
    try:
        yield
    finally:
        for loop, task in ends:
            loop.call_soon_threadsafe(task.cancel)
        for thread in threads:
            thread.join()


def site_rows(files):
    """The rows of these files as their sites tell of them without a schema: rare values are joined."""
    tables = read_clients(files, Roles("income", ("sex",)))
    return {key: shown_rows(table, (), MIN_ROWS) for key, table in tables.items()}


def here(files, name="fairfl", **changes):
    """The in-process model of the same files."""
    return fit(site_rows(files), method(name, **changes))
