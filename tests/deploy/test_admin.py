"""What a coordinator does between runs: keys, sites, certificates, and a look at all of it."""

import json
import time
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from agnosticfair.data.files import Roles
from agnosticfair.deploy import admin, door, runner
from agnosticfair.deploy.folder import Federation, read_config, read_settings, write_folder
from agnosticfair.deploy.node import load_key, read_site
from agnosticfair.deploy.secrets import (
    LIST,
    masking_key,
    public_key,
    read_key,
    read_key_list,
    tls_end,
)
from agnosticfair.errors import FederationError, SettingsError


@pytest.fixture
def folder(tmp_path):
    sites = {key: Path(f"{key}.csv") for key in ("north", "south", "west")}
    plan = Federation(sites, Roles("y", ("sex",)), {"method": "fl", "on-failure": "drop"})
    write_folder(tmp_path / "bank", plan)
    return tmp_path / "bank"


def held(folder, key):
    return public_key(folder / "keys" / f"{key}.pub", key)


def test_an_old_key_is_registered_no_more(folder):
    old = held(folder, "north")
    admin.rotate_key(folder, "north")
    assert door.registered(folder)["north"] == held(folder, "north") != old
    assert (folder / "keys" / "north").stat().st_mode & 0o077 == 0


def test_a_site_sends_its_own_new_key(folder, tmp_path):
    load_key(tmp_path / "keys" / "own", "north")
    admin.rotate_key(folder, "north", tmp_path / "keys" / "own.pub")
    assert held(folder, "north") == public_key(tmp_path / "keys" / "own.pub", "north")
    assert not (folder / "keys" / "north").exists()  # the private half stays with the site
    with pytest.raises(SettingsError, match="no public key"):
        admin.rotate_key(folder, "north", folder / "federation.toml")


def test_sites_come_and_go(folder, call):
    code, out, _ = call("deploy", "add-site", folder, "east=east.csv")
    assert (code, "sites/east.toml" in out) == (0, True)
    assert read_site(folder / "sites" / "east.toml").config["sensitive-features"] == "sex"
    assert "east" in door.registered(folder)
    assert call("deploy", "remove-site", folder, "west")[0] == 0
    assert read_settings(folder).sites == ("east", "north", "south")
    assert "west" not in door.registered(folder)
    assert not [*folder.glob("*/west*")]
    code, _, err = call("deploy", "remove-site", folder, "west")
    assert (code, "there is no site 'west'" in err) == (2, True)
    code, _, err = call("deploy", "add-site", folder, "north=a.csv")
    assert (code, "site 'north'" in err) == (2, True)
    code, _, err = call("deploy", "add-site", folder, "no rth=a.csv")
    assert (code, "site 'no rth': use letters" in err) == (2, True)


def keys_of(folder):
    key_list = read_key_list(folder / "keys" / LIST)
    return key_list.version, key_list.sites


def test_the_list_of_masking_keys_follows_who_comes_and_goes(folder, call, tmp_path):
    first, before = keys_of(folder)
    assert (first, sorted(before)) == (1, ["north", "south", "west"])
    call("deploy", "add-site", folder, "east=east.csv")
    version, now = keys_of(folder)
    assert (version, sorted(now)) == (2, ["east", "north", "south", "west"])
    assert read_key(folder / "keys" / "east", "east").public == now["east"]
    config = read_site(folder / "sites" / "east.toml").config
    assert config["mask-keeper"] == read_site(folder / "sites" / "north.toml").config["mask-keeper"]
    assert config["min-sites"] == 2
    call("deploy", "remove-site", folder, "west")
    assert keys_of(folder) == (3, {k: v for k, v in now.items() if k != "west"})
    call("deploy", "rotate-key", folder, "north")
    version, now = keys_of(folder)
    assert version == 4
    assert read_key(folder / "keys" / "north", "north").public == now["north"]
    assert now["north"] != before["north"]
    assert call("deploy", "renew", folder)[0] == 0
    assert keys_of(folder) == (4, now)  # a certificate has nothing to do with it
    load_key(tmp_path / "own" / "south", "south")
    sent = ("--public", tmp_path / "own" / "south.pub")
    assert call("deploy", "rotate-key", folder, "south", *sent)[0] == 0
    assert keys_of(folder)[1]["south"] == read_key(tmp_path / "own" / "south", "south").public
    assert keys_of(folder)[1]["south"] == masking_key(held(folder, "south"))
    assert not (folder / "keys" / "south").exists()  # the secret is the site's


