"""An entrant's own process ends with the one that it works for, however that ends."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import open_fifo

import agnosticfair
import agnosticfair_research

TASK = """
import time

def work(fifo):
    with open(fifo, "w", buffering=1) as told:
        print("begun", file=told)
        time.sleep(20)
        print("outlived", file=told)
"""
APART = """
import sys
from pathlib import Path
from agnosticfair_research.apart import run_apart
from agnosticfair_research.benchmark import Cell

run_apart(Cell({fifo!r}, "shift", 0, "oxonfair"), Path({python!r}))
"""
PEER = """#!{python}
from agnosticfair_research import apart, benchmark
from task import work

benchmark.run_cell = lambda cell: work(cell.dataset)
apart.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_what_works_for_a_process_ends_with_it(by, tmp_path):
    fifo, peer = tmp_path / "fifo", tmp_path / "peer"
    os.mkfifo(fifo)
    (tmp_path / "task.py").write_text(TASK)
    peer.write_text(PEER.format(python=sys.executable))
    peer.chmod(0o755)
    (tmp_path / "main.py").write_text(APART.format(fifo=str(fifo), python=str(peer)))
    sources = [str(Path(p.__file__).parents[1]) for p in (agnosticfair, agnosticfair_research)]
    paths = os.pathsep.join([str(tmp_path), *sources])
    main = subprocess.Popen(
        [sys.executable, tmp_path / "main.py"], env=os.environ | {"PYTHONPATH": paths}
    )
    try:
        with open_fifo(fifo) as told:
            assert told.readline() == "begun\n"
            main.send_signal(by)
            main.wait()
            assert "outlived" not in told.read()  # the end of the file: nobody has it open to write
    finally:
        with suppress(ProcessLookupError):
            main.kill()
            main.wait()
