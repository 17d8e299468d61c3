"""A stream is answered batch by batch: the same bits as from its rows in memory."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import request_of, small_table

from agnosticfair import federation
from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data import files, stream
from agnosticfair.data.files import Roles, read_source
from agnosticfair.errors import AgnosticFairError
from agnosticfair.mathematics.basis import by_client, constant, gaussian
from agnosticfair.methods import Fairness, Method, method


def written(folder, table, name="north"):
    """A table of the helpers as a folder of two Parquet files."""
    columns = {**table.numeric, "job": table.categorical["job"].values().tolist()}
    columns |= {
        "sex": table.sensitive_features["sex"].values().tolist(),
        "y": table.target.values().tolist(),
    }
    rows = pa.table(columns)
    (folder / name).mkdir()
    for k in range(2):
        half = rows.slice(k * (len(rows) // 2), len(rows) // 2)
        pq.write_table(half, folder / name / f"{k}.parquet", row_group_size=700)
    return folder / name


@pytest.fixture
def streams(monkeypatch):
    monkeypatch.setattr(files, "STREAMED", 0)
    monkeypatch.setattr(stream, "BATCH", 250)


ASKED = [
    Method("m", basis=gaussian(5, 0.7), bound=5.0, fairness=Fairness(0.1, basis=gaussian(8, 0.7))),
    Method("m", basis=by_client(), fairness=Fairness(0.1, basis=constant())),
    Method("m", fairness=Fairness(0.1, basis=by_client(), metric="equalized_odds")),
]


@pytest.mark.parametrize("method", ASKED, ids=["gaussian", "by_client", "odds"])
def test_a_stream_answers_as_its_rows_in_memory_do(tmp_path, streams, method):
    table = small_table(2000)
    source = read_source(written(tmp_path, table), Roles("y", ("sex",)))
    other = Client("south", small_table(100, seed=1))
    exact, streamed = Client("north", table), Client("north", source, threads=2)
    send = request_of([streamed, other], method)
    assert send.task.id == request_of([exact, other], method).task.id
    found, true = (answer(c, "sums", send).sums for c in (streamed, exact))
    for name, value in true.items():
        assert np.array_equal(found[name], value), name
    one = answer(Client("north", source), "sums", send).sums
    assert all(np.array_equal(one[name], found[name]) for name in one)  # whatever the threads


def test_a_fit_over_streams_is_that_over_tables(tmp_path, streams):
    tables = {k: small_table(1000, seed=s) for k, s in (("north", 0), ("south", 1))}
    sources = {
        k: read_source(written(tmp_path, t, k), Roles("y", ("sex",))) for k, t in tables.items()
    }
    chosen_method = method("agnosticfair", tau=0.1, basis=gaussian(20, 0.8, "rows"))
    exact, streamed = (federation.fit(clients, chosen_method) for clients in (tables, sources))
    assert streamed.outcome == exact.outcome == "converged"
    assert streamed.model.w.tobytes() == exact.model.w.tobytes()


def test_local_steps_need_the_rows_in_memory(tmp_path, streams):
    source = read_source(written(tmp_path, small_table(1000)), Roles("y", ("sex",)))
    with pytest.raises(AgnosticFairError, match="steps draw theirs"):
        federation.fit({"north": source}, "fedavg")
    pytest.importorskip("torch", reason="needs agnosticfair[torch]")
    with pytest.raises(AgnosticFairError, match="steps draw theirs"):
        federation.fit({"north": source}, method("fl", network="mlp"))
