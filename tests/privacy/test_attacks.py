"""What a lying coordinator tries under epsilon, through the real answering path of a site: less noise, noise that
averages out, two totals that differ in one site, refusals that tell of a row."""

from collections import Counter
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
from helpers import dealt
from private_requests import ROWS, SCHEMA, send, site, task_of, with_singles

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.rows import Fold
from agnosticfair.errors import AgnosticFairError, FederationError, SettingsError
from agnosticfair.federation import in_process
from agnosticfair.privacy.fit import Budget, fit_private
from agnosticfair.privacy.ledger import Ledger, PrivateSite, share_of
from agnosticfair.privacy.requests import (
    SHARES,
    PrivateCounts,
    PrivateDecisions,
    PrivateGradients,
    PrivateMoments,
    deviations,
    entries,
    sensitivity,
)
from agnosticfair.protocol.faults import Coordinator
from agnosticfair.protocol.messages import bits, pack, unpack
from agnosticfair.protocol.secure.keys import check_offer
from agnosticfair.site.guard import rehearsed

SINGLES = with_singles(task_of())
EVERY = len(SINGLES.subgroups.values)


def sites_of(tables, colluding=0, may_drop=False):
    """Sites of a session of masked sums with noise; and the scales of the noise that each of them added."""
    scales = {key: [] for key in tables}

    def sampler(key, scale, size):
        scales[key].append(scale)
        return np.zeros(size, np.int64)

    held = {
        key: PrivateSite(
            key,
            partial(answer, Client(key, rows)),
            Ledger(1e3, 1e-5),
            colluding,
            sampler=partial(sampler, key),
            rows="0" * 32,
        )
        for key, rows in tables.items()
    }
    engine = replace(in_process(tables), handlers=held)
    rows = dict.fromkeys(held, "0" * 32)
    engine, roster = rehearsed(engine, may_drop, schema=SCHEMA, epsilon=1e3, rows=rows)
    return Coordinator(engine, engine.clients(), secure=roster), scales


def test_no_request_says_how_many_sites_share_the_noise():
    """It was divided by the root of a number that the coordinator sent: a million sites, a thousandth of it."""
    for kind in (PrivateCounts, PrivateMoments, PrivateGradients, PrivateDecisions):
        assert "sites" not in {field.name for field in fields(kind)}
    crowd = replace(task_of(), clients=tuple(f"site {k}" for k in range(1000)))
    alone, scales = site(), []
    alone.sampler = lambda scale, size: scales.append(scale) or np.zeros(size, np.int64)
    request = send("private_counts", crowd, z=5.0)
    alone("private_counts", request)
    unit = 2.0 ** bits("groups", crowd)
    assert scales == [deviations(request.request, crowd)["groups"] * unit]  # all of the noise


@pytest.mark.parametrize("sites", [2, 5])
def test_the_noise_is_shared_among_the_sites_of_the_session(sites):
    """As it is now in the honest case: the shares of those who do not collude make up the whole of it."""
    coordinator, scales = sites_of(dealt(ROWS, sites), colluding=1)
    task = replace(task_of(), clients=coordinator.keys, n=0)
    request = send("private_gradients", task, z=5.0)
    coordinator.total(request)
    stated = [sigma * 2.0**20 for sigma in deviations(request.request, task).values()]
    for added in scales.values():
        np.testing.assert_allclose(added, share_of(sites, 1) * np.array(stated))


@pytest.mark.parametrize("step", ["private_counts", "private_gradients", "private_decisions"])
def test_no_subgroup_is_listed_twice_and_none_that_is_not_there(step):
    subgroups = SINGLES.subgroups.values
    strange = subgroups.copy()
    strange[0, 0] = [99, 0]
    for wrong in (np.concatenate([subgroups, subgroups]), subgroups[[0, 0]], strange):
        task = replace(SINGLES, subgroups=replace(SINGLES.subgroups, values=wrong))
        private = site()
        with pytest.raises(FederationError, match="refuses the request"):
            private(step, send(step, task, z=5.0))
        assert private.ledger.spent == 0


@pytest.mark.parametrize("step", ["private_counts", "private_rates", "private_decisions"])
def test_sensitivity_counts_entries(step):
    """Were repeats answered, the noise would still cover them: every row is taken away, and the norm looked at."""
    rows = ROWS.take(np.arange(40))
    subgroups = np.concatenate([SINGLES.subgroups.values, SINGLES.subgroups.values[:2]])
    task = replace(SINGLES, subgroups=replace(SINGLES.subgroups, values=subgroups))
    request = send(step, task)
    whole = answer(Client("a", rows), step, request).sums
    for gone in range(len(rows)):
        left = rows.take(np.delete(np.arange(len(rows)), gone))
        sums = answer(Client("a", left), step, request).sums
        for name, value in sums.items():
            moved = np.linalg.norm(whole[name] - value)
            assert moved <= sensitivity(name, request.request, task)
    assert entries([(0, 1), (0, 1), (0, 2), (1, 0)]) == 3


