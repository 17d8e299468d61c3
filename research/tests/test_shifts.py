"""The shift suite: its cells and rows, the sceptic's threshold, the certificate, peers, the report."""

import json

import numpy as np
import pytest
import typer
from helpers import dealt, small_table
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.mathematics.ambiguity import Outcome
from agnosticfair.mathematics.basis import gaussian_kernel, row_priorities
from agnosticfair_research import reproduce, shifts
from agnosticfair_research.commands.shifts import shifts as command
from agnosticfair_research.datasets import dataset
from agnosticfair_research.deployments import measure
from agnosticfair_research.entrants import Train, entrant, fairgrad
from agnosticfair_research.pool import run_cells
from agnosticfair_research.report.shifts import figures, grids, summarise
from agnosticfair_research.sceptic import matching_threshold
from agnosticfair_research.shifts import (
    COMPARED,
    FACTORS,
    FRONTIER_SEEDS,
    KEPT,
    MOVED,
    TAUS,
    SuiteCell,
    cells,
    fit_peer,
    run_cell,
    worst_reweighting,
)
from agnosticfair_research.splits import Split

FL = SuiteCell("adult", "shift", "fl", 0)


def peer(name, split):
    return fit_peer(name, Train(split.train, "yes", "sex", 0))


def run(tasks, jobs=1, on_done=None):
    return run_cells(run_cell, tasks, jobs, on_done)


def test_cells_cover_what_is_asked_for():
    tasks = cells(["adult", "dutch"], seeds=4, frontier=True, peers=["fairlearn-eg"])
    plain = [t for t in tasks if not t.frontier]
    names = [*COMPARED, *MOVED, "fairlearn-eg"]
    assert [t.method for t in plain] == names * 8
    extra = [t for t in tasks if t.frontier]
    assert len(extra) == 2 * FRONTIER_SEEDS * (len(FACTORS) + len(TAUS) + len(KEPT))
    assert len(set(tasks)) == len(tasks)
    request = {t.tau for t in extra if t.method == "agnosticfair" and t.dataset == "dutch"}
    assert min(request) < dataset("dutch").tau < max(request)


def test_the_sceptic_needs_both_methods():
    assert [t.method for t in cells(["adult"], methods=["fairfl"], seeds=1)] == ["fairfl"]
    alone = cells(["adult"], methods=["fairfl"], seeds=1, frontier=True)
    assert {t.method for t in alone} == {"fairfl"}


def test_the_dirichlet_split_has_a_tuned_row_and_no_frontier():
    tasks = cells(["adult"], "dirichlet", ["fl", "fairfl"], 1, frontier=True)
    assert [t.method for t in tasks] == ["fl", "fairfl", "fairfl-tuned"]


@pytest.mark.parametrize(
    ("one_request", "named"),
    [
        ((["adlut"],), "'adlut'"),
        ((["adult"], "shfit"), "'shfit'"),
        ((["adult"], "shift", ["fll"]), "'fll'"),
        ((["adult"], "shift", ["fl"], 0), "0 seeds"),
        ((["dutch"], "dirichlet"), "'dirichlet'"),
    ],
)
def test_cells_that_cannot_be_are_refused(one_request, named):
    with pytest.raises(SettingsError, match=named):
        cells(*one_request)


@pytest.mark.slow
def test_a_row_is_complete_and_agrees_with_the_paper_s_experiments():
    row_here = run_cell(FL)
    assert json.loads(json.dumps(row_here, allow_nan=False)) == row_here
    told = reproduce.run_cell(reproduce.PaperCell("adult", "shift", "fl", 0))
    for name in ("train_accuracy", "train_risk_difference", "test_accuracy", "rounds", "outcome"):
        assert row_here[name] == pytest.approx(told[name])
    assert row_here["subgroup_risk_differences"] == pytest.approx(told["client_risk_differences"])
    first = row_here["deployments"][0]
    assert first["name"] == "test set"
    assert first["risk_difference"] == pytest.approx(row_here["test_risk_difference"], abs=1e-6)
    spread = [d["risk_difference"] for d in row_here["deployments"]]
    assert row_here["max_risk_difference"] == max(spread) > row_here["p90_risk_difference"]
    assert row_here["worst"] == row_here["deployments"][int(np.argmax(spread))]["name"]
    assert row_here["certified"] == "optimal"
    assert row_here["certified_risk_difference"] > 0.2  # no fairness constraint
    assert len(spread) > 500


@pytest.mark.slow
def test_iid_and_dirichlet_are_other_splits():
    rates = {s: run_cell(SuiteCell("adult", s, "fl", 0))["test_accuracy"] for s in shifts.SETTINGS}
    assert len({*rates.values()}) == 3
    tasks = [SuiteCell("adult", "dirichlet", m, 0) for m in ("fairfl", "fairfl-tuned")]
    usual, tuned = (run_cell(task) for task in tasks)
    assert tuned["test_accuracy"] > usual["test_accuracy"]
    assert tuned["tau"] == 0.0425
    assert len(tuned["subgroup_risk_differences"]) == 5


