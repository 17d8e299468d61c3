"""Answers that do not come: no policy ever changes the problem without saying so."""

import numpy as np
import pytest
from helpers import ROWS, TABLES, WAYS, Faulty

from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.protocol.engines import Failure
from agnosticfair.protocol.faults import Policy, policy

AT_ONCE = {"retry": Policy(retries=2), "drop": Policy(then="drop")}


@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_answers_when_asked_again_changes_nothing(way):
    engine = Faulty(WAYS[way], {2, 3})
    result = fit(engine, "fairfl", positive="yes", on_failure=AT_ONCE["retry"])
    calm = fit(TABLES, "fairfl", positive="yes")
    np.testing.assert_array_equal(result.model.w, calm.model.w)
    assert [e["event"] for e in result.events] == ["no answer"]
    assert result.events[0]["times"] == 2
    assert (result.events[0]["client"], result.events[0]["round"]) == ("c001", 2)
    assert ("sums", ["c001"]) in engine.log  # only the one that failed was asked again
    assert calm.events == ()


def test_a_malformed_answer_is_not_waited_for_without_an_end():
    """It was asked for again for an hour, without a word."""
    engine = Faulty(WAYS["shape"], range(1, 999))
    with pytest.raises(FederationError, match=r"'sums'.*'c001'"):
        fit(engine, "fairfl", positive="yes", on_failure=Policy(retries=1000))
    assert engine.log.count(("sums", ["c001"])) == 3


@pytest.mark.parametrize("step", ["statistics", "clusters", "sums"])
def test_a_dropped_client_leaves_the_problem_of_the_others_exactly(step):
    engine = Faulty(WAYS["failure"], range(1, 999), step)
    result = fit(engine, "agnosticfair", positive="yes", on_failure=AT_ONCE["drop"])
    rest = {k: v for k, v in TABLES.items() if k != "c001"}
    alone = fit(rest, "agnosticfair", positive="yes")
    np.testing.assert_array_equal(result.model.w, alone.model.w)
    assert result.model.rows == len(ROWS) - len(TABLES["c001"])
    assert result.events[-1] == {"event": "restated", "without": ["c001"], "clients": 2}


def test_too_few_that_remain_stop_the_fit():
    engine = Faulty(WAYS["failure"], {1})
    with pytest.raises(FederationError, match=r"2 clients.*least 3.*'c001'"):
        fit(engine, "fl", positive="yes", on_failure=Policy(then="drop", min_clients=3))


def test_too_few_at_the_start_are_told_at_once():
    with pytest.raises(FederationError, match=r"3 clients.*least 5"):
        fit(TABLES, "fl", positive="yes", on_failure=Policy(min_clients=5))


def test_retries_end():
    engine = Faulty(WAYS["failure"], range(1, 99))
    with pytest.raises(FederationError, match=r"'sums'.*'c001'"):
        fit(engine, "fl", positive="yes", on_failure=AT_ONCE["retry"])
    assert engine.request == 3


def test_a_client_that_declines_is_not_asked_again():
    engine = Faulty(lambda reply: Failure("it may not", final=True), range(1, 99))
    with pytest.raises(FederationError, match=r"client.*'c001'"):
        fit(engine, "fl", positive="yes", on_failure="wait")
    assert engine.request == 1


def test_policies_by_name():
    assert policy("stop") == Policy()
    with pytest.raises(SettingsError, match=r"'ignore'.*stop"):
        policy("ignore")
    with pytest.raises(SettingsError, match="'go on'"):
        Policy(then="go on")
    with pytest.raises(SettingsError, match="min_clients"):
        Policy(min_clients=0)
