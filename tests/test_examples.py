"""Every example runs, and says something."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_an_example_runs(script, tmp_path):
    for needed in ("pandas", "sklearn", "fairlearn"):
        pytest.importorskip(needed)
    ran = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", script, tmp_path],
        cwd=EXAMPLES,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout or script in ("adult.py", "gallery.py")