@pytest.mark.slow
def test_a_point_of_the_frontier_leaves_the_deployments_out():
    row = run_cell(SuiteCell("adult", "shift", "fairfl", 0, tau=0.1, frontier=True))
    assert row["deployments"] == []
    assert row["tau"] == 0.1
    assert row["max_risk_difference"] > row["mean_risk_difference"] > 0


@pytest.mark.slow
def test_a_moved_threshold_keeps_the_share_of_positives_asked_for():
    whole = run_cell(SuiteCell("adult", "shift", "fairfl", 0))
    some = run_cell(SuiteCell("adult", "shift", "fairfl-moved", 0, kept=0.5, frontier=True))
    kept = some["train_positive_rate"] / whole["train_positive_rate"]
    assert kept == pytest.approx(0.5, abs=0.01)


@pytest.mark.slow
def test_the_sceptic_is_brought_down_to_agnosticfair_on_the_training_rows():
    tasks = cells(["adult"], methods=["fairfl", "agnosticfair"], seeds=1)
    fair, robust, moved, balanced = run(tasks)
    assert fair["train_accuracy"] > moved["train_accuracy"]
    assert moved["train_accuracy"] == pytest.approx(robust["train_accuracy"], abs=1e-3)
    name = "train_balanced_accuracy"
    assert balanced[name] == pytest.approx(robust[name], abs=1e-3)


@pytest.mark.slow
def test_rows_do_not_depend_on_the_number_of_jobs():
    tasks = cells(["adult"], methods=["fl", "fairfl"], seeds=1)
    rows = [[{**r, "seconds": 0} for r in run(tasks, jobs)] for jobs in (1, 2)]
    assert rows[0] == rows[1]


def test_rows_come_in_the_order_of_tasks_and_are_told():
    told = []
    rows = run(cells(["adult"], methods=["fairfl", "fl"], seeds=1), 1, told.append)
    assert [r["method"] for r in rows] == ["fairfl", "fl"]
    assert told == rows
    with pytest.raises(SettingsError, match="0 jobs"):
        run([FL], 0)


@pytest.fixture
def diverging(monkeypatch):
    def diverge(*_, strict, **__):
        raise SolverError("the fit diverged")

    monkeypatch.setattr(shifts, "fit", diverge)
    shifts._fitted.cache_clear()


def test_a_diverging_fit_is_a_row_and_shown(diverging):
    row = run_cell(FL)
    assert row["outcome"] == "diverged"
    (summary,) = summarise([row])
    assert summary.outcome == "converged 0/1; diverged 1/1"
    one, *_ = grids([summary])
    assert one.lines[0][1] == "none"
    assert figures([row]) == {}


def test_strict_makes_it_an_error(diverging):
    with pytest.raises(SolverError, match="diverged"):
        run_cell(SuiteCell("adult", "shift", "fl", 0, strict=True))


def test_strict_reaches_the_fit(monkeypatch):
    request = []

    def spy(*arguments, strict, **others):
        request.append(strict)
        raise SolverError("enough")

    monkeypatch.setattr(shifts, "fit", spy)
    shifts._fitted.cache_clear()
    run_cell(FL)
    assert request == [False]


rows = st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 1)), min_size=2, max_size=40).filter(
    lambda those: len({y for _, y in those}) == 2
)


@given(rows, st.floats(0.3, 1.0), st.sampled_from(["accuracy", "balanced_accuracy"]))
def test_a_threshold_is_the_smallest_that_is_low_enough(those, target, what):
    d, y = np.array(those, float).T
    t = matching_threshold(d, y, what, target)

    def value(t):
        return measure(y, (d > t).astype(float), np.arange(len(y)) % 2)[what]

    steps = np.unique(np.concatenate([[0.0], d[d > 0]]))
    values = np.array([value(step) for step in steps])
    low = values <= target + 1e-9
    if low.any():
        assert t == steps[low][0]
    else:
        assert abs(value(t) - target) == pytest.approx(np.abs(values - target).min())


def certified_case(seed=0, n=400):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    s = (rng.uniform(size=n) < 0.3 + 0.4 * X[:, 0]).astype(int)
    return X, (X[:, 0] + 0.2 * rng.normal(size=n) > 0.5).astype(float), s


def test_nothing_in_the_set_shows_more_than_what_is_certified(monkeypatch):
    monkeypatch.setattr(shifts, "WIDTH", 0.3)
    X, p, s = certified_case()
    worst = worst_reweighting(X, p, s, 7)
    assert worst.outcome is Outcome.OPTIMAL
    centres = X[np.unique(row_priorities(X, 7), return_index=True)[1][:200]]
    K, rng, maximum = gaussian_kernel(X, centres, 0.3), np.random.default_rng(1), 0.0
    for _ in range(300):
        alpha = rng.exponential(size=200) ** rng.integers(1, 6)
        weights = K @ alpha
        scale = len(X) / weights.sum()
        if scale * alpha.max() <= shifts.BOUND:
            maximum = max(maximum, measure(p, p, s, weights)["risk_difference"])
    assert 0 < maximum <= worst.value + 1e-9


