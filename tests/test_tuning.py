"""The frontier: its points and what stands beside them, the knee, and the command."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair import AgnosticFairClassifier, frontier
from agnosticfair.commands import fit as command
from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.federation import fit, fit_along
from agnosticfair.methods import method
from agnosticfair.model import load_model
from agnosticfair.report import figures as drawn
from agnosticfair.report.figures import png
from agnosticfair.report.studies import read_run
from agnosticfair.tuning import (
    Frontier,
    FrontierPoint,
    _coarse,
    _references,
    knee,
    picked_place,
    trace,
)

SMALL = {"kernels": 12, "bound": 20.0}
TAUS = (0.03, 0.06, 0.1)


def shifted(n=500):
    table = small_table(n, 1)
    table.numeric["age"][:] += 0.8 * table.sensitive_features["sex"].codes
    return table


@pytest.fixture(scope="module")
def rows():
    table = shifted()
    X = np.column_stack([*table.numeric.values()])
    return X, table.target.values(), table.sensitive_features["sex"].values()


@pytest.mark.slow
def test_a_warm_start_ends_where_a_cold_one_does():
    tables, chosen_method = dealt(shifted(), 3), method("agnosticfair", tau=0.05, **SMALL)
    cold = fit(tables, chosen_method)
    other = fit(tables, method(chosen_method, tau=0.07))
    warm = fit(tables, chosen_method, start=other.start)
    assert warm.converged
    assert warm.trained_difference <= 0.05 + 0.002
    assert warm.history[-1]["loss"] == pytest.approx(cold.history[-1]["loss"], abs=5e-3)
    again = fit(tables, chosen_method, start=cold.start)
    assert again.history[-1]["loss"] <= cold.history[-1]["loss"]
    with pytest.raises(SettingsError, match="kernels or groups"):
        fit(tables, method("fairfl"), start=cold.start)
    with pytest.raises(SettingsError, match=r"'fedavg'.*zero"):
        fit(tables, "fedavg", start=cold.start)


RULE = {"learner": "additive", "min_people": 5.0}


@pytest.mark.parametrize(("name", "settings"), [("agnosticfair", SMALL), ("rule", RULE)])
def test_a_path_is_the_fits_one_after_the_other(name, settings):
    tables, loose = dealt(shifted(300), 2), method(name, tau=0.3, **settings)
    strict = method(loose, tau=0.1)
    seen = []
    along = [*fit_along(tables, [loose, strict], seed=1, on_round=seen.append)]
    first = fit(tables, loose, seed=1)
    then = fit(tables, strict, seed=1, start=first.start)
    for one, other in zip(along, (first, then), strict=True):
        np.testing.assert_array_equal(one.model.w, other.model.w)
        table = shifted(300)
        np.testing.assert_array_equal(one.model.decision(table), other.model.decision(table))
        assert (one.rounds, one.trained_difference) == (other.rounds, other.trained_difference)
        assert one.method == other.method
    assert len(seen) == first.rounds + then.rounds
    with pytest.raises(SolverError, match=r"did not converge"):
        next(fit_along(tables, [method(loose, tau=0.01, max_rounds=2)], strict=True))


def test_a_path_of_a_rule_learns_once():
    tables, loose = dealt(shifted(300), 2), method("rule", tau=1.0, **RULE)
    first, then = fit_along(tables, [loose, method(loose, tau=0.1)], seed=1)
    assert {entry["stage"] for entry in first.history} == {"additive", "program"}
    assert {entry["stage"] for entry in then.history} == {"program"}
    assert first.optimum.unchanged
    assert first.statements[0].startswith("Learner additive: mean log loss 1.")
    assert then.statements[0] == "Learner additive."
    table = shifted(300)
    np.testing.assert_array_equal(first.model.probabilities(table), then.model.probabilities(table))
    with pytest.raises(SettingsError, match="groups or labels"):
        fit(tables, method(loose, metric="equal_opportunity"), start=first.start)


def test_the_knee_is_never_a_model_of_one_answer_unless_all_are():
    lines = [(0.02, 0.75, 0.0), (0.05, 0.751, 0.001), (0.1, 0.8, 0.1), (1.0, 0.82, 0.4)]

    def path(*alike):
        return [
            FrontierPoint(tau, right, worst, worst, 0.1, (0.0, 0.0), tau in alike)
            for tau, right, worst in lines
        ]

    assert picked_place(path()) == 2
    assert picked_place(path(0.02, 0.05, 0.1)) == 3
    assert picked_place(path(0.02, 0.05, 0.1, 1.0)) == 2
    better = FrontierPoint(None, 0.81, 0.05, 0.0, 0.1, (0.0, 0.0))
    assert picked_place(path(), {"fairfl": better}) == 1, "fairfl beats the knee on both axes"
    better = FrontierPoint(None, 0.9, -0.1, 0.0, 0.1, (0.0, 0.0))
    assert picked_place(path(), {"fairfl": better}) == 2, "and here all points"
    marks = [line[-1] for line in drawn.frontier_grid(_frontier(path(0.02, 0.05, 0.1))).lines]
    assert marks == ["one answer", "one answer", "one answer", "knee"]


def _frontier(points):
    return Frontier(tuple(points), picked_place(points), "demographic_parity", 2, {}, float)


def test_a_path_without_subgroups_is_measured_all_the_same():
    tables = dealt(shifted(60), 2)
    send = {"sensitive_features": "sex", "taus": (0.2, 1.0), "folds": 2}
    assert len(trace(tables, method("rule", learner="linear"), **send).points) == 2
    heavy = {key: replace(t, weights=np.full(len(t), 2.0)) for key, t in tables.items()}
    assert len(trace(heavy, method("rule", learner="linear"), **send).points) == 2


def test_costs_weigh_errors_along_the_path():
    tables = dealt(shifted(), 2)
    send = {"sensitive_features": "sex", "taus": (0.2, 1.0), "folds": 2}
    plain, balanced = (
        trace(tables, method("rule", costs=costs, **RULE), **send).points[-1]
        for costs in (None, "balanced")
    )
    assert plain.accuracy != balanced.accuracy
    assert abs(balanced.positive - 0.5) <= abs(plain.positive - 0.5) + 0.05


@pytest.mark.slow
def test_processes_change_nothing():
    tables, chosen_method = dealt(shifted(300), 2), method("agnosticfair", **SMALL)
    send = {"sensitive_features": "sex", "taus": TAUS, "folds": 2}
    one, two = (trace(tables, chosen_method, **send, jobs=jobs) for jobs in (1, 2))
    assert (one.points, one.references) == (two.points, two.references)


def test_the_frontier_trades_accuracy_and_gives_the_estimator_of_a_point(rows):
    X, y, s = rows
    seen = []
    found = frontier(
        X,
        y,
        sensitive_features=s,
        estimator=AgnosticFairClassifier(method("agnosticfair", **SMALL, nominal=1.0)),
        taus=TAUS,
        folds=2,
        on_progress=lambda done, total: seen.append((done, total)),
    )
    assert [p.tau for p in found.points] == [*TAUS]
    assert seen[-1] == (6, 6)
    assert found.references["fl"].worst >= found.points[0].worst
    frame = found.to_frame()
    cost = found.references["fl"].accuracy - found.points[1].accuracy
    assert frame["cost against fl"][1] == cost
    assert {"positive", "cost against fairfl", "knee"} <= {*frame}
    assert found.plot().axes
    assert found.points[0].worst < found.points[-1].worst
    one = found.pick(0.06)
    assert one.tau == 0.06
    direct = AgnosticFairClassifier(method("agnosticfair", **SMALL, nominal=1.0), tau=0.06).fit(
        X, y, sensitive_features=s
    )
    np.testing.assert_allclose(one.coef_, direct.coef_, atol=0.1)
    assert found.pick().tau == found.points[found.knee].tau
    assert one.certificate_.n == len(X)
    assert "knee" in drawn.frontier_grid(found).lines[found.knee]
    assert png(drawn.frontier_figure(found)).startswith(b"\x89PNG")
    with pytest.raises(SettingsError, match=r"tau 0\.5.*0\.03,.*0\.06"):
        found.pick(0.5)


@pytest.mark.slow
def test_weights_count_in_the_frontier_as_rows_do(rows):
    X, y, s = rows
    kept = np.arange(len(X)) % 5 > 0
    how = {
        "estimator": AgnosticFairClassifier(method("agnosticfair", **SMALL)),
        "taus": TAUS[:2],
        "folds": 2,
    }
    few = frontier(X[kept], y[kept], sensitive_features=s[kept], **how)
    some = frontier(X, y, sensitive_features=s, sample_weight=kept.astype(float), **how)
    for one, two in zip(few.points, some.points, strict=True):
        assert one.accuracy == pytest.approx(two.accuracy, abs=1e-12)
        assert one.worst == pytest.approx(two.worst, abs=1e-3)
    heavy = frontier(X, y, sensitive_features=s, sample_weight=1.0 + 9.0 * (s == s[0]), **how)
    assert heavy.points[0].accuracy != few.points[0].accuracy
    assert heavy.pick(0.03).certificate_.n == len(X)


def test_the_points_of_a_network_have_fewer_rounds():
    deep = method("agnosticfair", network="mlp")
    assert _coarse(deep).max_rounds == deep.max_rounds // 4
    assert {one.max_rounds for one in _references(deep)} == {deep.max_rounds // 4}
    assert _coarse(method("agnosticfair")).max_rounds == method("agnosticfair").max_rounds


def test_the_knee_is_the_bend():
    exact = np.zeros((3, 2))
    assert knee(np.array([0.1, 0.2, 0.9]), np.array([0.6, 0.8, 0.81]), exact) == 1
    assert knee(np.array([0.1, 0.1]), np.array([0.6, 0.6]), exact[:2]) == 0  # nothing to trade


def test_of_points_that_chance_alone_tells_apart_the_knee_is_the_strictest():
    """Adult's path on seeds 0 and 2, where 0.12 and 0.27 take turns at the height of the other."""
    taus = np.array([0.02, 0.12, 0.18, 0.27, 1.0])
    accuracy = np.array([0.7539, 0.8094, 0.8224, 0.8346, 0.8502])
    for worst in (
        (0.0092, 0.1170, 0.1795, 0.2213, 0.4361),
        (0.0092, 0.1070, 0.1795, 0.2313, 0.4361),
    ):
        spread = np.column_stack([np.full(5, 0.001), np.full(5, 0.025)])
        assert taus[knee(np.array(worst), accuracy, spread)] == 0.12
    assert taus[knee(np.array(worst), accuracy, 20 * spread)] == 0.02, "nothing is known: be fair"
    turns = ((0.0092, 0.1170, 0.1795, 0.2213, 0.4361), (0.0092, 0.1070, 0.1795, 0.2313, 0.4361))
    found = {taus[knee(np.array(worst), accuracy, 0 * spread)] for worst in turns}
    assert found == {0.12, 0.27}, "without standard errors it jumps"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"taus": (0.1,)}, "make no path"),
        ({"taus": (0.1, -1.0)}, "make no path"),
        ({"folds": 1}, "folds is 1"),
    ],
)
def test_a_path_that_makes_no_sense_is_refused(changed, said):
    with pytest.raises(SettingsError, match=said):
        trace({"a": shifted()}, method("agnosticfair"), sensitive_features="sex", **changed)
    with pytest.raises(SettingsError, match=r"'fl'.*choose"):
        trace({"a": shifted()}, method("fl"), sensitive_features="sex")


