"""Privacy: sensitivities by enumeration, noise as stated, a budget that ends, and an audit that can fail."""

import os
import signal
import subprocess
import sys
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers import dealt, script, small_table
from scipy.stats import kstest, norm

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.census import take_census
from agnosticfair.data.schema import schema_of
from agnosticfair.data.table import concatenate
from agnosticfair.errors import AgnosticFairError, FederationError, SettingsError
from agnosticfair.methods import method
from agnosticfair.private import Budget, fit_private, schema_axes
from agnosticfair.protocol.messages import Broadcast, Reply, unpack
from agnosticfair.protocol.privacy.accountant import multiplier, spent
from agnosticfair.protocol.privacy.ledger import Ledger
from agnosticfair.protocol.privacy.questions import (
    PrivateCounts,
    PrivateDecisions,
    PrivateMoments,
    PrivateSlopes,
)
from agnosticfair.protocol.privacy.sensitivity import SHARES, deviations, sensitivity
from agnosticfair.protocol.privacy.site import PrivateSite, discrete_gaussian, share_of
from agnosticfair.protocol.questions import Named, Task
from agnosticfair.server import plan as server

ROWS = small_table(400, 3)
AUDIT = script("canary")
SCHEMA = schema_of(take_census(ROWS, "all"), "y")


def task_of(rows=ROWS) -> Task:
    census = take_census(rows, "all")
    return server.plan(method("fairfl"), census, ("a",), positive="yes").task


W = np.array([1.5, -0.5, 3.0, -2.0, 0.7, 0.2])
QUESTION = {
    "private_counts": PrivateCounts,
    "private_moments": PrivateMoments,
    "private_slopes": partial(PrivateSlopes, temperature=0.3, w=W, active=np.zeros(1)),
    "private_decisions": partial(PrivateDecisions, w=W),
}


def ask(step: str, task: Task, z: float = 1.0, sites: int = 1, most: int = 0, **more) -> Broadcast:
    return Broadcast(1, task, QUESTION[step](z=z, sites=sites, most=most, **more))


def with_singles(task: Task, few: int | None = None) -> Task:
    """The task with parts of single values, of jobs and of bands of age."""
    axes = schema_axes(
        replace(SCHEMA, bands={"age": tuple(np.quantile(ROWS.numeric["age"], (0.3, 0.6)))})
    )
    parts = [((a, v),) for a, axis in enumerate(axes) for v in range(len(axis.values))][:few]
    rows = np.full((len(parts), 3, 2), -1.0)
    rows[:, 0] = [part[0] for part in parts]
    return replace(task, named=Named(tuple(astuple(axis) for axis in axes), rows))


@pytest.mark.parametrize("active", [None, (0, 1, 4), (1, 2)])
@pytest.mark.parametrize("step", sorted(SHARES))
def test_no_row_moves_a_field_by_more_than_its_sensitivity(step, active):
    """Every row of a small table is taken away, and every field looked at; with named parts, too."""
    rows, task, more = ROWS.take(np.arange(40)), task_of(), {}
    if active is not None:
        task = with_singles(task)
        more = {"active": np.array(active, float)} if step == "private_slopes" else {}
    asked = ask(step, task, **more)
    whole = answer(Client("a", rows), step, asked).sums
    assert whole.keys() == SHARES[step].keys()
    most = dict.fromkeys(whole, 0.0)
    for gone in range(len(rows)):
        left = np.delete(np.arange(len(rows)), gone)
        sums = answer(Client("a", rows.take(left)), step, asked).sums
        for name, value in sums.items():
            most[name] = max(most[name], float(np.linalg.norm(whole[name] - value)))
    for name, moved in most.items():
        limit = sensitivity(name, asked.asked, task)
        assert moved <= limit
        assert moved > 0.2 * limit  # the bound is of use


@pytest.mark.parametrize("step", sorted(SHARES))
def test_no_site_moves_a_field_by_more_than_a_sites_sensitivity(step):
    """A site of 60 rows, of which at most 25 take part, against a site that is not there."""
    task = with_singles(task_of())
    asked = ask(step, task, most=25)
    sums = answer(Client("a", ROWS.take(np.arange(60))), step, asked).sums
    fewer = answer(Client("a", ROWS.take(np.arange(25))), step, asked).sums
    for name, value in sums.items():
        assert np.linalg.norm(value) <= sensitivity(name, asked.asked, task)
        np.testing.assert_allclose(value, fewer[name])


