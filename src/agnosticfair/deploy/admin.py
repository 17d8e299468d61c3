"""What a coordinator does between runs: sites come and go, keys and TLS certificates are renewed, all is looked at."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agnosticfair.deploy import runner
from agnosticfair.deploy.door import registered
from agnosticfair.deploy.folder import (
    RELAYS,
    SETTINGS,
    Settings,
    check_hidden,
    check_site,
    client_tables,
    client_text,
    read_settings,
    settings_text,
    write,
)
from agnosticfair.deploy.frames import server_tls
from agnosticfair.deploy.node import read_site
from agnosticfair.deploy.relay import read_relay
from agnosticfair.deploy.secrets import (
    LIST,
    key_pair,
    list_text,
    masking_key,
    next_list,
    public_key,
    renewed,
    tls_end,
)
from agnosticfair.deploy.site import NAMES
from agnosticfair.errors import SettingsError
from agnosticfair.protocol.secure.keys import Roster

KNOWN = {
    "coordinator": {"address", "tls-authority"},
    "site": NAMES,
    "relay": {"site"},
    "policy": NAMES,
    "here": {"key", "log", "metrics", "folder", "mask-list", "schema", "ledger"},
}
"""What the one file of a site or a relay can say in this version, by table."""

SOON = 14
"""Days before the end of a TLS certificate from which it is said."""

STUCK = 60.0
"""Seconds after which a run that writes nothing of itself is said to do nothing."""


def add_site(folder: Path, key: str, file: Path) -> None:
    """A further site: its file, a key pair, and its place in the runs to come."""
    settings = read_settings(folder)
    check_site(key, file)
    if key in settings.sites:
        raise SettingsError(f"there is a site {key!r} already: choose another name")
    pair, keeper = key_pair(key), ""
    if settings.run.get("secure"):
        keeper = _list(settings, lambda sites: {**sites, key: masking_key(pair[".pub"])})
    files = {f"sites/{key}.toml": client_text(client_tables(settings, key, file, keeper))}
    for name, text in (files | {f"keys/{key}{end}": text for end, text in pair.items()}).items():
        write(settings.folder / name, text)
    _with_sites(settings, (*settings.sites, key))


def remove_site(folder: Path, key: str) -> None:
    """A site that takes no part any more: its key is refused from now on."""
    settings = read_settings(folder)
    left = tuple(other for other in settings.sites if other != _known(settings, key))
    if not left:
        raise SettingsError(f"{key!r} is the only site: add another first")
    if settings.run.get("secure"):
        check_hidden(len(left), {})
        _list(settings, lambda sites: {k: v for k, v in sites.items() if k != key})
    files = (f"keys/{key}{end}" for end in ("", ".pub", ".sessions"))
    for name in (*files, f"sites/{key}.toml"):
        (settings.folder / name).unlink(missing_ok=True)
    _with_sites(settings, left)


def rotate_key(folder: Path, key: str, public: Path | None = None) -> None:
    """A new key for a site, made here, or by the site, which sends its public half: the old one is refused from now
    on."""
    settings = read_settings(folder)
    place = settings.folder / "keys" / _known(settings, key)
    pair = key_pair(key) if public is None else {".pub": public_key(public, key)}
    if settings.run.get("secure"):
        _list(settings, lambda sites: {**sites, key: masking_key(pair[".pub"])})
    for end in ("", ".sessions"):  # where the site made it, its private half stays there
        place.with_name(key + end).unlink(missing_ok=True)
    for end, text in pair.items():
        write(place.with_name(key + end), text)


def _list(settings: Settings, change: Callable[[Roster], Roster]) -> str:
    """Write the next version of the list of masking keys; the public key of who keeps it."""
    keys = settings.folder / "keys"
    listed, keeper = next_list(keys, change)
    write(keys / LIST, list_text(listed))
    return keeper


def renew(folder: Path) -> datetime:
    """A new TLS certificate of the server by the folder's authority; when it ends."""
    settings = read_settings(folder)
    at = settings.folder / "tls"
    if not (at / "ca.key").is_file():
        raise SettingsError(
            f"the authority's key is not in {str(at)!r}: let your own authority sign a new server.crt, and put "
            "it there with its server.key"
        )
    certificate = renewed(settings.host, (at / "ca.crt").read_text(), (at / "ca.key").read_text())
    for name, text in certificate.items():
        write(settings.folder / name, text)
    return tls_end(certificate["tls/server.crt"])


