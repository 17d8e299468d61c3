"""What the scripts of the gallery share: a folder for their files, and the command line."""

import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(sys.argv[1] if sys.argv[1:] else tempfile.mkdtemp())
FOLDER.mkdir(parents=True, exist_ok=True)
FILES = Path(__file__).parents[1] / "research" / "src" / "agnosticfair_research" / "files"


def run(line):
    """Type a command in the folder: 0 is good, 3 says that a limit is not certified, or an alarm."""
    print("$ agnosticfair", line, flush=True)
    program = [sys.executable, "-m", "agnosticfair", *line.split()]
    ended = subprocess.run(program, cwd=FOLDER, capture_output=True, text=True)  # noqa: S603
    print(ended.stdout[-1500:], flush=True)
    if ended.returncode not in (0, 3):
        raise SystemExit(ended.stderr)
    return ended.returncode
