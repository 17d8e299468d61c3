"""The rule's rounds and trees by PyTorch: the sums of numpy, and the same model."""

import numpy as np
import pytest

from agnosticfair import constant, iid, method, subgroups
from agnosticfair.federation import fit, in_process
from agnosticfair_research.datasets import load_dataset

pytest.importorskip("torch")


@pytest.mark.parametrize(
    "settings",
    [
        {"learner": "additive", "basis": subgroups(depth=3)},
        {"learner": "trees"},
        {"learner": "additive", "agnostic": True, "tau": 1.0},
        {"learner": "linear", "basis": constant()},
    ],
    ids=["triples", "trees", "agnostic", "overall"],
)
def test_a_device_gives_the_rule_of_numpy(settings):
    table = load_dataset("adult").take(np.arange(2000))
    clients = iid(table, clients=2).train
    settings = {"tau": 0.05, **settings}
    chosen = method("rule", **settings)
    here = fit(clients, chosen)
    there = fit(in_process(clients, device="cpu"), chosen)
    assert np.array_equal(here.model.predict(table), there.model.predict(table))
    assert here.rounds == there.rounds
