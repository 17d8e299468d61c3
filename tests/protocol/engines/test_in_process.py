"""Worker processes change how long a fit takes, and nothing else."""

import numpy as np
import pytest
from helpers import dealt, small_table
from threadpoolctl import threadpool_limits

from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.federation import fit, in_process
from agnosticfair.methods import method
from agnosticfair.protocol.engines import Failure
from agnosticfair.protocol.engines.in_process import InProcess

ROWS = small_table(300, 3)


@pytest.mark.parametrize("name", ["agnosticfair", "afl", "agnosticfair-printed"])
def test_workers_do_not_change_the_model(name):
    tables = dealt(ROWS, 5)
    one = fit(tables, name, positive="yes")
    two = fit(in_process(tables, workers=2), name, positive="yes")
    assert two.model.digest == one.model.digest
    assert two.history == one.history


@pytest.mark.slow
def test_the_number_of_threads_does_not_change_the_model(adult):
    tables = dealt(adult, 3)
    with threadpool_limits(2):
        two = fit(tables, method("agnosticfair", max_rounds=2), sensitive_features="sex")
    with threadpool_limits(1):
        one = fit(tables, method("agnosticfair", max_rounds=2), sensitive_features="sex")
    pooled = fit(
        in_process(tables, 2), method("agnosticfair", max_rounds=2), sensitive_features="sex"
    )
    assert one.model.digest == two.model.digest == pooled.model.digest


@pytest.mark.slow
def test_a_thousand_clients_give_the_model_of_two(adult):
    few, many = (
        fit(dealt(adult, p), method("agnosticfair", max_rounds=2), sensitive_features="sex")
        for p in (2, 1000)
    )
    assert many.model.clients == 1000
    assert many.model.digest == few.model.digest


def test_a_client_that_raises_in_a_worker_is_named():
    tables = {"a": ROWS, "b": ROWS.take(np.arange(0))}
    with pytest.raises(FederationError, match=r"'b'.*rows"):
        fit(in_process(tables, workers=2), "fl", positive="yes")


def _exits(step, payload):
    raise SystemExit(3)


def _fine(step, payload):
    return step


def test_a_worker_that_dies_is_a_failure_of_its_clients():
    engine = InProcess({"a": _fine, "b": _exits}, workers=2)
    for _ in range(2):
        answers = engine.exchange("sums", None, engine.clients())
        assert answers["a"] == "sums"
        assert answers["b"] == Failure("its worker process died")


def test_no_workers_is_refused():
    with pytest.raises(SettingsError, match="0 workers"):
        in_process({"a": ROWS}, workers=0)
