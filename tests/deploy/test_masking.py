"""Keys in files, and a site that outlives its process between two questions."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.deploy.masking import (
    LIST,
    first_list,
    list_text,
    masked_site,
    next_list,
    read_key_list,
    take_list,
)
from agnosticfair.deploy.secrets import key_pair, masking_key, read_key
from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.protocol.engines.seam import InProcess
from agnosticfair.protocol.messages import pack, unpack
from agnosticfair.protocol.secure.keys import KEEPER, listed, new_identity
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
