"""Answers that do not come: no policy ever changes the problem without saying so."""

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.engines import Failure
from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.faults import Policy, policy
from agnosticfair.federation import fit, in_process
from agnosticfair.messages import Reply

ROWS = small_table(300, 3)
TABLES = dealt(ROWS, 3)
AT_ONCE = {"retry": Policy(retries=2), "drop": Policy(then="drop")}


class Faulty:
    """An engine whose client c001 fails as told, in some askings of one step."""

    def __init__(self, how, askings, step="sums"):
        self.inner, self.how, self.askings, self.step = in_process(TABLES), how, askings, step
        self.asked, self.log = 0, []

    def clients(self):
        return self.inner.clients()

    def exchange(self, step, payload, deadline=None, only=None):
        answers = dict(self.inner.exchange(step, payload, deadline, only))
        self.log.append((step, sorted(answers)))
        if step == self.step and "c001" in answers:
            self.asked += 1
            if self.asked in self.askings:
                answers["c001"] = self.how(answers["c001"])
        return answers


def nan(reply):
    return Reply(reply.round, {k: v * np.nan for k, v in reply.sums.items()})


WAYS = {
    "failure": lambda reply: Failure("its process died"),
    "nan": nan,
    "stale": lambda reply: Reply(reply.round - 1, reply.sums),
    "shape": lambda reply: Reply(reply.round, {**reply.sums, "H": np.zeros(1)}),
    "foreign": lambda reply: "hello",
}


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


@pytest.mark.parametrize("step", ["census", "centres", "sums"])
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
    with pytest.raises(FederationError, match=r"2 clients would remain of at least 3: .*'c001'"):
        fit(engine, "fl", positive="yes", on_failure=Policy(then="drop", least_clients=3))


def test_too_few_at_the_start_are_told_at_once():
    with pytest.raises(FederationError, match="there are 3 clients of at least 5"):
        fit(TABLES, "fl", positive="yes", on_failure=Policy(least_clients=5))


def test_retries_end():
    engine = Faulty(WAYS["failure"], range(1, 99))
    with pytest.raises(FederationError, match="'sums' failed at client 'c001': its process died"):
        fit(engine, "fl", positive="yes", on_failure=AT_ONCE["retry"])
    assert engine.asked == 3


def test_a_client_that_declines_is_not_asked_again():
    engine = Faulty(lambda reply: Failure("it may not", final=True), range(1, 99))
    with pytest.raises(FederationError, match="client 'c001': it may not"):
        fit(engine, "fl", positive="yes", on_failure="wait")
    assert engine.asked == 1


def test_policies_by_name():
    assert policy("stop") == Policy()
    with pytest.raises(SettingsError, match="unknown policy 'ignore'; there are: stop, retry"):
        policy("ignore")
    with pytest.raises(SettingsError, match="'go on'"):
        Policy(then="go on")
    with pytest.raises(SettingsError, match="least_clients"):
        Policy(least_clients=0)
