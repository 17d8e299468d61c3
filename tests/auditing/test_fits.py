"""The set over which a fit is audited is the one that it was held to."""

import numpy as np
import pytest

from agnosticfair.auditing.audit import audit
from agnosticfair.auditing.fits import own_set
from agnosticfair.mathematics.basis import by_client, gaussian
from agnosticfair.methods import Fairness

RNG = np.random.default_rng(0)
X, S = RNG.uniform(size=(60, 2)), np.repeat([0, 1], 30)
D, Y = (X[:, 0] + 0.3 * S > 0.6).astype(int), (X[:, 1] > 0.5).astype(int)


def worst(**asked):
    options = {"bootstrap": 0, "held_out": False, "scale": False, **asked}
    return audit(D, X, Y, sensitive_features=S, **options).worst_difference


def test_equal_weights_said_or_not_are_one_set_and_trust_draws_it_together():
    fairness = Fairness(0.05, basis=gaussian(8, 0.5), bound=3.0)
    plain = own_set(fairness, X, X[:8])
    assert plain["basis"] == fairness.basis
    weighed = own_set(fairness, X, X[:8], weights=np.ones(60))
    assert worst(**weighed) == pytest.approx(worst(**plain), abs=1e-3)
    trusted = own_set(Fairness(0.05, basis=gaussian(8, 0.5), bound=3.0, trust=0.9), X, X[:8])
    assert worst(**trusted) < worst(**plain) - 0.01


def test_over_kernels_by_client_the_notion_is_still_the_fits():
    fairness = Fairness(0.05, basis=by_client(), notion="equal_opportunity", floor=0.1)
    asked = own_set(fairness, X, None)
    assert (asked["notion"], asked["floor"]) == ("equal_opportunity", 0.1)
    assert "basis" not in asked
