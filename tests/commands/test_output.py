"""What commands give out: files written all or none, tables that a narrow terminal holds."""

import pytest

from agnosticfair.commands import output
from agnosticfair.commands.output import write_files
from agnosticfair.errors import SettingsError


def test_files_are_written_all_or_none(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "full").touch()
    with pytest.raises(SettingsError, match="--out"):
        write_files(tmp_path, {"a": b"1", "no/such/folder": b"2"})
    assert {p.name for p in tmp_path.iterdir()} == {"b"}


@pytest.mark.parametrize("done", [0, 1])
def test_a_long_step_is_not_silent(monkeypatch, capsys, done):
    """A network's first fit may take minutes, before any step is done."""
    monkeypatch.setattr(output, "FIRST", 0.01)
    said = ""
    with output.progress(20, "fits") as advance:
        for _ in range(done):
            advance("")
        while f"{done} of 20 fits, " not in said:
            said += capsys.readouterr().err
    assert ("s left" if done else "s so far") in said


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_cuts_no_number(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(output.sys.stdout, "isatty", lambda: True, raising=False)
    numbers = [k + 0.1234 for k in range(9)]
    output.show(output.grid("title", ("name", *"abcdefghi"), [["all rows", *numbers]]))
    out = capsys.readouterr().out
    assert "…" not in out
    assert all(f"{x:.4f}" in out for x in numbers)
    assert max(map(len, out.splitlines())) <= width
