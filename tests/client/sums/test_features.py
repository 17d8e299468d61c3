"""Sums over numbers and crossed indicators against products with the whole of X, to the last bit."""

import numpy as np
import pytest
from helpers import Questions

from agnosticfair import federation, iid, load_dataset
from agnosticfair.client.client import Client
from agnosticfair.client.sums import features
from agnosticfair.methods import method

BITS = 18


@pytest.fixture(scope="module", params=[0, 4])
def prepared(request):
    """A client's rows, with and without bands among the features."""
    (table,) = iid(load_dataset("adult").take(np.arange(3000)), clients=1).train.values()
    engine = Questions({"one": table})
    federation.fit(engine, method("agnosticfair-named", bands=request.param, max_rounds=1))
    task, client = engine.asked["part_sums"][-1].task, Client("one", table)
    return client.prepare(task).X, features.features(client, task)


@pytest.mark.parametrize("weighs", [False, True])
def test_sums_over_x_are_those_of_rounded_products(prepared, weighs):
    X, own = prepared
    rng = np.random.default_rng(0)
    v, bits = rng.normal(size=len(X)), np.full(X.shape[1], BITS)
    weights = rng.integers(1, 4, len(X)).astype(float) if weighs else None
    products = features.weighed(X * v[:, None], bits, weights)
    np.testing.assert_array_equal(features.slope(own, v, BITS, weights), products.sum(axis=0))
    inside = [np.flatnonzero(rng.random(len(X)) < share) for share in (0.9, 0.0, 0.1)]
    found = features.slopes(own, v, BITS, weights, inside)
    parts = [*inside, slice(None)]
    np.testing.assert_array_equal(found, [products[rows].sum(axis=0) for rows in parts])
    H = features.curvature(own, v, BITS, weights)
    np.testing.assert_allclose(H, X.T @ products, rtol=0, atol=2e-6 * len(X))
    some = slice(100, 900)
    weights = None if weights is None else weights[some]
    np.testing.assert_array_equal(
        features.slope(own.take(some), v[some], BITS, weights), products[some].sum(axis=0)
    )


def test_parts_are_worked_on_a_few_at_a_time(prepared, monkeypatch):
    X, own = prepared
    v = np.random.default_rng(1).normal(size=len(X))
    inside = [np.flatnonzero(X[:, k] > 0) for k in range(X.shape[1])]
    whole = features.slopes(own, v, BITS, None, inside)
    monkeypatch.setattr(features, "GATHERED", 500)
    np.testing.assert_array_equal(features.slopes(own, v, BITS, None, inside), whole)