def test_nobody_is_dropped_under_noise():
    """A total less the same total without a site had that site's share of the noise alone: spent 1.00, worth 3.86."""
    tables = dealt(ROWS, 3)
    with pytest.raises(SettingsError, match="private fit drops"):
        fit_private(tables, "fairfl", budget=Budget(3.0), schema=SCHEMA, on_failure="drop")
    with pytest.raises(FederationError, match="may drop none"):
        sites_of(tables, may_drop=True)
    coordinator, _ = sites_of(tables)
    fewer = replace(coordinator, keys=coordinator.keys[:2], session=None)
    with pytest.raises(FederationError, match="takes part"):
        fewer.total(send("private_counts", replace(task_of(), clients=fewer.keys, n=0), z=5.0))


def test_noise_that_was_shared_with_others_is_not_used_again():
    """It is kept for its roster, and for the rows that the others had: else their noise cancels between two totals."""
    private, request = site(Ledger(50.0, 1e-5)), send("private_moments", task_of(), z=5.0)
    rosters = [{"a": "1", "b": "1"}, {"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2"}, {}]
    found = [private("private_moments", request, roster).sums["moments"] for roster in rosters]
    again = private("private_moments", request, rosters[0]).sums["moments"]
    np.testing.assert_array_equal(found[0], again)
    assert len({value.tobytes() for value in found}) == 4
    assert private.ledger.multipliers == [5.0] * 4


def test_a_site_says_by_its_signature_whether_its_rows_are_the_same():
    """The coordinator cannot say it in its place."""
    coordinator, _ = sites_of(dealt(ROWS, 2))
    coordinator.total(
        send("private_counts", replace(task_of(), clients=coordinator.keys, n=0), z=5.0)
    )
    key, held = next(iter(coordinator.engine.handlers.items()))
    session = next(iter(held.sessions.values()))
    offers = dict(session.offers)
    assert {offer.rows for offer in offers.values()} == {"0" * 32}
    offer = unpack(pack(offers[key]))
    check_offer(offer, session.invitation, held.pinned)
    with pytest.raises(FederationError):
        check_offer(replace(offer, rows="1" * 32), session.invitation, held.pinned)


def hostile(task):
    """Tasks and requests of valid fields and hostile values, whose refusals told of rows."""
    (name, groups), encoding = task.sensitive_features[0], task.encoding
    (job, values), *_ = encoding.categorical
    few = replace(encoding, categorical=((job, values[:1]),))
    yield "private_counts", replace(task, sensitive_features=((name, groups[:1]),)), {}
    yield "private_moments", replace(task, encoding=few), {}
    yield "private_counts", replace(task, fold=Fold(0, 10**6, 3)), {}
    yield "private_counts", replace(task, positive="nobody's label"), {}
    yield "private_moments", replace(task, n=1), {}
    for temperature in (0.0, 1e-300, np.nan, np.inf):
        yield "private_gradients", task, {"temperature": temperature}
    for weight in (np.nan, np.inf, 1e300):
        yield "private_decisions", task, {"w": np.full(6, weight)}
    yield "private_decisions", task, {"w": np.ones(3)}


@pytest.mark.parametrize("number", range(13))
def test_whether_a_request_is_answered_depends_on_no_row(number):
    """Over neighbours: all rows, all but one, one, none, and one of a group, a category and a number never declared."""
    step, task, more = [*hostile(task_of())][number]
    one = ROWS.take(np.array([0]))
    stranger = replace(
        one,
        categorical={"job": replace(one.categorical["job"], categories=("x", "y", "z"))},
        numeric={name: np.full(1, np.nan) for name in one.numeric},
    )
    tables = [ROWS, ROWS.take(np.arange(399)), one, ROWS.take(np.arange(0)), stranger]
    answers = Counter()
    for rows in tables:
        private = PrivateSite("a", partial(answer, Client("a", rows)), Ledger(3.0, 1e-5))
        try:
            reply = private(step, send(step, task, z=5.0, **more))
            assert all(np.isfinite(value).all() for value in reply.sums.values())
            answers["answered"] += 1
        except AgnosticFairError as error:
            assert private.ledger.spent == 0
            answers[str(error)] += 1
    assert [*answers.values()] == [len(tables)]


def test_a_sums_rounding_comes_after_its_noise():
    """Noise is added to whole numbers, so that the last bits of a float tell nothing."""
    private = site(Ledger(50.0, 1e-5))
    sums = answer(Client("a", ROWS), "private_gradients", send("private_gradients", task_of()))
    private.sampler = lambda scale, size: np.arange(size, dtype=np.int64)
    noisy = private("private_gradients", send("private_gradients", task_of(), z=5.0)).sums
    for name in SHARES["private_gradients"]:
        value = np.asarray(sums.sums[name])
        unit = 2.0 ** bits(name, task_of())
        expected = value + np.arange(value.size).reshape(value.shape) / unit
        np.testing.assert_array_equal(noisy[name], expected)