def test_a_list_that_cannot_follow_is_a_sentence_and_nothing_is_changed(folder, call):
    call("deploy", "remove-site", folder, "west")
    code, _, err = call("deploy", "remove-site", folder, "south")
    assert (code, "secure sums hide" in err) == (2, True)
    (folder / "keys" / "masking.key").unlink()
    for change in (("add-site", folder, "east=east.csv"), ("rotate-key", folder, "north")):
        code, _, err = call("deploy", *change)
        assert (code, "this change" in err) == (2, True)
    assert read_settings(folder).sites == ("north", "south")
    assert not [*folder.glob("*/east*")]


def test_two_sites_with_one_key_are_named(folder):
    text = (folder / "keys" / "north.pub").read_text()
    (folder / "keys" / "south.pub").write_text(text)
    with pytest.raises(SettingsError, match=r"'north'.*'south'"):
        door.registered(folder)


def test_a_certificate_is_renewed_by_the_folders_authority(folder, call):
    from cryptography import x509

    at = folder / "tls"
    before = (at / "server.crt").read_text()
    assert call("deploy", "renew", folder)[0] == 0
    after, authority = (
        x509.load_pem_x509_certificate((at / name).read_bytes())
        for name in ("server.crt", "ca.crt")
    )
    after.verify_directly_issued_by(authority)
    assert tls_end((at / "server.crt").read_text()) >= tls_end(before)
    assert (at / "server.crt").read_text() != before
    (at / "ca.key").unlink()
    code, _, err = call("deploy", "renew", folder)
    assert (code, "let your own authority sign" in err) == (2, True)


def test_status_says_that_the_tls_certificate_ends_soon(folder, call, monkeypatch):
    assert "deploy renew" not in call("deploy", "status", folder)[1]
    monkeypatch.setattr(admin, "SOON", 1000)
    assert "'agnosticfair deploy renew'" in call("deploy", "status", folder)[1]


def test_status_is_read_in_ten_seconds(folder, call, monkeypatch):
    assert call("deploy", "status", folder)[:2] == (
        0,
        f"OK\nThere was no run yet.\nTLS certificate: good until {tls_day(folder)}.\n",
    )
    sites = {"north": "connected", "south": "it has not connected", "west": "connected"}
    state = {"run": "5", "began": time.time() - 60, "ended": "", "round": {"round": 3}}
    state |= {"waiting": {}, "sites": sites, "seen": time.time()}
    place = folder / runner.STATE
    place.write_text(json.dumps(state))
    with runner.locked(read_settings(folder)):
        code, out, _ = call("deploy", "status", folder)
        assert (code, out.splitlines()[:2]) == (
            3,
            ["ATTENTION", "  site south: it has not connected"],
        )
        assert "round 3," in out
        place.write_text(json.dumps(state | {"seen": time.time() - 1000, "sites": {}}))
        assert "for 100" in call("deploy", "status", folder)[1]
    code, out, _ = call("deploy", "status", folder)  # its process is gone
    assert (code, "run 5 failed" in out) == (3, True)
    place.write_text(json.dumps(state | {"ended": "no space \x1b[2J left"}))
    code, out, _ = call("deploy", "status", folder)
    assert (code, "\x1b" in out, "run 5 failed: no space" in out) == (3, False, True)
    place.write_text(json.dumps(state | {"ended": "well"}))
    assert call("deploy", "status", folder)[0] == 0
    (folder / "tls" / "server.key").write_text((folder / "tls" / "ca.key").read_text())
    assert "cannot be used" in call("deploy", "status", folder)[1]
    (folder / "keys" / "west.pub").unlink()
    assert "of site 'west'" in call("deploy", "status", folder)[1]


