"""Secure sums change nothing: models, histories and certificates are those without, to the last bit."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.auditing.audit import audit_clients
from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.federation import fit, in_process
from agnosticfair.mathematics.basis import gaussian
from agnosticfair.methods import METHODS, Network, method
from agnosticfair.protocol.engines import Failure
from agnosticfair.protocol.faults import Policy
from agnosticfair.protocol.messages import Invitation, Masked, pack
from agnosticfair.site.guard import rehearsed

ROWS = small_table(400, 2)


def same(one, two) -> None:
    assert one.model.digest == two.model.digest
    np.testing.assert_array_equal(one.alpha, two.alpha)
    assert json.dumps(one.history) == json.dumps(two.history)
    assert (one.outcome, one.rounds) == (two.outcome, two.rounds)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_has_the_same_model(name):
    plain, secure = (
        fit(dealt(ROWS, 3), method(name, max_rounds=6), positive="yes", seed=1, secure=secure)
        for secure in (False, True)
    )
    same(plain, secure)


QUICK = ("agnosticfair", "fl")


@pytest.mark.parametrize(
    "name",
    [
        n if n in QUICK else pytest.param(n, marks=pytest.mark.slow)
        for n in sorted(METHODS)
        if METHODS[n].rule is None and METHODS[n].averaging is None
    ],
)
def test_a_network_has_the_same_weights(name):
    network = replace(method(name, max_rounds=3), network=Network(hidden=(4,)))
    plain, secure = (
        fit(dealt(ROWS, 3), network, positive="yes", seed=1, secure=secure)
        for secure in (False, True)
    )
    same(plain, secure)


def test_clusters_weights_and_unscaled_columns_have_the_same_model():
    rows = replace(ROWS, weights=np.random.default_rng(0).uniform(0.5, 2.0, len(ROWS)))
    centred = method("agnosticfair", centres="kmeans", kernels=10, max_rounds=4)
    for settings in ({}, {"scale": False}):
        plain, secure = (
            fit(dealt(rows, 4), centred, positive="yes", secure=secure, **settings)
            for secure in (False, True)
        )
        same(plain, secure)


def test_a_certificate_is_the_same():
    model = fit(dealt(ROWS, 3), "fl", positive="yes").model
    basis = gaussian(20, 1.0, "ranges")
    plain, secure = (
        audit_clients(model, dealt(ROWS, 3), basis=basis, secure=secure, held_out=False)
        for secure in (False, True)
    )
    assert json.dumps(plain.to_json()) == json.dumps(secure.to_json())


class Recorded:
    """An engine that keeps every message as it would cross the wire."""

    def __init__(self, engine):
        self.engine, self.seen = engine, []

    def clients(self):
        return self.engine.clients()

    def exchange(self, step, payload, keys, deadline):
        answers = self.engine.exchange(step, payload, keys, deadline)
        self.seen += [(step, name, answer, pack(answer)) for name, answer in answers.items()]
        return answers


def test_no_plain_sum_crosses_the_wire():
    """Every number that a client would send in the open is looked for in the bytes of secure messages."""
    tables = dealt(ROWS, 3)
    chosen_method = method("agnosticfair", max_rounds=3, centres="ranges", kernels=8)
    open_wire = Recorded(in_process(tables))
    fit(open_wire, chosen_method, positive="yes")
    engine, roster = rehearsed(in_process(tables))
    wire = Recorded(engine)
    fit(wire, chosen_method, positive="yes", secure=roster)
    crossed = b"".join(content for *_, content in wire.seen)
    plain = [
        np.asarray(value).ravel()
        for step, _, answer, _ in open_wire.seen
        if step == "sums"
        for value in answer.sums.values()
    ]
    numbers = {v.tobytes() for v in np.concatenate(plain) if v not in (0.0, 1.0)}
    assert len(numbers) > 1000
    assert not [number for number in numbers if number in crossed]
    found = {step: {type(a) for s, _, a, _ in wire.seen if s == step} for step, *_ in wire.seen}
    assert found["sums"] == found["counts"] == {Masked}
    for step, _, answer, _ in wire.seen:
        if step == "outline":
            assert answer.n == 0
            assert not any(answer.labels.values())


class Away:
    """An engine of which one site is gone from some request on."""

    def __init__(self, engine, gone, after):
        self.engine, self.gone, self.left, self.sessions = engine, gone, after, []

    def clients(self):
        return self.engine.clients()

    def exchange(self, step, payload, keys, deadline):
        if isinstance(payload, Invitation):
            self.sessions.append((payload.session, tuple(payload.sites)))
        self.left -= 1
        answers = self.engine.exchange(step, payload, keys, deadline)
        away = {self.gone: Failure("it is away")} if self.left < 0 and self.gone in keys else {}
        return {**answers, **away}


def test_a_site_that_is_dropped_leaves_the_problem_of_the_others_under_new_keys():
    tables = dealt(ROWS, 4)
    gone = sorted(tables)[1]
    policy = Policy(then="drop")
    for may_drop in (True, False):
        engine, roster = rehearsed(in_process(tables), may_drop=may_drop)
        away = Away(engine, gone, after=6)
        if not may_drop:
            with pytest.raises(FederationError, match=f"{gone!r} is missing"):
                fit(away, "fairfl", positive="yes", secure=roster, on_failure=policy)
            continue
        secure = fit(away, "fairfl", positive="yes", secure=roster, on_failure=policy)
        (first, overall), (second, rest) = away.sessions
        assert first != second
        assert {*overall} - {*rest} == {gone}
    plain = fit({k: v for k, v in tables.items() if k != gone}, "fairfl", positive="yes")
    np.testing.assert_array_equal(secure.model.w, plain.model.w)


def test_what_would_show_a_row_must_be_asked_for():
    engine, roster = rehearsed(in_process(dealt(ROWS, 3)))
    chosen_method = method("agnosticfair", max_rounds=2, centres="rows")
    with pytest.raises(FederationError, match="masked sums only"):
        fit(engine, chosen_method, positive="yes", secure=roster)


def test_a_list_without_a_site_and_one_site_alone_are_refused():
    engine, roster = rehearsed(in_process(dealt(ROWS, 3)))
    with pytest.raises(SettingsError, match="list of keys"):
        fit(engine, "fl", positive="yes", secure=dict(list(roster.items())[:2]))
    with pytest.raises(SettingsError, match=r"total.*1 site"):
        fit({"alone": ROWS}, "fl", positive="yes", secure=True)
