"""The paper's tables from rows made by hand: numbers, Markdown and terminal."""

from helpers import row
from rich.console import Console

from agnosticfair.methods import METHODS
from agnosticfair.report.words import terminal
from agnosticfair_research.report.tables import document, grids, outcome, summarise


def test_a_summary_is_mean_and_sample_deviation():
    (fits,) = summarise([row(seed=0), row(seed=1, test_accuracy=0.80)])
    assert fits.text("test_accuracy", 4) == "0.8100 ± 0.0141"
    assert fits.local == [(0.16, 0.16), (0.23, 0.23)]
    assert len(fits.rows) == 2


def test_tables_show_the_paper_and_the_yardsticks_beside_each_accuracy():
    rows = [row(), row("agnosticfair-b"), row("localfair", setting="iid", test_accuracy=None)]
    one, two, three = grids(summarise(rows))
    assert [g.title[:8] for g in (one, two, three)] == ["Table 1.", "Table 2.", "Table 3."]
    fl = dict(zip(one.header, one.lines[0], strict=True))
    assert fl["test accuracy"] == "0.8200"
    assert fl["majority rate"] == "0.7187"
    assert fl["label RD"] == "0.2100"
    assert "0.7998" in one.lines[0]  # the paper's
    assert " ".join(two.lines[0]) == (
        "agnosticfair-b 0.1600 0.0450 0.2300 0.0795 0.2100 0.0673 0.8200 0.7187"
    )
    assert three.lines[0][3] == "none"
    assert all("rate 0.7187, label" in g.note for g in (one, two, three))


def test_markdown_lines_have_as_many_cells_as_the_header():
    grids_here = grids(summarise([row(), row("agnosticfair-b")]))
    text = document(grids_here, "Made by hand.")
    for grid in grids_here:
        lines = text.split(grid.title)[1].split("###")[0].splitlines()
        assert {line.count("|") for line in lines if line.startswith("|")} == {len(grid.header) + 1}
    assert text.count("### Table") == len(grids_here)


def test_a_terminal_of_80_characters_cuts_nothing():
    rows = [row(m, seed=k, test_accuracy=0.8 + k / 100) for m in METHODS for k in range(20)]
    console = Console(width=80)
    for grid in grids(summarise(rows), digits=3):
        with console.capture() as captured:
            console.print(terminal(grid))
        assert "…" not in captured.get()
        assert "agnosticfair-b" in captured.get()


def test_outcomes_are_counted_over_seeds():
    ended = {"outcome": "rounds", "outcomes": {"lp optimal": 3, "lp infeasible": 12}}
    assert outcome([row(**ended), row(**ended)]) == "LP infeasible in 24 of 30 rounds"
    assert outcome([row(), row(outcome="rounds")]) == "converged 1/2"
    assert outcome([row(outcome="rounds", outcomes={"lp optimal": 60})]) == "all rounds run"