def test_rows_far_outside_move_no_field_by_more():
    """Rows with features at their ends, of every label and group."""
    task = task_of()
    few = ROWS.take(np.arange(8))
    ends = {k: np.where(np.arange(8) % 2, 1e6, -1e6) for k in few.numeric}
    wild = replace(few, numeric=ends)
    for step in ("private_moments", "private_slopes"):
        whole = answer(Client("a", wild), step, ask(step, task)).sums
        less = answer(Client("a", wild.take(np.arange(7))), step, ask(step, task)).sums
        for name in whole:
            assert np.linalg.norm(whole[name] - less[name]) <= sensitivity(
                name, ask(step, task).asked, task
            )


def test_a_steps_noises_cost_as_much_as_one_gaussian():
    task = with_singles(task_of())
    for step in SHARES:
        for most in (0, 7):
            asked = ask(step, task, z=3.0, most=most).asked
            sigma = deviations(asked, task)
            cost = sum((sensitivity(name, asked, task) / sigma[name]) ** 2 for name in sigma)
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


def site(ledger=None, **settings) -> PrivateSite:
    held = partial(answer, Client("a", ROWS))
    return PrivateSite("a", held, ledger or Ledger(3.0, 1e-5), **settings)


def test_the_same_question_gets_the_same_noise_and_costs_once():
    private, question = site(), ask("private_slopes", task_of(), z=5.0, sites=2)
    first = private("private_slopes", question)
    cost = private.ledger.spent
    again = private("private_slopes", question)
    for name in first.sums:
        np.testing.assert_array_equal(first.sums[name], again.sums[name])
    assert private.ledger.spent == cost > 0
    other = private("private_slopes", replace(question, round=2))
    assert not np.array_equal(other.sums["gradient"], first.sums["gradient"])
    assert private.ledger.spent > cost


ENDS = """
import os, pickle, signal, sys
sys.path.insert(0, sys.argv[4])
from pathlib import Path
from agnosticfair.protocol.privacy.ledger import Ledger
from test_privacy import ask, site, task_of

name, path = sys.argv[1], Path(sys.argv[2])
true = getattr(Ledger, name)

def killed(*given, **more):
    if sys.argv[3] == "after":
        true(*given, **more)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(Ledger, name, killed)
question = ask("private_counts", task_of(), z=5.0, sites=2)
site(Ledger(3.0, 1e-5, path=path), rows="of monday")("private_counts", question)
"""
"""A site that is killed right before or after a step of its answer."""


@pytest.mark.parametrize(
    ("step", "when", "paid", "kept"),
    [("_keep", "before", 0, 0), ("spend", "before", 0, 1), ("spend", "after", 1, 1)],
)
def test_a_site_that_is_killed_gives_the_same_noisy_answer_and_pays_once(
    step, when, paid, kept, tmp_path
):
    path = tmp_path / "north.ledger.json"
    here = str(Path(__file__).parent)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ENDS, step, str(path), when, here]
    assert subprocess.run(command, env=env, check=False).returncode == -signal.SIGKILL
    question = ask("private_counts", task_of(), z=5.0, sites=2)
    anew = Ledger(3.0, 1e-5, path=path)
    assert len(anew.multipliers) == paid
    answers = [file.read_bytes() for file in tmp_path.glob("north.ledger.answers/*")]
    assert len(answers) == kept
    first = site(anew, rows="of monday")("private_counts", question).sums["groups"]
    if kept:
        np.testing.assert_array_equal(first, unpack(answers[0]).sums["groups"])
    later = Ledger(3.0, 1e-5, path=path)
    again = site(later, rows="of monday")("private_counts", question).sums["groups"]
    np.testing.assert_array_equal(first, again)
    assert later.multipliers == [5.0]
    for private in (path, *tmp_path.glob("north.ledger.answers/*")):
        assert private.stat().st_mode & 0o077 == 0


def test_other_rows_or_a_lost_answer_are_paid_for_again(tmp_path):
    path = tmp_path / "north.ledger.json"
    question = ask("private_counts", task_of(), z=5.0, sites=2)
    first = site(Ledger(3.0, 1e-5, path=path), rows="of monday")("private_counts", question)
    site(Ledger(3.0, 1e-5, path=path), rows="of tuesday")("private_counts", question)
    assert len(Ledger(3.0, 1e-5, path=path).multipliers) == 2
    for file in tmp_path.glob("north.ledger.answers/*"):
        file.unlink()
    again = site(Ledger(3.0, 1e-5, path=path), rows="of monday")("private_counts", question)
    assert not np.array_equal(first.sums["groups"], again.sums["groups"])
    assert len(Ledger(3.0, 1e-5, path=path).multipliers) == 3


def test_what_another_process_spends_meanwhile_counts(tmp_path):
    path = tmp_path / "north.ledger.json"
    one, other = (Ledger(1.0, 1e-5, path=path) for _ in range(2))
    one.spend(multiplier(1.0, 1e-5), "site 'north'")
    with pytest.raises(FederationError, match="is spent"):
        other.spend(50.0, "site 'north'")


