"""Data and command line of the experiments. Nothing is downloaded: what is absent skips, and says why."""

import os
from pathlib import Path

import pytest

from agnosticfair.data.table import Table
from agnosticfair_research.cli import main
from agnosticfair_research.datasets import dataset, load_dataset
from agnosticfair_research.sources import VARIABLE, cache_folder, find

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def folder_of():
    """From a data set's name to a folder that holds it; skips where there is none."""

    def found(name: str) -> Path:
        named, source = os.environ.get(VARIABLE), dataset(name).source
        for folder in ([Path(named)] if named else []) + [cache_folder(), SHARED]:
            if source is None or find(source, folder):
                return folder
        pytest.skip(f"{name} is neither in ${VARIABLE}, nor the cache, nor {SHARED}")

    return found


@pytest.fixture(scope="session")
def dutch_folder(folder_of) -> Path:
    """A folder that holds the Dutch census."""
    return folder_of("dutch")


@pytest.fixture(scope="session")
def dutch(dutch_folder: Path) -> Table:
    """The Dutch census of 2001."""
    return load_dataset("dutch", dutch_folder)


@pytest.fixture(scope="session")
def load(folder_of):
    """From a data set's name to its rows; skips where they are absent."""
    return lambda name: load_dataset(name, folder_of(name))


@pytest.fixture
def call(capsys):
    """Run a command: its exit code, what it printed, and what it said on stderr."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run
