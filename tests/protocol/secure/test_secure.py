"""Masked sums: the total to the last bit, one site's reply uniform, everything foreign refused."""

from dataclasses import replace
from functools import partial
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.protocol.engines.seam import InProcess
from agnosticfair.protocol.faults import Coordinator
from agnosticfair.protocol.messages import (
    Agreement,
    Broadcast,
    Invitation,
    Offer,
    Reply,
    add_up,
    base_bits,
    on_grid,
    pack,
    rounded,
    unpack,
)
from agnosticfair.protocol.requests import UNCOUNTED, Sums
from agnosticfair.protocol.secure.keys import Identity, check_roster, new_identity, public_half
from agnosticfair.protocol.secure.masks import (
    CHUNK,
    floats,
    integers,
    mask,
    request_digest,
    streams,
)
from agnosticfair.protocol.secure.sessions import SESSIONS, Opened, SecureSite, open_session, total

TASK = replace(UNCOUNTED, n=1000, clients=("a", "b"))


def replies(sites: int, seed: int = 0, size: float = 1.0) -> dict[str, Reply]:
    rng = np.random.default_rng(seed)
    names = [f"site {k:03d}" for k in range(sites)]
    sums = [{k: np.array(rng.normal(size=v) * size) for k, v in SHAPES.items()} for _ in names]
    return {name: on_grid(Reply(1, own), TASK) for name, own in zip(names, sums, strict=True)}


def at(step, broadcast, reply):
    return replace(reply, round=broadcast.round)


def federation(replies: dict[str, Reply], **settings):
    """An asker over secure sites that have these replies, and the sites."""
    identities = {name: new_identity(name) for name in replies}
    roster = {name: identity.public for name, identity in identities.items()}
    sites = {
        name: SecureSite(identities[name], roster, partial(at, reply=reply), **settings)
        for name, reply in replies.items()
    }
    return Coordinator(InProcess(sites), tuple(sorted(replies))), sites, roster


def broadcast(round: int = 1, w: float = 0.0) -> Broadcast:
    return Broadcast(
        round, TASK, Sums(Surrogate(), 0.5, np.array([w]), np.ones(2), np.ones((2, 3)))
    )


SHAPES = broadcast().shapes


@given(st.integers(2, 12), st.integers(0, 2**32), st.sampled_from([1e-6, 1.0, 3e4]))
def test_masked_replies_add_up_to_the_plain_total_bit_for_bit(sites, seed, size):
    replies_here = replies(sites, seed, size)
    coordinator, _, roster = federation(replies_here)
    masked = total(coordinator.send, open_session(coordinator.send, roster), broadcast())
    plain = add_up(replies_here.values())
    assert masked.round == 1
    for name in SHAPES:
        np.testing.assert_array_equal(masked.sums[name], plain.sums[name])


@pytest.mark.slow
def test_a_hundred_sites_add_up():
    replies_here = replies(100)
    coordinator, _, roster = federation(replies_here)
    masked = total(coordinator.send, open_session(coordinator.send, roster), broadcast())
    plain = add_up(replies_here.values())
    for name in SHAPES:
        np.testing.assert_array_equal(masked.sums[name], plain.sums[name])


@given(st.lists(st.integers(-(2**52), 2**52), min_size=1, max_size=9), st.integers(-30, 60))
def test_integers_and_back(values, bits):
    found = np.ldexp(np.array(values, float), -bits)
    np.testing.assert_array_equal(floats(integers(found, bits), bits), found)


def test_what_is_on_the_grid_stays():
    value = rounded(np.random.default_rng(0).normal(size=100), 34)
    np.testing.assert_array_equal(rounded(value, 34), value)
    np.testing.assert_array_equal(value * 2.0**34, np.rint(value * 2.0**34))


def test_the_coordinators_view_of_one_site_is_uniform():
    """Bytes of masked replies over many requests, of a site whose sums are all zero."""
    own = {name: Reply(1, {"n": np.zeros(()), "psi": np.zeros((2, 3))}) for name in "abc"}
    coordinator, sites, roster = federation(own)
    opened = open_session(coordinator.send, roster)
    seen = [
        sites["b"]("sums", replace(broadcast(k), session=opened.session)).values
        for k in range(2000)
    ]
    for place in range(8):
        counts = np.bincount(np.stack(seen).view(np.uint8)[:, place::8].ravel(), minlength=256)
        assert chisquare(counts).pvalue > 1e-4


