"""The paper's experiments: which cells, what a row holds, and the tables made of rows."""

import json

import pytest
from helpers import row

from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.methods import METHODS
from agnosticfair_research import reproduce
from agnosticfair_research.datasets import DATASETS
from agnosticfair_research.paper import PAPER, reported
from agnosticfair_research.report.tables import outcome, summarise
from agnosticfair_research.reproduce import (
    MEASURES,
    SETTINGS,
    PaperCell,
    cells,
    run_cell,
    run_cells,
)

KEYS = [
    *("dataset", "setting", "method", "seed"),
    *MEASURES,
    *("rounds", "seconds", "outcome", "outcomes"),
]


def timeless(rows):
    return [{**r, "seconds": None} for r in rows]


def test_cells_cover_what_is_asked_for():
    tasks = cells(["adult", "dutch"], SETTINGS, ["fl", "localfair"], seeds=5)
    of = [(t.dataset, t.setting) for t in tasks]
    assert of.count(("adult", "shift")) == of.count(("dutch", "iid")) == 2 * 5
    assert len(set(tasks)) == len(tasks)


def test_cells_take_every_method_by_default():
    assert [t.method for t in cells(["adult"], ["iid"], seeds=1)] == [*METHODS]


@pytest.mark.parametrize(
    ("one_request", "named"),
    [
        ((["adlut"],), "'adlut'"),
        ((["adult"], ["shfit"]), "'shfit'"),
        ((["adult"], ["shift"], ["fll"]), "'fll'"),
        ((["adult"], ["shift"], ["fl"], 0), "0 seeds"),
    ],
)
def test_cells_that_cannot_be_are_refused(one_request, named):
    with pytest.raises(SettingsError, match=named):
        cells(*one_request)


def test_a_row_is_complete_and_plausible():
    row = run_cell(PaperCell("adult", "shift", "fl", 0))
    assert [*row] == KEYS
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert row["test_worst_subgroup"] > row["test_risk_difference"]
    assert 0.71 < row["majority_rate"] < 0.725 < row["test_accuracy"] < 0.84
    assert 0.20 < row["label_risk_difference"] < 0.22
    assert min(row["client_risk_differences"]) < row["test_risk_difference"]
    assert row["outcome"] == "converged"
    assert sum(row["outcomes"].values()) == row["rounds"] > 1


@pytest.mark.slow
def test_settings_are_different_splits():
    rates = {s: run_cell(PaperCell("adult", s, "fl", 0))["majority_rate"] for s in SETTINGS}
    assert rates["shift"] != rates["iid"]


def test_a_diverging_fit_is_a_row(monkeypatch):
    def diverge(*_, **__):
        raise SolverError("the fit diverged")

    monkeypatch.setattr(reproduce, "fit", diverge)
    row_here = run_cell(PaperCell("adult", "shift", "fl", 0))
    assert [*row_here] == KEYS
    assert (row_here["outcome"], row_here["test_accuracy"]) == ("diverged", None)
    (fits,) = summarise([row_here, row()])
    assert fits.text("test_accuracy", 2) == "0.82"
    assert outcome(fits.rows) == "converged 1/2; diverged 1/2"


def test_rows_come_in_the_order_of_tasks_and_are_told():
    tasks, told = cells(["adult"], ["shift"], ["localfair", "fl"], 1), []
    rows = run_cells(tasks, 1, told.append)
    assert [r["method"] for r in rows] == ["localfair", "fl"]
    assert told == rows


def test_no_jobs_are_refused():
    with pytest.raises(SettingsError, match="0 jobs"):
        run_cells([PaperCell("adult", "shift", "fl", 0)], 0)


@pytest.mark.slow
def test_rows_do_not_depend_on_the_number_of_jobs():
    tasks = cells(["adult"], ["shift"], ["fl", "agnosticfair-a", "agnosticfair-printed"], 1)
    assert timeless(run_cells(tasks, 2)) == timeless(run_cells(tasks))


def test_the_paper_s_numbers_have_their_place():
    assert len(PAPER) == 21
    for (data, setting, method), told in PAPER.items():
        assert data in DATASETS
        assert setting in ("shift", "iid")
        assert method in METHODS
        assert 0.6 < told.test_accuracy < 0.9
        assert 0 < told.test_risk_difference < 0.25
    assert reported("adult", "shift", "fedavg") == PAPER["adult", "shift", "fl"]
    assert reported("adult", "shift", "localfair") is None
