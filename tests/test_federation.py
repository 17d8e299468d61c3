"""The federation: replies are checked before they are added, and nothing is silently left out."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.errors import DataError, FederationError, SettingsError, SolverError
from agnosticfair.federation import fit, in_process
from agnosticfair.methods import method
from agnosticfair.protocol.engines import Failure
from agnosticfair.protocol.messages import Reply

ROWS = small_table(300, 3)


class Tampering:
    """An engine that changes what one client says in one step."""

    def __init__(self, tables, change, step="sums"):
        self.inner, self.change, self.step = in_process(tables), change, step

    def clients(self):
        return self.inner.clients()

    def exchange(self, step, payload, keys, deadline):
        answers = self.inner.exchange(step, payload, keys, deadline)
        if step == self.step:
            answers = self.change(dict(answers))
        return answers


def changed(name, value):
    def change(answers):
        reply = answers["c001"]
        return {
            **answers,
            "c001": replace(reply, sums={**reply.sums, name: value(reply.sums[name])}),
        }

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            changed("psi_L", lambda v: v * np.nan),
            "'c001'.*psi_L",
        ),
        (changed("H", lambda v: v[:2]), r"'c001'.*sent"),
        (changed("extra", lambda v: v), "extra"),
        (
            lambda a: {**a, "c001": replace(a["c001"], round=0)},
            "'c001'.*0 instead",
        ),
        (lambda a: {**a, "c001": "hello"}, "'c001'.*answered"),
        (
            lambda a: {**a, "c001": Failure("the disk is full")},
            "'c001'.*disk",
        ),
        (lambda a: {k: v for k, v in a.items() if k != "c001"}, "'c001'.*gave"),
        (lambda a: {**a, "c001": Reply(1, {"psi_L": np.zeros(1)})}, "'c001' sent fields"),
    ],
    ids=["nan", "shape", "field", "round", "type", "failure", "silent", "fields"],
)
def test_a_bad_reply_ends_the_fit_and_names_the_client(change, said):
    if said == "extra":

        def change(answers):
            reply = answers["c001"]
            return {**answers, "c001": replace(reply, sums={**reply.sums, "extra": np.zeros(1)})}

    with pytest.raises(FederationError, match=said):
        fit(Tampering(dealt(ROWS, 3), change), "fl", positive="yes")


def test_rounds_are_reported_as_they_happen():
    seen = []
    result = fit(dealt(ROWS, 2), "fairfl", positive="yes", on_round=seen.append)
    assert [entry["round"] for entry in seen] == list(range(1, result.rounds + 1))


def test_strict_makes_a_fit_that_did_not_converge_an_error():
    short = method("fairfl", max_rounds=1)
    assert fit(dealt(ROWS, 2), short, positive="yes").outcome == "rounds"
    with pytest.raises(SolverError, match=r"converge.*1 rounds"):
        fit(dealt(ROWS, 2), short, positive="yes", strict=True)


def test_no_clients_is_refused():
    with pytest.raises(SettingsError, match="no clients"):
        fit({}, "fl")


def test_an_empty_client_is_refused_by_name():
    with pytest.raises(FederationError, match=r"'b'.*rows"):
        fit({"a": ROWS, "b": ROWS.take(np.arange(0))}, "fl", positive="yes")


def test_one_label_only_is_refused():
    y = ROWS.labels("yes")
    with pytest.raises(DataError, match="'yes'"):
        fit({"a": ROWS.take(y == 1)}, "fl")


def test_one_group_only_is_refused():
    s = ROWS.sensitive_features["sex"].codes
    with pytest.raises(DataError, match=r"'sex'.*group"):
        fit({"a": ROWS.take(s == 0)}, "fl", positive="yes")


def test_an_infeasible_lp_is_counted_and_the_last_weights_are_kept():
    """tau so small that no reweighting in A looks fair: Algorithm 2's LP has no solution."""
    result = fit(
        dealt(ROWS, 2),
        method("agnosticfair-printed", tau=1e-9, max_rounds=4, bound=0.02),
        positive="yes",
    )
    assert result.outcomes == {"lp infeasible": 4}


def test_a_bound_that_empties_the_set_is_refused():
    with pytest.raises(SettingsError, match=r"bound 0\.0001.*small"):
        fit(dealt(ROWS, 2), method("agnosticfair-a", bound=1e-4), positive="yes")


def test_a_diverging_fit_is_one_sentence():
    from agnosticfair.methods import METHODS

    wild = METHODS["fedavg"]
    wild = replace(wild, averaging=replace(wild.averaging, rate=1e9))
    with pytest.raises(SolverError, match=r"diverged.*round 1"):
        fit(dealt(ROWS, 2), wild, positive="yes")
