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
from dataclasses import dataclass, fields, replace
from functools import lru_cache
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
from agnosticfair.deploy.secrets import BRING, masked_site, read_key, read_key_list, take_list
from agnosticfair.errors import AgnosticFairError, DataError, FederationError, SettingsError
from agnosticfair.privacy.ledger import Ledger, PrivateSite, ledger_of
from agnosticfair.protocol.messages import (
    FORMAT,
    Agreement,
    Broadcast,
    Invitation,
    KeyList,
    digest,
    joined,
    pack,
    unpack,
)
from agnosticfair.protocol.secure.sessions import AGREE, KEYS
from agnosticfair.settings import names_of
from agnosticfair.site.guard import Quiet, guarded, refused
from agnosticfair.site.policy import FOLDS, MAX_FOLDS, SitePolicy, shown_rows
from agnosticfair.threads import one_thread

LISTS = (
    "sensitive-features",
    "numeric",
    "categorical",
    "drop",
    "subgroups",
    "allow",
    "imports",
    "columns",
)
WHOLE = {"min-rows": 1, "min-sites": 2, "fold-seed": 0, "site-rows": 0, "colluding": 1}
"""Whole numbers, with the least that each may be."""
CONSENTS = ("shows-rows", "shares-site-totals", "shares-cluster-means", "may-drop")
FILES = ("mask-key", "mask-list", "schema", "ledger")
TEXTS = ("site", "file", "target", "mask-keeper", *FILES)
NAMES = {*TEXTS, *LISTS, *WHOLE, *CONSENTS, "folds", "epsilon", "delta"}
"""What a site's file can say."""

Stamp = tuple[int, ...]


@dataclass(frozen=True)
class Site:
    """policy: as its file has it; the sites of its list and its schema are read when they are needed.  allow: the steps
    it answers.  imports: modules of its own, which make its networks known (``networks.register``).  columns: the
    features that it tells of, where it has no schema; all if none is listed.  mask_key, mask_list: files of its key and
    of all sites' public ones, where it answers in masked sums only; mask_keeper: the public key of who may change that
    list.  schema: a file that it signed off.  delta, colluding: the rest of its budget; ledger: the folder of ledgers,
    where it is not the standard place."""

    policy: SitePolicy
    file: str
    roles: Roles
    allow: tuple[str, ...] = tuple(STEPS)
    imports: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    mask_key: str = ""
    mask_list: str = ""
    mask_keeper: str = ""
    schema: str = ""
    ledger: str = ""
    delta: float = 1e-5
    colluding: int = 1

    @property
    def key(self) -> str:
        return self.policy.site


def site_of(config: Mapping[str, Any]) -> Site:
    """A site from what its file says of it; lists have commas between their names.

    >>> site_of({"site": "north", "file": "a.csv", "target": "y", "sensitive-features": "sex"}).key
    'north'
    """
    if unknown := sorted({*config} - NAMES):
        raise SettingsError(
            f"a site's file has {unknown[0]!r}, and can have {', '.join(sorted(NAMES))}: correct it, or let "
            "'agnosticfair deploy upgrade' leave out what this version does not know"
        )
    for name in ("site", "file", "target", "sensitive-features"):
        if not config.get(name):
            raise SettingsError(f'the site\'s file lacks {name!r}: add {name} = "..."')
    values = {name.replace("-", "_"): value for name, value in _checked(config).items()}
    if strange := [step for step in values["allow"] if step not in STEPS]:
        raise SettingsError(f"the site's file allows {strange[0]!r}; there are: {', '.join(STEPS)}")
    values["allow"] = values["allow"] or tuple(STEPS)
    roles = Roles(**{name: values.pop(name) for name in _fields(Roles) if name in values})
    answered = {
        name: values.pop(name) for name in _fields(SitePolicy) - {"schema"} if name in values
    }
    policy = SitePolicy(masks="mask-list" in config, **answered)
    if policy.epsilon and not (policy.masks and values.get("schema")):
        raise SettingsError(
            "privacy by epsilon needs secure sums and a schema: name mask-list and schema"
        )
    if policy.epsilon and policy.may_drop:
        raise SettingsError(
            "privacy by epsilon and may-drop do not go together: a total without a site, taken from a total with it, "
            "would have that site's share of the noise alone; take out may-drop"
        )
    return Site(policy, roles=roles, **values)


