"""Processes that work for another end with it, however it ends."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import open_fifo

from agnosticfair.errors import SettingsError
from agnosticfair.threads import parallel

TASK = """
import time

def work(fifo):
    with open(fifo, "w", buffering=1) as told:
        print("begun", file=told)
        time.sleep(20)
        print("outlived", file=told)
"""
MAIN = """
from task import work
from agnosticfair.threads import parallel

if __name__ == "__main__":
    parallel(work, [{fifo!r}] * 2, 2)
"""


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_what_works_for_a_process_ends_with_it(by, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "main.py").write_text(MAIN.format(fifo=str(fifo)))
    import agnosticfair

    paths = os.pathsep.join([str(tmp_path), str(Path(agnosticfair.__file__).parents[1])])
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


def die(task):
    os._exit(1)


@pytest.mark.slow
def test_a_worker_that_dies_is_a_sentence():
    with pytest.raises(SettingsError, match="fewer jobs"):
        parallel(die, [1, 2], 2)


def test_libraries_that_are_loaded_later_use_one_thread_too():
    code = (
        "from agnosticfair.threads import one_thread\n"
        "with one_thread():\n    pass\n"
        "import numpy\n"
        "from threadpoolctl import threadpool_info\n"
        "assert threadpool_info()[0]['num_threads'] == 2\n"
        "with one_thread():\n    print(threadpool_info()[0]['num_threads'])"
    )
    env = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=env | {"OPENBLAS_NUM_THREADS": "2"}, capture_output=True
    )
    assert ran.stdout == b"1\n", ran.stderr