def test_a_certificate_does_not_care_which_group_is_first():
    X, p, s = certified_case()
    one, two = worst_reweighting(X, p, s, 7).value, worst_reweighting(X, p, 1 - s, 7).value
    assert one == pytest.approx(two, abs=2e-4)
    assert worst_reweighting(X, np.ones(len(X)), s, 7).value == pytest.approx(0.0, abs=1e-4)


def test_no_certificate_without_two_groups():
    X, p, s = certified_case()
    assert worst_reweighting(X, p, np.zeros_like(s), 7) is None


def small_split():
    table = small_table(600)
    clients = dealt(table.take(np.arange(400)), 2)
    test = table.take(np.arange(400, 600))
    return Split(clients, test, np.zeros(200, int), ("all",))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fairlearn-eg", "fairlearn-threshold"])
def test_a_pooled_peer_lowers_the_risk_difference_of_its_training_rows(name):
    pytest.importorskip("fairlearn")
    split = small_split()
    found = peer(name, split)
    p = np.concatenate([found.decide(t) for t in split.train.values()])
    s = np.concatenate([t.column("sex").codes for t in split.train.values()])
    y = np.concatenate([t.labels("yes") for t in split.train.values()])
    assert measure(y, p, s)["risk_difference"] < 0.04 < measure(y, y, s)["risk_difference"]
    assert found.outcome == shifts.DONE
    assert found.seconds > 0
    assert ((p >= 0) & (p <= 1)).all()


@pytest.mark.slow
def test_fairgrad_learns_from_clients(monkeypatch):
    if not shifts.PEERS["declearn-fairgrad"].installed:
        pytest.skip("declearn with websockets is not installed")
    monkeypatch.setattr(fairgrad, "ROUNDS", 100)
    monkeypatch.setattr(fairgrad, "BATCH", 16)
    split = small_split()
    found = peer("declearn-fairgrad", split)
    y, p = split.test.labels("yes"), found.decide(split.test)
    assert {*p} == {0.0, 1.0}
    assert measure(y, p, split.test.column("sex").codes)["accuracy"] > 0.6
    assert found.outcome == shifts.DONE


def test_the_gradient_of_a_batch_is_declearn_s_own():
    own = pytest.importorskip("declearn.model.sklearn").SklearnSGDModel
    rng = np.random.default_rng(0)
    batch = rng.uniform(size=(50, 4)), rng.integers(0, 2, 50), rng.uniform(size=50)
    found = []
    for model in (own, fairgrad._declearn_model()):
        made = model.from_parameters(kind="classifier", loss="log_loss", alpha=1e-5)
        made.initialize({"features_shape": (4,), "classes": {0, 1}})
        made._model.coef_[:] = [[0.3, -0.2, 0.5, 1.0]]
        found.append(made.compute_batch_gradients(batch).coefs)
    for name in ("coef", "intercept"):
        np.testing.assert_allclose(found[1][name], found[0][name], atol=1e-4)


def test_peers_that_cannot_be_are_refused(monkeypatch):
    with pytest.raises(SettingsError, match="fairlearn-eq"):
        peer("fairlearn-eq", small_split())
    monkeypatch.setattr(entrant, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"agnosticfair-research\[peers\]"):
        peer("fairlearn-eg", small_split())


def test_a_peer_s_failure_is_a_row(monkeypatch):
    def fail(train, limit):
        raise ValueError("it broke")

    monkeypatch.setitem(shifts.PEERS, "broken", entrant.Entrant("broken", fail, ""))
    row = run_cell(SuiteCell("adult", "shift", "broken", 0))
    assert (row["outcome"], row["why"]) == ("diverged", "broken failed: it broke")


@pytest.fixture
def invoke():
    app = typer.Typer()
    app.command()(command)
    return lambda *words: CliRunner().invoke(app, words)


def test_the_command_writes_rows_tables_and_figures(invoke, tmp_path):
    words = ("--methods", "fl", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path / "new"))
    ended = invoke(*words)
    assert ended.exit_code == 0, ended.output
    assert "worst deployment" in ended.stdout
    assert " = " in ended.stdout
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["deployments-adult-shift.png", "shifts.json", "shifts.md"]
    results = json.loads((tmp_path / "new" / "shifts.json").read_text())
    assert results["format"] == "agnosticfair-shifts-1"
    assert len(results["rows"][0]["deployments"]) > 60
    assert "Made by `agnosticfair-research shifts" in (tmp_path / "new" / "shifts.md").read_text()
    content = json.loads(invoke(*words, "--json").stdout)
    times = {"seconds": 0}
    assert [r | times for r in content["rows"]] == [r | times for r in results["rows"]]


def test_the_command_refuses_what_cannot_be(invoke, monkeypatch, tmp_path):
    out = ("--out", str(tmp_path))
    assert isinstance(invoke("--setting", "x", *out).exception, SettingsError)
    monkeypatch.setattr(entrant, "find_spec", lambda name: None)
    refused = invoke("--peers", *out).exception
    assert isinstance(refused, SettingsError)
    assert "agnosticfair-research[peers]" in str(refused)
    (tmp_path / "file").touch()
    assert "--out" in str(invoke("--out", str(tmp_path / "file")).exception)
