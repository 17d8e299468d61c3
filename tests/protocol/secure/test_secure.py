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
from agnosticfair.protocol.engines.in_process import InProcess
from agnosticfair.protocol.faults import Asker
from agnosticfair.protocol.grid import base_bits, on_grid, rounded
from agnosticfair.protocol.messages import (
    Agreement,
    Broadcast,
    Invitation,
    Reply,
    add_up,
    pack,
    unpack,
)
from agnosticfair.protocol.questions import UNCOUNTED, Sums
from agnosticfair.protocol.secure.integers import floats, integers
from agnosticfair.protocol.secure.keys import Identity, check_roster, new_identity
from agnosticfair.protocol.secure.masks import BLOCK, keystream, question_digest
from agnosticfair.protocol.secure.site import SecureSite
from agnosticfair.protocol.secure.totals import open_session, total

TASK = replace(UNCOUNTED, n=1000, clients=("a", "b"))


def replies(sites: int, seed: int = 0, size: float = 1.0) -> dict[str, Reply]:
    rng = np.random.default_rng(seed)
    names = [f"site {k:03d}" for k in range(sites)]
    sums = [{k: np.array(rng.normal(size=v) * size) for k, v in SHAPES.items()} for _ in names]
    return {name: on_grid(Reply(1, own), TASK) for name, own in zip(names, sums, strict=True)}


def at(step, broadcast, reply):
    return replace(reply, round=broadcast.round)


def federation(own: dict[str, Reply], **settings):
    """An asker over secure sites that have these replies, and the sites."""
    identities = {name: new_identity(name) for name in own}
    roster = {name: identity.public for name, identity in identities.items()}
    sites = {
        name: SecureSite(identities[name], roster, partial(at, reply=reply), **settings)
        for name, reply in own.items()
    }
    return Asker(InProcess(sites), tuple(sorted(own))), sites, roster


def question(round: int = 1, w: float = 0.0) -> Broadcast:
    return Broadcast(
        round, TASK, Sums(Surrogate(), 0.5, np.array([w]), np.ones(2), np.ones((2, 3)))
    )


SHAPES = question().shapes


@given(st.integers(2, 12), st.integers(0, 2**32), st.sampled_from([1e-6, 1.0, 3e4]))
def test_masked_replies_add_up_to_the_plain_total_bit_for_bit(sites, seed, size):
    own = replies(sites, seed, size)
    asker, _, roster = federation(own)
    masked = total(asker.ask, open_session(asker.ask, roster), question())
    plain = add_up(own.values())
    assert masked.round == 1
    for name in SHAPES:
        np.testing.assert_array_equal(masked.sums[name], plain.sums[name])


@pytest.mark.slow
def test_a_hundred_sites_add_up():
    own = replies(100)
    asker, _, roster = federation(own)
    masked = total(asker.ask, open_session(asker.ask, roster), question())
    plain = add_up(own.values())
    for name in SHAPES:
        np.testing.assert_array_equal(masked.sums[name], plain.sums[name])


@given(st.lists(st.integers(-(2**52), 2**52), min_size=1, max_size=9), st.integers(-30, 60))
def test_integers_and_back(values, bits):
    found = np.ldexp(np.array(values, float), -bits)
    np.testing.assert_array_equal(floats(integers(found, bits, 2), bits), found)


def test_what_is_on_the_grid_stays():
    value = rounded(np.random.default_rng(0).normal(size=100), 34)
    np.testing.assert_array_equal(rounded(value, 34), value)
    np.testing.assert_array_equal(value * 2.0**34, np.rint(value * 2.0**34))


def test_the_coordinators_view_of_one_site_is_uniform():
    """Bytes of masked replies over many questions, of a site whose sums are all zero."""
    own = {name: Reply(1, {"n": np.zeros(()), "psi": np.zeros((2, 3))}) for name in "abc"}
    asker, sites, roster = federation(own)
    opened = open_session(asker.ask, roster)
    seen = [
        sites["b"]("sums", replace(question(k), session=opened.session)).values for k in range(2000)
    ]
    for place in range(8):
        counts = np.bincount(np.stack(seen).view(np.uint8)[:, place::8].ravel(), minlength=256)
        assert chisquare(counts).pvalue > 1e-4