def test_chi_square_would_see_an_unmasked_reply():
    values = np.stack([integers(np.full(7, 0.25), 34) for _ in range(2000)])
    assert chisquare(np.bincount(values.view(np.uint8).ravel(), minlength=256)).pvalue < 1e-9


def test_the_same_request_has_the_same_reply_and_another_one_others():
    replies_here = replies(3)
    coordinator, sites, roster = federation(replies_here)
    opened = open_session(coordinator.send, roster)
    send = partial(replace, session=opened.session)
    first, again = (sites["site 000"]("sums", send(broadcast(1))) for _ in range(2))
    np.testing.assert_array_equal(first.values, again.values)
    assert first.proof == again.proof
    later = sites["site 000"]("sums", send(broadcast(2)))
    assert not (first.values == later.values).any()
    other = sites["site 000"]("moments", send(broadcast(1)))
    assert not (first.values == other.values).any()


def test_a_second_request_of_the_same_round_is_refused():
    coordinator, _, roster = federation(replies(3))
    opened = open_session(coordinator.send, roster)
    total(coordinator.send, opened, broadcast(1))
    with pytest.raises(FederationError, match="asked once"):
        total(coordinator.send, opened, broadcast(1, w=0.5))


class Tamper:
    """An engine that lets answers through somebody who changes them."""

    def __init__(self, engine, change):
        self.engine, self.change = engine, change

    def clients(self):
        return self.engine.clients()

    def exchange(self, step, payload, keys, deadline):
        return self.change(step, payload, self.engine.exchange(step, payload, keys, deadline))


def altered(answer):
    values = answer.values.copy()
    values[0] += np.uint64(1)
    return replace(answer, values=values)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda old, now: {**now, "site 001": altered(now["site 001"])},
            "replayed or swapped",
        ),
        (lambda old, now: {**now, "site 001": old["site 001"]}, "late or swapped"),
        (
            lambda old, now: {**now, "site 001": replace(old["site 001"], round=2)},
            "replayed or swapped",
        ),
        (
            lambda old, now: {**now, "site 000": now["site 001"], "site 001": now["site 000"]},
            "late or swapped",
        ),
        (
            lambda old, now: {**now, "site 001": replace(now["site 000"], site="site 001")},
            "replayed or swapped",
        ),
        (
            lambda old, now: {
                **now,
                "site 001": replace(now["site 001"], values=np.zeros(3, np.uint64)),
            },
            "3 masked numbers",
        ),
        (lambda old, now: {**now, "site 001": replies(2)["site 001"]}, "not masked sums"),
    ],
    ids=["altered", "replayed", "renumbered", "reordered", "renamed", "short", "plain"],
)
def test_a_foreign_reply_is_refused(change, sentence):
    coordinator, _, roster = federation(replies(2))
    opened = open_session(coordinator.send, roster)
    request = replace(broadcast(1), session=opened.session)
    old = coordinator.engine.exchange("sums", request, coordinator.keys)
    coordinator.engine = Tamper(coordinator.engine, lambda step, payload, now: change(old, now))
    with pytest.raises(FederationError, match=sentence):
        total(coordinator.send, opened, broadcast(2))


def test_a_lying_coordinator_cannot_swap_a_masking_key():
    """It stands between two sites with a key of its own, signed with a key of its own."""
    coordinator, sites, roster = federation(replies(2))
    mallory = Identity("site 001", new_identity("x").secret)
    with pytest.raises(FederationError, match="somebody may stand"):
        sites["site 000"]("keys", Invitation("one", {**roster, "site 001": mallory.public}))

    def swap(step, payload, now):
        if step != "keys":
            return now
        own = {k: replace(v, public="11" * 32) for k, v in now.items() if k == "site 001"}
        return {**now, **own}

    coordinator.engine = Tamper(coordinator.engine, swap)
    with pytest.raises(FederationError, match="signed with"):
        open_session(coordinator.send, roster)
    # and where the coordinator itself swaps it, the site finds out
    engine = Tamper(InProcess(sites), swap)
    offers = engine.exchange("keys", Invitation("two", roster), engine.clients(), inf)
    with pytest.raises(FederationError, match="signed with"):
        sites["site 000"]("agree", Agreement("two", tuple(offers.values())))


def test_a_replayed_masking_key_is_refused():
    _, sites, roster = federation(replies(2))

    old, now = (
        InProcess(sites).exchange("keys", Invitation(name, roster), sorted(sites))
        for name in ("one", "two")
    )
    with pytest.raises(FederationError, match="another session"):
        sites["site 000"]("agree", Agreement("two", (now["site 000"], old["site 001"])))
    with pytest.raises(FederationError, match="session's sites"):
        sites["site 000"]("agree", Agreement("two", (now["site 000"], now["site 000"])))


