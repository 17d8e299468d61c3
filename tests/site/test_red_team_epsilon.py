"""A coordinator that lies to sites that answer with noise only: less of it, copies of it, two totals that share it, a
budget that is found anew. It goes the real way, bytes to sites that ``deploy init`` made; what it may learn is what the
ledger charges.
"""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import dealt

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")
pytest.importorskip("opendp", reason="needs agnosticfair[dp]")

from town import ROWS, SITES, Town, noisy, private_task, refusal, rows_of, written

from agnosticfair.data.rows import Fold
from agnosticfair.data.table import Column
from agnosticfair.errors import AgnosticFairError, FederationError
from agnosticfair.privacy.fit import Budget, fit_private
from agnosticfair.privacy.requests import PrivateCounts, PrivateDecisions, PrivateGradients
from agnosticfair.protocol.engines.seam import Failure
from agnosticfair.protocol.faults import Coordinator
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.requests import UNCOUNTED, Counts, SubgroupSet

Z = 60.0
"""A multiplier of which forty answers cost little."""


@pytest.fixture
def private(tmp_path):
    def town(name, tables=None, **more):
        run = {"method": "fairfl", "epsilon": 3.0, "delta": 1e-5, "min_rows": 10, **more}
        return Town(tmp_path / name, tables, **run)

    return town


def axes(*known, subgroups=()):
    return SubgroupSet(
        tuple(known), np.array(subgroups, float) if len(subgroups) else np.zeros((0, 3, 2))
    )


def job(values, subgroups):
    """Subgroups of the job, of these values."""
    rows = np.full((len(subgroups), 3, 2), -1.0)
    rows[:, 0, 1], rows[:, 0, 0] = subgroups, 0
    return SubgroupSet((("job", values, ()),), rows)


def counted(tables):
    codes = np.concatenate([t.sensitive_features["sex"].codes for t in tables.values()])
    return np.bincount(codes, minlength=2)


def test_the_noise_is_not_divided_by_a_number_that_is_sent(private):
    """Of a million sites each adds a thousandth of the noise: so said the request, and the site divided by it."""
    town = private("town")
    task, truth = private_task(town), counted(town.tables)
    request = noisy(PrivateCounts, z=Z, sites=10**6)
    crowd = tuple(f"site {k}" for k in range(10**4))
    off = [
        town.coordinator.total(Broadcast(k, task, request)).sums["groups"][0] - truth
        for k in range(20)
    ]
    assert np.std(off) > 0.7 * Z
    with pytest.raises(FederationError):
        town.coordinator.total(Broadcast(99, replace(task, clients=crowd), request))


@pytest.mark.parametrize("kind", [PrivateCounts, PrivateDecisions])
def test_copies_of_a_subgroup_are_not_had_at_the_price_of_one(private, kind):
    town = private("town")
    town.coordinator.total(Broadcast(0, private_task(town), noisy(PrivateCounts, z=Z)))
    named = job(("a", "b", "c"), [0] * 40)
    more = {"w": np.zeros(6)} if kind is PrivateDecisions else {}
    task = private_task(town, subgroups=named, n=240)
    request = Broadcast(1, task, noisy(kind, z=Z, **more), town.coordinator.session.session)
    assert town.one("north", kind.step, request) == Failure(refusal(), True)
    # the same copies by another name: a value that is listed twice
    named = job(("a", "a", "a", "b", "c"), [0, 1, 2])
    request = Broadcast(
        2, replace(task, subgroups=named), noisy(kind, z=Z, **more), request.session
    )
    assert town.one("north", kind.step, request) == Failure(refusal(), True)


def test_a_total_without_a_site_does_not_show_that_site(private):
    """Noise that was given once is given again, so that a total less the one without a site is this site's own answer
    with its share of the noise: spent 1.00, worth 3.86."""
    tables = dict(zip(("north", "south", "west"), dealt(ROWS, 3).values(), strict=True))
    town = private("town", tables)
    for own in town.config.values():
        own["may-drop"] = True
    task, truth = private_task(town), counted({"west": tables["west"]})
    try:
        task = replace(task, clients=tuple(sorted(tables)))
        few = town.coordinator.secure
        fewer = {key: few[key] for key in SITES}
        others = Coordinator(town, SITES, secure=fewer)
        off = []
        for k in range(20):
            request = Broadcast(k, task, noisy(PrivateCounts, z=Z, sites=3))
            two = replace(request, task=task)
            off.append(
                town.coordinator.total(request).sums["groups"][0]
                - others.total(two).sums["groups"][0]
                - truth
            )
    except AgnosticFairError:
        return  # refused is well
    assert np.std(off) > 0.95 * Z


def spend(town, z, number):
    return town.coordinator.total(Broadcast(number, private_task(town), noisy(PrivateCounts, z=z)))


