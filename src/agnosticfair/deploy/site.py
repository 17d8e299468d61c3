"""One site: its own file, the columns' roles, and what it is willing to answer.

It knows nothing of the line: a request comes in as bytes, an answer goes out as bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import platform
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agnosticfair.client.client import Client
from agnosticfair.client.steps import STEPS, answer
from agnosticfair.data.files import Roles, read_table
from agnosticfair.data.schema import applied, brought, load_schema
from agnosticfair.data.storage import write_atomically
from agnosticfair.data.table import Table
from agnosticfair.deploy.masking import BRING, masked_site, read_key_list, read_secret, take_list
from agnosticfair.errors import AgnosticFairError, DataError, FederationError, SettingsError
from agnosticfair.privacy.ledger import Ledger, ledger_of
from agnosticfair.privacy.site import PrivateSite
from agnosticfair.protocol.messages import (
    FORMAT,
    Agreement,
    Broadcast,
    Invitation,
    KeyList,
    pack,
    unpack,
)
from agnosticfair.protocol.secure.keys import digest
from agnosticfair.protocol.secure.site import AGREE, KEYS
from agnosticfair.site.guard import Quiet, guarded, refused
from agnosticfair.site.policy import FOLDS, MAX_FOLDS, MIN_ROWS, SitePolicy, shown_rows
from agnosticfair.threads import one_thread

_LISTS = ("sensitive-features", "numeric", "categorical", "drop", "subgroups", "allow", "imports")
_KEYS = ("mask-key", "mask-list", "mask-keeper")
_CONSENTS = ("shows-rows", "shares-site-totals", "shares-cluster-means")
_SECURE = (*_KEYS, "min-sites", "may-drop", "schema", "fold-seed", *_CONSENTS)
_PRIVATE = ("epsilon", "delta", "colluding", "site-rows", "ledger")
_OPTIONS = (*_SECURE, *_PRIVATE)
_NAMES = {"site", "file", "target", "min-rows", "columns", "folds", *_LISTS, *_OPTIONS}

Stamp = tuple[int, ...]


@dataclass(frozen=True)
class Site:
    """key: the site's name in the federation.  allow: the steps it answers.  min_rows: per group.
    imports: modules of its own, which make its networks known (``networks.register``).
    mask_key, mask_list: files of its secret key and
    of all sites' public ones, where it answers in masked sums only; then mask_keeper: the public key of who
    may change that list; min_sites, may_drop, shows_rows, shares_site_totals, shares_cluster_means, folds,
    fold_seed: as ``SitePolicy`` has them.  schema: a file that it signed off.  columns: the features that it tells of,
    where it has none; all if none is listed.
    epsilon, delta, colluding, site_rows: the privacy of its rows, or of itself as a whole, where it answers
    with noise only (``Budget``); ledger: the folder of ledgers, where it is not the standard place."""

    key: str
    file: str
    roles: Roles
    allow: tuple[str, ...] = tuple(STEPS)
    min_rows: int = MIN_ROWS
    imports: tuple[str, ...] = ()
    mask_key: str = ""
    mask_list: str = ""
    mask_keeper: str = ""
    min_sites: int = 2
    may_drop: bool = False
    shows_rows: bool = False
    shares_site_totals: bool = False
    shares_cluster_means: bool = False
    folds: tuple[int, ...] = FOLDS
    fold_seed: int = 0
    columns: tuple[str, ...] = ()
    schema: str = ""
    epsilon: float = 0.0
    delta: float = 1e-5
    colluding: int = 1
    site_rows: int = 0
    ledger: str = ""


def site_of(config: Mapping[str, Any]) -> Site:
    """A site from what its file says of it; lists have commas between their names.

    >>> site_of({"site": "north", "file": "a.csv", "target": "y", "sensitive-features": "sex"}).key
    'north'
    """
    if unknown := sorted({*config} - _NAMES):
        raise SettingsError(
            f"a site's file has {unknown[0]!r}; it can have: {', '.join(sorted(_NAMES))}"
        )
    for name in ("site", "file", "target", "sensitive-features"):
        if not config.get(name):
            raise SettingsError(f'the site\'s file lacks {name!r}: add {name} = "..."')
    lists: dict[str, Any] = {name: _listed(config, name) for name in _LISTS}
    allow, imports = lists.pop("allow") or tuple(STEPS), lists.pop("imports")
    if strange := [step for step in allow if step not in STEPS]:
        raise SettingsError(f"the site's file allows {strange[0]!r}; there are: {', '.join(STEPS)}")
    min_rows = config.get("min-rows", MIN_ROWS)
    if isinstance(min_rows, bool) or not isinstance(min_rows, int) or min_rows < 1:
        raise SettingsError(f"min-rows is {min_rows!r}: give a whole number, one or more")
    roles = Roles(str(config["target"]), lists.pop("sensitive-features"), **lists)
    options = {name.replace("-", "_"): config[name] for name in _OPTIONS if name in config}
    options |= _answered(config)
    if bool(options.get("mask_key")) != bool(options.get("mask_list")):
        raise SettingsError("secure sums need both mask-key and mask-list: name the two files")
    if not isinstance(fewest := options.get("min_sites", 2), int) or fewest < 2:
        raise SettingsError(f"min-sites is {fewest!r}: a total has two sites or more")
    if options.get("epsilon"):
        _check_private(options)
    return Site(
        str(config["site"]), str(config["file"]), roles, allow, min_rows, imports, **options
    )


def _check_private(settings: Mapping[str, Any]) -> None:
    """Raise where a site that answers with noise lacks what makes the noise enough."""
    if not (settings.get("mask_key") and settings.get("schema")):
        raise SettingsError(
            "privacy by epsilon needs secure sums and a schema: name mask-key, mask-list and schema"
        )
    if settings.get("may_drop"):
        raise SettingsError(
            "privacy by epsilon and may-drop do not go together: a total without a site, taken from a total with it, "
            "would have that site's share of the noise alone; take out may-drop"
        )


def _listed(config: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in str(config.get(name, "")).split(",") if word.strip())


def _answered(config: Mapping[str, Any]) -> dict[str, Any]:
    """The folds and columns that a site answers for, and its consents, if they make sense."""
    for name in (*_CONSENTS, "may-drop"):
        if not isinstance(config.get(name, False), bool):
            raise SettingsError(f"{name} is {config[name]!r}: say true or false")
    folds = _listed(config, "folds") or tuple(map(str, FOLDS))
    if not all(number.isdigit() and 2 <= int(number) <= MAX_FOLDS for number in folds):
        raise SettingsError(
            f"folds is {config['folds']!r}: list numbers from 2 to {MAX_FOLDS}, for few rows lie in a fold of many"
        )
    if type(seed := config.get("fold-seed", 0)) is not int or seed < 0:
        raise SettingsError(f"fold-seed is {seed!r}: give a whole number, 0 or more")
    return {"folds": tuple(map(int, folds)), "columns": _listed(config, "columns")}


def policy_of(site: Site) -> SitePolicy:
    """What the site answers, by its own file."""
    names = ("min_rows", "min_sites", "may_drop", "folds", "fold_seed", "site_rows", "epsilon")
    consents = (name.replace("-", "_") for name in _CONSENTS)
    values = {name: getattr(site, name) for name in (*names, *consents)}
    sites = tuple(sorted(_keys(site).sites)) if site.mask_key else ()
    schema = load_schema(site.schema) if site.schema else None
    return SitePolicy(site.key, sites, bool(site.mask_key), schema=schema, **values)


def _keys(site: Site) -> KeyList:
    return read_key_list(site.mask_list, site.min_sites, site.mask_keeper)


def hello(config: Mapping[str, Any]) -> str:
    """Who the site is and what it runs on, as JSON."""
    site = site_of(config)
    greeting: dict[str, Any] = {"site": site.key, "format": FORMAT, "steps": site.allow}
    greeting["versions"] = versions()
    if site.mask_key:
        keys = _keys(site)
        greeting["keys"] = [keys.version, digest(keys.sites).hex()]
    return json.dumps(greeting)


def versions() -> dict[str, str]:
    """What this process runs on."""
    packages = ("agnosticfair", "numpy", "scipy", "pyarrow")
    return {"python": platform.python_version(), **{p: version(p) for p in packages}}


def pin(config: Mapping[str, Any], place: Path) -> str:
    """A keyed digest of the site's rows, empty where it has none: the same as long as the rows are.  Who lacks the key,
    which is made at ``place`` and stays there, can test no guess of a row by it."""
    file = Path(site_of(config).file)
    if not file.exists():
        return ""
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically({place: secrets.token_hex(32).encode()}, 0o600)
    return _pinned(file, _stamp(str(file)), place.read_bytes())


@lru_cache(maxsize=1)
def _pinned(file: Path, stamp: Stamp, key: bytes) -> str:
    return hmac.new(key, _digest(file).encode(), "sha256").hexdigest()


def _digest(path: Path) -> str:
    """A digest of a file; of a folder, one of its Parquet files' digests."""
    if path.is_dir():
        digests = "".join(_digest(file) for file in sorted(path.glob("*.parquet")))
        return hashlib.sha256(digests.encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def respond(config: Mapping[str, Any], step: str, content: bytes) -> bytes:
    """The site's answer to a request, in the wire form; what it will not answer is an error."""
    site = site_of(config)
    begins = site.mask_key and step in (KEYS, AGREE, BRING)
    if step not in site.allow and not begins:
        raise FederationError(
            f"site {site.key!r} does not answer step {step!r}; it allows {', '.join(site.allow)}"
        )
    request = unpack(content, "the server") if content else None
    expected = (Invitation | Agreement | KeyList) if begins else (Broadcast | None)
    if not isinstance(request, expected):
        raise FederationError(f"a request came as {type(request).__name__}, not as a broadcast")
    if isinstance(request, KeyList):
        identity = read_secret(site.mask_key, site.key)
        return pack(take_list(site.mask_list, identity, site.mask_keeper, request))
    files = (site.file, site.mask_key, site.mask_list, site.schema)
    with one_thread():
        return pack(_answer(site, step, request, tuple(map(_stamp, files))))


def _answer(site: Site, step: str, request: Any, stamps: tuple[Stamp, ...]) -> Any:
    """The site's answer; where sums are hidden, what is wrong with its file is for its own log."""
    try:
        handler = _handler(site, stamps)
    except DataError as error:
        if site.mask_key:
            raise refused(site.key, step, str(error)) from None
        raise
    return handler(step, request)


def _stamp(file: str) -> Stamp:
    """Another one whenever a file, or a Parquet file of a folder, may be another one."""
    path = Path(file)
    if not (file and path.exists()):
        return ()
    subgroups = (path, *sorted(path.glob("*.parquet"))) if path.is_dir() else (path,)
    about = (subgroup.stat() for subgroup in subgroups)
    return tuple(n for a in about for n in (a.st_mtime_ns, a.st_ctime_ns, a.st_size, a.st_ino))


@lru_cache(maxsize=1)
def _handler(site: Site, stamps: tuple[Stamp, ...]) -> Callable[[str, Any], Any]:
    """Who answers for the site behind its policy: itself, or where it has keys for that, itself under masks.  stamps:
    of the site's files; with another one it is made anew."""
    handler: Callable[..., Any] = partial(_answer_held, site, stamps[0])
    policy, rows = policy_of(site), ""
    if site.epsilon:
        # what is wrong with the file is told to nobody else
        ledger = Quiet(site.key, lambda *_: _ledger(site, stamps[0]))("private_plan", None)
        rows, handler = ledger.path.stem, Quiet(site.key, handler)
        handler = PrivateSite(site.key, handler, ledger, site.colluding, site.site_rows, rows=rows)
    if not site.mask_key:
        return guarded(policy, handler)
    file, bins = Path(site.file), Path(site.mask_key).with_suffix(".bins")
    data = _digest(file) if file.exists() else ""
    handler = guarded(policy, handler, bins, data)
    options = {"rows": rows, "data": data}
    return masked_site(site.mask_key, site.mask_list, policy, handler, site.mask_keeper, **options)


def _answer_held(site: Site, stamp: Stamp, step: str, request: Any) -> Any:
    """The answer of the site's rows, which are read when the first request comes."""
    return answer(_client(site, stamp), step, request)


def _ledger(site: Site, stamp: Stamp) -> Ledger:
    """The ledger of the site's rows, whatever their file is called."""
    unit, folder = "site" if site.site_rows else "row", Path(site.ledger) if site.ledger else None
    return ledger_of(_rows(site, stamp), site.epsilon, site.delta, unit, folder)


def reason(error: Exception) -> str:
    """What may be told about an error: our own sentences, and of any other its type alone, for it
    may quote a row."""
    if isinstance(error, AgnosticFairError):
        return str(error)
    return f"{type(error).__name__} at the site: its own log says more"


@lru_cache(maxsize=1)
def _rows(site: Site, stamp: Stamp) -> Table:
    """The rows of the site's file; it is read again when it is another one."""
    return read_table(site.file, site.roles, who=f"the file of site {site.key!r}")


@lru_cache(maxsize=1)
def _client(site: Site, stamp: Stamp) -> Client:
    """The site's client; the file is read again when it is another one."""
    for name in site.imports:
        import_module(name)
    table, who = _rows(site, stamp), f"the file of site {site.key!r}"
    if site.epsilon:  # whether it answers depends on no row
        return Client(site.key, brought(load_schema(site.schema), table, who))
    if site.schema:
        table = applied(load_schema(site.schema), table, who)
    else:
        table = shown_rows(table, site.columns, site.min_rows)
    return Client(site.key, table)
