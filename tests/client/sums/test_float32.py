"""Sums in float32, streamed or by PyTorch: the same numbers as in float64, for whatever is asked."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import KINDS, check_close, narrowed, request_of, rows_and_request, small_table

from agnosticfair import federation
from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.client.sums import float32 as accelerated
from agnosticfair.client.sums.float32 import CHUNK, Shelf, exponents
from agnosticfair.data import files, stream
from agnosticfair.data.files import Roles, read_source
from agnosticfair.errors import AgnosticFairError, DataError, SettingsError
from agnosticfair.mathematics.basis import by_client, constant, gaussian, gaussian_kernel
from agnosticfair.methods import Fairness, Method, method


def test_exponents_are_those_of_the_kernel():
    rng = np.random.default_rng(0)
    X, b = rng.uniform(size=(20, 3)), rng.uniform(size=(4, 3))
    Z = np.hstack([X, np.ones((20, 1)), -(X * X).sum(axis=1)[:, None] / 2])
    K = gaussian_kernel(X, b, 0.7)
    np.testing.assert_allclose(np.exp(Z @ exponents(gaussian(4, 0.7), b, 3)), K, rtol=1e-12)


@pytest.mark.parametrize("surrogate", KINDS, ids=lambda s: s.kind)
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("weighed", [False, True])
def test_float32_is_near_float64(surrogate, own, weighed):
    rows, q = rows_and_request(surrogate=surrogate, own=own, weighed=weighed)
    check_close(accelerated.add_up(narrowed(rows), narrowed(q)), accelerated.add_up(rows, q))


def test_chunks_add_up(monkeypatch):
    rows, q = rows_and_request()
    true = accelerated.add_up(rows, q)
    monkeypatch.setattr(accelerated, "CHUNK", 37)
    check_close(accelerated.add_up(rows, q), true, 1e-13)


def test_a_shelf_gives_back_what_it_was_given():
    shelf, (rows, _) = Shelf(), rows_and_request(n=300, weighed=True)
    kept = [shelf.put(narrowed(rows)), shelf.put(replace(narrowed(rows), weights=None))]
    for get, weighed in zip(kept, (True, False), strict=True):
        found = get()
        assert np.array_equal(found.Z, narrowed(rows).Z)
        assert np.array_equal(found.y, rows.y)
        assert (found.weights is not None) == weighed


def test_a_full_disk_is_said_in_a_sentence(monkeypatch):
    monkeypatch.setattr(accelerated.os, "pwrite", lambda *_: 0)
    with pytest.raises(DataError, match="TMPDIR"):
        Shelf().put(narrowed(rows_and_request(n=10)[0]))


def test_a_scratch_folder_that_is_not_there(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/nowhere/at/all")
    with pytest.raises(DataError, match="name another folder by TMPDIR"):
        Shelf()


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
        # kernels in memory are rounded to multiples of 2^-14
        np.testing.assert_allclose(found[name], value, rtol=0, atol=3e-5 * np.abs(value).max())
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
    one, two = (fit.model.probabilities(tables["north"]) for fit in (streamed, exact))
    np.testing.assert_allclose(one, two, atol=1e-3)


def test_local_steps_need_the_rows_in_memory(tmp_path, streams):
    source = read_source(written(tmp_path, small_table(1000)), Roles("y", ("sex",)))
    with pytest.raises(
        AgnosticFairError, match="local steps draw theirs at random from all of them"
    ):
        federation.fit({"north": source}, "fedavg")
    pytest.importorskip("torch", reason="needs agnosticfair[torch]")
    for name in ("fl", "fedavg"):
        with pytest.raises(
            AgnosticFairError, match="local steps draw theirs at random from all of them"
        ):
            federation.fit({"north": source}, method(name, network="mlp"))


def test_columns_that_are_not_scaled_are_refused(tmp_path, streams):
    source = read_source(written(tmp_path, small_table(1000)), Roles("y", ("sex",)))
    with pytest.raises(AgnosticFairError, match="let columns be scaled"):
        federation.fit({"north": source}, "fl", scale=False)


def test_kernels_of_your_own_have_no_device():
    with pytest.raises(SettingsError, match="leave out the device"):
        exponents(replace(gaussian(3), kind="function"), None, 4)


def test_chunks_are_small_enough_for_float32():
    assert CHUNK <= 4096
