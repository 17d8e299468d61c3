"""The folder of a federation of sites: its settings, TLS files for a test, keys, a file per site, start scripts.

Everything in it is plain text that a person can read; what is secret is readable by its owner only. It
can be moved: paths in it are taken from where the folder is.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agnosticfair.data.files import Roles
from agnosticfair.data.storage import write_atomically
from agnosticfair.deploy.masking import KEEPERS_KEY, LIST, keeper_of, masking_files
from agnosticfair.deploy.secrets import key_pair, tls_files
from agnosticfair.errors import SettingsError, needing, plain
from agnosticfair.mathematics.basis import check_seed
from agnosticfair.methods import method
from agnosticfair.protocol.secure.keys import relays
from agnosticfair.server.plan import consents
from agnosticfair.settings import DEFAULT, from_config, to_config
from agnosticfair.site.policy import FOLDS, MIN_ROWS

SETTINGS, SCHEMA, RELAYS = "federation.toml", "schema.json", "relays"
RESERVED = ("masking", "check")
"""Names that no site can have: keys/masking.json, and a run that trains nothing."""

LISTS = ("numeric", "categorical", "drop", "subgroups")


@dataclass(frozen=True)
class Federation:
    """sites: each site's key and file, NAME@RELAY below a relay.  run: the values of the fit (method, seed, deadline,
    ...).  secure: masked sums.  schema: the text of a file that all sites agree on, or none.  relays: the host and port
    of each."""

    sites: Mapping[str, Path]
    roles: Roles
    run: Mapping[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8000
    min_rows: int = 10
    secure: bool = True
    schema: str = ""
    relays: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.sites:
            raise SettingsError("there are no sites: name each as NAME=FILE")
        for key, file in self.sites.items():
            check_site(key, file)
        self._check_places()
        if self.min_rows < 1:
            raise SettingsError(f"min-rows is {self.min_rows}: give one or more")
        if not float(self.run.get("deadline", 1.0)) > 0:
            raise SettingsError(f"deadline is {self.run['deadline']}: give seconds, more than none")
        check_seed(int(self.run.get("seed", 0)))
        for (
            name
        ) in self.roles.all_names():  # in lists names have commas between, and texts are quoted
            if re.search('[,"]', name) or not name.isprintable():
                raise SettingsError(f"column {name!r}: rename it without comma and quotation mark")
        if self.run.get("epsilon") and not (self.secure and self.schema):
            raise SettingsError(
                "privacy by --epsilon needs secure sums and --schema: ranges and categories taken from rows would show "
                "some of them"
            )
        if self.run.get("epsilon") and self.run.get("on-failure") == "drop":
            raise SettingsError(
                "privacy by --epsilon and --on-failure drop do not go together: a total without a site, taken from a "
                "total with it, would have that site's share of the noise alone; take wait, retry or stop"
            )
        if self.secure:
            check_hidden(len(self.sites), self.run)
            self._check_schema()

    @property
    def clients(self) -> dict[str, list[str]]:
        """Who is connected to the coordinator, each with the sites that it speaks for."""
        return relays(self.sites)

    def _check_places(self) -> None:
        """Raise unless every address can be one, and every relay has sites, and sites below it only."""
        for host, port in ((self.host, self.port), *self.relays.values()):
            if not re.fullmatch(r"[A-Za-z0-9.:-]+", host):
                raise SettingsError(f"host {host!r}: give an address, or a name in ASCII")
            if not 0 < port < 65536:
                raise SettingsError(f"port {port}: name one between 1 and 65535")
        needed = {relay for relay, sites in self.clients.items() if sites != [relay]}
        if odd := sorted(needed ^ {*self.relays}):
            raise SettingsError(
                f"relay {odd[0]!r} needs a place (--relays {odd[0]}=HOST:PORT) and sites (--sites NAME@{odd[0]}=FILE)"
            )
        if both := sorted(needed & {*self.sites}):
            raise SettingsError(f"{both[0]!r} is a site and a relay: give one of them another name")
        if needed and self.run.get("epsilon"):
            raise SettingsError(
                "privacy by --epsilon and relays do not go together: a site shares its noise among all sites, and "
                "knows only some of those below other relays"
            )

    def _check_schema(self) -> None:
        """Raise where sites under masks would refuse what a run asks for, before it is begun."""
        if self.run.get("limit") and not self.schema:
            raise SettingsError(
                "a limit under masks needs --schema, for no site tells ranges and categories of half its rows: draft "
                "one by 'agnosticfair schema', or give --plain"
            )
        agreed = json.loads(self.schema) if self.schema and not self.run.get("epsilon") else {}
        if away := sorted({*agreed.get("numeric", ())} - {*agreed.get("bins", ())}):
            raise SettingsError(
                f"the schema declares no bins of {away[0]!r}, and under masks sites answer for declared bins only: add "
                "'bins' to it, which 'agnosticfair schema' drafts (an empty list for none), or give --plain"
            )


@dataclass(frozen=True)
class Settings:
    """A federation's folder as it is read.  host: by which sites reach it.  listen: the address that it takes for that.
    metrics: a file for them, if they are wanted.  columns: what the sites' files have in common.  run: what every run
    does."""

    folder: Path
    host: str
    listen: str
    port: int
    metrics: str
    columns: Mapping[str, Any]
    run: Mapping[str, Any]

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(sorted(name.strip() for name in str(self.run["sites"]).split(",")))


def check_site(key: str, file: Path | str) -> None:
    """Raise where a site's name or file cannot stand in the folder's files."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}(@[A-Za-z0-9][A-Za-z0-9_-]{0,63})?", key):
        raise SettingsError(
            f"site {plain(key, 80)!r}: use letters, digits, '-' and '_' in its name, 64 of them at most, '-' not first"
        )
    if {*key.lower().split("@")} & {*RESERVED}:
        raise SettingsError(
            f"site {key!r}: files of the coordinator have this name; choose another"
        )
    if '"' in str(file) or not str(file).isprintable():
        raise SettingsError(f"file {str(file)!r} of site {key!r}: rename it without quotation mark")