@pytest.mark.parametrize("how", ["renamed", "copied", "ledger deleted", "rows in another order"])
def test_rows_have_one_budget_by_whatever_name(private, how, tmp_path):
    """The ledger was a file of the federation's folder: another folder, another budget."""
    town = private("first")
    spend(town, 1.6, 1)  # most of epsilon 3
    with pytest.raises(FederationError):
        spend(town, 1.6, 2)
    if how == "ledger deleted":
        for path in town.folder.rglob("*ledger*.json"):
            path.unlink()
        other = town
    elif how == "renamed":
        moved = tmp_path / "first" / "bank2"
        shutil.move(town.folder, moved)
        for own in town.config.values():
            own |= {
                k: str(v).replace("/bank/", "/bank2/") for k, v in own.items() if "/bank/" in str(v)
            }
        for own in town.config.values():
            if "ledger" in own:  # it was a setting
                own["ledger"] = own["ledger"] + ".new"
        other = town
    else:
        rng = np.random.default_rng(0)
        tables = town.tables
        if how == "rows in another order":
            tables = {k: t.take(rng.permutation(len(t))) for k, t in tables.items()}
        other = private("second", tables)
    with pytest.raises(FederationError, match="budget"):
        spend(other, 1.6, 3)


def test_a_fit_without_room_to_its_end_asks_for_nothing(private):
    """It spent 28 of 30, and then had no model."""
    town = private("town")
    town.config["south"]["epsilon"] = 2.9
    answered, one = [], town.one

    def seen(key, step, payload):
        found = one(key, step, payload)
        if not isinstance(found, Failure) and step.startswith("private") and step != "private_plan":
            answered.append(step)
        return found

    town.one = seen
    with pytest.raises(FederationError, match="budget"):
        fit_private(
            town,
            budget=Budget(3.0),
            schema=town.schema,
            positive="yes",
            secure=town.coordinator.secure,
        )
    assert answered == []


def test_a_row_that_does_not_fit_the_schema_is_not_told_of(private, tmp_path):
    """A site with one refused, one without answered: at no cost. Now the row adds nothing, and nobody hears of it."""
    town = private("town")
    rows = town.tables["north"]
    jobs = rows.categorical["job"].values().astype(object)
    jobs[0] = "secret"
    odd = replace(rows, categorical={"job": Column.of(jobs)})
    written(tmp_path / "town" / "north.csv", odd)
    assert spend(town, Z, 1).sums["groups"].shape == (1, 2)


def test_rounding_moves_a_sum_no_further_than_a_row_may(private):
    """Before rows are counted sums are sent on a coarser grid than rows are added up on: rounded, two sums that differ
    by a row differed by more than that row."""
    from agnosticfair.client.client import Client
    from agnosticfair.client.steps import answer
    from agnosticfair.privacy.requests import sensitivity

    town = private("town")
    task, rng = private_task(town, n=0), np.random.default_rng(1)
    w = rng.normal(size=task.encoding.width + 1)
    request = noisy(PrivateGradients, temperature=0.7, w=w)
    whole = answer(Client("a", ROWS), request.step, Broadcast(1, task, request)).sums
    alone = [
        answer(
            Client("a", ROWS.take(np.array([k]))), request.step, Broadcast(1, task, request)
        ).sums
        for k in range(60)
    ]
    for k, own in enumerate(alone):
        rest = ROWS.take(np.delete(np.arange(len(ROWS)), k))
        without = answer(Client("a", rest), request.step, Broadcast(1, task, request)).sums
        for name, value in whole.items():
            assert np.array_equal(value - without[name], own[name]), (name, k)
            assert np.linalg.norm(own[name]) <= sensitivity(name, request, task)


def test_a_digest_of_the_file_is_not_told_beside_noise(private):
    """Whoever knows all rows but one tells by it whether that one is there."""
    from agnosticfair.deploy.site import hello, pin

    town = private("town")
    file = Path(town.config["north"]["file"])
    told = hello(town.config["north"]) + pin(town.config["north"], file.with_suffix(".pin"))
    assert hashlib.sha256(file.read_bytes()).hexdigest() not in told
    other = file.with_suffix(".other")  # the same rows under another key are another digest
    assert pin(town.config["north"], other) not in told


def test_under_epsilon_nothing_is_refused_for_how_many_rows_there_are(private):
    """min-rows told a group of 9 rows from one of 10: membership, at no cost."""
    sex = ROWS.sensitive_features["sex"].codes
    first = np.r_[np.flatnonzero(sex == 1)[:10], np.flatnonzero(sex == 0)[:100]]
    for name, own in (("ten", first), ("nine", first[1:])):
        town = private(name, rows_of([ROWS.take(own), ROWS]))
        assert town.total(noisy(PrivateCounts), private_task(town))["groups"].shape == (1, 2)


def test_under_epsilon_the_task_is_the_schema_s(private):
    town = private("town")
    w = np.zeros(6)
    cut = axes(("age", ("under", "over"), (0.1,)), subgroups=[[(0, 0), (-1, -1), (-1, -1)]])
    town.total(noisy(PrivateCounts), private_task(town))
    for task, request in (
        (private_task(town, fold=Fold(0, 2)), noisy(PrivateCounts)),
        (private_task(town, subgroups=cut), noisy(PrivateCounts)),
        (private_task(town, n=240), noisy(PrivateGradients, temperature=0.0, w=w)),
        (private_task(town), noisy(PrivateCounts, z=0.0)),
        (private_task(town), noisy(PrivateCounts, max_rows=5)),
    ):
        session = town.coordinator.session.session
        found = town.one("north", request.step, Broadcast(9, task, request, session))
        assert found == Failure(refusal(), True)
    said = town.said("counts", Broadcast(9, UNCOUNTED, Counts(town.schema.outline())))
    assert said == "site 'north' answers private steps only, not 'counts': its sums need noise"
