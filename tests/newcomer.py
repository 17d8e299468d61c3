"""Types what README shows, in a fresh environment with the built wheel and nothing of this repository.

    python tests/newcomer.py [FOLDER]

The folder gets the wheel, the environment and all files; by default it is a temporary one.
"""

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]


def blocks(name):
    """The lines of README's block under this mark."""
    text = (ROOT / "README.md").read_text()
    return re.search(f"<!-- {name} -->\n```bash\n(.*?)```", text, re.DOTALL)[1].splitlines()


def main(folder):
    """Install the wheel as README says, then run the first command, and each of the list."""
    (install,) = blocks("install")
    assert install.endswith("pip install ."), install
    environment = folder / ".venv"
    venv.create(environment, with_pip=True)
    inside = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    inside["PATH"] = f"{environment / 'bin'}{os.pathsep}{inside['PATH']}"
    how = {"cwd": folder, "env": inside, "check": True}
    subprocess.run(["pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT], **how)
    (wheel,) = folder.glob("agnosticfair-*.whl")
    subprocess.run(["pip", "install", "-q", wheel], **how)
    for line in (*blocks("first"), *blocks("use")):
        begin = perf_counter()
        subprocess.run(["bash", "-euc", line], stdout=subprocess.DEVNULL, **how)
        print(f"{perf_counter() - begin:6.1f} s  {line}", flush=True)
    for name in ("model-card.html", "tune/frontier.png", "audit/audit.html", "report.html"):
        assert (folder / name).stat().st_size, name


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if sys.argv[1:] else temporary).resolve())
