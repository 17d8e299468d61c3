"""A client adds up what ``mathematics.sums`` states: one test for all fields and surrogates."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import KINDS, request_of, small_table

from agnosticfair.client import sums as client_sums
from agnosticfair.client.client import Client
from agnosticfair.mathematics import sums as stated
from agnosticfair.mathematics.basis import gaussian, support
from agnosticfair.methods import method

ROWS = replace(small_table(700), weights=np.random.default_rng(1).integers(1, 4, 700) / 2)


def by_hand(client, broadcast):
    """The sums row by row, as the head of ``mathematics.sums`` writes them."""
    task, request, rows = broadcast.task, broadcast.request, client.prepare(broadcast.task)
    K_L, K = (
        client_sums.kernels(client, task, b)(slice(None)) for b in (task.basis, task.fair_basis)
    )
    d, weights = rows.X @ request.w, rows.weights
    values = stated.row_values(d, rows.y, request.surrogate)
    v = values._replace(**{k: getattr(values, k) * weights for k in values._fields})
    K = np.hstack([K, np.ones((len(d), 1))])
    stratum = np.eye(task.strata)[rows.s]

    def gradient(value):
        return np.einsum("i,id->id", value, rows.X)

    theta = (1 - request.share) + request.share * K_L @ request.alpha
    c = np.einsum("im,im->i", K, request.C[rows.s])
    fair = {"psi_g": v.g, "psi_theta": v.one, "psi_hat": v.hat}
    return {
        "loss": v.loss.sum(),
        "J_1": gradient(v.gradient).sum(axis=0),
        "psi_L": K_L.T @ v.loss,
        "psi_theta_L": K_L.T @ v.one,
        "J_L": K_L.T @ gradient(v.gradient),
        **{k: np.einsum("ig,im,i->gm", stratum, K, value) for k, value in fair.items()},
        "J_g": np.einsum("ig,im,id->gmd", stratum, K, gradient(v.g_gradient)),
        "H": rows.X.T @ gradient(theta * v.hessian + c * v.g_hessian),
        "correct": v.right.sum(),
    }


@pytest.mark.parametrize("surrogate", KINDS, ids=lambda s: s.kind)
def test_a_client_adds_up_what_is_stated(surrogate):
    chosen_method = method("agnosticfair", kernels=6, sigma=0.9)
    chosen_method = replace(chosen_method, basis=gaussian(4, 0.9))
    client = Client("a", ROWS)
    broadcast = request_of([client], chosen_method)
    broadcast = replace(broadcast, request=replace(broadcast.request, surrogate=surrogate))
    true, found = by_hand(client, broadcast), client_sums.sums(client, broadcast).sums
    assert {name: np.shape(v) for name, v in found.items()} == broadcast.shapes
    assert {*true} == {*found}
    for name, value in true.items():
        maximum = 1e-6 * np.abs(value).max()
        np.testing.assert_allclose(found[name], value, rtol=0, atol=maximum, err_msg=name)


@pytest.mark.parametrize("surrogate", KINDS, ids=lambda s: s.kind)
def test_gradients_and_curvatures_are_the_values_own(surrogate):
    d, e = np.linspace(-3, 3, 41), 1e-4
    for y in (np.zeros(41), np.ones(41)):
        here, ahead, behind = (stated.row_values(x, y, surrogate) for x in (d, d + e, d - e))
        for value, gradient in (
            ("loss", "gradient"),
            ("gradient", "hessian"),
            ("g", "g_gradient"),
            ("g_gradient", "g_hessian"),
        ):
            change = (getattr(ahead, value) - getattr(behind, value)) / (2 * e)
            np.testing.assert_allclose(getattr(here, gradient), change, atol=1e-6)


@pytest.mark.parametrize("surrogate", KINDS, ids=lambda s: s.kind)
def test_a_network_s_values_and_gradients_are_those_that_are_stated(surrogate):
    torch = pytest.importorskip("torch")
    steps = pytest.importorskip("agnosticfair.client.networks")
    rng = np.random.default_rng(0)
    d, a, c = rng.normal(size=(3, 50)).astype(np.float32)
    y = (rng.uniform(size=50) < 0.5).astype(np.float32)
    held = steps.RowSums(*(torch.from_numpy(v) for v in (d, y, np.ones_like(y), a, c)))
    v = stated.row_values(d.astype(float), y, surrogate)
    loss, g = steps.values(torch.from_numpy(d), held, surrogate)
    np.testing.assert_allclose(loss, v.loss, atol=1e-6)
    np.testing.assert_allclose(g, v.g, atol=1e-6)
    gradients = steps.gradients(torch.from_numpy(d), held, surrogate)
    np.testing.assert_allclose(gradients, a * v.gradient + c * v.g_gradient, atol=1e-6)


def test_the_fields_of_a_client_that_holds_some_kernels_lie_where_they_belong():
    chosen_method = replace(method("fl"), basis=replace(gaussian(3, 0.9), split=True))
    tables = {"a": ROWS, "b": small_table(200, 4)}
    clients = [Client(key, table) for key, table in tables.items()]
    broadcast = request_of(clients, chosen_method)
    for client in clients:
        columns = support(broadcast.task.basis, client.key, broadcast.task.clients)
        psi = client_sums.sums(client, broadcast).sums["psi_theta_L"]
        assert (psi[columns] > 0).all()
        assert np.count_nonzero(psi) == 3
