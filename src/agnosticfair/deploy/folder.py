"""The folder of a federation of sites: its settings, TLS files for a test, keys, a file per site.

Everything in it is plain text that a person can read; what is secret is readable by its owner only. It
can be moved: paths in it are taken from where the folder is.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agnosticfair.data.files import Roles
from agnosticfair.data.storage import write_atomically
from agnosticfair.deploy.secrets import LIST, first_list, key_pair, masking_key, tls_files
from agnosticfair.errors import SettingsError, plain
from agnosticfair.mathematics.basis import check_seed
from agnosticfair.methods import method
from agnosticfair.protocol.secure.keys import relays
from agnosticfair.server.plan import consents
from agnosticfair.settings import DEFAULT, from_config
from agnosticfair.site.policy import FOLDS, MIN_ROWS

SETTINGS = "federation.toml"
SCHEMA = "schema.json"
RELAYS = "relays"
RESERVED = ("masking", "check")
"""Names that no site can have: keys/masking.json, and a run that trains nothing."""

LISTS = ("numeric", "categorical", "drop", "subgroups")

RUN: dict[str, Any] = {
    "method": DEFAULT,
    "seed": 0,
    "positive": "",
    "deadline": 120.0,
    "patience": 3600.0,
    "on-failure": "wait",
    "certify": True,
}
"""What a run does unless it is said otherwise."""


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
        object.__setattr__(self, "run", {**RUN, **self.run})
        if not self.sites:
            raise SettingsError("there are no sites: name each as NAME=FILE")
        for key, file in self.sites.items():
            check_site(key, file)
        self._check_places()
        if self.min_rows < 1:
            raise SettingsError(f"min-rows is {self.min_rows}: give one or more")
        if not float(self.run["deadline"]) > 0:
            raise SettingsError(f"deadline is {self.run['deadline']}: give seconds, more than none")
        check_seed(int(self.run["seed"]))
        for name in self.roles.all_names():  # in lists names have commas between
            if re.search('[,"]', name) or not name.isprintable():
                raise SettingsError(f"column {name!r}: rename it without comma and quotation mark")
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
        """Raise where sites would refuse what a run asks for, before it is begun."""
        if self.run.get("epsilon"):
            if not (self.secure and self.schema):
                raise SettingsError(
                    "privacy by --epsilon needs secure sums and --schema: ranges and categories taken from rows would "
                    "show some of them"
                )
            if self.run["on-failure"] == "drop":
                raise SettingsError(
                    "privacy by --epsilon and --on-failure drop do not go together: a total without a site, taken from "
                    "a total with it, would have that site's share of the noise alone; take wait or stop"
                )
            return
        if not self.secure:
            return
        if self.run.get("limit") and not self.schema:
            raise SettingsError(
                "a limit under masks needs --schema, for no site tells ranges and categories of half its rows: draft "
                "one by 'agnosticfair schema', or give --plain"
            )
        agreed = json.loads(self.schema or "{}")
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
    places = [settings, *(_below(settings, relay, plan) for relay in plan.relays)]
    try:
        pairs = {key: key_pair(key) for place in places for key in place.sites}
        publics = {site: masking_key(pairs[site][".pub"]) for site in plan.sites}
        lists, keeper = first_list(publics) if plan.secure else ({}, "")
        for place in places:
            _write_place(place, plan, pairs, keeper)
            for name, text in lists.items():  # who signs the list is at the coordinator
                if name == LIST or place is settings:
                    write(place.folder / "keys" / name, text)
    except OSError as error:
        raise SettingsError(
            f"cannot write to {str(folder)!r}: {error.strerror}; name another folder"
        ) from None


def _write_place(
    settings: Settings, plan: Federation, pairs: Mapping[str, Mapping[str, str]], keeper: str
) -> None:
    """Write what is needed where sites or relays connect to: at the coordinator, or at a relay."""
    for private in ("keys", "tls", "state", "results"):
        (settings.folder / private).mkdir(0o700, parents=True)
    files = {SETTINGS: settings_text(settings), **tls_files(settings.host)}
    files |= {SCHEMA: plan.schema} if plan.schema else {}
    for key in settings.sites:
        files |= {f"keys/{key}{end}": text for end, text in pairs[key].items()}
    for name, text in files.items():
        write(settings.folder / name, text)
    for key in settings.sites:
        tables = client_tables(settings, key, plan.sites.get(key), keeper)
        write(settings.folder / "sites" / f"{key}.toml", client_text(tables))


def _below(settings: Settings, relay: str, plan: Federation) -> Settings:
    """A relay's own folder, of which its sites know the host and port."""
    sites, (host, port) = plan.clients[relay], plan.relays[relay]
    run = {**settings.run, "sites": ",".join(sites), "min-sites": len(sites)}
    folder = settings.folder / RELAYS / relay
    return replace(settings, folder=folder, host=host, listen=host, port=port, run=run)