def check_hidden(count: int, run: Mapping[str, Any]) -> None:
    """Raise where secure sums would have no two sites to add up."""
    if count < 2:
        raise SettingsError(
            "secure sums hide one site among others, and there would be one: name at least two, or give --plain"
        )
    if run.get("on-failure") == "drop" and int(run.get("min-sites") or 2) < 2:
        raise SettingsError(
            f"min-sites is {run['min-sites']}, and a total of one site is that site's own sums: give two or more, "
            "or --plain"
        )


def write_folder(folder: Path, plan: Federation) -> None:
    """Write the federation's folder, which must not be there yet."""
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingsError(f"{str(folder)!r} is not empty: name a new folder")
    settings = _planned(folder, plan)
    places = (settings, *(_below(settings, relay, plan) for relay in plan.relays))
    try:
        with needing("secure", "sites have keys and TLS certificates"):
            masks = masking_files(plan.sites) if plan.secure else {}
            for at in places:
                _write_place(at, plan, masks)
    except OSError as error:
        raise SettingsError(
            f"cannot write to {str(folder)!r}: {error.strerror}; name another folder"
        ) from None


def _write_place(settings: Settings, plan: Federation, masks: Mapping[str, str]) -> None:
    """Write what is needed where sites or relays connect to: at the coordinator, or at a relay."""
    keeper = keeper_of(masks.get(KEEPERS_KEY, ""))
    files = {SETTINGS: settings_text(settings), **tls_files(settings.host)}
    files |= {SCHEMA: plan.schema} if plan.schema else {}
    for name in (LIST, KEEPERS_KEY, *(f"{key}.mask" for key in settings.sites)):
        if name in masks and (name != KEEPERS_KEY or settings.sites == tuple(plan.clients)):
            files[f"keys/{name}"] = masks[name]
    for key in settings.sites:
        files |= client_files(settings, key, plan.sites.get(key), files["tls/ca.crt"], keeper)
        files |= {f"keys/{key}{end}": text for end, text in key_pair(key).items()}
    for private in ("keys", "tls", "state", "results"):
        (settings.folder / private).mkdir(0o700, parents=True)
    for name, text in files.items():
        write_new(settings.folder / name, text)