def test_a_private_site_gives_no_sum_without_noise():
    with pytest.raises(FederationError, match="answers private steps only"):
        site()("sums", ask("private_counts", task_of()))
    for z in (0.0, -1.0):
        with pytest.raises(FederationError, match="it gives none"):
            site()("private_slopes", ask("private_slopes", task_of(), z=z, sites=2))


def test_a_budget_ends_and_stays_ended(tmp_path):
    path = tmp_path / "north.ledger.json"
    ledger = Ledger(1.0, 1e-5, path=path)
    z = multiplier(1.0, 1e-5)
    ledger.spend(z, "site 'north'")
    assert path.stat().st_mode & 0o077 == 0
    for book in (ledger, Ledger(1.0, 1e-5, path=path)):
        with pytest.raises(FederationError, match="the privacy budget of site 'north' is spent"):
            book.spend(50.0, "site 'north'")
    assert Ledger(1.0, 1e-5, path=path).spent == pytest.approx(1.0)
    with pytest.raises(SettingsError, match="is kept for delta 1e-05"):
        Ledger(1.0, 1e-6, path=path)
    path.write_text("{}")
    with pytest.raises(FederationError, match="so nothing is answered"):
        Ledger(1.0, 1e-5, path=path)


def test_the_audits_epsilon_is_the_gaussians():
    for mu in (0.3, 1.0, 2.5):
        epsilon = AUDIT.epsilon_of(mu, 1e-5)
        exact = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert exact == pytest.approx(1e-5, rel=1e-3)
        assert epsilon <= spent([1 / mu], 1e-5)  # the accountant never claims less
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 4000))
    assert 1.3 < AUDIT.least_mu(scores[0] + 1.5, scores[1]) <= 1.5
    assert AUDIT.least_mu(scores[0], scores[1]) < 0.1


@pytest.mark.parametrize(("halved", "above"), [(1.0, False), (0.5, True)])
def test_an_audit_with_a_canary_stays_below_the_claim_unless_the_noise_is_halved(halved, above):
    """One step of multiplier 1 on tables with and without one long row: the score is along that row."""
    delta, runs, task = 1e-5, 800, task_of()
    rng = np.random.default_rng(0)
    canary = ROWS.take(np.array([int(np.argmax(ROWS.numeric["age"]))]))
    base = ROWS.take(np.arange(20))
    question = ask("private_moments", task, z=1.0, sites=1)

    def sums_of(rows):
        return answer(Client("a", rows), "private_moments", question)

    def noise(scale: float, size: int) -> np.ndarray:
        return np.rint(rng.normal(size=size) * scale * halved)

    def scores(sums):
        found = []
        for _ in range(runs):
            private = PrivateSite("a", lambda *_: sums, Ledger(100.0, delta), sampler=noise)
            found.append(along @ private("private_moments", question).sums["moments"])
        return np.array(found)

    along = sums_of(canary).sums["moments"]
    found = AUDIT.least_mu(scores(sums_of(concatenate([base, canary]))), scores(sums_of(base)))
    assert (AUDIT.epsilon_of(found, delta) > spent([1.0], delta)) == above


def test_an_engine_reply_without_a_known_field_is_refused():
    odd = PrivateSite("a", lambda step, asked: Reply(1, {"x": np.zeros(1)}), Ledger(3.0, 1e-5))
    with pytest.raises(FederationError, match="have no sensitivity"):
        odd("private_counts", ask("private_counts", task_of(), z=5.0, sites=1))


@pytest.mark.usefixtures("seeded_noise")
def test_whole_sites_can_be_hidden_instead_of_rows(tmp_path):
    """Every site adds no more than it said, refuses the other unit, and its ledger is of its unit."""
    tables, budget = dealt(ROWS, 4), Budget(1e4, ledgers=tmp_path, most_rows=50)
    made = fit_private(tables, "fairfl", budget=budget, schema=SCHEMA, positive="yes", rounds=2)
    told = made.model.privacy
    assert (told["unit"], told["most_rows"]) == ("site", 50.0)
    assert made.model.rows == pytest.approx(200, abs=20)  # of 400: 50 of each site take part
    rows = Budget(1e4, ledgers=tmp_path)
    with pytest.raises(AgnosticFairError, match="is kept for each site, not for each row"):
        fit_private(tables, "fairfl", budget=rows, schema=SCHEMA, positive="yes", rounds=2)
    with pytest.raises(FederationError, match="hides rows and was asked for sums that hide itself"):
        site()("private_counts", ask("private_counts", task_of(), z=5.0, most=10))
    with pytest.raises(SettingsError, match="most_rows is -1"):
        Budget(1.0, most_rows=-1)
