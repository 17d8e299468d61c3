"""Sums over numbers and crossed indicators against products with the whole of X, to the last bit."""

import numpy as np
import pytest
from helpers import Requests

from agnosticfair import federation, iid, load_dataset
from agnosticfair.client import learning
from agnosticfair.client import sums as features
from agnosticfair.client.client import Client
from agnosticfair.data.encoding import encode
from agnosticfair.methods import method

BITS = 18


@pytest.fixture(scope="module", params=["linear", "additive"])
def prepared(request):
    """A client's rows, with and without bins among the features."""
    (table,) = iid(load_dataset("adult").take(np.arange(3000)), clients=1).train.values()
    engine = Requests({"one": table})
    federation.fit(engine, method("rule", learner=request.param))
    payload, client = engine.request["learn"][-1], Client("one", table)
    task, heads = payload.task, payload.request
    X = np.hstack([encode(task.encoding, table), np.ones((len(table), 1))])
    return X, learning.prepared(client, task, heads.heads, heads.folds, heads.seed).x


@pytest.mark.parametrize("weighs", [False, True])
def test_sums_over_x_are_those_of_rounded_products(prepared, weighs):
    X, own = prepared
    rng = np.random.default_rng(0)
    v, bits = rng.normal(size=len(X)), np.full(X.shape[1], BITS)
    weights = rng.integers(1, 4, len(X)).astype(float) if weighs else None
    products = features.weighed(X * v[:, None], bits, weights)
    np.testing.assert_array_equal(features.gradient_of(own, v, BITS, weights), products.sum(axis=0))


@pytest.mark.parametrize("bits", [34, 26, 18])
def test_the_hessian_is_exact_and_positive_semidefinite_however_few_bits_there_are(prepared, bits):
    """Of 1e5, 1e7 and 4e9 rows: a Hessian of products that were rounded one by one has eigenvalues below 0."""
    X, own = prepared
    rng = np.random.default_rng(0)
    h, weights = rng.uniform(0, 0.25, len(X)), rng.integers(1, 4, len(X)).astype(float)
    fine = bits // 3
    coarse, unit = np.rint(X * 2.0**fine) / 2.0**fine, 2.0 ** (bits - 2 * fine)
    h_coarse = np.rint(h * unit) / unit * weights
    true = coarse.T @ (coarse * h_coarse[:, None])
    at = own.others[:-1]
    true[at, at] += h_coarse.sum() / 4.0**fine
    found = features.hessian_of(own, h, bits, weights)
    np.testing.assert_array_equal(found, true)
    np.testing.assert_array_equal(features.diagonal(own, h, bits, weights), np.diag(true))
    assert np.linalg.eigvalsh(found).min() > -1e-9 * len(X)
    exact = X.T @ (X * (h * weights)[:, None])
    np.testing.assert_allclose(found, exact, rtol=0, atol=4 * len(X) / 2.0**fine)