def _fields(record: type) -> set[str]:
    return {field.name for field in fields(record)}


def _checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a site's file says, each of its kind."""
    values = dict(config)
    for name, least in WHOLE.items():
        if type(value := config.get(name, least)) is not int or value < least:
            raise SettingsError(f"{name} is {value!r}: give a whole number, {least} or more")
    for name in CONSENTS:
        if not isinstance(config.get(name, False), bool):
            raise SettingsError(f"{name} is {config[name]!r}: say true or false")
    for name in LISTS:
        values[name] = names_of(str(config.get(name, "")))
    folds = names_of(str(config.get("folds", ""))) or tuple(map(str, FOLDS))
    if not all(number.isdigit() and 2 <= int(number) <= MAX_FOLDS for number in folds):
        raise SettingsError(
            f"folds is {config['folds']!r}: list numbers from 2 to {MAX_FOLDS}, for few rows lie in a fold of many"
        )
    return {**values, "folds": tuple(map(int, folds))}


def policy_of(site: Site) -> SitePolicy:
    sites = tuple(sorted(_keys(site).sites)) if site.mask_key else ()
    schema = load_schema(site.schema) if site.schema else None
    return replace(site.policy, sites=sites, schema=schema)


def _keys(site: Site) -> KeyList:
    return read_key_list(site.mask_list, site.policy.min_sites, site.mask_keeper)


def hello(config: Mapping[str, Any]) -> str:
    """Who the site is and what it runs on, as JSON."""
    site = site_of(config)
    greeting: dict[str, Any] = {"site": site.key, "format": FORMAT, "steps": site.allow}
    greeting["versions"] = versions()
    if site.mask_key:
        keys = _keys(site)
        greeting["keys"] = [keys.version, digest(keys.sites).hex()]
    return json.dumps(greeting)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """What this process runs on.  app: a digest of our own code."""
    packages = ("agnosticfair", "numpy", "scipy", "pyarrow")
    installed = {"python": platform.python_version(), **{p: version(p) for p in packages}}
    top, code = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(top.rglob("*.py")):
        code.update(joined(path.relative_to(top).as_posix().encode(), path.read_bytes()))
    return installed | {"app": code.hexdigest()[:16]}


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
        identity = read_key(Path(site.mask_key), site.key)
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

    def held(step: str, request: Any) -> Any:
        return answer(_client(site, stamps[0]), step, request)

    policy, rows = policy_of(site), ""
    handler: Callable[..., Any] = held
    if policy.epsilon:  # what is wrong with the file is told to nobody else
        ledger = Quiet(site.key, lambda *_: _ledger(site, stamps[0]))("private_plan", None)
        rows, handler = ledger.path.stem, Quiet(site.key, handler)
        handler = PrivateSite(
            site.key, handler, ledger, site.colluding, site.policy.site_rows, rows=rows
        )
    if not site.mask_key:
        return guarded(policy, handler)
    file, bins = Path(site.file), Path(site.mask_key).with_suffix(".bins")
    data = _digest(file) if file.exists() else ""
    handler = guarded(policy, handler, bins, data)
    options = {"rows": rows, "data": data}
    return masked_site(site.mask_key, site.mask_list, policy, handler, site.mask_keeper, **options)


def _ledger(site: Site, stamp: Stamp) -> Ledger:
    """The ledger of the site's rows, whatever their file is called."""
    unit, folder = (
        "site" if site.policy.site_rows else "row",
        Path(site.ledger) if site.ledger else None,
    )
    return ledger_of(_rows(site, stamp), site.policy.epsilon, site.delta, unit, folder)


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
    if site.policy.epsilon:  # whether it answers depends on no row
        return Client(site.key, brought(load_schema(site.schema), table, who))
    if site.schema:
        table = applied(load_schema(site.schema), table, who)
    else:
        table = shown_rows(table, site.columns, site.policy.min_rows)
    return Client(site.key, table)