def test_a_secure_site_answers_nothing_in_the_open():
    _, sites, _ = federation(replies(2))
    for step in ("sums", "statistics", "centres", "decisions"):
        with pytest.raises(FederationError, match="masked sums only"):
            sites["site 000"](step, broadcast())
    with pytest.raises(FederationError, match="knows no session"):
        sites["site 000"]("sums", replace(broadcast(), session="unknown"))


def test_fewer_sites_than_are_pinned_are_refused_unless_allowed():
    replies_here = replies(3)
    coordinator, sites, roster = federation(replies_here)
    coordinator.keys = ("site 000", "site 001")
    fewer = {k: v for k, v in roster.items() if k != "site 002"}
    with pytest.raises(FederationError, match=r"'site 002'.*missing"):
        open_session(coordinator.send, fewer)
    for site in sites.values():
        site.may_drop = True
    total_reply = total(coordinator.send, open_session(coordinator.send, fewer), broadcast())
    plain = add_up([replies_here["site 000"], replies_here["site 001"]])
    np.testing.assert_array_equal(total_reply.sums["psi_g"], plain.sums["psi_g"])


def test_bad_lists_are_refused_in_a_sentence():
    one, two = new_identity("one"), new_identity("two")
    with pytest.raises(SettingsError, match=r"'one'.*'two'"):
        check_roster({"one": one.public, "two": one.public}, 2)
    with pytest.raises(SettingsError, match=r"1 site.*shown"):
        check_roster({"one": one.public}, 2)
    with pytest.raises(SettingsError, match=r"64 hexadecimal.*digits"):
        check_roster({"one": "zz", "two": two.public}, 2)
    with pytest.raises(FederationError, match="the list"):
        SecureSite(one, {"two": two.public, "three": new_identity("three").public}, at)


def test_sums_wrap_around_and_what_leaves_the_grid_is_refused():
    wrapped = integers(np.array([2.0**63, 2.0**64 + 2.0**40, -(2.0**63), np.inf, np.nan]), 0)
    assert wrapped.tolist() == [2**63, 2**40, 2**63, 0, 0]
    with pytest.raises(FederationError, match="agreed grid"):
        integers(np.array([0.3]), 2)
    with pytest.raises(SettingsError, match=r"would.*64 bits"):
        base_bits(2**40)


def test_sessions_outlive_a_restart(tmp_path):
    replies_here = replies(2)
    coordinator, sites, roster = federation(replies_here)
    path = tmp_path / "sessions.json"
    sites["site 000"].path = path
    opened = open_session(coordinator.send, roster)
    send = replace(broadcast(), session=opened.session)
    before = sites["site 000"]("sums", send)
    assert path.stat().st_mode & 0o077 == 0
    again = SecureSite(sites["site 000"].identity, roster, sites["site 000"].answer, path=path)
    np.testing.assert_array_equal(again("sums", send).values, before.values)
    with pytest.raises(FederationError, match="asked once"):
        again("sums", replace(broadcast(1, w=0.5), session=opened.session))
    path.write_text("{")
    with pytest.raises(FederationError, match="is damaged"):
        SecureSite(again.identity, roster, again.answer, path=path)


def test_the_sessions_used_last_are_kept():
    coordinator, sites, roster = federation(replies(2))
    first = open_session(coordinator.send, roster)
    opened = [open_session(coordinator.send, roster) for _ in range(SESSIONS - 1)]
    sites["site 000"]("sums", replace(broadcast(), session=first.session))
    open_session(coordinator.send, roster)
    assert first.session in sites["site 000"].sessions
    assert opened[0].session not in sites["site 000"].sessions
    with pytest.raises(FederationError, match="knows no session"):
        sites["site 000"]("sums", replace(broadcast(), session=opened[0].session))


def test_messages_of_a_session_survive_the_wire():
    coordinator, sites, roster = federation(replies(2))
    opened = open_session(coordinator.send, roster)
    send = unpack(pack(replace(broadcast(), session=opened.session)))
    assert send.session == opened.session
    answer = sites["site 000"]("sums", send)
    back = unpack(pack(answer))
    np.testing.assert_array_equal(back.values, answer.values)
    assert (back.site, back.round, back.proof) == (answer.site, answer.round, answer.proof)
    assert request_digest("sums", send, b"") == request_digest(
        "sums", replace(broadcast(), session=opened.session), b""
    )
    whole = replace(
        broadcast(), request=replace(broadcast().request, share=1)
    )  # in a field of float
    assert request_digest("sums", unpack(pack(whole)), b"") == request_digest("sums", whole, b"")
    invitation = Invitation("new", roster)
    assert unpack(pack(invitation)) == invitation
    offer = sites["site 000"]("keys", invitation)
    assert unpack(pack(offer)) == offer
    assert unpack(pack(Agreement("new", (offer,)))) == Agreement("new", (offer,))
    with pytest.raises(FederationError, match="damaged"):
        unpack(pack(replace(offer, public="no key")))