def _below(settings: Settings, relay: str, plan: Federation) -> Settings:
    """A relay's own folder, of which its sites know the host and port."""
    sites, (host, port) = plan.clients[relay], plan.relays[relay]
    run = {**settings.run, "sites": ",".join(sites), "min-sites": len(sites)}
    return replace(
        settings, folder=relay_folder(settings, relay), host=host, listen=host, port=port, run=run
    )


def relay_folder(settings: Settings, relay: str) -> Path:
    """Where the coordinator's folder has a relay's."""
    return settings.folder / RELAYS / relay


def _planned(folder: Path, plan: Federation) -> Settings:
    roles = plan.roles
    columns: dict[str, Any] = {
        "target": roles.target,
        "sensitive-features": ",".join(roles.sensitive_features),
    }
    columns |= {k: ",".join(getattr(roles, k)) for k in LISTS if getattr(roles, k)}
    columns["min-rows"] = plan.min_rows
    run = {
        "method": DEFAULT,
        **to_config({}),
        "seed": 0,
        "sensitive-features": ",".join(roles.sensitive_features),
        "positive": "",
        "deadline": 120.0,
        "patience": 3600.0,
        "on-failure": "wait",
        "min-sites": min_sites(len(plan.clients), str(plan.run.get("on-failure", "wait"))),
        "certify": True,
        "secure": plan.secure,
        "schema": bool(plan.schema),
        "epsilon": 0.0,
        **plan.run,
        "sites": ",".join(plan.clients),
    }
    return Settings(folder, plan.host, plan.host, plan.port, "", columns, run)


def min_sites(count: int, on_failure: str) -> int:
    """Sites that a model needs where nobody said: all, or, where sites may be dropped, more than half.

    >>> min_sites(3, "wait"), min_sites(3, "drop")
    (3, 2)
    """
    return count // 2 + 1 if on_failure == "drop" else count


def settings_text(settings: Settings) -> str:
    """The federation's own file."""
    names = ("host", "listen", "port", "metrics")
    return f"""# A federation of sites; 'agnosticfair deploy run' reads it anew for every run.

# host is the name by which sites reach this machine, listen the address that a run takes for that.
# metrics is a file for a node exporter's text collector, such as "state/run.prom"; none if it is empty.
[coordinator]
{_lines({name: getattr(settings, name) for name in names})}

[columns]
{_lines(settings.columns)}

# Empty texts and zeros are 'as the method has it'.
[run]
{_lines(settings.run)}
"""


def read_settings(folder: Path) -> Settings:
    """A federation's folder, as its own file says."""
    folder = folder.resolve()
    try:
        content = tomllib.loads((folder / SETTINGS).read_text())
        run = {name: content["run"][name] for name in ("method", "sites")} | content["run"]
        at = content["coordinator"]
        places = (str(at["host"]), str(at["listen"]), int(at["port"]), str(at.get("metrics", "")))
        return Settings(folder, *places, content["columns"], run)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{str(folder)!r} is no folder of 'deploy init' ({type(error).__name__} at {SETTINGS}): name one, or "
            "make it by 'agnosticfair deploy init'"
        ) from None


def read_config(folder: Path) -> dict[str, Any]:
    """What a run over these sites does, and where its results go."""
    settings = read_settings(folder)
    out = {"out": str(settings.folder / "results")}
    out["masking"] = str(settings.folder / "keys" / LIST) if settings.run.get("secure") else ""
    out["schema"] = str(settings.folder / SCHEMA) if settings.run.get("schema") else ""
    return {**settings.run, **out, "checkpoint": str(settings.folder / "state" / "checkpoint")}


