"""The rounds that a run leaves behind."""

import pytest

from agnosticfair.methods import method
from agnosticfair.runs.provenance import read_rounds, rounds


def test_rounds_are_added_and_a_resumed_fit_goes_on(tmp_path):
    add = rounds(tmp_path, method("fairfl"), 2, resume=False)
    for k in (1, 2, 3):
        add({"round": k, "loss": 1.0 / k})
    add = rounds(tmp_path, method("fairfl"), 2, resume=True)
    add({"round": 3, "loss": 7.0})
    with (tmp_path / "rounds.jsonl").open("a") as file:
        file.write('{"round": 4, "lo')  # still being written
    begins, found = read_rounds(tmp_path)
    assert (begins["method"], begins["clients"]) == ("fairfl", 2)
    assert [e["round"] for e in found] == [1, 2, 3]
    assert found[-1]["loss"] == 7.0
    rounds(tmp_path, method("fairfl"), 2, resume=False)
    assert read_rounds(tmp_path)[1] == []


@pytest.mark.parametrize("line", ["5", "null", "[1]", '{"round": "x"}', '{"round": null}'])
def test_a_line_of_rounds_that_is_not_ours_is_left_out(tmp_path, line):
    (tmp_path / "rounds.jsonl").write_text(f'{{"method": "fl"}}\n{line}\n{{"round": 1}}\n')
    assert read_rounds(tmp_path) == ({"method": "fl"}, [{"round": 1}])
