"""A limit on decisions: rounds of trials."""

import numpy as np
from helpers import dealt, small_table

from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair.server import deciding


def test_a_fit_that_needs_trials_is_the_same_for_any_split_and_keeps_its_limit(monkeypatch):
    rows, asked = small_table(500, 3), []
    told = deciding.tried
    monkeypatch.setattr(deciding, "tried", lambda *given: asked.append(1) or told(*given))
    recipe = method("agnosticfair", kernels=12, tau=0.02, max_rounds=60)
    one, many = (fit(dealt(rows, k), recipe, positive="yes") for k in (1, 4))
    assert asked
    np.testing.assert_array_equal(one.model.w, many.model.w)
    assert one.converged
    assert one.worst_difference <= 0.02 + 0.002
