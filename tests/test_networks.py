"""Networks by name: inputs, weights drawn by the seed, users' own."""

import warnings
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs agnosticfair[torch]")
import torch

from agnosticfair import networks
from agnosticfair.errors import SettingsError


def test_inputs_keep_their_digits():
    net = networks.flat("linear", (), 1, np.array([1.7e9, 10.0, 1.0, 0.0]))
    z = net.inputs(np.array([[1.7e9 + 10.0], [1.7e9 - 20.0]]))
    np.testing.assert_allclose(z[:, 0].numpy(), [1.0, -2.0], atol=1e-5)


def test_layers_of_a_size_yet_unknown_are_drawn_by_the_seed():
    lazy = networks.register("lazy", lambda d: torch.nn.LazyLinear(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lazy modules are new, says PyTorch
        one, two, other = (networks.initial(lazy, (), 3, seed)[0] for seed in (0, 0, 1))
    assert one.tobytes() == two.tobytes() != other.tobytes()


def test_an_estimator_keeps_its_own_network():
    """Whatever others of that name there are, and wherever the estimator was sent."""
    pytest.importorskip("sklearn")
    from agnosticfair import AgnosticFairClassifier, method

    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))

    def fitted(model):
        agnostic_fair_classifier = AgnosticFairClassifier(method("fl", max_rounds=3), network=model)
        return agnostic_fair_classifier.fit(X, X[:, 0] > rng.normal(size=100))

    def wide(width, curve):
        return lambda d: torch.nn.Sequential(
            torch.nn.Linear(d, width), curve(), torch.nn.Linear(width, 1)
        )

    made = [wide(4, torch.nn.Tanh), wide(4, torch.nn.ReLU), wide(6, torch.nn.Tanh)]
    made.append(partial(networks.mlp, hidden=(4,)))
    fits = [fitted(model) for model in made]
    before = [fair.fit_.model.network["name"] for fair in fits]
    said = [fair.decision_function(X) for fair in fits]
    assert len({*before}) == 4
    assert fitted(made[1]).fit_.model.network["name"] == before[1]
    for name in before:  # as in another process
        del networks.FACTORIES[name], networks._REGISTERED[name]
    for fair, values in reversed([*zip(fits, said, strict=True)]):
        np.testing.assert_array_equal(fair.decision_function(X), values)
    with pytest.raises(SettingsError, match="made already"):
        fitted(torch.nn.Linear(3, 1))
