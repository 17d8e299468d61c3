"""The command line of the experiments in the place of the product's."""

import pytest

from agnosticfair_research.cli import main


@pytest.fixture
def call(capsys):
    """Run a command: its exit code, what it printed, and what it said on stderr."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run
