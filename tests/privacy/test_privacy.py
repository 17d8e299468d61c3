"""Privacy: sensitivities by enumeration, noise as stated, and an audit that can fail."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, script
from private_requests import ROWS, SCHEMA, send, site, task_of, with_singles
from scipy.stats import kstest, norm

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.table import concatenate
from agnosticfair.errors import AgnosticFairError, FederationError, SettingsError
from agnosticfair.privacy.fit import Budget, fit_private
from agnosticfair.privacy.ledger import (
    Ledger,
    PrivateSite,
    discrete_gaussian,
    multiplier,
    share_of,
    spent,
)
from agnosticfair.privacy.requests import SHARES, deviations, sensitivity
from agnosticfair.protocol.messages import Reply

AUDIT = script("canary")


@pytest.mark.parametrize("singles", [False, True])
@pytest.mark.parametrize("step", sorted(SHARES))
def test_no_row_moves_a_field_by_more_than_its_sensitivity(step, singles):
    """Every row of a small table is taken away, and every field looked at; with subgroups, too."""
    rows, task = ROWS.take(np.arange(40)), task_of()
    task = with_singles(task) if singles else task
    request = send(step, task)
    whole = answer(Client("a", rows), step, request).sums
    assert whole.keys() == SHARES[step].keys()
    maximum = dict.fromkeys(whole, 0.0)
    for gone in range(len(rows)):
        left = np.delete(np.arange(len(rows)), gone)
        sums = answer(Client("a", rows.take(left)), step, request).sums
        for name, value in sums.items():
            maximum[name] = max(maximum[name], float(np.linalg.norm(whole[name] - value)))
    for name, moved in maximum.items():
        limit = sensitivity(name, request.request, task)
        assert moved <= limit
        assert moved > 0.2 * limit  # the bound is of use


@pytest.mark.parametrize("step", sorted(SHARES))
def test_no_site_moves_a_field_by_more_than_a_sites_sensitivity(step):
    """A site of 60 rows, of which at most 25 take part, against a site that is not there."""
    task = with_singles(task_of())
    request = send(step, task, maximum=25)
    sums = answer(Client("a", ROWS.take(np.arange(60))), step, request).sums
    fewer = answer(Client("a", ROWS.take(np.arange(25))), step, request).sums
    for name, value in sums.items():
        assert np.linalg.norm(value) <= sensitivity(name, request.request, task)
        np.testing.assert_allclose(value, fewer[name])


def test_rows_far_outside_move_no_field_by_more():
    """Rows with features at their ends, of every label and group."""
    task = task_of()
    few = ROWS.take(np.arange(8))
    ends = {k: np.where(np.arange(8) % 2, 1e6, -1e6) for k in few.numeric}
    wild = replace(few, numeric=ends)
    for step in ("private_moments", "private_gradients", "private_heads", "private_rates"):
        whole = answer(Client("a", wild), step, send(step, task)).sums
        less = answer(Client("a", wild.take(np.arange(7))), step, send(step, task)).sums
        for name in whole:
            assert np.linalg.norm(whole[name] - less[name]) <= sensitivity(
                name, send(step, task).request, task
            )


def test_a_steps_noises_cost_as_much_as_one_gaussian():
    task = with_singles(task_of())
    for step in SHARES:
        for maximum in (0, 7):
            request = send(step, task, z=3.0, maximum=maximum).request
            sigma = deviations(request, task)
            cost = sum((sensitivity(name, request, task) / sigma[name]) ** 2 for name in sigma)
            assert cost == pytest.approx(1 / 9)


def test_the_accountant_agrees_with_the_gaussians_own_formula():
    """Exactly, delta(epsilon) = Phi(1/2z - ez) - e^epsilon Phi(-1/2z - ez); what Renyi gives is a bound on it."""
    z, epsilon = 1.5, spent([1.5], 1e-5)
    exact = norm.cdf(1 / (2 * z) - epsilon * z) - np.exp(epsilon) * norm.cdf(
        -1 / (2 * z) - epsilon * z
    )
    assert 1e-6 < exact <= 1e-5
    assert spent([2.0, 2.0], 1e-5) == pytest.approx(spent([np.sqrt(2.0)], 1e-5))
    assert spent([multiplier(3.0, 1e-5)], 1e-5) == pytest.approx(3.0, rel=1e-6)
    assert sum(1 for z in Budget(3.0).multipliers(8).values() if z > multiplier(3.0, 1e-5)) == 4


def test_the_noise_is_the_discrete_gaussian_that_is_asked_for():
    found = discrete_gaussian(1000.0, 4000)
    assert found.dtype == np.int64
    assert kstest(found / 1000.0, "norm").pvalue > 1e-4
    assert kstest(discrete_gaussian(500.0, 4000) / 1000.0, "norm").pvalue < 1e-9


def test_shares_add_up_to_the_noise_of_those_who_do_not_collude():
    for sites, colluding in ((2, 0), (2, 1), (5, 1), (100, 10)):
        honest = sites - colluding
        assert honest * share_of(sites, colluding) ** 2 == pytest.approx(1.0)
    assert share_of(1, 1) == 1.0


def test_the_same_request_gets_the_same_noise_and_costs_once():
    private, request = site(), send("private_gradients", task_of(), z=5.0)
    first = private("private_gradients", request)
    cost = private.ledger.spent
    again = private("private_gradients", request)
    for name in first.sums:
        np.testing.assert_array_equal(first.sums[name], again.sums[name])
    assert private.ledger.spent == cost > 0
    other = private("private_gradients", replace(request, round=2))
    assert not np.array_equal(other.sums["gradient"], first.sums["gradient"])
    assert private.ledger.spent > cost


def test_a_private_site_gives_no_sum_without_noise():
    with pytest.raises(FederationError, match="answers private steps"):
        site()("sums", send("private_counts", task_of()))
    for z in (0.0, -1.0):
        with pytest.raises(FederationError, match="refuses the request"):
            site()("private_gradients", send("private_gradients", task_of(), z=z))


def test_the_audits_epsilon_is_the_gaussians():
    for mu in (0.3, 1.0, 2.5):
        epsilon = AUDIT.epsilon_of(mu, 1e-5)
        exact = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert exact == pytest.approx(1e-5, rel=1e-3)
        assert epsilon <= spent([1 / mu], 1e-5)  # the accountant never claims less
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 4000))
    assert 1.3 < AUDIT.min_mu(scores[0] + 1.5, scores[1]) <= 1.5
    assert AUDIT.min_mu(scores[0], scores[1]) < 0.1


@pytest.mark.parametrize(("halved", "above"), [(1.0, False), (0.5, True)])
def test_an_audit_with_a_canary_stays_below_the_claim_unless_the_noise_is_halved(halved, above):
    """One step of multiplier 1 on tables with and without one long row: the score is along that row."""
    delta, runs, task = 1e-5, 800, task_of()
    rng = np.random.default_rng(0)
    canary = ROWS.take(np.array([int(np.argmax(ROWS.numeric["age"]))]))
    base = ROWS.take(np.arange(20))
    request = send("private_moments", task, z=1.0)

    def sums_of(rows):
        return answer(Client("a", rows), "private_moments", request)

    def noise(scale: float, size: int) -> np.ndarray:
        return np.rint(rng.normal(size=size) * scale * halved)

    def scores(sums):
        found = []
        for _ in range(runs):
            private = PrivateSite("a", lambda *_: sums, Ledger(100.0, delta), sampler=noise)
            found.append(along @ private("private_moments", request).sums["moments"])
        return np.array(found)

    along = sums_of(canary).sums["moments"]
    found = AUDIT.min_mu(scores(sums_of(concatenate([base, canary]))), scores(sums_of(base)))
    assert (AUDIT.epsilon_of(found, delta) > spent([1.0], delta)) == above


def test_an_engine_reply_without_a_known_field_is_refused():
    odd = PrivateSite("a", lambda step, request: Reply(1, {"x": np.zeros(1)}), Ledger(3.0, 1e-5))
    with pytest.raises(FederationError, match="have no sensitivity"):
        odd("private_counts", send("private_counts", task_of(), z=5.0))


@pytest.mark.usefixtures("seeded_noise")
def test_whole_sites_can_be_hidden_instead_of_rows(tmp_path):
    """Every site adds no more than it said, refuses the other unit, and its ledger is of its unit."""
    tables, budget = dealt(ROWS, 4), Budget(1e4, ledgers=tmp_path, max_rows=50)
    fitted = fit_private(tables, "fairfl", budget=budget, schema=SCHEMA, positive="yes", rounds=2)
    told = fitted.model.privacy
    assert (told["unit"], told["max_rows"]) == ("site", 50.0)
    assert fitted.model.rows == pytest.approx(200, abs=20)  # of 400: 50 of each site take part
    rows = Budget(1e4, ledgers=tmp_path)
    with pytest.raises(AgnosticFairError, match="kept for"):
        fit_private(tables, "fairfl", budget=rows, schema=SCHEMA, positive="yes", rounds=2)
    with pytest.raises(FederationError, match="hide itself"):
        site()("private_counts", send("private_counts", task_of(), z=5.0, maximum=10))
    with pytest.raises(SettingsError, match="max_rows is -1"):
        Budget(1.0, max_rows=-1)
