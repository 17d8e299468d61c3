"""Keys of sites and TLS certificates of the coordinator, as text; who writes them keeps them private. And the list of
the keys of masks, and a site that answers under masks."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agnosticfair.data.storage import write_atomically
from agnosticfair.errors import SettingsError, needing
from agnosticfair.protocol.messages import KeyList, Reply, key_list
from agnosticfair.protocol.secure.keys import (
    KEEPER,
    Identity,
    Roster,
    check_newer,
    check_roster,
    check_signed,
    listed,
)
from agnosticfair.protocol.secure.sessions import SecureSite
from agnosticfair.site.policy import SitePolicy

with needing("secure", "sites have keys and TLS certificates"):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

DAYS = 90
"""How long the server's TLS certificate of a test authority is good."""

AUTHORITY_DAYS = 3650
FOR_EVER = (datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))


def key_pair(site: str) -> dict[str, str]:
    """A site's private key (Ed25519), of its connection and its masks, and ending in .pub its public half: a TLS
    certificate by that very key, known by its bytes. It has no end, so that no clock matters; 'deploy rotate-key'
    ends it."""
    key, name = Ed25519PrivateKey.generate(), _name(site)
    usage = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH])
    public = _signed(name, key.public_key(), name, key, FOR_EVER, usage)
    return {"": _private(key), ".pub": _pem(public)}


def public_key(path: Path, site: str) -> str:
    try:
        public = x509.load_pem_x509_certificate(path.read_bytes())
        public.public_key().public_bytes_raw()  # type: ignore[union-attr]
    except FileNotFoundError:
        raise SettingsError(
            f"there is no public key {str(path)!r} of site {site!r}: put the site's own there"
        ) from None
    except (ValueError, AttributeError):
        raise SettingsError(
            f"{str(path)!r} of site {site!r} is no public key that 'deploy site' made: ask the site for its NAME.pub"
        ) from None
    return public.public_bytes(form.Encoding.PEM).decode()


def masking_key(public: str) -> str:
    """The public half, in PEM, as the list of masking keys has it."""
    key: Any = x509.load_pem_x509_certificate(public.encode()).public_key()
    return str(key.public_bytes_raw().hex())


def read_key(path: Path, site: str) -> Identity:
    """A private key from its file; one that others can read is refused."""
    try:
        open_to_others, text = path.stat().st_mode & 0o077, path.read_text()
    except OSError as error:
        raise SettingsError(f"cannot read the key {str(path)!r}: {error.strerror}") from None
    if open_to_others:
        raise SettingsError(
            f"others can read the key {str(path)!r}: chmod 600 it, or make a new one"
        )
    try:
        return identity(text, site)
    except (ValueError, TypeError, AttributeError):
        raise SettingsError(
            f"{str(path)!r} is no key of this version: remove it and its .pub, and the next start makes others"
        ) from None


def identity(secret: str, site: str) -> Identity:
    """A private key, in PEM, as masks are made and lists are signed with."""
    key: Any = form.load_pem_private_key(secret.encode(), None)
    return Identity(site, key.private_bytes_raw())


def tls_files(host: str) -> dict[str, str]:
    """A TLS authority for a test, its key, and the server's TLS certificate by it."""
    key, name = Ed25519PrivateKey.generate(), _name("agnosticfair test CA")
    authority = _signed(name, key.public_key(), name, key, _span(AUTHORITY_DAYS))
    files = {"tls/ca.crt": _pem(authority), "tls/ca.key": _private(key)}
    return files | renewed(host, files["tls/ca.crt"], files["tls/ca.key"])


def renewed(host: str, authority: str, authority_key: str) -> dict[str, str]:
    """A new TLS certificate and key of the server, by an authority that is there, for the host and this machine."""
    issuer = x509.load_pem_x509_certificate(authority.encode())
    signer: Any = form.load_pem_private_key(authority_key.encode(), None)
    key = Ed25519PrivateKey.generate()
    usage = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH])
    hosts = dict.fromkeys((_host(host), _host("localhost"), _host("127.0.0.1")))
    by = (_name(host[:64]), key.public_key(), issuer.subject, signer, _span(DAYS))
    certificate = _signed(*by, usage, x509.SubjectAlternativeName(hosts))
    return {"tls/server.crt": _pem(certificate), "tls/server.key": _private(key)}


def tls_end(tls: str) -> datetime:
    return x509.load_pem_x509_certificate(tls.encode()).not_valid_after_utc