def test_a_client_of_one_row_takes_part():
    table = shifted()
    clients = {"a": table.take([0]), "b": table.take(range(1, len(table)))}
    frontier = trace(
        clients, method("agnosticfair"), sensitive_features="sex", taus=(0.05, 0.2), folds=2
    )
    assert [point.tau for point in frontier.points] == [0.05, 0.2]


def test_the_command_writes_the_frontier_and_the_model(tmp_path, capsys):
    table, lines = shifted(300), ["age,hours,job,sex,label"]
    columns = [
        *table.numeric.values(),
        *(c.values() for c in (table.categorical["job"], table.sensitive_features["sex"])),
    ]
    lines += [",".join(map(str, row)) for row in zip(*columns, table.target.values(), strict=True)]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(lines) + "\n")
    send = {"target": "label", "sensitive_features": ["sex"], "folds": 2, "out": tmp_path / "out"}
    command.tune([file], **send, taus="0.05,0.2", tau=0.2, bound=20.0, jobs=1)
    said = capsys.readouterr().out
    assert "tau 0.2" in said
    assert "cost to fl" in said
    assert (tmp_path / "out" / "model-card.html").exists()
    assert read_run(tmp_path / "out").kind == "fit", "so that 'report' shows it"
    content = json.loads((tmp_path / "out" / "frontier.json").read_text())
    assert [p["tau"] for p in content["points"]] == [0.05, 0.2]
    assert [*content["references"]] == ["fairfl", "fl"]
    assert load_model(tmp_path / "out" / "model.safetensors").method["fairness"]["tau"] == 0.2
    with pytest.raises(SettingsError, match="are not numbers"):
        command.tune([file], **send, taus="a,b")
    with pytest.raises(SettingsError, match=r"tau 0\.3.*path"):
        command.tune([file], **send, taus="0.05,0.2", tau=0.3)
