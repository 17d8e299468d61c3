"""What was promised, what happened and what the monitor said, on shifts whose outcome is known."""

import numpy as np
import pytest

from agnosticfair.auditing.audit import audit
from agnosticfair.data.table import Column, Table
from agnosticfair_research import benchmark
from agnosticfair_research.entrants import Train
from agnosticfair_research.promises import LOOK, difference, halves, happened, promised, totals

FEATURE = "sensitive_features"  # what a monitor without a model calls the groups


class Chooses:
    """Decides by a column of numbers."""

    def decision(self, table):
        return table.numeric["score"] - 0.5


def people(n, apart, seed, town="n"):
    """Rows whose groups' scores are over one half at rates that far apart."""
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 2, n)
    score = (rng.random(n) < 0.3 + apart * s).astype(float)
    columns = {"town": Column(np.zeros(n, np.int32) + (town == "s"), ("n", "s"))}
    return Table({"score": score}, columns, None, {FEATURE: Column(s.astype(np.int32), ("f", "m"))})


@pytest.fixture(scope="module")
def certificate():
    rows = people(4000, 0.05, 0)
    decided = Chooses().decision(rows) > 0
    return audit(decided.astype(int), rows, sensitive_features=FEATURE, subgroups=["town"])


@pytest.fixture
def watched(monkeypatch):
    """A monitor that is handed decisions, for the model is a stand-in."""
    from agnosticfair_research import promises

    class Monitor(promises.Monitor):
        def __init__(self, model, certificate):
            super().__init__(None, certificate)

        def update(self, rows):
            return super().update(rows, decisions=(Chooses().decision(rows) > 0).astype(int))

    monkeypatch.setattr(promises, "Monitor", Monitor)


def test_a_promise_that_is_kept_and_one_that_is_broken(certificate, watched):
    kept = happened(Chooses(), certificate, people(3000, 0.05, 1), FEATURE, 0)
    assert (kept["beyond"], kept["broken"], kept["alarmed"]) == (False, 0, None)
    broken = happened(Chooses(), certificate, people(3000, 0.4, 2), FEATURE, 0)
    assert broken["beyond"]
    assert broken["difference"] == pytest.approx(0.4, abs=0.05)
    assert broken["alarmed"] % LOOK == 0
    assert broken["alarmed"] < 3000


def test_another_mix_is_said(certificate, watched):
    moved = happened(Chooses(), certificate, people(3000, 0.05, 3, town="s"), FEATURE, 0)
    assert moved["changed"] is not None


def test_few_rows_of_a_group_say_nothing():
    decided = np.ones(1000, bool)
    assert difference(decided, np.zeros(1000, int)) is None
    assert difference(decided[:100], np.arange(100) % 2) is None
    assert difference(decided, np.arange(1000) % 2) == (0.0, 0.0)


def test_no_row_is_fitted_on_and_certified(adult):
    rows = adult.take(np.arange(2000))
    clients = {"a": rows.take(np.arange(1000)), "b": rows.take(np.arange(1000, 2000))}
    train = Train(clients, ">50K", "sex", 0)
    fitting, held = halves(train)
    assert sum(map(len, fitting.clients.values())) + len(held) == 2000
    assert fitting.cache is not train.cache


@pytest.mark.slow
def test_every_natural_deployment_of_a_data_set_has_its_row():
    split = benchmark.prepared("oulad", 0, None)
    row = promised(split, 0.1)
    assert len(row["natural"]) == split.suite.kinds.count("natural")
    assert row["overall"] <= row["upper"] <= row["mixtures"]
    cell = {"protocol": "promise", "dataset": "oulad", "rows": [row]}
    (total,) = totals([cell])
    assert total["deployments"] == len(row["natural"])
    assert total["warned"] <= total["hidden"]
