"""Keys of sites and TLS certificates of the coordinator, as text; who writes them keeps them private."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agnosticfair.errors import SettingsError

DAYS = 90
"""How long the server's TLS certificate of a test authority is good."""

AUTHORITY_DAYS = 3650
FOR_EVER = (datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))


def key_pair(site: str) -> dict[str, str]:
    """A site's private key and, ending in .pub, its public half: a TLS certificate by that very key, known by its
    bytes. It has no end, so that no clock matters; 'deploy rotate-key' ends it."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), _name(site)
    usage = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH])
    return {
        "": _private(key),
        ".pub": _pem(_signed(name, key.public_key(), name, key, FOR_EVER, usage)),
    }


def public_key(path: Path, key: str) -> str:
    """A site's public half, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        public = x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        raise SettingsError(
            f"there is no public key {str(path)!r} of site {key!r}: put the site's own there"
        ) from None
    except ValueError:
        raise SettingsError(
            f"{str(path)!r} of site {key!r} is no public key that 'deploy site' made: ask the site for its NAME.pub"
        ) from None
    return public.public_bytes(Encoding.PEM).decode()


def tls_files(host: str) -> dict[str, str]:
    """A TLS authority for a test, its key, and the server's TLS certificate by it."""
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), _name("agnosticfair test CA")
    authority = _signed(name, key.public_key(), name, key, _span(AUTHORITY_DAYS))
    files = {"tls/ca.crt": _pem(authority), "tls/ca.key": _private(key)}
    return files | renewed(host, files["tls/ca.crt"], files["tls/ca.key"])


def renewed(host: str, authority: str, authority_key: str) -> dict[str, str]:
    """A new TLS certificate and key of the server, by an authority that is there."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    issuer = x509.load_pem_x509_certificate(authority.encode())
    signer: Any = load_pem_private_key(authority_key.encode(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH])
    names = x509.SubjectAlternativeName(_hosts(host))
    by = (_name(host[:64]), key.public_key(), issuer.subject, signer, _span(DAYS))
    return {"tls/server.crt": _pem(_signed(*by, usage, names)), "tls/server.key": _private(key)}


def tls_end(tls: str) -> datetime:
    """When a TLS certificate ends."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(tls.encode()).not_valid_after_utc


def _signed(
    subject: Any, public: Any, issuer: Any, signer: Any, span: tuple[datetime, datetime], *more: Any
) -> Any:
    """A TLS certificate; one without further extensions is an authority's."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    is_ca = not more
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    certificate = (
        x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number(), *span)
        .add_extension(x509.BasicConstraints(is_ca, 0 if is_ca else None), critical=True)
        .add_extension(_usage(is_ca), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(by, critical=False)
    )
    for extension in more:
        certificate = certificate.add_extension(extension, critical=False)
    return certificate.sign(signer, hashes.SHA256())


def _span(days: int) -> tuple[datetime, datetime]:
    """From yesterday, for a site's clock may be slow, for so many days."""
    begin = datetime.now(UTC)
    return begin - timedelta(days=1), begin + timedelta(days=days)


def _name(text: str) -> Any:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _pem(tls: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return tls.public_bytes(Encoding.PEM).decode()


def _private(key: Any) -> str:
    from cryptography.hazmat.primitives import serialization as form

    pem, pkcs8 = form.Encoding.PEM, form.PrivateFormat.PKCS8
    return key.private_bytes(pem, pkcs8, form.NoEncryption()).decode()


def _usage(is_ca: bool) -> Any:
    from cryptography import x509

    signs = {"key_cert_sign": is_ca, "crl_sign": is_ca, "digital_signature": not is_ca}
    rest = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return x509.KeyUsage(**signs, **dict.fromkeys((*rest, "encipher_only", "decipher_only"), False))


def _hosts(host: str) -> tuple[Any, ...]:
    """The names the server answers to: the host, and this machine itself."""
    from cryptography import x509

    loop = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    try:
        host_name: Any = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        host_name = x509.DNSName(host)
    return loop if host_name in loop else (host_name, *loop)