def _signed(
    subject: Any, public: Any, issuer: Any, signer: Any, span: tuple[datetime, datetime], *more: Any
) -> Any:
    """A TLS certificate; one without further extensions is an authority's."""
    is_ca = not more
    uses = {"digital_signature": not is_ca, "key_cert_sign": is_ca, "crl_sign": is_ca}
    others = "content_commitment key_encipherment data_encipherment key_agreement encipher_only decipher_only"
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    certificate = (
        x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number(), *span)
        .add_extension(x509.BasicConstraints(is_ca, 0 if is_ca else None), critical=True)
        .add_extension(x509.KeyUsage(**uses, **dict.fromkeys(others.split(), False)), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(by, critical=False)
    )
    for extension in more:
        certificate = certificate.add_extension(extension, critical=False)
    has_digest = isinstance(
        signer, Ed25519PrivateKey
    )  # an authority of one's own may have another key
    return certificate.sign(signer, None if has_digest else hashes.SHA256())


def _span(days: int) -> tuple[datetime, datetime]:
    """From yesterday, for a site's clock may be slow, for so many days."""
    begin = datetime.now(UTC)
    return begin - timedelta(days=1), begin + timedelta(days=days)


def _name(text: str) -> Any:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _host(name: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(tls: Any) -> str:
    return str(tls.public_bytes(form.Encoding.PEM).decode())


def _private(key: Any) -> str:
    pem, pkcs8 = form.Encoding.PEM, form.PrivateFormat.PKCS8
    return str(key.private_bytes(pem, pkcs8, form.NoEncryption()).decode())


LIST = "masking.json"  # all sites' public keys, of which every site holds a copy
KEEPERS_KEY = "masking.key"  # the secret key that signs it

BRING = "key_list"
"""The step that brings a site a later version of the list."""


def first_list(sites: Roster) -> tuple[dict[str, str], str]:
    """The first version of the list and the key of who keeps it, by file name, and that key's public half. Between
    organisations it is kept by somebody whom the sites trust."""
    secret = key_pair(KEEPER)[""]
    keeper = identity(secret, KEEPER)
    return {KEEPERS_KEY: secret, LIST: list_text(listed(keeper, 1, sites))}, keeper.public


def list_text(content: KeyList) -> str:
    """A list of keys as its file has it."""
    return json.dumps(vars(content), indent=1) + "\n"


def next_list(keys: Path, change: Callable[[Roster], Roster]) -> tuple[KeyList, str]:
    """The list that follows the one in a folder of keys, signed with the keeper's key that is there, and the public
    half of that."""
    if not (keys / KEEPERS_KEY).is_file():
        raise SettingsError(
            f"the key of who keeps the list, {KEEPERS_KEY!r}, is not in {str(keys)!r}: put it there for this change, "
            "for sites take no list that it did not sign"
        )
    key_list, keeper = read_key_list(keys / LIST), read_key(keys / KEEPERS_KEY, KEEPER)
    sites = change(key_list.sites)
    check_roster(sites, 2)
    return listed(keeper, key_list.version + 1, sites), keeper.public


def read_key_list(path: str | Path, min_sites: int = 2, keeper: str = "") -> KeyList:
    """The list of keys from its file; one that cannot be used is refused in a sentence.  keeper: the public key of
    who signed it, where the site has pinned one."""
    try:
        entries = key_list(json.loads(Path(path).read_text()))
    except OSError as error:
        raise SettingsError(
            f"cannot read the list of keys {str(path)!r}: {error.strerror}"
        ) from None
    except ValueError as error:
        why = "it is not JSON" if isinstance(error, json.JSONDecodeError) else str(error)
        raise SettingsError(
            f"the list of keys {str(path)!r} cannot be used ({why}): copy it again"
        ) from None
    check_roster(entries.sites, min_sites)
    if keeper:
        check_signed(entries, keeper, f"the list of keys {str(path)!r}")
    return entries


def take_list(path: str | Path, identity: Identity, keeper: str, new: KeyList) -> Reply:
    """Put a later version of the list in the place of a site's, if its keeper signed it and the site is on it."""
    if check_newer(new, read_key_list(path), keeper, identity.site):
        check_roster(new.sites, 2)
        if new.sites.get(identity.site) != identity.public:
            raise SettingsError(
                f"version {new.version} of the list of keys does not have site {identity.site!r} with the key that it "
                "holds: let the keeper put its public key there ('deploy rotate-key --public')"
            )
        write_atomically({Path(path): list_text(new).encode()}, 0o644)
    return Reply(0, {})


def masked_site(
    key: str | Path,
    keys: str | Path,
    policy: SitePolicy,
    answer: Callable[..., Any],
    keeper: str = "",
    **how: Any,
) -> SecureSite:
    """A site that answers in masked sums only; its sessions are kept beside its key, for its process may end between
    two requests.  keys: the list.  answer: behind the policy.  keeper: the public key of who keeps the list.  how: as
    ``SecureSite`` has it."""
    roster, path = read_key_list(keys, policy.min_sites, keeper).sites, Path(key)
    how |= {"may_drop": policy.may_drop, "open_steps": policy.open_steps}
    how |= {"path": path.with_suffix(".sessions")}
    return SecureSite(read_key(path, policy.site), roster, answer, policy.min_sites, **how)
