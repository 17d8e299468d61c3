"""A recorded step does what a step does; here nothing can be recorded, so what would be launched is called."""

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agnosticfair.client import replay  # noqa: E402
from agnosticfair.federation import fit  # noqa: E402
from agnosticfair.methods import Network, method  # noqa: E402
from agnosticfair.networks import flat, initial  # noqa: E402


def weights(adult, batch):
    rows = adult.take(np.random.default_rng(0).choice(len(adult), 600, replace=False))
    made = method("fairfl", network=Network("mlp", (4,), 6, batch), max_rounds=3)
    return fit({"here": rows}, made, sensitive_features="sex", positive=">50K").model.w


@pytest.mark.parametrize("batch", [64, None])
@pytest.mark.parametrize("room", [True, False])
def test_a_replayed_step_is_the_step(adult, batch, room, monkeypatch):
    plain, launched = weights(adult, batch), []

    def recorded(once):
        return lambda: (launched.append(1), once())

    monkeypatch.setattr(replay, "suits", lambda net: True)
    monkeypatch.setattr(replay, "recorded", recorded if room else lambda once: None)
    assert (weights(adult, batch) == plain).all()
    assert len(launched) == (3 * (6 - 1) if room else 0)


def test_a_recording_that_fails_leaves_the_steps(monkeypatch):
    ended = []

    def full(**given):
        raise RuntimeError("CUDA error: out of memory")

    graph = SimpleNamespace(capture_begin=full, capture_end=lambda: ended.append(1))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    assert replay.recorded(lambda: None) is None
    assert not ended


def test_only_plain_networks_on_a_gpu_are_recorded():
    net = flat("mlp", (3,), 2, initial("mlp", (3,), 2, 0)[0])
    on_gpu = SimpleNamespace(values=SimpleNamespace(is_cuda=True), module=net.module)
    drawing = torch.nn.Sequential(net.module, torch.nn.Dropout())
    assert not replay.suits(net)
    assert replay.suits(on_gpu)
    assert not replay.suits(SimpleNamespace(values=on_gpu.values, module=drawing))
