"""How many threads and clients there are changes nothing."""

import numpy as np
import pytest
from helpers import dealt, small_table
from threadpoolctl import threadpool_limits

from agnosticfair.errors import FederationError
from agnosticfair.federation import fit, in_process
from agnosticfair.methods import method

ROWS = small_table(300, 3)


@pytest.mark.slow
def test_the_number_of_threads_does_not_change_the_model(adult):
    tables = dealt(adult, 3)
    with threadpool_limits(2):
        two = fit(tables, method("agnosticfair", max_rounds=2), sensitive_features="sex")
    with threadpool_limits(1):
        one = fit(tables, method("agnosticfair", max_rounds=2), sensitive_features="sex")
    assert one.model.digest == two.model.digest


@pytest.mark.slow
def test_a_thousand_clients_give_the_model_of_two(adult):
    few, many = (
        fit(dealt(adult, p), method("agnosticfair", max_rounds=2), sensitive_features="sex")
        for p in (2, 1000)
    )
    assert many.model.clients == 1000
    assert many.model.digest == few.model.digest


def test_a_client_that_raises_is_named():
    tables = {"a": ROWS, "b": ROWS.take(np.arange(0))}
    with pytest.raises(FederationError, match=r"'b'.*rows"):
        fit(in_process(tables), "fl", positive="yes")
