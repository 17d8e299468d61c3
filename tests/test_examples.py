"""Every example runs, and says something."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.slow
@pytest.mark.filterwarnings("default", "error::UserWarning")
@pytest.mark.parametrize("script", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_an_example_runs(script, tmp_path, monkeypatch, capsys):
    for needed in ("pandas", "sklearn", "fairlearn"):
        pytest.importorskip(needed)
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    for helper in ("adult", "gallery"):  # it has the folder of the script that ran before
        monkeypatch.delitem(sys.modules, helper, raising=False)
    monkeypatch.setattr(sys, "argv", [script, str(tmp_path)])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    assert capsys.readouterr().out or script in ("adult.py", "gallery.py")
