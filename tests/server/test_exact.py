"""The robust method on the real data: rounds, spread over clients, and what it is for."""

import numpy as np
import pytest
from helpers import adult_split

from agnosticfair.data.table import Table
from agnosticfair.federation import fit
from agnosticfair.mathematics.scoring import accuracy, risk_difference
from agnosticfair.methods import method


def fitted(adult: Table, clients: int):
    split = adult_split(adult, clients)
    chosen_method = method("agnosticfair", tau=0.11, centres="rows")
    return split, fit(split.train, chosen_method, positive=">50K", strict=True)


@pytest.mark.slow
def test_few_rounds_and_one_model_for_any_number_of_clients(adult):
    models = []
    for clients in (2, 10, 100):
        _, result = fitted(adult, clients)
        assert result.rounds <= 25
        models.append(result.model.w)
    np.testing.assert_allclose(models[1], models[0], atol=1e-6)
    np.testing.assert_allclose(models[2], models[0], atol=1e-6)


@pytest.mark.slow
def test_a_loss_with_an_adversary_and_a_limit_on_decisions_go_together(adult):
    fitted = fit(adult_split(adult).train, "agnosticfair-b", positive=">50K", strict=True)
    assert fitted.trained_difference <= 0.02 + 0.002
    assert fitted.history[-1]["accuracy"] > 0.8


@pytest.mark.slow
def test_robust_is_fairer_where_uniform_fairness_is_not(adult):
    """On the married, uniform fairness leaves a large risk difference; the robust fit less than half."""
    split, robust = fitted(adult, 2)
    uniform = fit(split.train, "fairfl")
    married = split.test.take(split.test.column("marital-status").values() == "Married-civ-spouse")
    s = married.column("sex").codes
    differences = [risk_difference(f.model.predict(married), s) for f in (robust, uniform)]
    assert 2 * differences[0] < differences[1]
    y = split.test.labels(">50K")
    assert accuracy(y, robust.model.predict(split.test)) > 0.76
