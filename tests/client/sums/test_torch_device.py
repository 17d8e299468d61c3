"""The sums by PyTorch, here on the CPU: the same functions that run on a GPU."""

import numpy as np
import pytest
from helpers import KINDS, check_close, narrowed, request_of, rows_and_request, small_table

from agnosticfair import federation
from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.client.sums import float32 as accelerated
from agnosticfair.client.sums.float32 import Rows32
from agnosticfair.errors import SettingsError
from agnosticfair.methods import method

torch = pytest.importorskip("torch")
device = pytest.importorskip("agnosticfair.client.sums.torch_device")


def there(rows):
    """Rows of numpy as tensors."""
    rows = narrowed(rows)
    weights = None if rows.weights is None else torch.from_numpy(rows.weights)
    return Rows32(torch.from_numpy(rows.Z), torch.from_numpy(rows.y), rows.starts, weights)


@pytest.mark.parametrize("surrogate", KINDS, ids=lambda s: s.kind)
@pytest.mark.parametrize("own", [False, True])
def test_torch_is_near_float64(surrogate, own):
    rows, q = rows_and_request(n=5000, surrogate=surrogate, own=own, weighed=own)
    check_close(device.add_up(there(rows), narrowed(q)), accelerated.add_up(rows, q))


def test_a_smaller_chunk_is_tried_then_a_sentence_said(monkeypatch):
    rows, q = rows_and_request(n=5000)
    tried, plain = [], device.plain

    def small(rows, q, maximum):
        tried.append(maximum)
        if maximum > limit:
            raise torch.OutOfMemoryError
        return plain(rows, q, maximum)

    monkeypatch.setattr(device, "plain", small)
    limit = 1 << 14
    check_close(device.add_up(there(rows), narrowed(q)), accelerated.add_up(rows, q))
    assert tried == [1 << k for k in range(18, 13, -1)]
    limit = 0
    with pytest.raises(SettingsError, match="no room for the kernels of 1024 rows"):
        device.add_up(there(rows), narrowed(q))


def test_a_library_that_finds_no_room_is_said_and_other_errors_are_not_hidden(monkeypatch):
    rows, q = rows_and_request(n=50)

    def fail(*one_request):
        raise RuntimeError(said)

    monkeypatch.setattr(device, "plain", fail)
    said = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"
    with pytest.raises(SettingsError, match="no room for the kernels"):
        device.add_up(there(rows), narrowed(q))
    said = "mat1 and mat2 shapes cannot be multiplied"
    with pytest.raises(RuntimeError, match="shapes"):
        device.add_up(there(rows), narrowed(q))


def test_rows_that_do_not_fit_are_said_in_a_sentence(monkeypatch):
    def full(*shape, **options):
        raise torch.OutOfMemoryError

    rows = narrowed(rows_and_request(n=50)[0])
    monkeypatch.setattr(device, "device_of", lambda name: name)
    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(SettingsError, match=r"the device has no room for 50 rows of \d+ numbers"):
        device.load([lambda: rows], "cuda")


@pytest.mark.parametrize("name", ["cuda:99", "nonsense"])
def test_a_device_that_is_not_there_is_named(name):
    with pytest.raises(SettingsError, match=f"device '{name}' is not to be had"):
        device.device_of(name)


def test_a_device_that_is_full_before_its_first_use_is_said_in_one_sentence(monkeypatch):
    def full(*shape, **options):
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported late.")

    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(SettingsError) as said:
        device.device_of("cpu")
    assert str(said.value) == (
        "device 'cpu' is not to be had (it has no room left): name another, such as 'cpu'"
    )


def test_batches_are_sorted_by_stratum():
    rows, q = rows_and_request(n=900, weighed=True)
    subgroups = [
        narrowed(Rows32(rows.Z[k::2], rows.y[k::2], np.array([0, 150, 450]), rows.weights[k::2]))
        for k in (0, 1)
    ]
    batches = [lambda subgroup=subgroup: subgroup for subgroup in subgroups]
    loaded = device.load(batches, "cpu")
    assert loaded.starts.tolist() == [0, 300, 900]
    check_close(device.add_up(loaded, narrowed(q)), accelerated.add_up(rows, q))


def test_a_client_on_a_device_answers_like_one_in_memory():
    table = small_table(800)
    exact, other = Client("a", table), Client("a", table, device="cpu")
    send = request_of([exact], method("agnosticfair"))
    found, true = (answer(c, "sums", send).sums for c in (other, exact))
    for name, value in true.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=3e-5 * np.abs(value).max())


def test_a_fit_on_a_device():
    tables = {"a": small_table(600), "b": small_table(500, seed=1)}
    exact = federation.fit(tables, "fairfl")
    fitted = federation.fit(federation.in_process(tables, device="cpu"), "fairfl")
    for table in tables.values():  # the intercept and a column's indicators may trade places in w
        np.testing.assert_allclose(
            fitted.model.decision(table), exact.model.decision(table), atol=1e-3
        )
