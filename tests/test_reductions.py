"""What must coincide: methods reduce to one another, and federated fits to the pooled one."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from helpers import adult_split, dealt, small_table

from agnosticfair.federation import fit
from agnosticfair.mathematics.basis import constant, gaussian
from agnosticfair.mathematics.scoring import accuracy
from agnosticfair.methods import METHODS, Fairness, Method, method

ROWS = small_table(600, 1)


def weights(tables, method, **options):
    result = fit(tables, method, positive="yes", **options)
    assert result.converged
    return result.model.w


def test_fl_is_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    from agnosticfair.data.encoding import encode

    result = fit(dealt(ROWS, 4), method("fl", ridge=1e-3), positive="yes")
    X, y = encode(result.model.encoding, ROWS), ROWS.labels("yes")
    central = LogisticRegression(C=1 / (1e-3 * len(y)), tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(result.model.w[:-1], central.coef_[0], atol=1e-4)


BY_CLIENT = {"afl", "localfair"}  # these depend on the clients by definition
AVERAGED = {"fedavg", "agnosticfair-printed"}


@pytest.mark.parametrize("name", sorted(set(METHODS) - BY_CLIENT - AVERAGED))
def test_one_client_gives_the_central_fit_whatever_the_name(name):
    np.testing.assert_allclose(
        weights({"one": ROWS}, name), weights(dealt(ROWS, 5), name), atol=1e-6
    )


def test_constant_basis_gives_uniform_weights():
    result = fit(dealt(ROWS, 3), method("fl"), positive="yes")
    np.testing.assert_allclose(result.alpha, 1.0)


def test_afl_with_one_client_is_fl():
    np.testing.assert_allclose(
        weights({"one": ROWS}, "afl"), weights({"one": ROWS}, "fl"), atol=1e-6
    )


def test_afl_minimises_the_worst_clients_loss():
    job = ROWS.categorical["job"].codes
    tables = {f"c{k}": ROWS.take(job == k) for k in range(3)}

    def client_losses(w, encoding):
        from agnosticfair.data.encoding import encode
        from agnosticfair.mathematics.linear import log_loss

        return [
            log_loss(encode(encoding, t) @ w[:-1] + w[-1], t.labels("yes")).mean()
            for t in tables.values()
        ]

    afl, fl = (fit(tables, name, positive="yes").model for name in ("afl", "fl"))
    worst = max(client_losses(afl.w, afl.encoding))
    assert worst < max(client_losses(fl.w, fl.encoding))
    rng = np.random.default_rng(0)
    for _ in range(200):
        nearby = afl.w + 0.05 * rng.normal(size=len(afl.w))
        assert max(client_losses(nearby, afl.encoding)) > worst - 1e-3


def test_bound_just_large_enough_gives_uniform_kernel_weights():
    """With B at its least value A is one point, alpha = B everywhere."""
    basis = gaussian(8, 2.0, "rows")
    result = fit({"one": ROWS}, Method("a", basis=basis, bound=5.0), positive="yes")
    psi = result.history  # the history exists even where nothing is asked of it
    assert psi
    from agnosticfair.data.encoding import encode
    from agnosticfair.mathematics.basis import gaussian_kernel

    X = encode(result.model.encoding, ROWS)
    from agnosticfair.mathematics.basis import row_priorities

    _, first = np.unique(row_priorities(X, 0), return_index=True)
    K = gaussian_kernel(X, X[first[:8]], 2.0)
    minimum = len(X) / K.sum()
    tight = fit({"one": ROWS}, Method("a", basis=basis, bound=minimum * (1 + 1e-9)), positive="yes")
    np.testing.assert_allclose(tight.alpha, minimum, rtol=1e-5)


def test_robust_fairness_over_a_constant_basis_is_uniform_fairness():
    robust = Method("r", fairness=Fairness(0.03, basis=constant(), bound=5.0))
    uniform = Method("u", fairness=Fairness(0.03))
    np.testing.assert_allclose(
        weights(dealt(ROWS, 3), robust), weights(dealt(ROWS, 3), uniform), atol=1e-6
    )


def test_localfair_with_one_client_is_fairfl():
    fairfl = METHODS["fairfl"]
    local = METHODS["localfair"]
    tau = {"fairness": replace(local.fairness, tau=fairfl.fairness.tau)}
    np.testing.assert_allclose(
        weights({"one": ROWS}, replace(local, **tau)), weights({"one": ROWS}, fairfl), atol=1e-6
    )


def test_a_loose_tau_changes_nothing():
    loose = Method("loose", fairness=Fairness(tau=0.99, basis=gaussian(20), bound=inf))
    np.testing.assert_allclose(
        weights({"one": ROWS}, loose), weights({"one": ROWS}, "fl"), atol=3e-4
    )


@pytest.mark.slow
def test_fl_on_adult_equals_the_pooled_fit_and_does_not_depend_on_the_clients(adult):
    split = adult_split(adult)
    two = fit(split.train, "fl")
    pooled = fit(adult_split(adult, 1).train, "fl")
    assert abs(two.history[-1]["loss"] - pooled.history[-1]["loss"]) < 1e-10
    test_accuracy = accuracy(split.test.labels(">50K"), two.model.predict(split.test))
    assert 0.815 < test_accuracy < 0.83
    for p in (10, 200):
        spread = fit(adult_split(adult, p).train, "fl")
        np.testing.assert_allclose(spread.model.w, pooled.model.w, atol=1e-6)


def test_local_minimisation_and_a_plain_average_is_not_the_federated_optimum(adult):
    """The printed Algorithm 1 taken literally averages minimisers of other losses; fl does not."""
    from agnosticfair.mathematics.linear import log_loss

    split = adult_split(adult)
    literal = METHODS["fedavg"]
    literal = replace(literal, averaging=replace(literal.averaging, steps=None), max_rounds=2)

    def loss(model):
        return np.concatenate(
            [log_loss(model.decision(t), t.labels(">50K")) for t in split.train.values()]
        ).mean()

    assert loss(fit(split.train, literal).model) > loss(fit(split.train, "fl").model) + 0.005
