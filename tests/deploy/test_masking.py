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
    list_text,
    load_secret,
    masked_site,
    masking_files,
    next_list,
    read_key_list,
    read_public,
    read_secret,
    take_list,
)
from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.protocol.engines.in_process import InProcess
from agnosticfair.protocol.messages import pack, unpack
from agnosticfair.protocol.secure.keys import KEEPER, listed, new_identity
from agnosticfair.site.guard import guarded
from agnosticfair.site.policy import SitePolicy

TABLES = dealt(small_table(300, 4), 2)


def written(folder):
    for name, text in masking_files(TABLES).items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return folder


def anew(folder, key, step, payload):
    """The site as a new process has it: nothing but its files."""
    policy = SitePolicy(key, tuple(sorted(TABLES)), masks=True)
    held = guarded(policy, partial(answer, Client(key, TABLES[key])))
    return masked_site(folder / f"{key}.mask", folder / LIST, policy, held)(step, payload)


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
    (folder / f"{first}.mask").chmod(0o644)
    with pytest.raises(SettingsError, match="read by others"):
        read_secret(folder / f"{first}.mask", first)
    (folder / f"{first}.mask").chmod(0o600)
    (folder / f"{first}.mask").write_text("no key")
    with pytest.raises(SettingsError, match=r"64 hexadecimal.*digits"):
        read_secret(folder / f"{first}.mask", first)
    with pytest.raises(SettingsError, match="secret key"):
        read_secret(folder / "none.mask", first)
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
        masked_site(folder / f"{first}.mask", folder / LIST, SitePolicy(second), answer)


def keeper(folder):
    return read_secret(folder / "masking.key", KEEPER).public


def test_a_site_takes_a_later_list_of_its_keeper_and_no_other(tmp_path):
    folder = written(tmp_path)
    first = sorted(TABLES)[0]
    identity, held = read_secret(folder / f"{first}.mask", first), folder / "held.json"
    held.write_text((folder / LIST).read_text())
    west = new_identity("west").public
    later = next_list(folder, lambda sites: {**sites, "west": west})
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
    without = next_list(folder, lambda sites: {k: v for k, v in sites.items() if k != first})
    with pytest.raises(SettingsError, match="does not"):
        take_list(held, identity, keeper(folder), without)
    assert unpack(pack(later)) == later


def test_a_list_is_changed_by_its_keeper_only(tmp_path):
    folder = written(tmp_path)
    (folder / "masking.key").unlink()
    with pytest.raises(SettingsError, match="this change"):
        next_list(folder, lambda sites: sites)


def test_a_site_makes_its_own_masking_key_and_says_where_to_send_it(tmp_path, capsys):
    identity = load_secret(tmp_path / "keys" / "north.mask", "north")
    assert "north.mask" in capsys.readouterr().out
    assert read_public(tmp_path / "keys" / "north.mask.pub") == identity.public
    assert (tmp_path / "keys" / "north.mask").stat().st_mode & 0o077 == 0
    assert load_secret(tmp_path / "keys" / "north.mask", "north") == identity
    with pytest.raises(SettingsError, match="cannot read"):
        read_public(tmp_path / "none")
    (tmp_path / "odd").write_text("no key")
    with pytest.raises(SettingsError, match="public masking key"):
        read_public(tmp_path / "odd")
