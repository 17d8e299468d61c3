"""Keys in files, and a site that outlives its process between two questions."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from helpers import dealt, small_table

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.deploy.secrets import (
    LIST,
    first_list,
    identity,
    key_pair,
    list_text,
    masked_site,
    masking_key,
    next_list,
    read_key,
    read_key_list,
    take_list,
)
from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.protocol.engines.seam import InProcess
from agnosticfair.protocol.messages import Invitation, KeyList, Offer, joined, pack, unpack
from agnosticfair.protocol.secure.keys import (
    ANSWER,
    KEEPER,
    LISTED,
    OFFER,
    check_offer,
    check_signature,
    check_signed,
    listed,
    new_identity,
    offered,
    signature,
)
from agnosticfair.site.guard import guarded
from agnosticfair.site.policy import SitePolicy

TABLES = dealt(small_table(300, 4), 2)


def written(folder):
    pairs = {key: key_pair(key) for key in TABLES}
    files, _ = first_list({key: masking_key(pair[".pub"]) for key, pair in pairs.items()})
    for name, text in (files | {key: pair[""] for key, pair in pairs.items()}).items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return folder


def anew(folder, key, step, payload):
    """The site as a new process has it: nothing but its files."""
    policy = SitePolicy(key, tuple(sorted(TABLES)), masks=True)
    held = guarded(policy, partial(answer, Client(key, TABLES[key])))
    return masked_site(folder / key, folder / LIST, policy, held)(step, payload)


def test_a_site_that_is_started_anew_for_every_request_answers_the_same(tmp_path):
    folder = written(tmp_path)
    engine = InProcess({key: partial(anew, folder, key) for key in TABLES})
    secure = fit(engine, "fairfl", positive="yes", secure=read_key_list(folder / LIST).sites)
    plain = fit(TABLES, "fairfl", positive="yes")
    np.testing.assert_array_equal(secure.model.w, plain.model.w)
    assert secure.history == plain.history
    for kept in folder.glob("*.sessions"):
        assert kept.stat().st_mode & 0o077 == 0


def test_bad_files_are_sentences(tmp_path):
    folder = written(tmp_path)
    first = sorted(TABLES)[0]
    (folder / first).chmod(0o644)
    with pytest.raises(SettingsError, match="others can read"):
        read_key(folder / first, first)
    (folder / first).chmod(0o600)
    (folder / first).write_text("no key")
    with pytest.raises(SettingsError, match="no key of this version"):
        read_key(folder / first, first)
    with pytest.raises(SettingsError, match="cannot read the key"):
        read_key(folder / "none", first)
    with pytest.raises(SettingsError, match="cannot read"):
        read_key_list(folder / "none.json")
    for content, said in (("[1]", "not a record"), ("{", "is not JSON")):
        (folder / LIST).write_text(content)
        with pytest.raises(SettingsError, match=said):
            read_key_list(folder / LIST)


def test_a_key_that_is_not_on_the_list_is_refused(tmp_path):
    folder = written(tmp_path)
    first, second = sorted(TABLES)
    with pytest.raises(FederationError, match="the list"):
        masked_site(folder / first, folder / LIST, SitePolicy(second), answer)


def keeper(folder):
    return read_key(folder / "masking.key", KEEPER).public


def test_a_site_takes_a_later_list_of_its_keeper_and_no_other(tmp_path):
    folder = written(tmp_path)
    first = sorted(TABLES)[0]
    identity, held = read_key(folder / first, first), folder / "held.json"
    held.write_text((folder / LIST).read_text())
    west = new_identity("west").public
    later, _ = next_list(folder, lambda sites: {**sites, "west": west})
    assert later.version == 2
    for forged in (
        replace(later, version=3),
        replace(later, sites={**later.sites, "west": identity.public}),
        listed(new_identity(KEEPER), 2, later.sites),
    ):
        with pytest.raises(FederationError, match="the keeper"):
            take_list(held, identity, keeper(folder), forged)
    with pytest.raises(FederationError, match="is its own"):
        take_list(held, identity, "", later)
    assert read_key_list(held).version == 1
    take_list(held, identity, keeper(folder), later)
    assert read_key_list(held) == later
    take_list(held, identity, keeper(folder), later)  # again: nothing changes
    with pytest.raises(FederationError, match="later one"):
        take_list(held, identity, keeper(folder), read_key_list(folder / LIST))
    (folder / LIST).write_text(list_text(later))
    without, _ = next_list(folder, lambda sites: {k: v for k, v in sites.items() if k != first})
    with pytest.raises(SettingsError, match="does not"):
        take_list(held, identity, keeper(folder), without)
    assert unpack(pack(later)) == later


def test_a_list_is_changed_by_its_keeper_only(tmp_path):
    folder = written(tmp_path)
    (folder / "masking.key").unlink()
    with pytest.raises(SettingsError, match="this change"):
        next_list(folder, lambda sites: sites)


def test_what_a_site_signs_for_its_connection_never_passes_for_masks_nor_the_other_way():
    """One key is used for both: whoever steers the one gets no signature for the other (SECURITY.md)."""
    pair = {name: key_pair(name) for name in ("north", "south")}
    roster = {name: masking_key(texts[".pub"]) for name, texts in pair.items()}
    north = identity(pair["north"][""], "north")
    secret = load_pem_private_key(pair["north"][""].encode(), None)
    certificate = load_pem_x509_certificate(pair["north"][".pub"].encode())
    # what a client signs in a handshake of TLS 1.3 (RFC 8446, 4.4.3), the transcript as a coordinator likes it
    values, request = np.arange(3, dtype=np.uint64), b"request"
    for transcript in (bytes(32), OFFER.ljust(32), b"\x1a" + bytes(31)):
        handshake = b" " * 64 + b"TLS 1.3, client CertificateVerify\0" + transcript
        for stolen in (secret.sign(handshake), certificate.signature):
            invitation = Invitation("s", roster)
            with pytest.raises(FederationError, match="is not signed with its key"):
                check_offer(Offer("north", "s", "0" * 64, stolen.hex()), invitation, roster)
            with pytest.raises(FederationError, match="is not signed with its key"):
                check_signature(roster, "north", stolen.hex(), request, values)
            with pytest.raises(FederationError, match="not signed by the keeper"):
                check_signed(KeyList(2, roster, stolen.hex()), roster["north"], "it")
        hostile = handshake.decode("latin1")
        names = {**roster, hostile: roster["south"]}
        signed = [
            offered(
                north, Invitation(hostile, names, hostile), bytes(range(32)), hostile
            ).signature,
            signature(north, handshake, values),
            listed(north, 1, names).signature,
        ]
        for given, content in product(signed, (handshake, certificate.tbs_certificate_bytes)):
            with pytest.raises(InvalidSignature):
                certificate.public_key().verify(bytes.fromhex(given), content)
    for purpose in (OFFER, ANSWER, LISTED):  # its length comes first: no two begin alike
        begin = joined(purpose)
        assert begin[:2] not in (b"  ", certificate.tbs_certificate_bytes[:2])
        assert sum(joined(other).startswith(begin) for other in (OFFER, ANSWER, LISTED)) == 1
