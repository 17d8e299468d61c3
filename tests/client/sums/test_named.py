"""Sums over named parts from a stream, and by PyTorch on a device, have the bits of those in memory."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.data.stream import Stream
from agnosticfair.errors import AgnosticFairError
from agnosticfair.federation import fit, in_process
from agnosticfair.mathematics.basis import subpopulations
from agnosticfair.methods import method

ROWS = small_table(700, 5)
RECIPES = {
    "spread": {},
    "each": {"spread": None, "tau": 0.25, "floor": 0.1},
    "three values": {"basis": subpopulations(depth=3, least=0.02), "floor": 0.1},
    "odds": {"notion": "equalized_odds", "products": 0.1},
}


def made(name):
    return method("agnosticfair-named", max_rounds=8, **RECIPES[name])


@pytest.fixture
def streamed(tmp_path, monkeypatch):
    """Clients' rows as Parquet files that are read in batches."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from agnosticfair.data import files, stream
    from agnosticfair.data.files import Roles, read_source

    monkeypatch.setattr(files, "STREAMED", 0)
    monkeypatch.setattr(stream, "BATCH", 97)
    found, read = {}, {}
    for key, table in dealt(ROWS, 2).items():
        columns = {**table.numeric, "job": table.categorical["job"].values().astype(str)}
        columns |= {"sex": table.sensitive_features["sex"].values().astype(str)}
        columns |= {"y": table.target.values().astype(str)}
        path = tmp_path / key / "0.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table({k: pa.array(v) for k, v in columns.items()}), path)
        found[key] = read_source(path.parent, Roles("y", ("sex",)))
        read[key] = table
    assert all(isinstance(source, Stream) for source in found.values())
    return found, read


@pytest.mark.parametrize("name", RECIPES)
def test_a_stream_gives_the_model_of_memory(name, streamed):
    stream, memory = (fit(rows, made(name), positive="yes") for rows in streamed)
    np.testing.assert_array_equal(stream.model.w, memory.model.w)
    assert stream.worst_parts == memory.worst_parts
    assert stream.history == memory.history
    deep = (np.asarray(memory.named.parts)[:, -1, 0] >= 0).any()
    assert deep == (name == "three values")


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_device_gives_the_model_of_memory(name, weighted):
    pytest.importorskip("torch", reason="needs agnosticfair[torch]")
    weights = np.random.default_rng(0).integers(1, 3, len(ROWS)).astype(float)
    tables = dealt(replace(ROWS, weights=weights if weighted else None), 2)
    here = fit(in_process(tables), made(name), positive="yes")
    there = fit(in_process(tables, device="cpu"), made(name), positive="yes")
    np.testing.assert_array_equal(there.model.w, here.model.w)
    assert there.history == here.history


def test_a_device_works_in_chunks(monkeypatch):
    pytest.importorskip("torch", reason="needs agnosticfair[torch]")
    from agnosticfair.client.sums import named_device

    whole = fit(in_process({"one": ROWS}, device="cpu"), made("spread"), positive="yes")
    monkeypatch.setattr(named_device, "CELLS", 3000)
    chunks = fit(in_process({"one": ROWS}, device="cpu"), made("spread"), positive="yes")
    np.testing.assert_array_equal(whole.model.w, chunks.model.w)


@pytest.mark.parametrize("said", ["CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED"])
def test_a_device_without_room_is_said_and_other_errors_are_not_hidden(said, monkeypatch):
    pytest.importorskip("torch", reason="needs agnosticfair[torch]")
    from agnosticfair.client.sums import named_device

    def fail(*asked):
        raise RuntimeError(said)

    monkeypatch.setattr(named_device, "on_grid", fail)
    with pytest.raises(
        AgnosticFairError, match=f"no room for {len(ROWS)} rows and their parts: end"
    ):
        fit(in_process({"one": ROWS}, device="cpu"), made("spread"), positive="yes")
    said = "no kernel image is available"
    with pytest.raises(RuntimeError, match="kernel image"):
        fit(in_process({"one": ROWS}, device="cpu"), made("spread"), positive="yes")
