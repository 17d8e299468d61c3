"""Sums in float32, streamed or by PyTorch: the same numbers as in float64, for whatever is asked."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import small_table

from agnosticfair import accelerated, federation, server
from agnosticfair.accelerated import CHUNK, Question, Rows32, Shelf, exponents, moved
from agnosticfair.basis import by_client, constant, gaussian, gaussian_kernel
from agnosticfair.client import Client, answer
from agnosticfair.data import files, stream
from agnosticfair.data.files import Roles, read_source
from agnosticfair.errors import AgnosticFairError, DataError, SettingsError
from agnosticfair.fairness import Surrogate
from agnosticfair.messages import Broadcast
from agnosticfair.methods import Fairness, Method, method

KINDS = [Surrogate("sigmoid", 0.7), Surrogate("covariance"), Surrogate("loss")]


def rows_and_question(n=2500, d=6, M=9, M_L=5, surrogate=KINDS[0], weighed=False, own=False):
    """Rows in float64 and a question, of which ``narrowed`` makes float32."""
    rng = np.random.default_rng(0)
    X = np.round(rng.uniform(size=(n, d)) * 2**20) / 2**20
    Z = np.hstack([X, np.ones((n, 1)), -(X * X).sum(axis=1)[:, None] / 2])
    q = Question(
        exponents(gaussian(M, 0.8), rng.uniform(size=(M, d)), d),
        exponents(gaussian(M_L, 1.3), rng.uniform(size=(M_L, d)), d) if own else None,
        rng.normal(size=d + 1),
        rng.uniform(size=M_L),
        rng.normal(size=(2, M + 1)),
        0.3,
        surrogate,
    )
    weights = rng.uniform(size=n) if weighed else None
    y = (rng.uniform(size=n) < 0.3).astype(float)
    return Rows32(Z, y, np.array([0, n // 3, n]), weights), q


def narrowed(value):
    found = moved(value, lambda v: v.astype(np.float32))
    return replace(found, starts=value.starts) if isinstance(value, Rows32) else found


def check_close(found, true, tolerance=1e-5):
    for a, b in zip(found, true, strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())


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
    rows, q = rows_and_question(surrogate=surrogate, own=own, weighed=weighed)
    check_close(accelerated.sums(narrowed(rows), narrowed(q)), accelerated.sums(rows, q))


def test_chunks_add_up(monkeypatch):
    rows, q = rows_and_question()
    true = accelerated.sums(rows, q)
    monkeypatch.setattr(accelerated, "CHUNK", 37)
    check_close(accelerated.sums(rows, q), true, 1e-13)


def test_a_shelf_gives_back_what_it_was_given():
    shelf, (rows, _) = Shelf(), rows_and_question(n=300, weighed=True)
    kept = [shelf.put(narrowed(rows)), shelf.put(replace(narrowed(rows), weights=None))]
    for get, weighed in zip(kept, (True, False), strict=True):
        found = get()
        assert np.array_equal(found.Z, narrowed(rows).Z)
        assert np.array_equal(found.y, rows.y)
        assert (found.weights is not None) == weighed


def test_a_full_disk_is_said_in_a_sentence(monkeypatch):
    monkeypatch.setattr(accelerated.os, "pwrite", lambda *_: 0)
    with pytest.raises(DataError, match="TMPDIR"):
        Shelf().put(narrowed(rows_and_question(n=10)[0]))


def test_a_scratch_folder_that_is_not_there(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/nowhere/at/all")
    with pytest.raises(DataError, match="name another folder by TMPDIR"):
        Shelf()


def written(folder, table, name="north"):
    """A table of the helpers as a folder of two Parquet files."""
    columns = {**table.numeric, "job": table.categorical["job"].values().tolist()}
    columns |= {
        "sex": table.sensitive["sex"].values().tolist(),
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
    Method("m", fairness=Fairness(0.1, basis=by_client(), notion="equalized_odds")),
]


def question_of(clients, recipe):
    """A broadcast of the first round, at a random w."""
    census = [answer(c, "census", None) for c in clients]
    plan = server.plan(recipe, sum(census[1:], census[0]), tuple(c.key for c in clients))
    ask = server.centres_question(plan, 0)
    if ask is not None:
        offers = [answer(c, "centres", ask) for c in clients]
        plan = server.with_centres(plan, sum(offers[1:], offers[0]))
    _, broadcast = server.question(server.init(plan))
    rng = np.random.default_rng(0)
    arrays = {k: rng.uniform(size=v.shape) for k, v in broadcast.arrays.items()}
    return Broadcast(1, broadcast.task, broadcast.settings, arrays)


@pytest.mark.parametrize("recipe", ASKED, ids=["gaussian", "by_client", "odds"])
def test_a_stream_answers_as_its_rows_in_memory_do(tmp_path, streams, recipe):
    table = small_table(2000)
    source = read_source(written(tmp_path, table), Roles("y", ("sex",)))
    other = Client("south", small_table(100, seed=1))
    exact, streamed = Client("north", table), Client("north", source, threads=2)
    ask = question_of([streamed, other], recipe)
    assert ask.task.id == question_of([exact, other], recipe).task.id
    found, true = (answer(c, "sums", ask).sums for c in (streamed, exact))
    for name, value in true.items():
        # kernels in memory are rounded to multiples of 2^-14
        np.testing.assert_allclose(found[name], value, rtol=0, atol=3e-5 * np.abs(value).max())
    one = answer(Client("north", source), "sums", ask).sums
    assert all(np.array_equal(one[name], found[name]) for name in one)  # whatever the threads


def test_a_fit_over_streams_is_that_over_tables(tmp_path, streams):
    tables = {k: small_table(1000, seed=s) for k, s in (("north", 0), ("south", 1))}
    sources = {
        k: read_source(written(tmp_path, t, k), Roles("y", ("sex",))) for k, t in tables.items()
    }
    recipe = method("agnosticfair", tau=0.1, basis=gaussian(20, 0.8))
    exact, streamed = (federation.fit(clients, recipe) for clients in (tables, sources))
    assert streamed.outcome == exact.outcome == "converged"
    one, two = (fit.model.probabilities(tables["north"]) for fit in (streamed, exact))
    np.testing.assert_allclose(one, two, atol=1e-3)


def test_local_steps_need_the_rows_in_memory(tmp_path, streams):
    source = read_source(written(tmp_path, small_table(1000)), Roles("y", ("sex",)))
    with pytest.raises(AgnosticFairError, match="local steps need them in memory"):
        federation.fit({"north": source}, "fedavg")
    pytest.importorskip("torch", reason="needs agnosticfair[torch]")
    for name in ("fl", "fedavg"):
        with pytest.raises(AgnosticFairError, match="local steps need them in memory"):
            federation.fit({"north": source}, method(name, network="mlp"))


def test_columns_that_are_not_scaled_are_refused(tmp_path, streams):
    source = read_source(written(tmp_path, small_table(1000)), Roles("y", ("sex",)))
    with pytest.raises(AgnosticFairError, match="let columns be scaled"):
        federation.fit({"north": source}, "fl", scale=False)


def test_kernels_of_your_own_have_no_device():
    with pytest.raises(SettingsError, match="leave out the device"):
        exponents(replace(gaussian(3), kind="given"), None, 4)


def test_chunks_are_small_enough_for_float32():
    assert CHUNK <= 4096
