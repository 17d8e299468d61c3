"""The rule's rounds and trees by PyTorch: the sums of numpy, and the same model."""

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair import constant, method, subgroups
from agnosticfair.federation import fit, in_process

pytest.importorskip("torch")


@pytest.mark.usefixtures("few_trees")
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
    table = small_table(400)
    clients = dealt(table, 2)
    settings = {"tau": 0.05, "min_people": 5, **settings}
    chosen = method("rule", **settings)
    here = fit(clients, chosen, positive="yes")
    there = fit(in_process(clients, device="cpu"), chosen, positive="yes")
    depth = 0 if chosen.fairness.basis.kind == "constant" else chosen.fairness.basis.depth
    assert depth == 0 or depth == max(len(row) for row in here.subgroups.agreed[1])
    assert np.array_equal(here.model.predict(table), there.model.predict(table))
    assert here.rounds == there.rounds
