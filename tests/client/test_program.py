"""The program's sums over clients: the bits of the pooled rows, from memory, streams and masks."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.auditing.audit import audit_clients
from agnosticfair.client.client import Client
from agnosticfair.client.program import subgroups_of, weight_functions
from agnosticfair.client.sums import Distinct
from agnosticfair.data.stream import Stream
from agnosticfair.federation import fit
from agnosticfair.learners.decisions import scores
from agnosticfair.mathematics.basis import by_client, gaussian, subgroups
from agnosticfair.mathematics.scores import Dense
from agnosticfair.mathematics.subgroups import memberships
from agnosticfair.methods import method
from agnosticfair.protocol.requests import UNCOUNTED

KINDS = {
    "pairs": {},
    "three values": {"basis": subgroups(depth=3)},
    "odds": {"metric": "equalized_odds"},
    "mixtures": {"each": False, "bound": 3.0, "floor": 0.05},
    "kernels": {"basis": gaussian(8, 0.5)},
    "mixtures of kernels": {"basis": gaussian(8, 0.5), "each": False, "bound": 3.0, "floor": 0.05},
    "trusted mixtures": {"basis": gaussian(5), "each": False, "bound": 3.0, "trust": 0.5},
    "worst subgroup": {"agnostic": True},
    "worst kernel": {"basis": gaussian(8, 0.5), "each": False, "agnostic": True, "floor": 0.05},
    "rate": {"positive_rate": (0.2, 0.25)},
}


def made(name="pairs", **changes):
    rule = {"learner": "linear", "min_people": 8}
    return method("rule", **{"tau": 0.03, **rule, **KINDS[name], **changes})


@pytest.fixture(scope="module")
def pooled():
    found = {}

    def of(name, groups=2):
        if (name, groups) not in found:
            rows = small_table(600, 3, groups)
            found[name, groups] = fit({"all": rows}, made(name), positive="yes")
        return found[name, groups]

    return of


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        *((name, 2) for name in KINDS if name != "mixtures"),
        pytest.param("mixtures", 2, marks=pytest.mark.slow),
        ("pairs", 3),
        ("odds", 3),
    ],
)
def test_any_split_gives_the_rule_of_pooled_rows(pooled, name, groups):
    rows, one = small_table(600, 3, groups), pooled(name, groups)
    split = fit(dealt(rows, 3), made(name), positive="yes")
    assert [entry["objective"] for entry in split.history if "objective" in entry] == [
        entry["objective"] for entry in one.history if "objective" in entry
    ]
    np.testing.assert_array_equal(split.model.rule.coefficients, one.model.rule.coefficients)
    assert split.model.rule.coefficients.any()
    assert split.outcome == "converged"
    last = split.history[-1]
    assert last["smoothed_excess"] <= 2e-3
    assert last["gap"] >= 0
    if name == "rate":
        assert 0.19 <= last["positive"] <= 0.26


@pytest.mark.parametrize("name", ["pairs", "mixtures of kernels"])
def test_masked_sums_give_the_same_rule(pooled, name):
    masked = fit(dealt(small_table(600, 3), 3), made(name), positive="yes", secure=True)
    assert masked.model.digest == pooled(name).model.digest


@pytest.mark.parametrize("each", [True, False])
def test_every_client_keeps_the_limit(each):
    rows = dealt(small_table(900, 3), 3)
    own = made(basis=by_client(), each=each, learner="additive", tau=0.01)
    one = fit(rows, own, positive="yes")
    assert one.outcome == "converged"
    assert one.history[-1]["smoothed_excess"] <= 1e-3
    assert one.model.rule.kernels.clients == tuple(sorted(rows))
    assert fit(rows, own, positive="yes", secure=True).model.digest == one.model.digest
    audit = audit_clients(one.model, rows, held_out=False)
    right = [
        (scores(one.model.rule, one.model.estimates, one.model.encoding, t, client=key) > 0)
        == t.labels("yes")
        for key, t in rows.items()
    ]
    assert audit.accuracy == pytest.approx(np.concatenate(right).mean())


def test_a_stream_gives_the_rule_of_memory(pooled, tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from agnosticfair.data import files, stream
    from agnosticfair.data.files import Roles, read_source

    monkeypatch.setattr(files, "STREAMED", 0)
    monkeypatch.setattr(stream, "BATCH", 97)
    table = small_table(600, 3)
    columns = {**table.numeric, "job": table.categorical["job"].values().astype(str)}
    columns |= {"sex": table.sensitive_features["sex"].values().astype(str)}
    columns |= {"y": table.target.values().astype(str)}
    pq.write_table(pa.table({k: pa.array(v) for k, v in columns.items()}), tmp_path / "0.parquet")
    rows = read_source(tmp_path, Roles("y", ("sex",)))
    assert isinstance(rows, Stream)
    streamed = fit({"all": rows}, made("three values"), positive="yes")
    memory = pooled("three values")
    np.testing.assert_array_equal(streamed.model.rule.coefficients, memory.model.rule.coefficients)


def test_subgroups_are_weight_functions_that_are_never_written_out(pooled):
    rng = np.random.default_rng(0)
    named, rows = pooled("three values").subgroups, small_table(600, 3)
    client = Client("all", rows)
    task = replace(UNCOUNTED, n=600, subgroups=named)
    b = subgroups_of(client, task, Distinct(None, None))
    assert len(b.at.deep)
    dense = Dense(np.column_stack([memberships(b.codes.T, b.subgroups), np.ones(600)]))
    a, V = rng.integers(-9, 9, b.size) / 8, rng.integers(0, 9, (2, 600)) / 8
    which, some = np.array([0, b.size - 1, b.size - 2]), np.array([5, 17, 400])
    np.testing.assert_array_equal(b.weigh(a), dense.weigh(a))
    np.testing.assert_array_equal(b.add(V), dense.add(V))
    np.testing.assert_array_equal(b.columns(which, some), dense.columns(which, some))


def test_clients_are_weight_functions_too():
    rows = small_table(50)
    task = replace(
        UNCOUNTED,
        n=50,
        positive="yes",
        clients=("a", "b"),
        fair_basis=by_client(),
        sensitive_features=(("sex", ("g0", "g1")),),
    )
    b = weight_functions(Client("b", rows), task)
    np.testing.assert_array_equal(b.b, np.tile([0.0, 1.0, 1.0], (50, 1)))