def test_chi_square_would_see_an_unmasked_reply():
    values = np.stack([integers(np.full(7, 0.25), 34, 3) for _ in range(2000)])
    assert chisquare(np.bincount(values.view(np.uint8).ravel(), minlength=256)).pvalue < 1e-9


def test_the_same_question_has_the_same_reply_and_another_one_others():
    own = replies(3)
    asker, sites, roster = federation(own)
    opened = open_session(asker.ask, roster)
    ask = partial(replace, session=opened.session)
    first, again = (sites["site 000"]("sums", ask(question(1))) for _ in range(2))
    np.testing.assert_array_equal(first.values, again.values)
    assert first.signature == again.signature
    later = sites["site 000"]("sums", ask(question(2)))
    assert not (first.values == later.values).any()
    other = sites["site 000"]("moments", ask(question(1)))
    assert not (first.values == other.values).any()


def test_a_second_question_of_the_same_round_is_refused():
    asker, _, roster = federation(replies(3))
    opened = open_session(asker.ask, roster)
    total(asker.ask, opened, question(1))
    with pytest.raises(FederationError, match="a round is asked once"):
        total(asker.ask, opened, question(1, w=0.5))


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
            "altered, replayed or swapped",
        ),
        (lambda old, now: {**now, "site 001": old["site 001"]}, "late or swapped"),
        (
            lambda old, now: {**now, "site 001": replace(old["site 001"], round=2)},
            "altered, replayed or swapped",
        ),
        (
            lambda old, now: {**now, "site 000": now["site 001"], "site 001": now["site 000"]},
            "late or swapped",
        ),
        (
            lambda old, now: {**now, "site 001": replace(now["site 000"], site="site 001")},
            "altered, replayed or swapped",
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
    asker, _, roster = federation(replies(2))
    opened = open_session(asker.ask, roster)
    asked = replace(question(1), session=opened.session)
    old = asker.engine.exchange("sums", asked, asker.keys)
    asker.engine = Tamper(asker.engine, lambda step, payload, now: change(old, now))
    with pytest.raises(FederationError, match=sentence):
        total(asker.ask, opened, question(2))


def test_a_lying_coordinator_cannot_swap_a_masking_key():
    """It stands between two sites with a key of its own, signed with a key of its own."""
    asker, sites, roster = federation(replies(2))
    mallory = Identity("site 001", new_identity("x").secret)
    with pytest.raises(FederationError, match="somebody may stand in between"):
        sites["site 000"]("keys", Invitation("one", {**roster, "site 001": mallory.public}))

    def swap(step, payload, now):
        if step != "keys":
            return now
        own = {k: replace(v, public="11" * 32) for k, v in now.items() if k == "site 001"}
        return {**now, **own}

    asker.engine = Tamper(asker.engine, swap)
    with pytest.raises(FederationError, match="not signed with its key"):
        open_session(asker.ask, roster)
    # and where the coordinator itself swaps it, the site finds out
    engine = Tamper(InProcess(sites), swap)
    offers = engine.exchange("keys", Invitation("two", roster), engine.clients(), inf)
    with pytest.raises(FederationError, match="not signed with its key"):
        sites["site 000"]("agree", Agreement("two", tuple(offers.values())))


def test_a_replayed_masking_key_is_refused():
    _, sites, roster = federation(replies(2))

    old, now = (
        InProcess(sites).exchange("keys", Invitation(name, roster), sorted(sites))
        for name in ("one", "two")
    )
    with pytest.raises(FederationError, match="another session"):
        sites["site 000"]("agree", Agreement("two", (now["site 000"], old["site 001"])))
    with pytest.raises(FederationError, match="not those of the session's sites"):
        sites["site 000"]("agree", Agreement("two", (now["site 000"], now["site 000"])))


def test_a_secure_site_answers_nothing_in_the_open():
    _, sites, _ = federation(replies(2))
    for step in ("sums", "census", "centres", "decisions"):
        with pytest.raises(FederationError, match="masked sums only"):
            sites["site 000"](step, question())
    with pytest.raises(FederationError, match="knows no session"):
        sites["site 000"]("sums", replace(question(), session="unknown"))


def test_fewer_sites_than_are_pinned_are_refused_unless_allowed():
    own = replies(3)
    asker, sites, roster = federation(own)
    asker.keys = ("site 000", "site 001")
    fewer = {k: v for k, v in roster.items() if k != "site 002"}
    with pytest.raises(FederationError, match="'site 002' is missing"):
        open_session(asker.ask, fewer)
    for site in sites.values():
        site.may_drop = True
    found = total(asker.ask, open_session(asker.ask, fewer), question())
    plain = add_up([own["site 000"], own["site 001"]])
    np.testing.assert_array_equal(found.sums["psi_g"], plain.sums["psi_g"])


def test_bad_lists_are_refused_in_a_sentence():
    one, two = new_identity("one"), new_identity("two")
    with pytest.raises(SettingsError, match="'one' and 'two' have one and the same key"):
        check_roster({"one": one.public, "two": one.public}, 2)
    with pytest.raises(SettingsError, match="a total of 1 site is not shown"):
        check_roster({"one": one.public}, 2)
    with pytest.raises(SettingsError, match="not 64 hexadecimal digits"):
        check_roster({"one": "zz", "two": two.public}, 2)
    with pytest.raises(FederationError, match="not on the list"):
        SecureSite(one, {"two": two.public, "three": new_identity("three").public}, at)


def test_sums_that_could_overflow_or_leave_the_grid_are_refused():
    with pytest.raises(FederationError, match="could pass 2\\^63"):
        integers(np.array([2.0**62]), 0, 2)
    with pytest.raises(FederationError, match="not on the agreed grid"):
        integers(np.array([0.3]), 2, 2)
    with pytest.raises(SettingsError, match="would not fit in 64 bits"):
        base_bits(2**40)


def test_sessions_outlive_a_restart(tmp_path):
    own = replies(2)
    asker, sites, roster = federation(own)
    path = tmp_path / "sessions.json"
    sites["site 000"].path = path
    opened = open_session(asker.ask, roster)
    ask = replace(question(), session=opened.session)
    before = sites["site 000"]("sums", ask)
    assert path.stat().st_mode & 0o077 == 0
    again = SecureSite(sites["site 000"].identity, roster, sites["site 000"].answer, path=path)
    np.testing.assert_array_equal(again("sums", ask).values, before.values)
    with pytest.raises(FederationError, match="a round is asked once"):
        again("sums", replace(question(1, w=0.5), session=opened.session))
    path.write_text("{")
    with pytest.raises(FederationError, match="is damaged"):
        SecureSite(again.identity, roster, again.answer, path=path)


def test_messages_of_a_session_survive_the_wire():
    asker, sites, roster = federation(replies(2))
    opened = open_session(asker.ask, roster)
    ask = unpack(pack(replace(question(), session=opened.session)))
    assert ask.session == opened.session
    answer = sites["site 000"]("sums", ask)
    back = unpack(pack(answer))
    np.testing.assert_array_equal(back.values, answer.values)
    assert (back.site, back.round, back.signature) == (answer.site, answer.round, answer.signature)
    assert question_digest("sums", ask, b"") == question_digest(
        "sums", replace(question(), session=opened.session), b""
    )
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


def test_keystreams_differ_by_secret_session_and_question():
    def stream(secret, salt, asked):
        out = bytearray(4 * 8 + BLOCK)
        keystream(secret, salt, asked, bytes(4 * 8), out)
        return bytes(out[:32])

    streams = [
        stream(secret, salt, asked)
        for secret in (b"1" * 32, b"2" * 32)
        for salt in (b"a", b"b")
        for asked in (b"x", b"y")
    ]
    assert len(set(streams)) == 8