def upgrade(place: Path) -> dict[Path, list[str]]:
    """Write a folder's files of sites and relays anew for this version, or one that a site has; by file, the entries
    that this version does not know, which are left out. What a site's people decided stays."""
    if place.is_file():
        return {place: _reissue(place, {})}
    settings, done = read_settings(place), dict[Path, list[str]]()
    write(settings.folder / SETTINGS, settings_text(settings))
    for key in settings.sites:
        path, below = settings.folder / "sites" / f"{key}.toml", settings.folder / RELAYS / key
        if path.exists():
            fresh = client_tables(settings, key, None if below.is_dir() else Path())
            fresh.get("site", {}).pop("file", None)  # where its rows are, only its own file says
            done[path] = _reissue(path, fresh)
        if below.is_dir():
            done |= upgrade(below)
    return done


def _reissue(path: Path, fresh: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Write a site's file again: who the coordinator is by ``fresh``, if it says so; else what the file has, and as in
    ``fresh`` what it has not."""
    try:
        before = {table: dict(values) for table, values in tomllib.loads(path.read_text()).items()}
        tables = {
            table: {name: value for name, value in before[table].items() if name in KNOWN[table]}
            for table in before
            if table in KNOWN
        }
        for table, values in fresh.items():
            present = tables.get(table, {})
            first = {} if table == "coordinator" else present
            tables[table] = {**present, **values, **first}
        text = client_text(tables)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SettingsError(f"{str(path)!r} is no site's file ({error}): name another") from None
    draft = path.with_suffix(".draft")
    write(draft, text)
    try:
        read_relay(draft) if "relay" in tables else read_site(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return [
        f"[{table}] {name}"
        for table, values in before.items()
        for name in values
        if name not in KNOWN.get(table, ())
    ]


def status(folder: Path) -> dict[str, Any]:
    """What goes on, every site of the run with the cause where one is missing, and what wants attention."""
    settings = read_settings(folder)
    state, running = runner.read_state(settings.folder), bool(runner.holder(settings.folder))
    end = tls_end((settings.folder / "tls" / "server.crt").read_text())
    report: dict[str, Any] = {"running": running, "run": state.get("run"), "alarms": []}
    report |= {name: state.get(name) for name in ("round", "ended", "seen", "began")}
    report["sites"] = state.get("sites", {}) if running else {}
    report["tls_ends"] = end.isoformat()
    alarms = [f"site {key}: {why}" for key, why in report["sites"].items() if why != "connected"]
    if running and state and time.time() - state["seen"] > STUCK:
        alarms.append(
            f"the run has written nothing of itself for {time.time() - state['seen']:.0f} s"
        )
    if not running and state and state["ended"] != "well":
        died = "its process died; 'agnosticfair deploy run' goes on from state/checkpoint, if it left one"
        alarms.append(f"run {state['run']} failed: {state['ended'] or died}")
    if (days := (end - datetime.now(UTC)).days) < SOON:
        ends = f"ends in {days} days" if days >= 0 else "has expired"
        alarms.append(f"the TLS certificate {ends}: 'agnosticfair deploy renew'")
    try:
        server_tls(settings.folder, registered(settings.folder).values())
    except SettingsError as error:
        alarms.append(str(error))
    except OSError as error:
        alarms.append(f"tls/server.crt and server.key cannot be used ({error.strerror or error})")
    return report | {"alarms": alarms}


def _known(settings: Settings, key: str) -> str:
    if key not in settings.sites:
        raise SettingsError(f"there is no site {key!r}; there are: {', '.join(settings.sites)}")
    return key


def _with_sites(settings: Settings, sites: tuple[str, ...]) -> None:
    """Write the settings with these sites; as many must take part as before, or all if all had to."""
    min_sites = int(settings.run.get("min-sites") or len(settings.sites))
    min_sites = len(sites) if min_sites == len(settings.sites) else min(min_sites, len(sites))
    run = {**settings.run, "sites": ",".join(sorted(sites)), "min-sites": min_sites}
    write(settings.folder / SETTINGS, settings_text(replace(settings, run=run)))
