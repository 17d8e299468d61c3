"""A site's process: its key and its one file, or a sentence."""

import os
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")
from agnosticfair.deploy.node import load_key, read_site
from agnosticfair.errors import SettingsError


def test_a_key_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "keys" / "north"
    load_key(path, "north")
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="others can read"):
        load_key(path, "north")
    path.chmod(0o600)
    path.write_text("no key")
    with pytest.raises(SettingsError, match="no key of this version"):
        load_key(path, "north")


def test_a_key_is_its_owners_alone_from_its_first_moment(tmp_path, monkeypatch):
    """Outside of keys/, as packaged, it was 0644 until a chmod came."""
    from agnosticfair.deploy import node

    modes, opened = [], os.open

    def watched(path, flags, mode=0o777, **more):
        modes.append((Path(path).name, mode))
        return opened(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watched)
    node.load_key(tmp_path / "north", "north")
    assert [mode for _, mode in modes] == [0o600, 0o644]
    assert (tmp_path / "north").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_no_sites_file_is_told(tmp_path, call):
    code, _, err = call("deploy", "site", tmp_path / "none.toml")
    assert (code, "version (FileNotFoundError)" in err) == (2, True)
    (tmp_path / "bad.toml").write_text("[coordinator]\n")
    with pytest.raises(SettingsError, match=r"version.*'here'"):
        read_site(tmp_path / "bad.toml")
