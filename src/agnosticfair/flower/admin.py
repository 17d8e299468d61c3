"""What a coordinator does between runs: sites come and go, keys and certificates are renewed, all is looked at."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agnosticfair.errors import SettingsError
from agnosticfair.flower import control
from agnosticfair.flower.bundle import app_hash
from agnosticfair.flower.causes import identity, read_visits, why_missing
from agnosticfair.flower.folder import (
    SETTINGS,
    Settings,
    check_site,
    read_settings,
    settings_text,
    site_files,
    write_new,
    write_whole,
)
from agnosticfair.flower.secrets import good_until, key_pair, renewed

SOON = 14
"""Days before the end of a certificate from which it is said."""


def add_site(folder: Path, key: str, file: Path) -> None:
    """A further site: its file, a key pair, and its place in the runs to come."""
    settings = read_settings(folder)
    check_site(key, file)
    if key in settings.sites:
        raise SettingsError(f"there is a site {key!r} already: choose another name")
    authority = (settings.folder / "tls" / "ca.crt").read_text()
    files = site_files(settings, key, file, authority, app_hash())
    files |= {f"keys/{key}{end}": text for end, text in key_pair().items()}
    for name, text in files.items():
        write_new(settings.folder / name, text)
    _with_sites(settings, (*settings.sites, key))


def remove_site(folder: Path, key: str) -> None:
    """A site that takes no part any more: its key is refused from now on."""
    settings = read_settings(folder)
    left = tuple(other for other in settings.sites if other != _known(settings, key))
    if not left:
        raise SettingsError(f"{key!r} is the only site: add another first")
    for name in (f"keys/{key}", f"keys/{key}.pub", f"sites/{key}.toml", f"start-{key}.sh"):
        (settings.folder / name).unlink(missing_ok=True)
    _with_sites(settings, left)


def rotate_key(folder: Path, key: str, public: Path | None = None) -> None:
    """A new key for a site, made here or sent by the site: the old one is refused from now on."""
    settings = read_settings(folder)
    _known(settings, key)
    keys = settings.folder / "keys"
    if public is not None:
        control.public_key(public, key)
        write_whole(keys / f"{key}.pub", public.read_text())
        (keys / key).unlink(missing_ok=True)
    else:
        for end, text in key_pair().items():
            write_whole(keys / f"{key}{end}", text, 0o644 if end else 0o600)
    _registered(settings)


def renew(folder: Path) -> datetime:
    """A new certificate of the server by the folder's authority; when it ends."""
    settings = read_settings(folder)
    at = settings.folder / "tls"
    if not (at / "ca.key").is_file():
        raise SettingsError(
            f"the authority's key is not in {str(at)!r}: let your own authority sign a new server.crt, and put "
            "it there with its server.key"
        )
    made = renewed(settings.host, (at / "ca.crt").read_text(), (at / "ca.key").read_text())
    write_whole(at / "server.key", made["tls/server.key"], 0o600)
    write_whole(at / "server.crt", made["tls/server.crt"])
    return good_until(made["tls/server.crt"])


def status(folder: Path) -> dict[str, Any]:
    """The SuperLink, the sites with the cause where one is missing, the run, and the certificate's end."""
    from agnosticfair.flower.runner import read_json

    settings = read_settings(folder)
    told: dict[str, Any] = {"superlink": "answers", "sites": {}, "run": None}
    end = good_until((settings.folder / "tls" / "server.crt").read_text())
    told["certificate_ends"] = end.isoformat()
    if (days := (end - datetime.now(UTC)).days) < SOON:
        told["note"] = f"the server's certificate ends in {days} days: 'agnosticfair deploy renew'"
    try:
        known = {site.name: site for site in control.known_sites(settings)}
        runs = control.active_runs(settings)
    except control.Away as error:
        return told | {"superlink": str(error)}
    keys = {k: control.public_key(settings.folder / "keys" / f"{k}.pub", k) for k in settings.sites}
    identities, visits = (
        {k: identity(held) for k, held in keys.items()},
        read_visits(settings.folder),
    )
    for key, held in keys.items():
        if key not in known or known[key].public_key != held:
            told["sites"][key] = (
                "its key is not registered yet: 'deploy run' or 'deploy check' does it"
            )
        else:
            told["sites"][key] = why_missing(visits, identities[key], identities) or "connected"
    if runs:
        progress = read_json(settings.folder / "results" / "progress.json", runs[-1])
        told["run"] = {"id": runs[-1], "round": progress.get("round", {}).get("round", 0)}
        told["run"]["waiting"] = progress.get("waiting", {})
    return told


def _known(settings: Settings, key: str) -> str:
    if key not in settings.sites:
        raise SettingsError(f"there is no site {key!r}; there are: {', '.join(settings.sites)}")
    return key


def _with_sites(settings: Settings, sites: tuple[str, ...]) -> None:
    """Write the settings with these sites; as many must take part as before, or all if all had to."""
    least = int(settings.run.get("least-sites") or len(settings.sites))
    least = len(sites) if least == len(settings.sites) else min(least, len(sites))
    run = {**settings.run, "sites": ",".join(sorted(sites)), "least-sites": least}
    changed = replace(settings, run=run)
    write_whole(settings.folder / SETTINGS, settings_text(changed))
    _registered(changed)


def _registered(settings: Settings) -> None:
    """Let a SuperLink that is up know it at once; one that is not learns it at the next run."""
    with suppress(control.Away):
        control.register(settings)