def _planned(folder: Path, plan: Federation) -> Settings:
    roles, count = plan.roles, len(plan.clients)
    columns: dict[str, Any] = {"target": roles.target}
    for name in ("sensitive_features", *LISTS):
        if names := getattr(roles, name):
            columns[name.replace("_", "-")] = ",".join(names)
    columns["min-rows"] = plan.min_rows
    drops = plan.run["on-failure"] == "drop"
    run: dict[str, Any] = {"min-sites": count // 2 + 1 if drops else count, "secure": plan.secure}
    run |= {"schema": bool(plan.schema), **plan.run, "sites": ",".join(plan.clients)}
    return Settings(folder, plan.host, plan.host, plan.port, "", columns, run)


def settings_text(settings: Settings) -> str:
    names = ("host", "listen", "port", "metrics")
    return f"""# A federation of sites; 'agnosticfair deploy run' reads it anew for every run.

# host is the name by which sites reach this machine, listen the address that a run takes for that.
# metrics is a file for a node exporter's text collector, such as "state/run.prom"; none if it is empty.
[coordinator]
{_lines({name: getattr(settings, name) for name in names})}

[columns]
{_lines(settings.columns)}

# Every setting of the method ('agnosticfair deploy init --help') can stand here.
[run]
{_lines(settings.run)}
"""


def read_settings(folder: Path) -> Settings:
    """A federation's folder, as its own file says."""
    folder = folder.resolve()
    try:
        content = tomllib.loads((folder / SETTINGS).read_text())
        run = content["run"]
        if missing := {"method", "sites"} - run.keys():
            raise KeyError(missing)
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
    run, at = {**RUN, **settings.run}, settings.folder
    return {
        **run,
        "sensitive-features": settings.columns["sensitive-features"],
        "out": str(at / "results"),
        "checkpoint": str(at / "state" / "checkpoint"),
        "masking": str(at / "keys" / LIST) if run.get("secure") else "",
        "schema": str(at / SCHEMA) if run.get("schema") else "",
    }


def policy_values(settings: Settings) -> dict[str, Any]:
    """What a new site answers: no more than the run needs."""
    run, needs = settings.run, frozenset[str]()
    if not run.get("epsilon"):
        needs = consents(method(str(run["method"]), **from_config(run)))
    drops = bool(run.get("secure")) and run.get("on-failure") == "drop"
    values: dict[str, Any] = {"min-rows": settings.columns.get("min-rows", MIN_ROWS)}
    values |= {"min-sites": max(2, int(run["min-sites"])) if drops else 2, "may-drop": drops}
    for name in ("shows_rows", "shares_site_totals", "shares_cluster_means"):
        values[name.replace("_", "-")] = name in needs
    values |= {"folds": ",".join(map(str, FOLDS)), "fold-seed": int(run.get("seed", 0))}
    return values if run.get("schema") else {**values, "columns": ""}


def client_tables(
    settings: Settings, key: str, file: Path | None, keeper: str = ""
) -> dict[str, dict[str, Any]]:
    """What the one file of a site says, or of a relay, which has no rows.  keeper: the public key of who keeps the list
    of masking keys."""
    run, below = settings.run, settings.folder / "tls" / "ca.crt"
    at = {"address": f"{settings.host}:{settings.port}", "tls-authority": below.read_text()}
    here = {"key": f"../keys/{key}", "log": f"../state/{key}.log"}
    if file is None:
        return {
            "coordinator": at,
            "relay": {"site": key},
            "here": here | {"folder": f"../{RELAYS}/{key}"},
        }
    entry: dict[str, Any] = {"site": key, "file": str(Path(file).resolve())}
    entry |= {name: value for name, value in settings.columns.items() if name != "min-rows"}
    if run.get("secure"):
        entry["mask-keeper"], here["mask-list"] = keeper, f"../keys/{LIST}"
    if run.get("schema"):
        here["schema"] = f"../{SCHEMA}"
    if run.get("epsilon"):
        entry |= {name: run[name] for name in ("epsilon", "delta", "site-rows") if name in run}
    return {"coordinator": at, "site": entry, "policy": policy_values(settings), "here": here}


NOTES = {
    "policy": "# What this site answers, decided by its own people; 'agnosticfair site policy' says it in words.\n",
    "here": "# Paths are taken from where this file is. A key that is not there is made at the first start.\n",
}
"""Comments of a site's file, by table."""


def client_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The one file of a site or a relay, which knows no version."""
    kind = "relay" if "relay" in tables else "site"
    parts = [f"# Start it by: agnosticfair deploy {kind} {tables[kind]['site']}.toml\n"]
    parts += [
        f"{NOTES.get(name, '')}[{name}]\n{_lines(values)}\n" for name, values in tables.items()
    ]
    return "\n".join(parts)


def write(path: Path, text: str) -> None:
    """Write a file of the folder, whole or not at all; a key is its owner's alone from the start."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically({path: text.encode()}, 0o600 if path.suffix in ("", ".key") else 0o644)


def _lines(values: Mapping[str, Any]) -> str:
    return "\n".join(f"{key} = {_toml(value)}" for key, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if str(value).startswith("-----BEGIN "):
        return f'"""\n{str(value).strip()}\n"""'
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
