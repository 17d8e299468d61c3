"""The paper's experiments: which cells, what a row holds, and the tables made of rows."""

import json
import os

import pytest
from helpers import row
from rich.console import Console

from agnosticfair.data.datasets import DATASETS
from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.experiments import reproduce
from agnosticfair.experiments.paper import PAPER, reported
from agnosticfair.experiments.reproduce import (
    CLIENTS,
    MEASURES,
    SETTINGS,
    PaperCell,
    cells,
    run,
    run_cell,
)
from agnosticfair.methods import METHODS
from agnosticfair.report.tables import HEAD, document, grids, markdown, outcome, summarise, terminal

KEYS = [
    *("dataset", "setting", "method", "seed", "clients"),
    *MEASURES,
    *("rounds", "seconds", "outcome", "outcomes"),
]


def timeless(rows):
    return [{**r, "seconds": None} for r in rows]


def test_cells_cover_what_is_asked_for():
    tasks = cells(["adult", "dutch"], SETTINGS, ["fl", "localfair"], seeds=5)
    of = [(t.dataset, t.setting) for t in tasks]
    assert of.count(("adult", "shift")) == of.count(("dutch", "iid")) == 2 * 5
    curve = [t for t in tasks if t.setting == "clients"]
    assert {t.dataset for t in curve} == {"adult"}
    assert {t.method for t in curve} == {"localfair"}
    assert [t.clients for t in curve] == [*CLIENTS] * 3  # three seeds at most
    assert len(set(tasks)) == len(tasks)


def test_cells_take_every_method_by_default():
    assert [t.method for t in cells(["adult"], ["iid"], seeds=1)] == [*METHODS]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ((["adlut"],), "'adlut'"),
        ((["adult"], ["shfit"]), "'shfit'"),
        ((["adult"], ["shift"], ["fll"]), "'fll'"),
        ((["adult"], ["shift"], ["fl"], 0), "0 seeds"),
        ((["dutch"], ["clients"]), "'clients'"),
        ((["adult"], ["clients"], ["fl"]), "'clients'"),
    ],
)
def test_cells_that_cannot_be_are_refused(asked, named):
    with pytest.raises(SettingsError, match=named):
        cells(*asked)


def test_a_row_is_complete_and_plausible():
    found = run_cell(PaperCell("adult", "shift", "fl", 0))
    assert [*found] == [*KEYS, "detail"]
    assert [*run_cell(PaperCell("adult", "shift", "fl", 1))] == KEYS  # one seed is shown in detail
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert 0.71 < found["majority_rate"] < 0.725 < found["test_accuracy"] < 0.84
    assert 0.20 < found["label_risk_difference"] < 0.22
    assert min(found["client_risk_differences"]) < found["test_risk_difference"]
    assert found["outcome"] == "converged"
    assert sum(found["outcomes"].values()) == found["rounds"] > 1


def test_settings_are_different_splits():
    rates = {s: run_cell(PaperCell("adult", s, "fl", 0))["majority_rate"] for s in SETTINGS}
    assert rates["shift"] == rates["clients"] != rates["iid"]


def test_a_diverging_fit_is_a_row(monkeypatch):
    def diverge(*_, **__):
        raise SolverError("the fit diverged")

    monkeypatch.setattr(reproduce, "fit", diverge)
    found = run_cell(PaperCell("adult", "shift", "fl", 0))
    assert [*found] == KEYS
    assert (found["outcome"], found["test_accuracy"]) == ("diverged", None)
    (summary,) = summarise([found, row()])
    assert summary["test_accuracy"].count == 1
    assert summary.outcome == "converged 1/2; diverged 1/2"


def test_rows_come_in_the_order_of_tasks_and_are_told():
    tasks, told = cells(["adult"], ["shift"], ["qffl", "fl"], 1), []
    rows = run(tasks, 1, told.append)
    assert [r["method"] for r in rows] == ["qffl", "fl"]
    assert told == rows


def test_no_jobs_are_refused():
    with pytest.raises(SettingsError, match="0 jobs"):
        run([PaperCell("adult", "shift", "fl", 0)], 0)


@pytest.mark.slow
def test_rows_do_not_depend_on_the_number_of_jobs():
    tasks = cells(["adult"], ["shift"], ["fl", "agnosticfair-a", "agnosticfair-printed"], 1)
    assert timeless(run(tasks, 2)) == timeless(run(tasks, 1))


def die(task):
    os._exit(1)


@pytest.mark.slow
def test_a_worker_that_dies_is_a_sentence(monkeypatch):
    monkeypatch.setattr(reproduce, "run_cell", die)
    with pytest.raises(SettingsError, match="fewer jobs"):
        run(cells(["adult"], ["shift"], ["fl", "afl"], 1), 2)


def test_the_paper_s_numbers_have_their_place():
    assert len(PAPER) == 21
    for (data, setting, method), told in PAPER.items():
        assert data in DATASETS
        assert setting in ("shift", "iid")
        assert method in METHODS
        assert 0.6 < told.test_accuracy < 0.9
        assert 0 < told.test_risk_difference < 0.25
    assert reported("adult", "shift", "fedavg") == PAPER["adult", "shift", "fl"]
    assert reported("adult", "shift", "qffl") is None


def test_a_summary_is_mean_and_sample_deviation():
    (summary,) = summarise([row(seed=0), row(seed=1, test_accuracy=0.80)])
    spread = summary["test_accuracy"]
    assert spread.mean == pytest.approx(0.81)
    assert spread.deviation == pytest.approx(0.02 / 2**0.5)
    assert [s.mean for s in summary.client_risk_differences] == [0.16, 0.23]
    assert summary.seeds == 2


def test_tables_show_the_paper_and_the_yardsticks_beside_each_accuracy():
    rows = [row(), row("agnosticfair-b"), row("qffl", setting="iid", test_accuracy=None)]
    rows += [row("localfair", setting="clients", clients=p) for p in (2, 50)]
    one, two, three, curve = grids(summarise(rows))
    assert [g.title[:8] for g in (one, two, three, curve)] == [
        "Table 1.",
        "Table 2.",
        "Table 3.",
        "Figure 3",
    ]
    fl = dict(zip(one.header, one.lines[0], strict=True))
    assert fl["test accuracy"] == "0.8200"
    assert fl["majority rate"] == "0.7187"
    assert fl["label RD"] == "0.2100"
    assert "0.7998" in one.lines[0]  # the paper's
    assert " ".join(two.lines[0]) == (
        "agnosticfair-b 0.1600 0.0450 0.2300 0.0795 0.2100 0.0673 0.8200 0.7187"
    )
    assert three.lines[0][3] == "none"
    assert [line[0] for line in curve.lines] == ["2", "50"]
    assert all("majority rate 0.7187, label RD 0.2100" in g.note for g in (one, two, three, curve))


def test_markdown_lines_have_as_many_cells_as_the_header():
    made = grids(summarise([row(), row("agnosticfair-b")]))
    for grid in made:
        bars = {line.count("|") for line in markdown(grid).splitlines() if line.startswith("|")}
        assert bars == {len(grid.header) + 1}
    text = document(HEAD, made, {"a.png": "A figure"}, "Made by hand.")
    assert "![A figure](a.png)" in text
    assert text.count("### Table") == len(made)


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