def tls_day(folder):
    return tls_end((folder / "tls" / "server.crt").read_text()).date().isoformat()


def test_two_runs_at_once_are_refused_by_a_lock_that_dies_with_its_holder(folder, call):
    settings = read_settings(folder)
    with (
        runner.locked(settings),
        pytest.raises(FederationError, match=r"goes on"),
        runner.locked(settings),
    ):
        pass
    with runner.locked(settings):
        pass
    code, out, _ = call("deploy", "stop", folder)
    assert (code, "run to stop" in out) == (0, True)


def test_one_of_three_sites_is_no_success_unless_it_is_asked_for(folder, tmp_path, call):
    assert read_settings(folder).run["min-sites"] == 2
    columns = ("--target", "y", "--sensitive-features", "sex", "--on-failure", "drop")
    sites = ("--sites", "a=a.csv,b=b.csv,c=c.csv", "--min-sites", "1")
    assert call("deploy", "init", tmp_path / "one", *sites, *columns, "--plain")[0] == 0
    code, _, err = call("deploy", "init", tmp_path / "two", *sites, *columns)
    assert (code, "site's own sums" in err) == (2, True)
    assert read_settings(tmp_path / "one").run["min-sites"] == 1


def test_a_folder_that_moved_still_works(folder, tmp_path):
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    assert {*door.registered(moved)} == {"north", "south", "west"}
    assert read_site(moved / "sites" / "north.toml").key == (moved / "sites/../keys/north")
    assert read_config(moved)["out"] == str(moved / "results")


def test_a_missing_public_key_is_named_with_its_site(folder):
    (folder / "keys" / "west.pub").unlink()
    with pytest.raises(SettingsError, match=r"west\.pub.*'west'"):
        door.registered(folder)


def test_a_used_port_is_said_at_once(folder):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = (folder / "federation.toml").read_text()
        (folder / "federation.toml").write_text(text.replace("port = 8000", f"port = {port}"))
        with pytest.raises(SettingsError, match=f"{port}.*'127.0.0.1'"):
            runner.run_federation(folder)


def test_a_file_at_a_site_is_written_anew_by_itself_and_keeps_what_was_decided(folder):
    path = folder / "sites" / "north.toml"
    text = path.read_text()
    decided = text.replace("min-rows = 10", "min-rows = 30").replace(
        "[here]\n", '[here]\nmetrics = "north.prom"\n'
    )
    path.write_text(decided + '\n[older]\nword = "x"\n')
    assert admin.upgrade(path) == {path: ["[older] word"]}
    assert read_site(path).config["min-rows"] == 30
    assert read_site(path).metrics == path.parent / "north.prom"
    assert admin.upgrade(path) == {path: []}
    path.write_text(decided.replace("min-rows = 30", "min-rows = 0"))
    with pytest.raises(SettingsError, match="min-rows is 0"):
        admin.upgrade(path)
    assert "min-rows = 0" in path.read_text()  # as it was
    for text in ("x = 1", "site = ", 'x = "y"', "[here]"):
        (path.parent / "other.toml").write_text(text)
        with pytest.raises(SettingsError, match=r"other\.toml' is no site's file"):
            admin.upgrade(path.parent / "other.toml")
    assert not [*path.parent.glob("*.draft")]


def test_relays_and_their_sites_are_written_anew(tmp_path):
    sites = {f"{k}@{relay}": Path("a.csv") for relay in ("x", "y") for k in range(2)}
    places = {"x": ("127.0.0.1", 8001), "y": ("127.0.0.1", 8002)}
    plan = Federation(sites, Roles("y", ("sex",)), {"method": "fl"}, relays=places)
    write_folder(tmp_path / "bank", plan)
    files = {
        path: path.read_text() for path in (tmp_path / "bank").rglob("*.toml")
    }  # nothing has changed between the versions
    assert {*admin.upgrade(tmp_path / "bank")} == {p for p in files if p.parent.name == "sites"}
    assert {path: path.read_text() for path in files} == files
