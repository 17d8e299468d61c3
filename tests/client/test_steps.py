"""The client's sums: gradients against finite differences, additivity over any split, idempotence."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table
from hypothesis import given, settings
from hypothesis import strategies as st

from agnosticfair.client import client as client_side
from agnosticfair.client import sums as client_sums
from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.client.sums import train_locally
from agnosticfair.data.summary import merge
from agnosticfair.errors import FederationError
from agnosticfair.mathematics.basis import by_client, gaussian, row_priorities
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.methods import Fairness, Method
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.requests import Average, Sums
from agnosticfair.server import plan as server

METHOD = Method(
    "m", basis=gaussian(5, 0.7), bound=5.0, fairness=Fairness(0.1, basis=gaussian(5, 0.7))
)


def planned(tables, method=METHOD, seed=3):
    clients = {k: Client(k, t) for k, t in tables.items()}
    statistics = merge({k: answer(c, "statistics", None) for k, c in clients.items()})
    plan = server.plan(method, statistics, tuple(sorted(tables)))
    send = server.centres_request(plan, seed)
    if send is not None:
        offers = [answer(c, "centres", send) for _, c in sorted(clients.items())]
        plan = server.with_centres(plan, sum(offers[1:], offers[0]))
    return clients, plan


def request(plan, w, surrogate=None, alpha=None, C=None):
    G, M = 2, plan.method.basis.kernels
    return Broadcast(
        1,
        plan.task,
        Sums(
            surrogate or Surrogate("sigmoid", 0.5),
            0.7,
            w,
            np.ones(M) if alpha is None else alpha,
            np.zeros((G, M + 1)) if C is None else C,
        ),
    )


@pytest.mark.parametrize("surrogate", [Surrogate("sigmoid", 0.5), Surrogate("loss")])
def test_gradients_match_finite_differences(surrogate):
    clients, plan = planned({"a": small_table()})
    rng = np.random.default_rng(1)
    w, p, e = rng.normal(size=6), rng.normal(size=6), 1e-3
    here, ahead, behind = (
        answer(clients["a"], "sums", request(plan, v, surrogate)).sums
        for v in (w, w + e * p, w - e * p)
    )
    for value, gradient in (("psi_L", "J_L"), ("psi_g", "J_g"), ("loss", "J_1")):
        numeric = (ahead[value] - behind[value]) / (2 * e)
        np.testing.assert_allclose(here[gradient] @ p, numeric, rtol=1e-5, atol=1e-3)


def test_curvature_matches_finite_differences_of_the_lagrangian():
    clients, plan = planned({"a": small_table()})
    rng = np.random.default_rng(2)
    w, p, e = rng.normal(size=6), rng.normal(size=6), 1e-3
    alpha, C = rng.uniform(size=5), rng.normal(size=(2, 6))

    def gradient(v):
        sums = answer(clients["a"], "sums", request(plan, v, alpha=alpha, C=C)).sums
        return 0.3 * sums["J_1"] + 0.7 * alpha @ sums["J_L"] + np.einsum(
            "gm,gmd->d", C, sums["J_g"]
        ), sums["H"]

    numeric = (gradient(w + e * p)[0] - gradient(w - e * p)[0]) / (2 * e)
    np.testing.assert_allclose(gradient(w)[1] @ p, numeric, rtol=1e-4, atol=1e-2)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10_000))
def test_sums_do_not_depend_on_how_rows_are_spread(count, seed):
    table = small_table(120, seed % 7)
    w = np.random.default_rng(seed).normal(size=6)
    totals = []
    for tables in ({"all": table}, dealt(table, count, seed)):
        clients, plan = planned(tables)
        replies = [answer(c, "sums", request(plan, w)) for c in clients.values()]
        totals.append(sum(replies[1:], replies[0]).sums)
    for name in totals[0]:  # to the last bit: see linear.on_grid
        np.testing.assert_array_equal(totals[0][name], totals[1][name])


def test_the_same_request_gets_the_same_answer_even_after_the_client_forgot_everything():
    tables = {"a": small_table()}
    clients, plan = planned(tables)
    broadcast = request(plan, np.ones(6))
    first, again = answer(clients["a"], "sums", broadcast), answer(clients["a"], "sums", broadcast)
    anew = answer(Client("a", tables["a"]), "sums", broadcast)
    for name in first.sums:
        np.testing.assert_array_equal(first.sums[name], again.sums[name])
        np.testing.assert_array_equal(first.sums[name], anew.sums[name])


@pytest.mark.parametrize(
    ("module", "limit", "value"), [(client_sums, "KERNEL_BYTES", 0), (client_side, "CHUNK", 7)]
)
def test_what_is_kept_and_in_which_chunks_changes_nothing(monkeypatch, module, limit, value):
    clients, plan = planned({"a": small_table()})
    before = answer(clients["a"], "sums", request(plan, np.ones(6)))
    monkeypatch.setattr(module, limit, value)
    clients, plan = planned({"a": small_table()})
    after = answer(clients["a"], "sums", request(plan, np.ones(6)))
    for name in before.sums:
        np.testing.assert_array_equal(before.sums[name], after.sums[name])


def test_centres_are_distinct_rows_and_the_same_for_any_spread():
    table = small_table(400)
    one = planned({"all": table})[1].task.centres
    many = planned(dealt(table, 9))[1].task.centres
    np.testing.assert_array_equal(one, many)
    assert len(np.unique(one, axis=0)) == 5
    assert not np.array_equal(one, planned({"all": table}, seed=4)[1].task.centres)


def test_priorities_look_uniform_and_ignore_the_sign_of_zero():
    u = row_priorities(np.random.default_rng(0).normal(size=(20_000, 3)), 1)
    counts, _ = np.histogram(u, bins=20, range=(0, 1))
    assert abs(counts - 1000).max() < 150
    assert row_priorities(np.array([[0.0]]), 1) == row_priorities(np.array([[-0.0]]), 1)


def test_a_client_without_rows_of_one_group_still_answers():
    table = small_table(200)
    s = table.sensitive_features["sex"].codes
    clients, plan = planned({"a": table.take(s == 0), "b": table})
    reply = answer(clients["a"], "sums", request(plan, np.zeros(6)))
    assert reply.sums["psi_theta"][1].sum() == 0


def test_indicator_basis_fills_only_the_clients_own_column():
    method = Method("m", basis=by_client())
    clients, plan = planned(dealt(small_table(90), 3), method)
    request = Sums(Surrogate(), 1.0, np.zeros(6), np.ones(3), np.zeros((2, 2)))
    broadcast = Broadcast(1, plan.task, request)
    psi = answer(clients["c001"], "sums", broadcast).sums["psi_theta_L"]
    np.testing.assert_array_equal(psi, [0, 30, 0])


@pytest.mark.parametrize("steps", [None, 20_000])
def test_local_training_minimises_the_printed_objective(steps):
    rng = np.random.default_rng(5)
    X = np.hstack([rng.uniform(size=(200, 2)), np.ones((200, 1))])
    y, theta, phi = (
        (rng.uniform(size=200) < X[:, 0]) * 1.0,
        rng.uniform(size=200),
        rng.normal(size=3),
    )
    request = Average(steps, 0.05, 2.0, 0.05, 1e-3, 200, 0.5, np.zeros(3), np.ones(1), phi)

    def value(w):
        d = X @ w
        loss = theta @ (np.logaddexp(0, d) - y * d) / 200
        return loss + 2.0 * (phi @ w - 0.05) ** 2 + 1e-3 * (w[:-1] @ w[:-1]) / 2

    w = train_locally(X, y, theta, phi, request)
    nearby = [value(w + 1e-3 * step) for step in rng.normal(size=(50, 3))]
    assert value(w) <= min(nearby) + 1e-9


def test_an_unknown_step_is_refused():
    with pytest.raises(FederationError, match=r"knows.*'rows'"):
        answer(Client("a", small_table(20)), "rows", None)


def test_weighted_sums_do_not_depend_on_the_spread_and_whole_weights_are_repeated_rows():
    rows, w = small_table(90, 4), np.random.default_rng(4).normal(size=6)
    whole = np.arange(90) % 3 + 1.0
    odd = np.random.default_rng(5).uniform(0.1, 2.0, size=90)
    again = rows.take(np.repeat(np.arange(90), whole.astype(int)))
    cases = [({"a": again}, dealt(replace(rows, weights=whole), 3))]
    cases += [({"a": replace(rows, weights=odd)}, dealt(replace(rows, weights=odd), 4))]
    for pair in cases:
        totals = []
        for tables in pair:
            clients, plan = planned(tables)
            replies = [answer(c, "sums", request(plan, w)) for c in clients.values()]
            totals.append(sum(replies[1:], replies[0]).sums)
        for name in totals[0]:
            np.testing.assert_array_equal(totals[0][name], totals[1][name])
