"""Sums over numbers and crossed indicators against products with the whole of X, to the last bit."""

import numpy as np
import pytest
from helpers import Questions

from agnosticfair import federation, iid, load_dataset
from agnosticfair.client.client import Client
from agnosticfair.client.sums import features, learning
from agnosticfair.data.encoding import encode
from agnosticfair.methods import method

BITS = 18


@pytest.fixture(scope="module", params=["linear", "additive"])
def prepared(request):
    """A client's rows, with and without bins among the features."""
    (table,) = iid(load_dataset("adult").take(np.arange(3000)), clients=1).train.values()
    engine = Questions({"one": table})
    federation.fit(engine, method("rule", learner=request.param))
    asked, client = engine.asked["learn"][-1], Client("one", table)
    task, heads = asked.task, asked.asked
    X = np.hstack([encode(task.encoding, table), np.ones((len(table), 1))])
    return X, learning.prepared(client, task, heads.heads, heads.folds, heads.seed).x


@pytest.mark.parametrize("weighs", [False, True])
def test_sums_over_x_are_those_of_rounded_products(prepared, weighs):
    X, own = prepared
    rng = np.random.default_rng(0)
    v, bits = rng.normal(size=len(X)), np.full(X.shape[1], BITS)
    weights = rng.integers(1, 4, len(X)).astype(float) if weighs else None
    products = features.weighed(X * v[:, None], bits, weights)
    np.testing.assert_array_equal(features.slope(own, v, BITS, weights), products.sum(axis=0))
    H = features.curvature(own, v, BITS, weights)
    np.testing.assert_allclose(H, X.T @ products, rtol=0, atol=2e-6 * len(X))