def policy_values(settings: Settings) -> dict[str, Any]:
    """What a new site answers: no more than the run needs."""
    run = settings.run
    needs = frozenset[str]()
    if not run.get("epsilon"):
        needs = consents(method(str(run["method"]), **from_config(run)))
    drops = bool(run.get("secure")) and run.get("on-failure") == "drop"
    values: dict[str, Any] = {"min-rows": settings.columns.get("min-rows", MIN_ROWS)}
    values |= {"min-sites": max(2, int(run["min-sites"])) if drops else 2, "may-drop": drops}
    for name in ("shows_rows", "shares_site_totals", "shares_cluster_means"):
        values[name.replace("_", "-")] = name in needs
    values |= {"folds": ",".join(map(str, FOLDS)), "fold-seed": int(run.get("seed", 0))}
    return values if run.get("schema") else {**values, "columns": ""}


def client_files(
    settings: Settings, key: str, file: Path | None, authority: str, keeper: str = ""
) -> dict[str, str]:
    """The one file of a site, or of a relay, which has no rows, and a script that starts it where everything is on one
    machine.  keeper: the public key of who keeps the list of masking keys."""
    at = _lines({"address": f"{settings.host}:{settings.port}"})
    at = f'[coordinator]\n{at}\ntls-authority = """\n{authority.strip()}\n"""\n'
    here = f'[here]\nkey = "../keys/{key}"\nlog = "../state/{key}.log"\n'
    if file is None:
        start = f"# Relay {key}. Start it by: agnosticfair deploy relay {key}.toml\n"
        here += f'folder = "../{RELAYS}/{key}"\n'
        text = f"{start}\n{at}\n[relay]\n{_lines({'site': key})}\n\n{here}"
        script = _script(f"Relay {key}", f"deploy relay sites/{key}.toml")
        return {f"sites/{key}.toml": text, f"start-{key}.sh": script}
    columns = {name: v for name, v in settings.columns.items() if name != "min-rows"}
    config = {"site": key, "file": str(Path(file).resolve()), **columns}
    masks = ""
    if settings.run.get("secure"):
        config |= {"mask-keeper": keeper}
        masks = f'mask-key = "../keys/{key}.mask"\nmask-list = "../keys/{LIST}"\n'
    if settings.run.get("schema"):
        masks += f'schema = "../{SCHEMA}"\n'
    if settings.run.get("epsilon"):
        private = ("epsilon", "delta", "site-rows")
        config |= {name: settings.run[name] for name in private if name in settings.run}
    text = f"""# Site {key}. Start it by: agnosticfair deploy site {key}.toml
# Paths are taken from where this file is. A key that is not there is made at the first start.

{at}
[site]
{_lines(config)}

# What this site answers, decided by its own people: 'agnosticfair site policy {key}.toml' says it in words.
[policy]
{_lines(policy_values(settings))}

{here}{masks}"""
    start = _script(
        f"Site {key}: its file and key stay on its machine", f"deploy site sites/{key}.toml"
    )
    return {f"sites/{key}.toml": text, f"start-{key}.sh": start}


def write_new(path: Path, text: str, private: bool = False) -> None:
    """Write a file that must not be there; a secret one is its owner's alone from the start."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = path.suffix in (".pub", ".crt", ".json")
    secret = private or (path.parent.name in ("keys", "tls") and not shown)
    mode = 0o600 if secret else 0o755 if path.suffix == ".sh" else 0o644
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file, whole or not at all."""
    write_atomically({path: text.encode()}, mode)


def _lines(values: Mapping[str, Any]) -> str:
    return "\n".join(f"{key} = {_toml(value)}" for key, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _script(comment: str, command: str) -> str:
    return f"""#!/bin/sh
# {comment}.
set -eu
cd "$(dirname "$0")"
exec agnosticfair {command}
"""