def test_a_secret_is_not_shown():
    identity = new_identity("north")
    assert identity.secret.hex() not in repr(identity)
    assert repr(identity.secret) not in repr(identity)


def pair(session: str = "one"):
    """The stream that two sites share, as each of them has it."""
    secrets = {"a": b"a" * 32, "b": b"b" * 32}
    offers = {k: Offer(k, session, public_half(v), "") for k, v in secrets.items()}
    return [streams(site, secret, session, offers)[0] for site, secret in secrets.items()]


def test_both_sites_of_a_pair_make_the_same_stream_and_another_one_for_each_request():
    made = [
        [stream.of(request).update(bytes(32)) for stream in pair(session)]
        for session in ("one", "two")
        for request in (b"x", b"y")
    ]
    assert all(own == other for own, other in made)
    assert len({own for own, _ in made}) == 4
    later, earlier = pair()
    assert (later.combine, earlier.combine) == (np.add, np.subtract)
    assert later.of(b"x").update(bytes(16)) == later.of(b"x").update(bytes(16))


@pytest.mark.parametrize("size", [1, CHUNK - 1, CHUNK, 2 * CHUNK + 5])
def test_a_mask_is_the_sum_of_whole_streams_however_it_is_chunked(size):
    own = [*pair("one"), *pair("two")]
    whole = [np.frombuffer(s.of(b"request").update(bytes(8 * size)), "<u8") for s in own]
    np.testing.assert_array_equal(mask([own[0], own[2]], b"request", size), whole[0] + whole[2])
    np.testing.assert_array_equal(mask([own[1]], b"request", size), -whole[1])


def test_rows_that_change_between_two_askings_do_not_show_by_how_much():
    """Under the same masks the difference of two replies would be the difference of the sums."""
    coordinator, sites, roster = federation(replies(2))
    opened = open_session(coordinator.send, roster)
    send = replace(broadcast(), session=opened.session)
    first = sites["site 000"]("sums", send)
    sites["site 000"].answer = partial(at, reply=replies(2, seed=1)["site 000"])
    with pytest.raises(FederationError, match="rows have changed"):
        sites["site 000"]("sums", send)
    sites["site 000"].answer = partial(at, reply=replies(2)["site 000"])
    np.testing.assert_array_equal(sites["site 000"]("sums", send).values, first.values)


def test_somebody_between_a_site_and_the_coordinator_is_found_out():
    """Who gives sites another coordinator's key could mark replies of its own: the sites sign which key they saw."""
    coordinator, sites, roster = federation(replies(2))

    class Between:
        def clients(self):
            return tuple(sorted(sites))

        def exchange(self, step, payload, keys, deadline):
            if step == "keys":
                payload = replace(payload, coordinator=public_half(new_identity("x").secret))
            return InProcess(sites).exchange(step, payload, keys, deadline)

    coordinator.engine = Between()
    with pytest.raises(FederationError, match="signed with"):
        open_session(coordinator.send, roster)
    invitation = Invitation("one", roster, public_half(new_identity("c").secret))
    sites["site 000"]("keys", invitation)
    with pytest.raises(FederationError, match="another coordinator"):
        sites["site 000"]("keys", replace(invitation, coordinator=roster["site 001"]))


def test_without_a_coordinator_replies_are_signed():
    _, sites, roster = federation(replies(2))
    invitation = Invitation("one", roster)
    offers = tuple(site("keys", invitation) for site in sites.values())
    for site in sites.values():
        site("agree", Agreement("one", offers))

    def answers(step, one_request, check):
        return {name: check(change(site(step, one_request)), name) for name, site in sites.items()}

    change = lambda answer: answer  # noqa: E731
    total_reply = total(answers, Opened("one", roster), broadcast())
    np.testing.assert_array_equal(
        total_reply.sums["psi_g"], add_up(replies(2).values()).sums["psi_g"]
    )
    change = altered
    with pytest.raises(FederationError, match="replayed or swapped"):
        total(answers, Opened("one", roster), broadcast())
